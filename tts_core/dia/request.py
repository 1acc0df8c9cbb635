"""Dia's requests: text, options and prompt in, a checked request out. No network runs here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.dia.config import DiaConfig
from tts_core.dia.dialogue import Dialogue
from tts_core.dia.footprint import DiaJob
from tts_core.dia.grid import DelayGrid
from tts_core.dia.options import DiaOptions, DiaSampling
from tts_core.dia.pieces import DiaPiece, bare, read, seconds
from tts_core.dia.text import (
    TAGS,
    choose_rules,
    notes,
    paused,
    prepare,
    readable,
    rewritten,
    rewritten_transcript,
    tokenize,
    turns,
)
from tts_core.dia.voice import DiaVoice, read_voice
from tts_core.errors import UsageError
from tts_core.models import Documents
from tts_core.nn.noise import Noise, per_text, piece_seed
from tts_core.pipeline import PromptLike
from tts_core.speaking.given import frames_of, given_texts, seed_of
from tts_core.speaking.request import RequestFacts, WholeRequest
from tts_core.text.alphabet import accent_notes
from tts_core.text.breaks import Paused
from tts_core.text.duration import longest_frames
from tts_core.text.rules import NO_RULES, TextRules, read_rules

_UNREADABLE = re.compile("[\0\ud800-\udfff]")  # the id of padding, and characters that UTF-8 cannot encode
REHEARSAL = 40  # frames at most: every kernel, and the first windows
SPARE = 1.5  # of the longest piece: frames that anchors leave free in the window


@dataclass(frozen=True, eq=False)
class DiaRequest(WholeRequest):
    """One text as it will be spoken. Lists have one entry per piece.

    limits: most frames of each piece.
    max_frames: of all pieces together; None for no such limit.
    frame_rate: of the codec, in Hz.
    own_limits: they come from the texts' lengths, the caller gave none.
    notes: remarks for the caller, a line each.
    shortest_anchor: as in TextRules, for a text with pauses inside; else 0.
    """

    config: DiaConfig
    frame_rate: float
    pieces: tuple[DiaPiece, ...]
    voice: DiaVoice | None
    sampling: DiaSampling
    limits: tuple[int, ...]
    max_frames: int | None
    seeds: list[int | None]
    noise: list[Noise]
    last_channel_free: bool
    pacing: Pacing
    own_limits: bool
    notes: tuple[str, ...] = ()
    shortest_anchor: int = 0

    @property
    def seed(self) -> int | None:
        """The first piece's."""
        return self.seeds[0]

    def encoded(self, encode: Callable[[np.ndarray], np.ndarray]) -> DiaRequest:
        """Return the request with its reference encoded."""
        return replace(self, voice=self.voice and self.voice.encoded(encode))

    @property
    def seconds(self) -> float:
        """Estimated duration of the sound in seconds, with its pauses."""
        return self.pacing.seconds(sum(piece.seconds for piece in self.pieces))

    @property
    def tokens(self) -> np.ndarray:
        """Ids of a request with one piece, (S,) int32, transcript included."""
        [piece] = self.pieces
        return piece.tokens

    def grid(self) -> DelayGrid:
        """Build the rows of a request with one piece, which hold its reference, already encoded."""
        [most], codes = self.limits, None if self.voice is None else self.voice.codes
        return DelayGrid(self.config, codes, most, last_channel_free=self.last_channel_free)

    def job(self, side_by_side: int = 1) -> DiaJob:
        """Return the memory job of `side_by_side` pieces at their longest."""
        if len(self.pieces) == 1:
            return DiaJob(
                text_bytes=len(self.pieces[0].tokens),
                frames=self.limits[0],
                prompt_frames=0 if self.voice is None else self.voice.frames,
                guided=self.sampling.cfg_scale != 0,
            )
        frames, said = (0, "") if self.voice is None else (self.voice.frames, str(self.voice.transcript))
        sizes = [len(piece.tokens) + 1 for piece in self.pieces]
        before = [frames + sum(self.limits[anchor] for anchor in piece.anchors) for piece in self.pieces]
        longest = max(
            min(self.config.max_frames, first + limit)
            for first, limit in zip(before, self.limits, strict=True)
        )
        prompt = min(max(before), self.config.max_frames - 1)
        texts = [
            size + sum(sizes[anchor] for anchor in piece.anchors)
            for size, piece in zip(sizes, self.pieces, strict=True)
        ]
        return DiaJob(
            text_bytes=len(tokenize(said)) + max(texts),
            frames=max(1, longest - prompt),
            prompt_frames=prompt,
            batch=min(side_by_side, len(self.pieces)),
            guided=self.sampling.cfg_scale != 0,
        )


@dataclass(frozen=True)
class DiaFacts(RequestFacts):
    """The facts about a Dia that a request needs. rules: of its folder, for texts."""

    config: DiaConfig
    codec: DacConfig
    rules: TextRules = NO_RULES

    @classmethod
    def of(cls, configs: Configs, documents: Documents) -> DiaFacts:
        rules = read_rules(documents.get("dia", {}))
        return cls(config_of(configs, "dia", DiaConfig), config_of(configs, "dac", DacConfig), rules)

    def voices(self, prompt: PromptLike) -> Dialogue:
        return Dialogue(prompt, self.rules.shortest_anchor)

    def rehearsal(self) -> DiaRequest:
        options = DiaOptions(seed=0, max_frames=min(REHEARSAL, self.config.max_frames))
        return self.request("[S1] Yes.", options)

    def request(self, text: str, options: DiaOptions, prompt: PromptLike = None) -> DiaRequest:
        active = choose_rules(self.rules, options)
        voice = _spoken_voice(read_voice(self.config, self.codec, prompt), active, options)
        accents = accent_notes("text", text, active.knows)
        text = readable("text", text, active, options)
        pieces = self._pieces(text, options, voice, active)
        continues = voice is not None and voice.transcript is not None
        remarks = notes(text, sum(piece.seconds for piece in pieces), self.rules, continues=continues)
        if len(pieces) == 1:
            limits = [check_limit(self.config, self.codec, options, voice, pieces[0].seconds, "prompt 1")]
        else:
            limits = choose_limits(self.config, self.codec.frame_rate, pieces, voice)
            voice = voice and replace(voice, transcript=bare(str(voice.transcript)))
        silences = (pieces[0].before, *(piece.after for piece in pieces))
        said = [piece.spoken for piece in pieces]
        if all(turn.speaker is None for turn in turns(text)):  # the tags are ours
            said = [line[len(TAGS[0]) :].lstrip() if line.startswith(TAGS) else line for line in said]
        pacing = Pacing(tuple(said), silences, options.speed)
        made = self._made(options, voice, pieces, limits, pacing)
        shortest = self.rules.shortest_anchor if any(piece.after for piece in pieces[:-1]) else 0
        return replace(made, notes=accents + remarks, shortest_anchor=shortest)

    def requests(
        self,
        texts: Sequence[str],
        options: DiaOptions,
        prompts: PromptLike | Sequence[PromptLike],
        *,
        exactly: bool = False,
    ) -> list[DiaRequest]:
        """As of any model. Each text is spoken whole; one with pauses inside, in pieces."""
        found = list[DiaRequest]()
        for index, text, own, prompt in given_texts(texts, options, prompts):
            if not exactly and len(paused(f"text {index}", text).parts) > 1:
                found.append(self.request(text, own, prompt))
            else:
                found.append(self._whole(text, own, prompt, index, exactly=exactly))
        if not options.last_channel_free:
            return found
        frames = [0 if item.voice is None else item.voice.frames for item in found]
        return [
            replace(item, last_channel_free=its == max(frames))
            for item, its in zip(found, frames, strict=True)
        ]

    def _whole(
        self, text: str, options: DiaOptions, prompt: PromptLike, index: int, *, exactly: bool
    ) -> DiaRequest:
        """Check a text that is spoken at once. index: in messages."""
        rules = NO_RULES if exactly else choose_rules(self.rules, options)
        voice = _spoken_voice(read_voice(self.config, self.codec, prompt, f"prompt {index}"), rules, options)
        before, where = None if voice is None else voice.transcript, f"text {index}"
        given = Paused.whole(text) if exactly else paused(where, readable(where, text, rules, options))
        said, *more = given.parts
        if more:
            raise UsageError(f"{where}: its pauses cut it into {len(given.parts)} pieces; this takes one")
        if exactly:
            expected = seconds(said)
            whole = said if before is None else f"{before.rstrip()} {said.lstrip()}"
        else:
            expected = seconds(rewritten("text", said, rules))
            whole = prepare(said, self.config.max_text_bytes, transcript=before, rules=rules)
        _check_text(self.config, whole, index)
        limit = check_limit(self.config, self.codec, options, voice, expected, f"prompt {index}")
        pacing = Pacing(given.parts, given.silences, options.speed)
        return self._made(options, voice, [DiaPiece(whole, said=said)], [limit], pacing)

    def _pieces(
        self, text: str, options: DiaOptions, voice: DiaVoice | None, rules: TextRules
    ) -> list[DiaPiece]:
        if voice is not None and voice.transcript is None:  # codes only; their transcript is in the text
            given = paused("text", text)
            if len(given.parts) > 1:
                raise UsageError(
                    "text: its pauses cut it into pieces, and codes without a transcript continue one; give "
                    "Prompt.of(codes=..., text=...)"
                )
            [text], silences = given.cut(lambda part: [part])
            return [DiaPiece(prepare(text, self.config.max_text_bytes, rules=rules), (), None, *silences)]
        transcript, frames = (None, 0) if voice is None else (voice.transcript, voice.frames)
        rate = self.codec.frame_rate
        return read(text, transcript, frames, self.config, rate, options.piece_seconds, rules)

    def _made(
        self,
        options: DiaOptions,
        voice: DiaVoice | None,
        pieces: Sequence[DiaPiece],
        limits: Sequence[int],
        pacing: Pacing,
    ) -> DiaRequest:
        """Build the request of pieces with their limits in frames."""
        seed = seed_of(options)
        seeds = [piece_seed(seed, index) for index in range(len(pieces))]
        return DiaRequest(
            config=self.config,
            frame_rate=self.codec.frame_rate,
            pieces=tuple(pieces),
            voice=voice,
            sampling=choose_sampling(self.config, options),
            limits=tuple(limits),
            max_frames=None if len(pieces) == 1 else frames_of(options, self.codec.frame_rate),
            seeds=[None] * len(seeds) if options.noise is not None else [*seeds],
            noise=per_text(options.noise, seeds, "piece"),
            last_channel_free=options.last_channel_free,
            pacing=pacing,
            own_limits=options.max_seconds is None and options.max_frames is None,
        )


def _spoken_voice(voice: DiaVoice | None, rules: TextRules, options: DiaOptions) -> DiaVoice | None:
    """The voice with its transcript as it is read."""
    if voice is None or voice.transcript is None or rules == NO_RULES:
        return voice
    said = readable("transcript", voice.transcript, rules, options)
    return replace(voice, transcript=rewritten_transcript(said, rules))


def choose_sampling(config: DiaConfig, options: DiaOptions) -> DiaSampling:
    """Fill options that are None with the model's own values."""
    given = {field.name: getattr(options, field.name) for field in fields(DiaSampling)}
    return replace(config.sampling, **{name: value for name, value in given.items() if value is not None})


def choose_limits(
    config: DiaConfig, frame_rate: float, pieces: Sequence[DiaPiece], voice: DiaVoice | None
) -> list[int]:
    """Limit the frames of each piece of a long text, so that the window has room after the anchors."""
    expected = [math.ceil(piece.seconds * frame_rate) for piece in pieces]
    limits = [longest_frames(piece.seconds, frame_rate) for piece in pieces]
    anchors = {index for piece in pieces for index in piece.anchors}
    room = config.max_frames - (0 if voice is None else voice.frames)
    for index in anchors:
        limits[index] = max(1, min(limits[index], int(room - SPARE * max(expected)) // len(anchors)))
    return limits


def check_limit(
    config: DiaConfig,
    codec: DacConfig,
    options: DiaOptions,
    voice: DiaVoice | None,
    expected: float,
    where: str,
) -> int:
    """Limit the frames of a text: as requested, else by its expected seconds and by its prompt's room.

    where: name of the prompt in messages.
    """
    frames, length = frames_of(options, codec.frame_rate), 0 if voice is None else voice.frames
    most = config.max_frames - length
    if most < 1:
        raise UsageError(f"{where}: {length} frames fill all of the model's {config.max_frames}")
    if frames is None:
        return min(most, longest_frames(expected, codec.frame_rate))
    if frames > most and options.max_seconds is not None:
        raise UsageError(
            f"max_seconds: {options.max_seconds:g} is more than this model's limit, "
            f"{most / codec.frame_rate:.1f}"
        )
    if frames > most:
        raise UsageError(f"max_frames: {frames} exceeds this model's limit of {most} frames")
    return frames


def _check_text(config: DiaConfig, text: str, index: int) -> None:
    found = _UNREADABLE.search(text)
    if found is not None:
        raise UsageError(
            f"text {index}: character {found.start() + 1} is U+{ord(found[0]):04X}, which cannot be read; "
            "remove it"
        )
    tokens = tokenize(text)
    if len(tokens) == 0:
        raise UsageError(f"text {index}: empty; there is nothing to say")
    if len(tokens) > config.max_text_bytes:
        raise UsageError(
            f"text {index}: {len(tokens)} bytes, limit {config.max_text_bytes}; split it at a turn"
        )


facts = DiaFacts.of
