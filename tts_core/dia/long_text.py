"""A long text while Dia speaks it piece by piece: what is asked for each piece, and what has been said."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Literal

import numpy as np

from tts_core.codecs.dac import DacConfig
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import DelayGrid
from tts_core.dia.memory import Job
from tts_core.dia.pieces import Piece, PieceSeconds, bare, read
from tts_core.dia.request import (
    PromptLike,
    Request,
    check_lengths,
    check_prompt,
    make_request,
    numbers_per_text,
    prepared,
)
from tts_core.dia.sampling import Sampling
from tts_core.dia.text import tokenize, turns
from tts_core.noise import HostNoise, Noise, per_text, piece_seed
from tts_core.results import GenerationResult, Prompt, SpokenPiece

SIDE_BY_SIDE = 8  # pieces at most: a batch runs as long as its longest piece
PATIENCE, SECONDS_MORE = 2.0, 2.0  # a piece may take so many times the expected time, and so much more
ROOM = 1.5  # times the longest piece, that anchors leave to the others


class Script:
    """The pieces of a long text. `request` asks for some of them, `say` keeps what came of it."""

    def __init__(
        self,
        config: DiaConfig,
        pieces: Sequence[Piece],
        prompt: Prompt | None,
        frame_rate: float,
        *,
        sampling: Sampling,
        max_frames: int | None,
        seeds: Sequence[int | None],
        noise: Sequence[Noise],
        last_channel_free: bool,
    ):
        """prompt: the reference's codes. max_frames: of all pieces together. seeds, noise: one a piece.
        frame_rate: of the codec, in Hz.
        """
        self.config, self.pieces, self.voice = config, list(pieces), prompt
        self.sampling, self.max_frames, self.last_channel_free = sampling, max_frames, last_channel_free
        self.seeds, self.noise = list(seeds), list(noise)
        self.said: dict[int, SpokenPiece] = {}
        self.token_count = 0
        self._limits = self._choose_limits(frame_rate)

    def _choose_limits(self, frame_rate: float) -> list[int]:
        expected = [math.ceil(piece.seconds * frame_rate) for piece in self.pieces]
        limits = [int(PATIENCE * frames + SECONDS_MORE * frame_rate) for frames in expected]
        anchors = {place for piece in self.pieces for place in piece.anchors}
        room = self.config.max_frames - _frames(self.voice)
        for place in anchors:
            limits[place] = max(1, min(limits[place], int(room - ROOM * max(expected)) // len(anchors)))
        return limits

    def waves(self) -> list[np.ndarray]:
        """The sound of each piece, in order, (L,) float32."""
        return [self.said[place].audio for place in sorted(self.said)]

    def codes(self) -> np.ndarray:
        """(Q, T) int32 of all pieces, in order."""
        return np.concatenate([self.said[place].codes for place in sorted(self.said)], axis=1)

    @property
    def frames(self) -> int:
        """Made so far."""
        return sum(piece.codes.shape[1] for piece in self.said.values())

    @property
    def done(self) -> bool:
        """Whether nothing is left to be said, or max_frames are made."""
        return len(self.said) == len(self.pieces) or self.frames == self.max_frames

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """ "stop" where every piece was said and ended by itself."""
        whole = len(self.said) == len(self.pieces)
        return (
            "stop" if whole and all(one.finish_reason == "stop" for one in self.said.values()) else "length"
        )

    def groups(self, side_by_side: int) -> Iterator[list[int]]:
        """Places of pieces that wait for nothing that is not said yet, so many at most, until all is done.

        With a limit of all frames together each comes alone: how far the next may go, the one before tells.
        """
        most = side_by_side if self.max_frames is None else 1
        while not self.done:
            left = [place for place in range(len(self.pieces)) if place not in self.said]
            yield [place for place in left if self.said.keys() >= {*self.pieces[place].anchors}][:most]

    def prompt(self, place: int) -> Prompt | None:
        """What a piece is spoken behind: the reference and its anchors, those without a sound left out."""
        anchors = [self.said[anchor] for anchor in self.pieces[place].anchors]
        parts = [(one.codes, one.text) for one in anchors if one.codes.shape[1]]
        if self.voice is not None:
            parts.insert(0, (np.asarray(self.voice.codes), str(self.voice.transcript)))
        if not parts:
            return None
        codes, texts = zip(*parts, strict=True)
        return Prompt(codes=np.concatenate(codes, axis=1), transcript=" ".join(texts))

    def text(self, place: int) -> str:
        """What is read of a piece behind its prompt: the speaker who spoke last goes on without a tag, as the
        networks have learned it; two turns in a row make them change voices.
        """
        prompt, text = self.prompt(place), self.pieces[place].text
        if prompt is None:
            return text
        *_, last = turns(str(prompt.transcript))
        return text.removeprefix(f"[{last.speaker}]").lstrip()

    def request(self, places: Sequence[int]) -> Request:
        """These pieces as a batch. All that they wait for has been said."""
        prompts = [self.prompt(place) for place in places]
        texts = prepared([self.text(place) for place in places], prompts, self.config.max_text_bytes)
        taken = [_frames(prompt) for prompt in prompts]
        left = math.inf if self.max_frames is None else self.max_frames - self.frames
        limits = [
            int(min(self._limits[place], self.config.max_frames - frames, left))
            for place, frames in zip(places, taken, strict=True)
        ]
        return make_request(
            self.config,
            texts,
            prompts,
            no_encoding,
            **asdict(self.sampling),
            max_frames=limits,
            seed=None,
            noise=[self.noise[place] for place in places],
            last_channel_free=self.last_channel_free,
        )

    def say(self, place: int, request: Request, grid: DelayGrid, item: int, audio: np.ndarray) -> None:
        """Keep what a finished grid holds of a piece. audio: (L,), all of its sound."""
        self.said[place] = SpokenPiece(
            text=self.text(place),
            prompt=self.prompt(place),
            seed=self.seeds[place],
            max_frames=request.max_frames[item],
            codes=grid.codes(item),
            audio=audio,
            finish_reason=grid.finish_reason(item),
        )
        self.token_count += grid.filled

    def told(self, result: GenerationResult, *, ended: Sequence[int], rows: int = 0) -> GenerationResult:
        """A part of the speech with what is true of the whole. ended: pieces that did with it; rows: of the
        piece under way.
        """
        return replace(
            result,
            seed=self.seeds[0],
            finish_reason=self.finish_reason if result.is_final_chunk else None,
            token_count=self.token_count + rows,
            pieces=tuple(self.said[place] for place in ended),
        )

    def job(self, side_by_side: int) -> Job:
        """What so many pieces may take at their longest."""
        voice, said = _frames(self.voice), "" if self.voice is None else str(self.voice.transcript)
        sizes = [len(tokenize(piece.text)) + 1 for piece in self.pieces]
        frames = [voice + sum(self._limits[anchor] for anchor in piece.anchors) for piece in self.pieces]
        longest = max(
            min(self.config.max_frames, before + limit)
            for before, limit in zip(frames, self._limits, strict=True)
        )
        prompt = min(max(frames), self.config.max_frames - 1)
        return Job(
            text_bytes=len(tokenize(said))
            + max(
                sizes[place] + sum(sizes[i] for i in piece.anchors) for place, piece in enumerate(self.pieces)
            ),
            frames=max(1, longest - prompt),
            prompt_frames=prompt,
            batch=min(side_by_side, len(self.pieces)),
            guided=self.sampling.cfg_scale != 0,
        )


def _frames(prompt: Prompt | None) -> int:
    return 0 if prompt is None or prompt.codes is None else prompt.codes.shape[1]


def no_encoding(samples: np.ndarray) -> np.ndarray:
    """Prompts of pieces are codes."""
    raise AssertionError("a prompt was to be encoded twice")


def ask(
    config: DiaConfig,
    codec: DacConfig,
    encode_prompt: Callable[[np.ndarray], np.ndarray],
    text: str,
    *,
    prompt: PromptLike,
    piece_seconds: PieceSeconds,
    temperature: float | None,
    cfg_scale: float | None,
    top_k: int | None,
    top_p: float | None,
    max_frames: int | None,
    seed: int | None,
    noise: Noise | Sequence[Noise] | None,
    last_channel_free: bool,
) -> Request | Script:
    """What a caller asks of Dia, checked: one request, or a script where the text goes in pieces.

    Arguments and errors as of make_request; noise: one source, or one a piece.
    """
    pieces = cut_text(config, codec, text, prompt, piece_seconds)
    one = len(pieces) == 1
    seed = secrets.randbits(32) if seed is None else seed
    [first] = numbers_per_text("seed", seed, 1)
    seeds = [piece_seed(HostNoise(first).seed, place) for place in range(len(pieces))]
    sources = per_text(noise, seeds)
    if not one and max_frames is not None:
        check_lengths(numbers_per_text("max_frames", max_frames, 1))
    if not one and isinstance(prompt, Prompt):
        prompt = replace(prompt, transcript=bare(str(prompt.transcript)))
    request = make_request(
        config,
        prepared([pieces[0].text], [prompt], config.max_text_bytes),
        [prompt],
        encode_prompt,
        temperature=temperature,
        cfg_scale=cfg_scale,
        top_k=top_k,
        top_p=top_p,
        max_frames=max_frames if one else None,
        seed=seed,
        noise=noise if one else None,
        last_channel_free=last_channel_free,
    )
    if one:
        return request
    return Script(
        config,
        pieces,
        replace(prompt, codes=request.prompts[0], audio=None) if isinstance(prompt, Prompt) else None,
        codec.frame_rate,
        sampling=request.sampling,
        max_frames=max_frames,
        seeds=seeds if noise is None else [None] * len(seeds),
        noise=sources,
        last_channel_free=last_channel_free,
    )


def cut_text(
    config: DiaConfig, codec: DacConfig, text: str, prompt: PromptLike, piece_seconds: PieceSeconds
) -> list[Piece]:
    """The pieces of a text behind a reference; one where it is spoken at once, as it is given.

    Raises UsageError for a text that cannot be spoken, or a reference that cannot be continued.
    """
    if prompt is not None and not isinstance(prompt, Prompt):  # codes whose transcript stands in the text
        return [Piece(text)]
    if prompt is not None and prompt.transcript is None:
        prepared([text], [prompt], config.max_text_bytes)  # says why not
    voice = check_prompt(config, prompt, 0)
    frames = (
        0 if voice is None else voice.shape[-1] if voice.ndim == 2 else -(-len(voice) // codec.hop_length)
    )
    transcript = None if prompt is None else prompt.transcript
    return read(text, transcript, frames, config, codec.frame_rate, piece_seconds)
