"""MARS5's networks: autoregressive ids, diffusion, codec and vocoder of either side.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos_calls import launch_pieces
from tts_core.config import Configs
from tts_core.errors import UsageError
from tts_core.mars5.diffusion import Cells, Diffusion
from tts_core.mars5.footprint import PLAN, Mars5Job
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.reference import Sizes
from tts_core.mars5.request import BANDWIDTH_ID, STAGES, Mars5Request, for_vocoder, live, request, requests
from tts_core.mars5.tokens import CodecVocabulary
from tts_core.memory.fits import together
from tts_core.nn.beside import Pending
from tts_core.nn.calls import apart
from tts_core.nn.host import Device
from tts_core.nn.noise import Noise
from tts_core.pipeline import PromptLike
from tts_core.speaking.admission import Admission
from tts_core.speaking.live import LiveText
from tts_core.speaking.net import SIDE_BY_SIDE, Net, at_once
from tts_core.speaking.running import RunningBatch
from tts_core.speaking.speech import Run, Sound


class Mars5Net(Net):
    """MARS5's networks.

    network: autoregressive.
    diffusion: of the transformer, `mars5/reverse.py`.
    make_slots: of the network, `mars5/decoder.py`.
    """

    stages, plan = STAGES, PLAN

    def __init__(
        self,
        network: Any,
        diffusion: Any,
        codec: Any,
        vocoder: Any,
        vocabulary: CodecVocabulary,
        host: Device,
        *,
        make_slots: Callable[..., Any],
    ):
        self.network, self.diffusion, self.transformer = network, diffusion, diffusion.network
        self.codec, self.vocoder, self.vocabulary, self.host = codec, vocoder, vocabulary, host
        self.config, self.nar_config = network.config, diffusion.network.config
        self.codec_config, self.vocoder_config = codec.config, vocoder.config
        self.configs: Configs = {
            "mars5": self.config,
            "mars5_nar": self.nar_config,
            "encodec": self.codec_config,
            "vocos": self.vocoder_config,
        }
        self.sizes = Sizes.of(self.codec_config, self.nar_config)
        self.make_slots = make_slots
        self.voices = VoiceCache()

    @property
    def sample_rate(self) -> int:
        """Of the sound, in Hz."""
        return self.vocoder_config.sample_rate

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32. The latest voices are kept."""

        def encoded(recordings: Sequence[np.ndarray]) -> np.ndarray:
            codes = self.codec.encode(recordings[0][None], self.nar_config.n_codebooks)
            return self.host.to_host(codes)[0]

        return self.voices.encoded([samples], lambda ones: apart(self.host, partial(encoded, ones))).copy()

    def request(self, text: str, options: Mars5Options, prompt: PromptLike = None) -> Mars5Request:
        return request(self.sizes, self.vocabulary, text, options, prompt)

    def requests(
        self,
        texts: Sequence[str],
        options: Mars5Options,
        prompts: PromptLike | Sequence[PromptLike],
        *,
        exactly: bool = False,
    ) -> list[Mars5Request]:
        return requests(self.sizes, self.vocabulary, texts, options, prompts, exactly=exactly)

    def live(self, options: Mars5Options, prompt: PromptLike) -> LiveText:
        return live(self.sizes, self.vocabulary, options, prompt)

    def rehearsal(self) -> Mars5Request:
        """As of any model, of every network but the codec."""
        voice = np.zeros((self.sizes.n_codebooks, round(self.sizes.frame_rate)), np.int32)
        return self.request("Yes.", Mars5Options(seed=0, max_frames=16, timesteps=2), voice)

    def check_beside(self, job: Mars5Job) -> None:
        """Raise ResourceError unless a piece's stages fit beside the batch in what is free now."""
        self.plan.check_running(self.configs, job, self.host.machine(), "peak")

    def together(self, requests: Sequence[Mars5Request], most: int | None = None) -> tuple[Mars5Job, int]:
        for one in requests:
            self.check(one.job())
        places = min(sum(map(at_once, requests)), most or max(SIDE_BY_SIDE, len(requests)))
        return replace(together([one.job() for one in requests]), batch=1), places

    def longest(self, first: Mars5Request) -> Mars5Job:
        return Mars5Job(prompt_ids=1, frames=1, max_len=first.options.max_len)

    def open(
        self, places: int, job: Mars5Job | None, policy: CodecPolicy | None
    ) -> tuple[RunningBatch, Admission]:
        longest = job or Mars5Job(prompt_ids=1, frames=1)
        room = longest.max_len

        def holds(requests: Sequence[Mars5Request]) -> bool:
            *_, last = requests
            if last.options.max_len > room:
                raise UsageError(
                    f"generate_max_len_override: {last.options.max_len} ids; a running batch keeps "
                    f"{room} of each request, lower it"
                )
            return True

        admission = self.admission(places, lambda texts: replace(longest, batch=texts), holds=holds)
        return self.slots(admission.places, room), admission

    def slots(self, texts: int, room: int) -> RunningBatch:
        """Allocate a running batch of the autoregressive network for as many texts of `room` ids each."""
        lowest, end = self.vocabulary.lowest, self.vocabulary.end
        return self.make_slots(self.network, texts=texts, room=room, lowest=lowest, end=end)

    def begin(
        self, text: np.ndarray, reference: np.ndarray, cells: Cells, settings: Diffusion, noise: Noise
    ) -> Run:
        """Begin to draw all codebooks of the cells' frames. text: (N,) ids.  reference: (Q, P) codes."""
        return self.diffusion.begin(text, reference, cells, settings, noise=noise)

    def split(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Iterable[Sequence[int]]:
        return [range(len(windows))]

    def launch(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Pending[list[np.ndarray]]:
        known, cuts = self.vocoder_config, self.vocoder.policy.even_cuts
        codes = [for_vocoder(one.codes, known.n_codebooks, known.codebook_size) for one in windows]
        return launch_pieces(self.vocoder, self.host, codes, cuts, BANDWIDTH_ID)
