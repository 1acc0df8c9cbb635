"""MARS5's generation: a text and a voice in, codes and speech out.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, no code of it was used.
Differs from upstream: `timesteps` chooses the number of diffusion steps; a shallow clone needs no
transcript; numbers and abbreviations are spoken, and long texts cut into pieces, unless told otherwise; a
reference that is too long is refused; where a text gives no frame there is no sound instead of a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Unpack

import numpy as np

from tts_core.audio.joining import Joiner
from tts_core.audio.silence import loud_span
from tts_core.mars5.diffusion import Draws, first_noise, make_cells
from tts_core.mars5.memory import Mars5Job, check_running
from tts_core.mars5.reference import Reference, Sizes, Voice
from tts_core.mars5.request import (
    BANDWIDTH_ID,
    PIECE_SECONDS,
    STAGES,
    Item,
    Overrides,
    Request,
    choose_settings,
    for_vocoder,
    request_batch,
    request_pieces,
    request_texts,
)
from tts_core.mars5.sampling import Mars5Settings
from tts_core.mars5.sequence import CodecSequence
from tts_core.mars5.tokens import CodecPrompt, CodecVocabulary
from tts_core.nn.host import Host
from tts_core.noise import Noise
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, Meter, join


class Mars5Pipeline:
    """MARS5's two networks, of either side, with its codec, vocoder and tokenizers. Made by `load`."""

    def __init__(
        self,
        network: Any,
        transformer: Any,
        codec: Any,
        vocoder: Any,
        vocabulary: CodecVocabulary,
        *,
        extend: Callable[..., Iterator[CodecSequence]],
        diffusion: Any,
        host: Host,
    ):
        """network: the autoregressive one; transformer: the diffusion's. extend, diffusion: what a side runs
        them with (`mars5/ar_loop.py`, `mars5/reverse.py`).
        """
        self.network, self.transformer = network, transformer
        self.codec, self.vocoder, self.vocabulary = codec, vocoder, vocabulary
        self.extend, self.diffusion, self.host = extend, diffusion, host
        self.sample_rate = vocoder.sample_rate
        self.configs = {
            "mars5": network.config,
            "mars5_nar": transformer.config,
            "encodec": codec.config,
            "vocos": vocoder.config,
        }
        self.sizes = Sizes(
            codec.sample_rate,
            codec.hop_length,
            transformer.config.n_codebooks,
            codec.config.codebook_size,
        )

    def generate(
        self,
        text: str,
        *,
        prompt: Prompt | None = None,
        deep_clone: bool | None = None,
        cfg_scale: float | None = None,
        settings: Mars5Settings | None = None,
        as_written: bool = False,
        piece_seconds: float | None = PIECE_SECONDS,
        seed: int | None = None,
        noise: Noise | Sequence[Noise] | None = None,
        draws: Draws = "per cell",
        **overrides: Unpack[Overrides],
    ) -> GenerationResult:
        """Speak one text: the parts of `stream` as one result, with the same arguments and errors."""
        parts = self.stream(
            text,
            prompt=prompt,
            deep_clone=deep_clone,
            cfg_scale=cfg_scale,
            settings=settings,
            as_written=as_written,
            piece_seconds=piece_seconds,
            seed=seed,
            noise=noise,
            draws=draws,
            **overrides,
        )
        return join(list(parts))

    def stream(
        self,
        text: str,
        *,
        prompt: Prompt | None = None,
        deep_clone: bool | None = None,
        cfg_scale: float | None = None,
        settings: Mars5Settings | None = None,
        as_written: bool = False,
        piece_seconds: float | None = PIECE_SECONDS,
        seed: int | None = None,
        noise: Noise | Sequence[Noise] | None = None,
        draws: Draws = "per cell",
        **overrides: Unpack[Overrides],
    ) -> Iterator[GenerationResult]:
        """Speak one text piece by piece, each piece's sound in the vocoder's windows once it is trimmed.

        prompt: the voice; with a transcript the clone is deep, unless deep_clone says otherwise: the networks
        then read what the reference says, and go on from it.
        settings: None takes the model's defaults; its fields may also be given by name, as keyword arguments;
        cfg_scale is nar_guidance_w, 1 turns guidance off.
        as_written: do not put numbers and abbreviations into words. piece_seconds: about how long a piece of
        the text may be at most; None reads it in one.
        seed: of the first piece; the others' are derived from it. None draws one, and results tell it.
        noise replaces the seed's numbers (tts_core.noise), draws says how many of them the diffusion takes
        (tts_core.mars5.diffusion).
        codes in the results: all frames, those included whose sound was trimmed.
        Raises UsageError, at the call, for a text, voice or value that cannot be used, ResourceError for what
        would not fit into memory.
        """
        meter = Meter(self.sample_rate, STAGES)
        request = request_pieces(
            text,
            prompt,
            self.sizes,
            choose_settings(settings, cfg_scale, overrides),
            deep_clone=deep_clone,
            as_written=as_written,
            piece_seconds=piece_seconds,
            seed=seed,
            noise=noise,
            draws=draws,
        )
        self.host.reset_peak()
        with meter.stage("codec"):
            codes = self._encode(request.items[0].reference)
        return self._parts(request, codes, self._prompts(request, codes), meter)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: Voice | Sequence[Voice] = None,
        deep_clone: bool | None = None,
        cfg_scale: float | None = None,
        settings: Mars5Settings | None = None,
        as_written: bool = False,
        piece_seconds: float | None = PIECE_SECONDS,
        seed: int | Sequence[int] | None = None,
        noise: Noise | Sequence[Noise | Sequence[Noise]] | None = None,
        draws: Draws = "per cell",
        **overrides: Unpack[Overrides],
    ) -> list[GenerationResult]:
        """Speak several texts, each as `generate` speaks it alone; one after the other.

        Both networks speak a text at a time: a batch takes as long as its texts do, and no more memory than
        the longest. It checks them all, and reads each voice once, before the first is begun.
        prompts, seed, noise: one for all, or one per text. Other arguments as for `stream`. The times in a
        result are its text's, without reading voices. Raises UsageError, naming the text's place, and
        ResourceError for what would not fit into memory, before any text is spoken.
        """
        asked = request_batch(
            texts,
            prompts,
            self.sizes,
            choose_settings(settings, cfg_scale, overrides),
            deep_clone=deep_clone,
            as_written=as_written,
            piece_seconds=piece_seconds,
            seed=seed,
            noise=noise,
            draws=draws,
        )
        self.host.reset_peak()
        known, ready = dict[int, np.ndarray](), []
        for voice, request in asked:
            if id(voice) not in known:
                known[id(voice)] = self._encode(request.items[0].reference)
            codes = known[id(voice)]
            ready.append((request, codes, self._prompts(request, codes)))
        return [
            join(list(self._parts(request, codes, read, Meter(self.sample_rate, STAGES))))
            for request, codes, read in ready
        ]

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: Voice | Sequence[Voice] = None,
        *,
        deep_clone: bool | None = None,
        cfg_scale: float | None = None,
        settings: Mars5Settings | None = None,
        seed: int | Sequence[int] | None = None,
        noise: Noise | Sequence[Noise] | None = None,
        draws: Draws = "per cell",
        **overrides: Unpack[Overrides],
    ) -> list[np.ndarray]:
        """Codes of several texts, (Q, T) int32 each, the prompts' frames excluded; no waveform.

        Texts are read exactly as given, one after the other. prompts, seed and noise: one for all, or one per
        text; a bare (Q, P) array is the codes of a voice. Other arguments and errors as for `stream`.
        """
        request = request_texts(
            texts,
            prompts,
            self.sizes,
            choose_settings(settings, cfg_scale, overrides),
            deep_clone=deep_clone,
            seed=seed,
            noise=noise,
            draws=draws,
        )
        meter, known, made = Meter(self.sample_rate, STAGES), {}, []
        for item in request.items:
            if id(item.reference) not in known:
                known[id(item.reference)] = self._encode(item.reference)
            codes = known[id(item.reference)]
            prompt = item.prompt(codes, self.vocabulary, request.settings)
            frames = item.expected_frames(self.sizes.frame_rate)
            self._check_room(request, codes, prompt_ids=len(prompt.tokens), frames=frames, deep=item.deep)
            made.append(self._codes(request, item, codes, prompt, meter)[0])
        return made

    def _prompts(self, request: Request, codes: np.ndarray) -> list[CodecPrompt]:
        """What the autoregressive network reads for each piece; what has no room is refused."""
        prompts = [item.prompt(codes, self.vocabulary, request.settings) for item in request.items]
        self._check_room(
            request,
            codes,
            prompt_ids=max(len(prompt.tokens) for prompt in prompts),
            frames=max(item.expected_frames(self.sizes.frame_rate) for item in request.items),
            deep=request.items[0].deep,
        )
        return prompts

    def _parts(
        self, request: Request, codes: np.ndarray, prompts: Sequence[CodecPrompt], meter: Meter
    ) -> Iterator[GenerationResult]:
        """The speech of all pieces, joined. codes: (Q, P), the reference's."""
        joiner, hop = Joiner(self.sample_rate), self.sizes.hop_length
        tokens, segment, cut_off = 0, 0, False
        for place, (item, prompt) in enumerate(zip(request.items, prompts, strict=True)):
            last = place == len(prompts) - 1
            made, sequence = self._codes(request, item, codes, prompt, meter)
            tokens += len(sequence.generated)
            cut_off |= sequence.finish_reason == "length"
            with meter.stage("vocoder"):
                audio = self._speak(made)
            start, stop = loud_span(audio, request.settings.trim_db)
            cuts = list(self.vocoder.policy.even_cuts(made.shape[1]))
            if last and not cuts:  # nothing was said
                cuts = [(0, 0)]
            for first, end in cuts:
                whole = end == made.shape[1]
                sound = joiner.add(
                    audio[max(start, first * hop) : min(stop, end * hop)], last_of_piece=whole and not last
                )
                reason: Literal["stop", "length"] | None = None
                if last and whole:
                    sound = np.concatenate([sound, joiner.finish()])
                    reason = "length" if cut_off else "stop"
                meter.add(len(sound))
                yield meter.result(
                    sound,
                    made[:, first:end],
                    seed=request.seed,
                    token_count=tokens,
                    peak_bytes=self.host.peak_bytes(),
                    segment_idx=segment,
                    finish_reason=reason,
                )
                segment += 1

    def _codes(
        self, request: Request, item: Item, codes: np.ndarray, prompt: CodecPrompt, meter: Meter
    ) -> tuple[np.ndarray, CodecSequence]:
        """The codes of one piece, (Q, T) int32, and how the autoregressive network came to them."""
        sequence = CodecSequence(prompt, self.vocabulary, request.settings.max_len)
        deep, config = item.deep, self.transformer.config
        with meter.stage("AR"):
            for _ in self.extend(self.network, codes, sequence, request.settings, item.noise):
                pass
        first = sequence.codes()
        # a deep clone's begin with most of the reference's frames, and as many go again in front of the rest
        new = len(first) - (codes.shape[1] if deep else 0)
        if new <= 0:
            return np.zeros((config.n_output_codebooks, 0), np.int32), sequence
        self._check_room(request, codes, prompt_ids=len(prompt.tokens), frames=new, deep=deep)
        with meter.stage("NAR"):
            start = first_noise(item.noise, config.n_codebooks, len(first), config.n_classes)
            cells = make_cells(first, start, codes if deep else None, n_classes=config.n_classes)
            text = prompt.tokens[: prompt.text_tokens]
            drawn = self.diffusion.run(text, codes, cells, request.diffusion, noise=item.noise)
        return drawn[:, -new:], sequence

    def _check_room(
        self, request: Request, codes: np.ndarray, *, prompt_ids: int, frames: int, deep: bool
    ) -> None:
        """Raise ResourceError for a piece of so many ids and new frames that does not fit into memory."""
        job = Mars5Job(
            prompt_ids=prompt_ids,
            frames=frames,
            prompt_frames=codes.shape[1],
            deep=deep,
            guided=request.diffusion.guided,
            max_len=request.settings.max_len,
        )
        host = self.host
        check_running(self.configs, job, dtype=host.dtype, backend=host.backend, free=host.free_bytes())

    def _encode(self, reference: Reference) -> np.ndarray:
        if reference.codes is not None:
            return reference.codes
        assert reference.samples is not None
        return self.host.to_host(self.codec.encode(reference.samples[None], self.sizes.n_codebooks))[0]

    def _speak(self, codes: np.ndarray) -> np.ndarray:
        """(Q, T) → (L,) float32."""
        known = self.vocoder.config
        codes = for_vocoder(codes, known.n_codebooks, known.codebook_size)
        on_device = self.host.to_device(codes[None])
        audio = [np.zeros(0, np.float32)]
        for start, stop in self.vocoder.policy.even_cuts(codes.shape[1]):
            wave = self.vocoder.decode_frames(on_device, start, stop, BANDWIDTH_ID)
            audio.append(self.host.to_host(wave)[0])
        return np.concatenate(audio).astype(np.float32)
