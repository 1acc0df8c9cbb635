"""Dia2's requests: text, options and recordings in, a checked request out. No network runs here."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.codecs.mimi import MimiConfig
from tts_core.config import Configs, config_of
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.memory import Dia2Job
from tts_core.dia2.options import Dia2Options
from tts_core.dia2.pieces import Piece, cut, room
from tts_core.dia2.prefix import Prefix, align, join
from tts_core.dia2.reading import read, read_exactly
from tts_core.dia2.sampling import Choice, Sampling
from tts_core.dia2.script import SPEAKERS, Reader
from tts_core.dia2.tokenizer import FILE, Tokenizer
from tts_core.errors import UsageError
from tts_core.nn.noise import HostNoise, Noise, check_seed, numbers_per_text, per_text, piece_seed
from tts_core.pipeline import PromptLike
from tts_core.prompt import Prompt, Reference, Word
from tts_core.text.checks import check_words
from tts_core.text.duration import expected_seconds

MOST_PREFIX = 0.5  # of the context: frames of all recordings together
VOICE_SECONDS = 15.0  # of a long text's first piece, whose voices the others continue


@dataclass(frozen=True)
class Facts:
    """The facts about a Dia2 that a request needs."""

    config: Dia2Config
    codec: MimiConfig
    reader: Reader

    @classmethod
    def of(cls, configs: Configs, tokenizer: str) -> Facts:
        """Read the facts of a model. configs: of its parts, by kind.  tokenizer: the text of its file."""
        config, codec = config_of(configs, "dia2", Dia2Config), config_of(configs, "mimi", MimiConfig)
        read = Tokenizer(tokenizer, most=config.text_vocab_size)
        return cls(config, codec, Reader.of(read, config.text_new_word_id, codec.frame_rate))


@dataclass(frozen=True, eq=False)
class Recording:
    """A checked reference of one speaker: samples (L,) float32, not yet encoded, or codes (Q, P) int32.

    frames: P.  words: with their times.
    """

    frames: int
    words: tuple[Word, ...]
    samples: np.ndarray | None = None
    codes: np.ndarray | None = None

    def encoded(self, encode: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the codes, (Q, P) int32. encode: samples (L,) → codes."""
        return (
            encode(self.samples)
            if self.codes is None and self.samples is not None
            else np.asarray(self.codes)
        )


@dataclass(frozen=True, eq=False)
class Request:
    """One text as it will be spoken.

    text: as given.  pieces: none for a text that goes on.  max_frames: of all pieces together; None for no
    such limit.  seed: of the first piece; the others' are derived from it.  noise: the caller's, for every
    piece.  notes: remarks for the caller, a line each.
    """

    facts: Facts
    text: str
    pieces: tuple[Piece, ...]
    recordings: tuple[Recording, ...]
    sampling: Sampling
    initial_padding: int
    include_prefix: bool
    max_frames: int | None
    seed: int
    noise: Noise | None
    pacing: Pacing
    notes: tuple[str, ...]
    as_written: bool

    def opened(self) -> Request:
        """Return the request of a text that goes on, whose pieces are still to come.

        Raises UsageError if it is read as the original does, which needs all of it.
        """
        if self.as_written:
            raise UsageError(
                "as_written: text that comes in pieces is read by the house's rules; leave it out"
            )
        return replace(self, pieces=(), pacing=Pacing((), (None,), self.pacing.speed))

    @property
    def is_open(self) -> bool:
        """True for a text that goes on."""
        return not self.pieces

    def noise_of(self, place: int) -> Noise:
        """Return the random numbers of a piece."""
        return HostNoise(piece_seed(self.seed, place)) if self.noise is None else self.noise

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
        return join(
            [
                (one.encoded(encode), *align(reader.tokenizer, speaker, one.words, reader.frame_rate))
                for speaker, one in enumerate(self.recordings)
            ]
        )

    def job(self) -> Dia2Job:
        """Return the memory job of the longest piece."""
        most = longest_frames(self.facts.config)
        frames = most if self.max_frames is None else min(most, self.max_frames)
        before = sum(one.frames for one in self.recordings)
        if not before and len(self.pieces) != 1:  # the first piece's beginning is the others' voice
            before = self.voice_frames
        return Dia2Job(frames, before, self.sampling.is_guided)


def longest_frames(config: Dia2Config) -> int:
    """Count the frames of the longest run."""
    return config.max_context_steps + 1 - config.longest_delay


def longest_prefix(config: Dia2Config) -> int:
    """Count the frames of the longest recordings."""
    return round(MOST_PREFIX * config.max_context_steps)


def longest_voice(config: Dia2Config, frame_rate: float) -> int:
    """Count the frames of the first piece that the others continue, at most. frame_rate: Hz."""
    return min(longest_prefix(config), round(VOICE_SECONDS * frame_rate))


def ask(
    configs: Configs,
    documents: Mapping[str, Mapping[str, str]],
    text: str,
    options: Dia2Options,
    prompt: PromptLike,
) -> Request:
    """Build a request from the configurations and documents of a model's parts, by kind."""
    return request(Facts.of(configs, documents["dia2"][FILE]), text, options, prompt)


def ask_live(
    configs: Configs,
    documents: Mapping[str, Mapping[str, str]],
    text: str,
    options: Dia2Options,
    prompt: PromptLike,
) -> Request:
    """As `ask`, for a text that goes on."""
    return live(Facts.of(configs, documents["dia2"][FILE]), text, options, prompt)


def request(facts: Facts, text: str, options: Dia2Options, prompt: PromptLike) -> Request:
    """Check one text with its options and recordings, and cut a long text into pieces.

    Raises UsageError naming the argument.
    """
    entries = (read_exactly if options.as_written else read)(facts.reader, text)
    pieces = cut(facts.reader, entries, room(facts.config, options.initial_padding))
    return _request(facts, text, pieces, options, prompt)


def live(facts: Facts, text: str, options: Dia2Options, prompt: PromptLike) -> Request:
    """Check the beginning of a text that goes on, which may be empty; errors as in `request`."""
    if text:
        read(facts.reader, text)
    return _request(facts, text, [], options, prompt).opened()


def _request(
    facts: Facts, text: str, pieces: Sequence[Piece], options: Dia2Options, prompt: PromptLike
) -> Request:
    recordings, notes = read_recordings(facts, prompt)
    if options.include_prefix and not recordings:
        raise UsageError("include_prefix: there are no recordings; give one, or leave it out")
    seed = secrets.randbits(32) if options.seed is None else numbers_per_text("seed", options.seed, 1)[0]
    return Request(
        facts,
        text,
        tuple(pieces),
        tuple(recordings),
        choose_sampling(options),
        options.initial_padding,
        options.include_prefix,
        most_frames(facts, options, several=len(pieces) != 1),
        check_seed(seed),
        None if options.noise is None else per_text(options.noise, [seed])[0],
        Pacing(tuple(piece.text for piece in pieces), (None,) * (len(pieces) + 1), options.speed),
        tuple(notes),
        options.as_written,
    )


def one_each(options: Dia2Options, texts: Sequence[str]) -> list[Dia2Options]:
    """The options of each text of a batch. Raises UsageError for fewer values, or more, than texts."""
    if isinstance(texts, str):
        raise UsageError("texts: got one string; give a list of strings")
    if not texts:
        raise UsageError("texts: the list is empty")
    count = len(texts)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    seeds = numbers_per_text("seed", seed, count)
    limits: Sequence[int | None] = [None] * count
    if options.max_frames is not None:
        limits = numbers_per_text("max_frames", options.max_frames, count)
    noise = [None] * count if options.noise is None else per_text(options.noise, seeds)
    return [
        replace(options, seed=one, max_frames=most, noise=source)
        for one, most, source in zip(seeds, limits, noise, strict=True)
    ]


def choose_sampling(options: Dia2Options) -> Sampling:
    """Read the settings of both choices."""
    scale, filter_k = options.cfg_scale, options.cfg_filter_k
    return Sampling(
        Choice(scale, filter_k, options.action_temperature, options.action_top_k),
        Choice(scale, filter_k, options.temperature, options.top_k),
    )


def most_frames(facts: Facts, options: Dia2Options, *, several: bool) -> int | None:
    """Read the limit in frames from max_frames or max_seconds; None if neither is given."""
    if options.max_seconds is not None and options.max_frames is not None:
        raise UsageError("max_frames: max_seconds sets the same limit; give only one")
    rate, most = facts.codec.frame_rate, longest_frames(facts.config)
    if options.max_seconds is not None:
        if not several and options.max_seconds * rate > most:
            raise UsageError(
                f"max_seconds: {options.max_seconds:g} is more than this model's limit, {most / rate:.1f}"
            )
        return math.ceil(options.max_seconds * rate)
    if options.max_frames is None:
        return None
    frames = numbers_per_text("max_frames", options.max_frames, 1)[0]
    if not several and frames > most:
        raise UsageError(f"max_frames: {frames} exceeds this model's limit of {most} frames")
    return frames


def read_recordings(facts: Facts, prompt: PromptLike) -> tuple[list[Recording], list[str]]:
    """Check the recordings of one speaker or two; returns them, and remarks for the caller."""
    if prompt is None:
        return [], []
    if not isinstance(prompt, Prompt):
        raise UsageError("prompt: give a Prompt of one recording for each speaker, with its words")
    if len(prompt.references) > len(SPEAKERS):
        raise UsageError(
            f"prompt: {len(prompt.references)} references; this model takes one for each speaker"
        )
    found, notes = [], []
    for speaker, reference in enumerate(prompt.references):
        where = reference.name if len(prompt.references) == 1 else f"{reference.name} {speaker + 1}"
        recording, is_spread = _recording(facts, reference, where, speaker)
        found.append(recording)
        if is_spread:
            notes.append(
                f"{where}: its words have no times; they are spread over the recording by their lengths, so "
                "the speech may follow it less closely"
            )
    most = longest_prefix(facts.config)
    if (frames := sum(one.frames for one in found)) > most:
        rate = facts.codec.frame_rate
        raise UsageError(
            f"prompt: {frames / rate:.1f} s of recordings; the model takes {most / rate:.0f} s, "
            "give 5 to 10 s of each speaker"
        )
    return found, notes


def _recording(facts: Facts, reference: Reference, where: str, speaker: int) -> tuple[Recording, bool]:
    codec = facts.codec
    samples = reference.samples(codec.sample_rate, where)
    codes = None if samples is not None else _codes(facts, reference, where)
    if codes is None:
        assert samples is not None
        frames = -(-len(samples) // codec.hop_length)
        seconds = len(samples) / codec.sample_rate
    else:
        frames = codes.shape[1]
        seconds = frames / codec.frame_rate
    if reference.words:
        return Recording(frames, _timed(reference.words, seconds, where), samples, codes), False
    if reference.text is None:
        raise UsageError(f"{where}: its words are missing; give its transcript, or words with their times")
    return Recording(frames, spread(_said(reference.text, where, speaker), seconds), samples, codes), True


def _codes(facts: Facts, reference: Reference, where: str) -> np.ndarray:
    codes, config = np.asarray(reference.codes), facts.config
    if codes.ndim != 2 or codes.shape[0] != config.n_streams or not codes.shape[1]:
        raise UsageError(f"{where}: codes of shape {codes.shape}; expected ({config.n_streams}, frames)")
    if codes.dtype.kind not in "iu":
        raise UsageError(f"{where}: codes of type {codes.dtype}; give whole numbers")
    if not (codes.min() >= 0 and codes.max() < config.codebook_size):
        raise UsageError(f"{where}: codes outside 0 .. {config.codebook_size - 1}")
    return codes.astype(np.int32)


def _timed(words: Sequence[Word], seconds: float, where: str) -> tuple[Word, ...]:
    """Check times; the last word ends with the recording by default."""
    before = 0.0
    for place, word in enumerate(words, start=1):
        if not word.text.strip() or word.text.split() != [word.text.strip()]:
            raise UsageError(f"{where}: word {place} is not one word")
        if not before <= word.start <= seconds or not math.isfinite(word.start):
            raise UsageError(
                f"{where}: word {place} begins at {word.start:g} s; times must rise, up to {seconds:.2f} s"
            )
        before = word.start
    last = words[-1]
    end = seconds if last.end is None else last.end
    if not last.start <= end:
        raise UsageError(f"{where}: the last word ends at {end:g} s, before it begins")
    return (*words[:-1], last._replace(end=end))


def _said(transcript: str, where: str, speaker: int) -> list[str]:
    """Return the words of a transcript, which may begin with its speaker's tag."""
    check_words(where, transcript)
    words = transcript.split()
    words = words[1:] if words[0].upper() in SPEAKERS else words
    other = next((word for word in words if word.upper() in SPEAKERS), None)
    if other is not None:
        raise UsageError(f"{where}: {other} in its transcript; give a recording for each speaker")
    return words


def spread(words: Sequence[str], seconds: float) -> tuple[Word, ...]:
    """Spread words over a recording by their lengths, a character more for the space after each."""
    total, start, timed = sum(len(word) + 1 for word in words), 0.0, []
    for word in words:
        end = start + seconds * (len(word) + 1) / total
        timed.append(Word(word, start, end))
        start = end
    return tuple(timed)
