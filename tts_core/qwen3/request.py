"""Qwen3-TTS's requests: text, options and voice in, a checked request out. No network runs here."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.config import Configs, config_of
from tts_core.errors import UsageError
from tts_core.files.json_object import parse_json
from tts_core.models import Documents
from tts_core.nn.noise import HostNoise, Noise, per_text, piece_seed
from tts_core.pipeline import PromptLike
from tts_core.qwen3.config import BASE, VOICE_DESIGN, Qwen3Config
from tts_core.qwen3.footprint import Qwen3Job
from tts_core.qwen3.layout import (
    GENERATION,
    NO_ID,
    SPEAKER,
    Qwen3Choice,
    Qwen3Recording,
    Qwen3Sampling,
    TalkerInputs,
    build,
    instruction,
    language_id,
    read_generation,
    script,
)
from tts_core.qwen3.options import Qwen3Options
from tts_core.qwen3.tokenizer import FILES, Qwen3Tokenizer, shared_tokenizer
from tts_core.qwen3.voice import Qwen3Voice, read_voice
from tts_core.speaking.given import frames_of, seed_of
from tts_core.speaking.request import RequestFacts
from tts_core.text import breaks
from tts_core.text.arriving import LEAST, MOST
from tts_core.text.breaks import Paused
from tts_core.text.checks import check_one_speaker, check_words
from tts_core.text.pace import longest_seconds, paces, usual_seconds
from tts_core.text.sentences import split

OPEN_CHARACTERS = 2000  # of a text that goes on and is never cut, for its memory


@dataclass(frozen=True)
class PieceLengths:
    """Lengths of pieces in characters: to the first end of a sentence from `least` on, or to the first word's
    end from `most` on.
    """

    least: int
    most: int


@dataclass(frozen=True, eq=False)
class Qwen3Piece:
    """A piece of a text as it is read.

    frames: most of its speech.
    seconds: of its speech, about.
    noise: its random numbers.
    more: its text goes on.
    """

    layout: TalkerInputs
    frames: int
    seconds: float
    noise: Noise
    more: bool = False


@dataclass(frozen=True, eq=False)
class Qwen3Request:
    """One text as it will be spoken.

    text, options: as they were given.
    pieces: none of a text that goes on.
    max_frames: of all pieces together; None for no such limit.
    seed: of the first piece; the others' are derived from it. None if the caller gave the noise.
    noise: the caller's, for every piece.
    """

    facts: Qwen3Facts
    text: str
    options: Qwen3Options
    pieces: tuple[Qwen3Piece, ...]
    voice: Qwen3Voice
    sampling: Qwen3Sampling
    max_frames: int | None
    seed: int | None
    noise: Noise | None
    pacing: Pacing
    notes: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """True if its text goes on."""
        return not self.pieces

    def opened(self) -> Qwen3Request:
        """Return the same request of a text that goes on; its layout is the streamed one."""
        options = replace(self.options, layout="streamed")
        pacing = Pacing((), (None,), self.options.speed)
        return replace(self, options=options, pieces=(), pacing=pacing)

    def noise_of(self, index: int) -> Noise:
        """Return the random numbers of a piece."""
        if self.noise is not None:
            return self.noise
        assert self.seed is not None, "one of both is given"
        return HostNoise(piece_seed(self.seed, index))

    @property
    def seconds(self) -> float:
        """Estimated duration of the sound in seconds; 0 of a text that goes on."""
        most = math.inf if self.max_frames is None else self.max_frames / self.facts.codec.frame_rate
        return self.pacing.seconds(min(sum(piece.seconds for piece in self.pieces), most))

    def limit(self, piece: Qwen3Piece, spoken: int) -> int:
        """Most frames of a piece, after those of the pieces before."""
        return piece.frames if self.max_frames is None else min(piece.frames, self.max_frames - spoken)

    def job(self) -> Qwen3Job:
        """Return the memory job of the longest piece; of a text that goes on, that of any piece."""
        recording, most = 0, self.max_frames or math.inf
        if self.voice.samples is not None:
            recording = math.ceil(len(self.voice.samples) / self.facts.codec.hop_length)
        pieces = self.pieces or [self._longest()]
        return Qwen3Job(
            int(max(min(piece.frames, most) for piece in pieces)),
            max(len(piece.layout.text) for piece in pieces),
            recording,
        )

    def piece(self, text: str, index: int, *, more: bool = False) -> Qwen3Piece:
        """Lay out a piece. more: its text goes on."""
        facts, options, voice = self.facts, self.options, self.voice
        config, encode = facts.config, facts.tokenizer.encode
        if voice.speaker is not None:
            voice_id = voice.speaker.id
        else:
            voice_id = SPEAKER if config.mode == BASE else NO_ID
        layout = build(
            config,
            encode(script(text, more=more)),
            language=language_id(config, options.language, voice.speaker),
            voice=voice_id,
            instruction=encode(instruction(options.instruct)) if options.instruct else (),
            recording=Qwen3Recording(voice.transcript, voice.frames) if voice.transcript else None,
            streamed=is_streamed(config, options),
            more=more,
        )
        language, room = spoken_language(options), config.max_positions - len(layout.text)
        if room < 1:
            raise UsageError(
                f"text: {len(layout.text)} positions leave no room for speech; give a shorter text"
            )
        limit = room if self.max_frames is None and more else self.max_frames
        if limit is None:
            limit = math.ceil(longest_seconds(text, language) * facts.codec.frame_rate)
        seconds = usual_seconds(text, language)
        return Qwen3Piece(layout, min(room, limit), seconds, self.noise_of(index), more)

    def bounds(self) -> PieceLengths | None:
        """Bound the pieces of a text that goes on. A recording that speech continues takes a sentence."""
        if self.voice.transcript:
            return PieceLengths(LEAST, MOST)
        most = piece_characters(self.facts.config, self.options)
        return None if most is None else PieceLengths(most, most + MOST)

    def _longest(self) -> Qwen3Piece:
        bounds = self.bounds()
        characters = OPEN_CHARACTERS if bounds is None else bounds.most + MOST
        return self.piece("x" * characters, 0)


@dataclass(frozen=True)
class Qwen3Facts(RequestFacts):
    """The facts about a Qwen3-TTS that a request needs. sampling: of its generation_config.json."""

    config: Qwen3Config
    codec: Qwen3CodecConfig
    tokenizer: Qwen3Tokenizer
    sampling: Qwen3Sampling

    @classmethod
    def of(cls, configs: Configs, documents: Documents) -> Qwen3Facts:
        config, own = config_of(configs, "qwen3", Qwen3Config), documents["qwen3"]
        tokenizer = shared_tokenizer(*(own[name] for name in FILES), config.text_vocab_size)
        sampling = read_generation(parse_json(own[GENERATION], GENERATION))
        return cls(config, config_of(configs, "qwen3_codec", Qwen3CodecConfig), tokenizer, sampling)

    def rehearsal(self) -> Qwen3Request:
        """As of any model, one that the checkpoint's mode can speak."""
        config, options, prompt = self.config, Qwen3Options(seed=0, max_frames=3), None
        if config.mode == BASE:
            prompt = np.zeros(config.talker.hidden_size, np.float32)
        elif config.mode == VOICE_DESIGN:
            options = replace(options, instruct="A calm voice.")
        else:
            options = replace(options, voice=config.speakers[0].name)
        return self.request("Yes.", options, prompt)

    def request(self, text: str, options: Qwen3Options, prompt: PromptLike = None) -> Qwen3Request:
        paused = check_text(self, text, options)
        check_words("text", paused.blanked)
        whole = self._request(text, options, prompt)
        texts, silences = paused.cut(lambda part: cut(part, piece_characters(self.config, options)))
        pieces = tuple(whole.piece(words, index) for index, words in enumerate(texts))
        return replace(whole, pieces=pieces, pacing=Pacing(tuple(texts), silences, options.speed))

    def live(self, text: str | None, options: Qwen3Options, prompt: PromptLike) -> Qwen3Request:
        return self._request(text or "", options, prompt).opened()

    def _request(self, text: str, options: Qwen3Options, prompt: PromptLike) -> Qwen3Request:
        if options.instruct:
            self.tokenizer.check_plain(options.instruct, "instruct")
        language_id(self.config, options.language, None)  # an unknown language, before a recording is read
        voice = read_voice(self.config, self.codec, self.tokenizer, options, prompt)
        seed, most = seed_of(options), frames_of(options, self.codec.frame_rate)
        noise = None if options.noise is None else per_text(options.noise, [seed])[0]
        sampling, pacing = choose_sampling(self.sampling, options), Pacing((), (None,), options.speed)
        own = seed if noise is None else None
        return Qwen3Request(self, text, options, (), voice, sampling, most, own, noise, pacing)


def check_text(facts: Qwen3Facts, text: str, options: Qwen3Options) -> Paused:
    """Check a text, and cut it at its pauses."""
    if not options.as_written:
        check_one_speaker(text, "Qwen3-TTS")
    facts.tokenizer.check_plain(text, "text")
    return Paused.whole(text) if options.as_written else breaks.read("text", text)


def is_streamed(config: Qwen3Config, options: Qwen3Options) -> bool:
    """Decide whether text is read with the frames: as the original, by default only after a recording."""
    return config.mode == BASE if options.layout == "auto" else options.layout == "streamed"


def spoken_language(options: Qwen3Options) -> str | None:
    """Return the language that paces are looked up for; None for `auto`."""
    name = options.language.lower()
    return None if name == "auto" else name


def piece_characters(config: Qwen3Config, options: Qwen3Options) -> int | None:
    """Limit the characters of a piece; None does not cut. A designed voice is another one in every piece."""
    if options.piece_seconds is None or options.as_written or config.mode == VOICE_DESIGN:
        return None
    slowest, fastest = paces(spoken_language(options))
    return max(1, round(options.piece_seconds * math.sqrt(slowest * fastest)))


def cut(text: str, most: int | None) -> list[str]:
    """Cut a text into pieces of at most `most` characters; one that is short enough stays as it is."""
    return [text] if most is None or len(text) <= most else split(text, most)


def choose_sampling(own: Qwen3Sampling, options: Qwen3Options) -> Qwen3Sampling:
    """Replace those of the checkpoint's settings that are given; a temperature of 0 is greedy."""
    penalty = options.repetition_penalty
    return Qwen3Sampling(
        _choice(own.first, options.temperature, options.top_k, options.top_p),
        _choice(own.others, options.subtalker_temperature, options.subtalker_top_k, options.subtalker_top_p),
        own.repetition_penalty if penalty is None else penalty,
    )


def _choice(
    own: Qwen3Choice, temperature: float | None, top_k: int | None, top_p: float | None
) -> Qwen3Choice:
    if temperature is not None:
        own = replace(own, is_greedy=temperature == 0, temperature=temperature or own.temperature)
    return replace(
        own, top_k=own.top_k if top_k is None else top_k, top_p=own.top_p if top_p is None else top_p
    )


facts = Qwen3Facts.of
