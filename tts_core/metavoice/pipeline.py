"""MetaVoice's generation: a text and a voice in, codes and speech out.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
Differs from upstream: seeds work; a long text is read in pieces, each with its own random numbers, and none
is cut without a word; numbers and abbreviations are spoken unless told otherwise; codes of the second stage
are read by their places; Vocos makes the wave unless multi-band diffusion is asked for; nothing is denoised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np

from tts_core.audio.joining import Joiner
from tts_core.audio.joining import join as join_waves
from tts_core.audio.loudness import normalize_loudness
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import UsageError
from tts_core.metavoice.memory import MetaVoiceJob, check_running
from tts_core.metavoice.request import (
    PIECE_CHARACTERS,
    STAGES,
    CfgScale,
    Decoder,
    Piece,
    Said,
    Speech,
    SpeechNoise,
    Voice,
    as_vector,
    check_decoder,
    choose_sampling,
    each,
    request_speech,
    request_texts,
    utterances,
)
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.metavoice.speaker_cache import SpeakerCache
from tts_core.metavoice.text import Tokenizers
from tts_core.nn.host import Host
from tts_core.results import GenerationResult, Meter, join, real_time_factor

BATCH = 8  # pieces side by side


class WaveDecoder(Protocol):
    """Codes to waves: a side's `VocosDecoder` or `DiffusionDecoder`."""

    def decode(self, codes: Sequence[np.ndarray], noise: Sequence[SpeechNoise]) -> list[np.ndarray]:
        """(Q, F) of each piece → (L,) float32 samples each."""
        ...


class MetaVoicePipeline:
    """MetaVoice's networks, of either side, with their tokenizers, a cache of voices and decoders by name.

    Made by `load`.
    """

    def __init__(
        self,
        network: Any,
        second_stage: Any,
        speaker_encoder: Any,
        tokenizers: Tokenizers,
        voices: SpeakerCache,
        decoders: Mapping[str, WaveDecoder],
        configs: Mapping[str, Any],
        *,
        generate_tokens: Callable[..., list[np.ndarray]],
        fill_codebooks: Callable[..., np.ndarray],
        host: Host,
    ):
        """network: the first stage. configs: of all parts, by kind. generate_tokens, fill_codebooks: what a
        side runs the two stages with (`metavoice/first_stage_loop.py`, `metavoice/codes.py`).
        """
        self.network, self.second_stage, self.speaker_encoder = network, second_stage, speaker_encoder
        self.tokenizers, self.voices, self.decoders = tokenizers, voices, decoders
        self.configs, self.sample_rate = configs, int(configs["vocos"].sample_rate)
        self.generate_tokens, self.fill_codebooks, self.host = generate_tokens, fill_codebooks, host
        self.policy = CodecPolicy()  # the windows in which a stream gives a piece

    def generate(
        self,
        text: str,
        *,
        prompt: Voice | None = None,
        cfg_scale: CfgScale | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        decoder: Decoder = "vocos",
        as_written: bool = False,
        piece_characters: int | None = PIECE_CHARACTERS,
        max_frames: int | None = None,
        seed: int | None = None,
        noise: SpeechNoise | Sequence[SpeechNoise] | None = None,
    ) -> GenerationResult:
        """Speak one text: the parts of `stream` as one result, with the same arguments and errors."""
        parts = self.stream(
            text,
            prompt=prompt,
            cfg_scale=cfg_scale,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            decoder=decoder,
            as_written=as_written,
            piece_characters=piece_characters,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
        )
        return join(list(parts))

    def stream(
        self,
        text: str,
        *,
        prompt: Voice | None = None,
        cfg_scale: CfgScale | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        decoder: Decoder = "vocos",
        as_written: bool = False,
        piece_characters: int | None = PIECE_CHARACTERS,
        max_frames: int | None = None,
        seed: int | None = None,
        noise: SpeechNoise | Sequence[SpeechNoise] | None = None,
    ) -> Iterator[GenerationResult]:
        """Speak one text, each piece of it as soon as it is made: brought to -14 LUFS, in windows.

        prompt: the voice: a recording at `sample_rate`, several of them, or a vector that `speaker` made.
        cfg_scale: guidance on the speaker, None is 3, 1 turns it off; or a pair, on speaker and text, which
        takes the rule of upstream's slow inference. temperature, top_k, top_p: None is the model's 1, all
        and 0.95.
        as_written: do not put numbers and abbreviations into words. piece_characters: how long a piece of the
        text may be at most, where the model's window holds so much speech; None reads it in one.
        max_frames: of all pieces together. seed: of the first piece; the others' are derived from it. None
        draws one, and results tell it. noise replaces the seed's numbers, one source, or one a piece.
        Raises UsageError, at the call, for a text, voice or value that cannot be used, ResourceError for what
        would not fit into memory.
        """
        meter = Meter(self.sample_rate, STAGES)
        sampling = choose_sampling(cfg_scale, temperature, top_k, top_p)
        check_decoder(decoder, list(self.decoders))
        speech = request_speech(
            text,
            self.tokenizers,
            self.network.config,
            self.second_stage.config,
            as_written=as_written,
            piece_characters=piece_characters,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
        )
        self._check_room([speech], sampling, decoder, 1)
        self.host.reset_peak()
        with meter.stage("speaker"):
            vector = self.speaker(prompt)
        return self._parts(speech, sampling, vector, decoder, meter)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: Voice | Sequence[Voice] | None = None,
        cfg_scale: CfgScale | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        decoder: Decoder = "vocos",
        as_written: bool = False,
        piece_characters: int | None = PIECE_CHARACTERS,
        max_frames: int | Sequence[int | None] | None = None,
        seed: int | Sequence[int] | None = None,
        noise: SpeechNoise | Sequence[SpeechNoise] | None = None,
        batch_size: int = BATCH,
    ) -> list[GenerationResult]:
        """Speak several texts, their pieces side by side; each gives what it gives alone.

        prompts, max_frames, seed, noise: one for all, or one per text. batch_size: pieces side by side at
        most. Other arguments as of `stream`. The times in the results are the batch's. Raises UsageError,
        naming the text's place, and ResourceError for what would not fit into memory.
        """
        meter = Meter(self.sample_rate, STAGES)
        sampling = choose_sampling(cfg_scale, temperature, top_k, top_p)
        check_decoder(decoder, list(self.decoders))
        speeches = request_texts(
            texts,
            self.tokenizers,
            self.network.config,
            self.second_stage.config,
            as_written=as_written,
            piece_characters=piece_characters,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
        )
        self._check_room(speeches, sampling, decoder, batch_size)
        self.host.reset_peak()
        with meter.stage("speaker"):
            vectors = self._speakers(prompts, len(texts))
        heard = self._say_all(speeches, sampling, vectors, batch_size, meter)
        codes = [
            [self._fill(piece, one, vector, meter) for piece, one in zip(speech.pieces, said, strict=False)]
            for speech, said, vector in zip(speeches, heard, vectors, strict=True)
        ]
        sources = [
            piece.noise
            for speech, made in zip(speeches, codes, strict=True)
            for piece in speech.pieces[: len(made)]
        ]
        waves = iter(self._decode([one for made in codes for one in made], sources, decoder, meter))
        results = []
        for speech, said, made in zip(speeches, heard, codes, strict=True):
            audio = join_waves([next(waves) for _ in made], self.sample_rate)
            ended = len(said) == len(speech.pieces) and all(one.ended for one in said)
            meter.add(len(audio))
            results.append(
                meter.result(
                    audio,
                    np.concatenate(made, axis=1),
                    seed=speech.seed,
                    token_count=sum(one.ids for one in said),
                    peak_bytes=self.host.peak_bytes(),
                    segment_idx=0,
                    finish_reason="stop" if ended else "length",
                )
            )
        seconds = results[-1].processing_time_seconds
        rtf = real_time_factor(seconds, meter.samples, self.sample_rate)
        return [replace(result, real_time_factor=rtf) for result in results]

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: Voice | Sequence[Voice] | None = None,
        *,
        cfg_scale: CfgScale | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        max_frames: int | Sequence[int | None] | None = None,
        seed: int | Sequence[int] | None = None,
        noise: SpeechNoise | Sequence[SpeechNoise] | None = None,
        batch_size: int = BATCH,
    ) -> list[np.ndarray]:
        """Codec codes of several texts, (Q, F) int32 each; no waveform.

        Texts are read as they are written, each in one piece. Arguments and errors as of `generate_batch`.
        """
        meter = Meter(self.sample_rate, STAGES)
        sampling = choose_sampling(cfg_scale, temperature, top_k, top_p)
        speeches = request_texts(
            texts,
            self.tokenizers,
            self.network.config,
            self.second_stage.config,
            as_written=True,
            piece_characters=None,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
        )
        self._check_room(speeches, sampling, "vocos", batch_size)
        vectors = self._speakers(prompts, len(texts))
        heard = self._say_all(speeches, sampling, vectors, batch_size, meter)
        return [
            self._fill(speech.pieces[0], said, vector, meter)
            for speech, (said,), vector in zip(speeches, heard, vectors, strict=True)
        ]

    def speaker(self, prompt: Voice | None) -> np.ndarray:
        """The vector of a voice, (E,) float32, to be given as `prompt`; a vector comes back as it is.

        Made once for the same sound. Raises UsageError for what no voice can be made of.
        """
        vector = None if prompt is None else as_vector(prompt, self.network.config.speaker_embedding_size)
        if vector is not None:
            return vector
        heard = utterances(prompt, self.sample_rate)
        return self.voices.embedding(heard, self.speaker_encoder.embed).copy()

    def _check_room(
        self, speeches: Sequence[Speech], sampling: FirstStageSampling, decoder: Decoder, batch_size: int
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"batch_size: {batch_size} is not a number of pieces; give 1 or more")
        job, host = job_of(speeches, sampling, decoder, batch_size), self.host
        check_running(self.configs, job, dtype=host.dtype, backend=host.backend, free=host.free_bytes())

    def _speakers(self, prompts: Voice | Sequence[Voice] | None, texts: int) -> np.ndarray:
        """One vector a text, (B, E)."""
        several = isinstance(prompts, list | tuple)
        voices: list[Voice | None] = each("prompts", prompts if several else [prompts] * texts, texts)
        known: dict[int, np.ndarray] = {}  # a voice that several texts share is read once
        for voice in voices:
            if id(voice) not in known:
                known[id(voice)] = self.speaker(voice)
        return np.stack([known[id(voice)] for voice in voices])

    def _parts(
        self,
        speech: Speech,
        sampling: FirstStageSampling,
        vector: np.ndarray,
        decoder: Decoder,
        meter: Meter,
    ) -> Iterator[GenerationResult]:
        """The speech of all pieces, joined."""
        joiner, pieces = Joiner(self.sample_rate), speech.pieces
        made, ids, segment, ended = 0, 0, 0, True
        for place, piece in enumerate(pieces):
            limit = piece.limit(speech.frames(place, made))
            (sequence,) = self._say([piece], [limit], vector[None], sampling, 1, meter)
            said = speech.said(place, sequence, made)
            made, ids, ended = made + said.codes.shape[1], ids + said.ids, ended and said.ended
            last = place == len(pieces) - 1 or made == speech.max_frames
            codes = self._fill(piece, said, vector, meter)
            (audio,) = self._decode([codes], [piece.noise], decoder, meter)
            hop = len(audio) // max(1, codes.shape[1])
            cuts = list(self.policy.decode_cuts(codes.shape[1]))
            if not cuts:  # nothing was said
                cuts = [(0, 0)]
            for start, stop in cuts:
                whole = stop == codes.shape[1]
                sound = joiner.add(audio[start * hop : stop * hop], last_of_piece=whole and not last)
                reason: Literal["stop", "length"] | None = None
                if last and whole:
                    sound = np.concatenate([sound, joiner.finish()])
                    reason = "stop" if ended and place == len(pieces) - 1 else "length"
                meter.add(len(sound))
                yield meter.result(
                    sound,
                    codes[:, start:stop],
                    seed=speech.seed,
                    token_count=ids,
                    peak_bytes=self.host.peak_bytes(),
                    segment_idx=segment,
                    finish_reason=reason,
                )
                segment += 1
            if last:
                return

    def _say_all(
        self,
        speeches: Sequence[Speech],
        sampling: FirstStageSampling,
        vectors: np.ndarray,
        batch_size: int,
        meter: Meter,
    ) -> list[list[Said]]:
        """The first stage of every piece of every text. vectors: (B, E), one a text."""
        pieces = [piece for speech in speeches for piece in speech.pieces]
        limits = [
            piece.limit(speech.frames(place))
            for speech in speeches
            for place, piece in enumerate(speech.pieces)
        ]
        voices = np.repeat(vectors, [len(speech.pieces) for speech in speeches], axis=0)
        sequences = iter(self._say(pieces, limits, voices, sampling, batch_size, meter))
        return [speech.all_said([next(sequences) for _ in speech.pieces]) for speech in speeches]

    def _say(
        self,
        pieces: Sequence[Piece],
        limits: Sequence[int],
        vectors: np.ndarray,
        sampling: FirstStageSampling,
        batch_size: int,
        meter: Meter,
    ) -> list[np.ndarray]:
        """The first stage's ids of pieces, their text included, (N,) int32 each. vectors: (P, E)."""
        with meter.stage("first stage"):
            return self.generate_tokens(
                self.network,
                [piece.first for piece in pieces],
                vectors,
                sampling=sampling,
                limits=limits,
                noise=[piece.noise for piece in pieces],
                end_of_text=self.tokenizers.first_stage.end_of_text,
                batch_size=batch_size,
            )

    def _fill(self, piece: Piece, said: Said, vector: np.ndarray, meter: Meter) -> np.ndarray:
        """The second stage: codes of all codebooks, (Q, F) int32."""
        if not said.codes.shape[1]:
            return np.zeros((self.second_stage.config.n_codebooks, 0), np.int32)
        with meter.stage("second stage"):
            return self.fill_codebooks(self.second_stage, piece.second, said.codes, vector, piece.noise)

    def _decode(
        self,
        codes: Sequence[np.ndarray],
        noise: Sequence[SpeechNoise],
        decoder: Decoder,
        meter: Meter,
    ) -> list[np.ndarray]:
        """(Q, F) of each piece → (L,) float32 samples each, brought to the target loudness."""
        sounding = [place for place, one in enumerate(codes) if one.shape[1]]
        made = [np.zeros(0, np.float32)] * len(codes)
        if not sounding:
            return made
        with meter.stage("decoder"):
            waves = self.decoders[decoder].decode([codes[i] for i in sounding], [noise[i] for i in sounding])
            for place, wave in zip(sounding, waves, strict=True):
                made[place] = normalize_loudness(wave, self.sample_rate)
        return made


def job_of(
    speeches: Sequence[Speech], sampling: FirstStageSampling, decoder: str, batch_size: int
) -> MetaVoiceJob:
    """What texts take at their longest."""
    pieces = [
        (len(piece.first), speech.frames(place))
        for speech in speeches
        for place, piece in enumerate(speech.pieces)
    ]
    together = min(batch_size, len(pieces))
    ids, frames = max(ids for ids, _ in pieces), max(frames for _, frames in pieces)
    return MetaVoiceJob(ids, frames, together, sampling.rows, decoder)
