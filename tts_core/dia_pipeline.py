"""Dia's generation: text and prompts in, codes and speech out.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
Differs from upstream: a text is independent of its neighbours in a batch; an EOS predicted inside a prompt is
ignored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tts_core.dac import check_fits, decode_lookahead
from tts_core.dia import DiaConfig
from tts_core.dia_grid import DelayGrid
from tts_core.dia_request import PromptLike, Request, joined, make_request, prepared
from tts_core.host import Host
from tts_core.meter import Meter
from tts_core.noise import Noise
from tts_core.results import GenerationResult, Prompt, join
from tts_core.room import check_running, job_of


class Loop(Protocol):
    """A side's `dia/loop.py`."""

    def rows(self, request: Request) -> Iterator[DelayGrid]:
        """The grid of a request, filled row by row, after each."""
        ...


class DiaPipeline:
    """A Dia network, of either side, with its codec. Made by `load`."""

    def __init__(self, network: Any, codec: Any, *, loop: Loop, host: Host):
        self.network, self.codec, self.loop, self.host = network, codec, loop, host
        self.config: DiaConfig = network.config
        check_fits(codec.config, self.config.decoder_config.num_channels, self.config.eos_token_id)
        self.sample_rate = codec.sample_rate

    def generate(
        self,
        text: str,
        *,
        prompt: Prompt | None = None,
        temperature: float | None = None,
        cfg_scale: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        max_frames: int | None = None,
        seed: int | None = None,
        noise: Noise | None = None,
        last_channel_free: bool = False,
    ) -> GenerationResult:
        """Speak one text: the pieces of `stream` as one result, with the same arguments and errors."""
        pieces = self.stream(
            text,
            prompt=prompt,
            temperature=temperature,
            cfg_scale=cfg_scale,
            top_k=top_k,
            top_p=top_p,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
            last_channel_free=last_channel_free,
        )
        return join(list(pieces))

    def stream(
        self,
        text: str,
        *,
        prompt: Prompt | None = None,
        temperature: float | None = None,
        cfg_scale: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        max_frames: int | None = None,
        seed: int | None = None,
        noise: Noise | None = None,
        last_channel_free: bool = False,
    ) -> Iterator[GenerationResult]:
        """Speak one text piece by piece, each as soon as the frames that its samples depend on are known.

        A value of None is the model's default; a seed of None is drawn, and told in the results. prompt: a
        voice to continue. max_frames counts codec frames made, the prompt's excluded. noise replaces the
        seed's numbers (tts_core.noise).
        last_channel_free: see DelayGrid.
        Raises UsageError, at the call, for a text or value that cannot be used, ResourceError for
        what would not fit into memory.
        """
        started = time.perf_counter()
        request = make_request(
            self.config,
            prepared([text], [prompt], self.config.max_text_bytes),
            [prompt],
            self._encode,
            temperature=temperature,
            cfg_scale=cfg_scale,
            top_k=top_k,
            top_p=top_p,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
            last_channel_free=last_channel_free,
        )
        self._check_room(request)
        return self._pieces(request, started)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: Sequence[PromptLike] | None = None,
        temperature: float | None = None,
        cfg_scale: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        max_frames: int | Sequence[int] | None = None,
        seed: int | Sequence[int] | None = None,
        noise: Noise | Sequence[Noise] | None = None,
        last_channel_free: bool = False,
    ) -> list[GenerationResult]:
        """Speak several texts in one run of the decoder; each gives what it gives alone.

        max_frames, seed and noise: one for all, or one per text. The times in the results are the batch's.
        Raises UsageError, naming the text's place, and ResourceError for what would not fit into memory.
        """
        started = time.perf_counter()
        request = make_request(
            self.config,
            prepared(texts, prompts, self.config.max_text_bytes),
            prompts,
            self._encode,
            temperature=temperature,
            cfg_scale=cfg_scale,
            top_k=top_k,
            top_p=top_p,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
            last_channel_free=last_channel_free,
        )
        self._check_room(request)
        self.host.reset_peak()
        grid = self._run(request)
        codes = [grid.codes(item) for item in range(len(texts))]
        audio, meter = [], Meter(started, self.sample_rate)
        for item in codes:
            audio.append(self._decode(item))
            meter.add(len(audio[-1]))
        return [
            meter.result(request, grid, item, audio[item], codes[item], peak_bytes=self.host.peak_bytes())
            for item in range(len(texts))
        ]

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: Sequence[PromptLike] | None = None,
        *,
        temperature: float | None = None,
        cfg_scale: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        max_frames: int | Sequence[int] | None = None,
        seed: int | Sequence[int] | None = None,
        noise: Noise | Sequence[Noise] | None = None,
        last_channel_free: bool = False,
    ) -> list[np.ndarray]:
        """Codec codes of several texts, (Q, T) int32 each, the prompts' frames excluded; no waveform.

        Texts are read exactly as given. Arguments and errors as for `generate_batch`.
        """
        request = make_request(
            self.config,
            joined(texts, prompts),
            prompts,
            self._encode,
            temperature=temperature,
            cfg_scale=cfg_scale,
            top_k=top_k,
            top_p=top_p,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
            last_channel_free=last_channel_free,
        )
        self._check_room(request)
        grid = self._run(request)
        return [grid.codes(item) for item in range(len(texts))]

    def _check_room(self, request: Request) -> None:
        check_running(
            self.config,
            self.codec.config,
            job_of(request),
            dtype=self.host.dtype,
            backend=self.host.backend,
            free=self.host.free_bytes(),
            policy=self.codec.policy,
        )

    def _pieces(self, request: Request, started: float) -> Iterator[GenerationResult]:
        """Cut one text's speech on the codec's absolute grid, so that the pieces join to the whole
        exactly.
        """
        self.host.reset_peak()
        meter = Meter(started, self.sample_rate)
        lookahead = decode_lookahead(self.codec.config)
        made, segment = 0, 0
        for grid in self.loop.rows(request):
            known = grid.frames(0)
            ready = known if grid.done else known - lookahead
            cuts = [cut for cut in self.codec.policy.decode_cuts(known) if made < cut[1] <= ready]
            if grid.done and not cuts:  # nothing is left, or nothing was said
                cuts = [(known, known)]
            codes = grid.codes(0)
            for start, stop in cuts:
                audio = self._decode_frames(codes, start, stop)
                meter.add(len(audio))
                yield meter.result(
                    request,
                    grid,
                    0,
                    audio,
                    codes[:, start:stop],
                    peak_bytes=self.host.peak_bytes(),
                    segment_idx=segment,
                    is_final_chunk=grid.done and stop == known,
                )
                made, segment = stop, segment + 1

    def _run(self, request: Request) -> DelayGrid:
        for grid in self.loop.rows(request):
            if grid.done:
                return grid
        raise AssertionError("a grid ends at max_frames at the latest")

    def _encode(self, samples: np.ndarray) -> np.ndarray:
        return self.host.to_host(self.codec.encode(samples[None]))[0]

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        return self.host.to_host(self.codec.decode(codes[None]))[0].astype(np.float32)

    def _decode_frames(self, codes: np.ndarray, start: int, stop: int) -> np.ndarray:
        if start == stop:
            return np.zeros(0, np.float32)
        audio = self.codec.decode_frames(self.host.to_device(codes[None]), start, stop)
        return self.host.to_host(audio)[0].astype(np.float32)
