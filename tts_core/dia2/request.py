"""Dia2's requests: text, options and recordings in, a checked request out. No network runs here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.codecs.mimi import MimiConfig
from tts_core.config import Configs, config_of
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.footprint import Dia2Job, longest_frames
from tts_core.dia2.inputs import Dia2Choice, Dia2Sampling
from tts_core.dia2.options import Dia2Options
from tts_core.dia2.pieces import Dia2Piece, cut, room
from tts_core.dia2.recordings import Dia2Recording, Prefix, align, longest_voice, prefix_of, read_recordings
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.script import Reader, read, read_exactly
from tts_core.dia2.tokenizer import FILE, shared_tokenizer
from tts_core.errors import UsageError
from tts_core.models import Documents
from tts_core.nn.noise import HostNoise, Noise, per_text, piece_seed
from tts_core.pipeline import PromptLike
from tts_core.speaking.given import frames_of, seed_of
from tts_core.speaking.request import RequestFacts
from tts_core.text.duration import expected_seconds


@dataclass(frozen=True, eq=False)
class Dia2Request:
    """One text as it will be spoken.

    text, options: as they were given.
    pieces: none for a text that goes on.
    max_frames: of all pieces together; None for no such limit.
    seed: of the first piece; the others' are derived from it. None if the caller gave the noise.
    noise: the caller's, for every piece.
    notes: remarks for the caller, a line each.
    """

    facts: Dia2Facts
    text: str
    options: Dia2Options
    pieces: tuple[Dia2Piece, ...]
    recordings: tuple[Dia2Recording, ...]
    sampling: Dia2Sampling
    max_frames: int | None
    seed: int | None
    noise: Noise | None
    pacing: Pacing
    notes: tuple[str, ...]

    def opened(self) -> Dia2Request:
        """Return the request of a text that goes on, whose pieces are still to come.

        Raises UsageError if it is read as the original does, which needs all of it.
        """
        if self.options.as_written:
            raise UsageError(
                "as_written: text that comes in pieces is read by the house's rules; leave it out"
            )
        return replace(self, pieces=(), pacing=Pacing((), (None,), self.pacing.speed))

    @property
    def is_open(self) -> bool:
        """True for a text that goes on."""
        return not self.pieces

    def noise_of(self, index: int) -> Noise:
        """Return the random numbers of a piece."""
        if self.noise is not None:
            return self.noise
        assert self.seed is not None, "one of both is given"
        return HostNoise(piece_seed(self.seed, index))

    @property
    def seconds(self) -> float:
        """Estimated duration of the sound in seconds."""
        rate = self.facts.codec.frame_rate
        breaks = sum(entry.padding for piece in self.pieces for entry in piece.entries if not entry.tokens)
        spoken = sum(expected_seconds(piece.text) for piece in self.pieces)
        most = math.inf if self.max_frames is None else self.max_frames / rate
        return self.pacing.seconds(min(spoken + breaks / rate, most))

    @property
    def voice_frames(self) -> int:
        """Most frames of the first piece that the others continue."""
        return longest_voice(self.facts.config, self.facts.codec.frame_rate)

    def prefix(self, encode: Callable[[np.ndarray], np.ndarray]) -> Prefix | None:
        """Encode the recordings and align their words; None without recordings."""
        if not self.recordings:
            return None
        reader = self.facts.reader
        return prefix_of(
            [
                (
                    recording.encoded(encode),
                    *align(reader.tokenizer, speaker, recording.words, reader.frame_rate),
                )
                for speaker, recording in enumerate(self.recordings)
            ]
        )

    def run(self, index: int, prefix: Prefix | None, left: int | None) -> Dia2Run:
        """Begin the run of a piece. left: frames, None for no limit."""
        config, options = self.facts.config, self.options
        return Dia2Run(
            config,
            () if self.is_open else self.pieces[index].entries,
            prefix=prefix,
            initial_padding=options.initial_padding,
            max_frames=None if left is None or left >= longest_frames(config) else left,
            has_prefix=options.include_prefix and index == 0,
            is_open=self.is_open,
        )

    def job(self) -> Dia2Job:
        """Return the memory job of the longest piece."""
        most = longest_frames(self.facts.config)
        frames = most if self.max_frames is None else min(most, self.max_frames)
        before = sum(recording.frames for recording in self.recordings)
        if not before and len(self.pieces) != 1:  # the first piece's beginning is the others' voice
            before = self.voice_frames
        return Dia2Job(frames, before, self.sampling.is_guided)


@dataclass(frozen=True)
class Dia2Facts(RequestFacts):
    """The facts about a Dia2 that a request needs."""

    config: Dia2Config
    codec: MimiConfig
    reader: Reader

    @classmethod
    def of(cls, configs: Configs, documents: Documents) -> Dia2Facts:
        config, codec = config_of(configs, "dia2", Dia2Config), config_of(configs, "mimi", MimiConfig)
        read = shared_tokenizer(documents["dia2"][FILE], config.text_vocab_size)
        return cls(config, codec, Reader.of(read, config.text_new_word_id, codec.frame_rate))

    def rehearsal(self) -> Dia2Request:
        return self.request("[S1] Yes.", Dia2Options(seed=0, max_frames=2))

    def request(self, text: str, options: Dia2Options, prompt: PromptLike = None) -> Dia2Request:
        entries = (read_exactly if options.as_written else read)(self.reader, text)
        pieces = cut(self.reader, entries, room(self.config, options.initial_padding))
        return self._request(text, pieces, options, prompt)

    def live(self, text: str | None, options: Dia2Options, prompt: PromptLike) -> Dia2Request:
        if text:
            read(self.reader, text)
        return self._request(text or "", [], options, prompt).opened()

    def _request(
        self, text: str, pieces: Sequence[Dia2Piece], options: Dia2Options, prompt: PromptLike
    ) -> Dia2Request:
        recordings, notes = read_recordings(self.config, self.codec, prompt)
        if options.include_prefix and not recordings:
            raise UsageError("include_prefix: there are no recordings; give one, or leave it out")
        seed = seed_of(options)
        return Dia2Request(
            self,
            text,
            options,
            tuple(pieces),
            tuple(recordings),
            choose_sampling(options),
            most_frames(self, options, several=len(pieces) != 1),
            seed if options.noise is None else None,
            None if options.noise is None else per_text(options.noise, [seed])[0],
            Pacing(tuple(piece.text for piece in pieces), (None,) * (len(pieces) + 1), options.speed),
            tuple(notes),
        )


def choose_sampling(options: Dia2Options) -> Dia2Sampling:
    """Read the settings of both choices."""
    scale, filter_k = options.cfg_scale, options.cfg_filter_k
    return Dia2Sampling(
        Dia2Choice(scale, filter_k, options.action_temperature, options.action_top_k),
        Dia2Choice(scale, filter_k, options.temperature, options.top_k),
    )


def most_frames(facts: Dia2Facts, options: Dia2Options, *, several: bool) -> int | None:
    """Read the limit in frames from max_frames or max_seconds; None if neither is given."""
    rate, most = facts.codec.frame_rate, longest_frames(facts.config)
    frames = frames_of(options, rate)
    if several or frames is None or frames <= most:
        return frames
    if options.max_seconds is not None:
        raise UsageError(
            f"max_seconds: {options.max_seconds:g} is more than this model's limit, {most / rate:.1f}"
        )
    raise UsageError(f"max_frames: {frames} exceeds this model's limit of {most} frames")


facts = Dia2Facts.of
