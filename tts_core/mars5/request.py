"""MARS5's requests: text, options and prompt in, a checked request out. No network runs here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.codecs.encodec import EncodecConfig
from tts_core.config import Configs, config_of
from tts_core.errors import UsageError
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.mars5.diffusion import Diffusion
from tts_core.mars5.footprint import Mars5Job
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.reference import Mars5Voice, Sizes, as_spoken, read_voice
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecPrompt, CodecVocabulary
from tts_core.models import Documents
from tts_core.nn.noise import Noise, per_text, piece_seed
from tts_core.pipeline import PromptLike
from tts_core.speaking.given import frames_of, given_texts, read_once, seed_of
from tts_core.speaking.request import RequestFacts, WholeRequest
from tts_core.text import breaks
from tts_core.text.breaks import Paused
from tts_core.text.checks import check_one_speaker, check_words
from tts_core.text.duration import expected_seconds, longest_frames
from tts_core.text.pace import CHARACTERS_PER_SECOND
from tts_core.text.sentences import split

BANDWIDTH_ID = 1  # of the vocoder's norms: 3 kbps as in upstream, although the codes have 6 kbps
STAGES = ("codec", "AR", "NAR", "vocoder")
OwnNoise = Noise | Sequence[Noise] | None  # of one text: a source, or one per piece


@dataclass(frozen=True, eq=False)
class Mars5Piece:
    """A piece of a text.

    text: as read by the networks.  prompt: the autoregressive network's; in a deep clone, the reference's ids
    are added once it is encoded.
    """

    text: str
    prompt: CodecPrompt
    noise: Noise

    @property
    def seconds(self) -> float:
        """Estimated duration of its speech in seconds."""
        return expected_seconds(self.text)


@dataclass(frozen=True, eq=False)
class Mars5Request(WholeRequest):
    """One text as it will be spoken.

    max_frames: of all pieces together; None for no such limit.
    seed: None if the caller gave the noise.
    where: the text's name in messages.
    """

    pieces: tuple[Mars5Piece, ...]
    voice: Mars5Voice
    options: Mars5Options
    diffusion: Diffusion
    max_frames: int | None
    seed: int | None
    frame_rate: float  # Hz, of the codec
    pacing: Pacing
    where: str = "text"
    notes: tuple[str, ...] = ()  # remarks for the caller, a line each

    @property
    def deep(self) -> bool:
        """True if the networks read the reference's words."""
        return self.voice.transcript is not None

    @property
    def known(self) -> int:
        """Frames with which a piece's codes begin: most of a deep clone's reference. Those after are new."""
        return self.voice.frames if self.deep else 0

    @property
    def seconds(self) -> float:
        """Estimated duration of the speech in seconds."""
        expected = sum(piece.seconds for piece in self.pieces)
        if self.max_frames is not None:
            expected = min(expected, self.max_frames / self.frame_rate)
        return self.pacing.seconds(expected)

    def longest(self, piece: Mars5Piece) -> int | None:
        """Limit the frames of a piece for which the caller gave no limit, neither in frames nor in ids."""
        if self.options.generate_max_len_override > 1:
            return None
        slower = max(1.0, self.options.eos_estimated_gen_length_factor)
        return longest_frames(slower * piece.seconds, self.frame_rate)

    def encoded(
        self, encode: Callable[[np.ndarray], np.ndarray], vocabulary: CodecVocabulary
    ) -> Mars5Request:
        """Return the request with its reference encoded, and in a deep clone with its ids in the prompts.

        Raises UsageError if a prompt leaves no room for speech.
        """
        if self.voice.codes is not None:
            return self
        return _completed(replace(self, voice=self.voice.encoded(encode)), vocabulary)

    def job(self) -> Mars5Job:
        """Return the memory job of its longest piece; a reference not yet encoded counts an id per frame."""
        ids = max(len(piece.prompt.tokens) for piece in self.pieces)
        if self.deep and self.voice.codes is None:
            ids += self.voice.frames
        longest = max(len(piece.text) for piece in self.pieces)
        frames = int(self.frame_rate * longest / CHARACTERS_PER_SECOND) + 1
        return self.job_of(ids, frames if self.max_frames is None else min(frames, self.max_frames))

    def job_of(self, prompt_ids: int, frames: int) -> Mars5Job:
        """Return the memory job of a piece with this prompt and this many new frames."""
        return Mars5Job(
            prompt_ids=prompt_ids,
            frames=frames,
            prompt_frames=self.voice.frames,
            deep=self.deep,
            guided=self.diffusion.guided,
            max_len=self.options.max_len,
            timesteps=self.diffusion.timesteps,
            text_ids=max(piece.prompt.text_tokens for piece in self.pieces),
        )


@dataclass(frozen=True)
class Mars5Facts(RequestFacts):
    """The facts about a MARS5 that a request needs."""

    sizes: Sizes
    vocabulary: CodecVocabulary

    @classmethod
    def of(cls, configs: Configs, documents: Documents) -> Mars5Facts:
        nar, texts = config_of(configs, "mars5_nar", ResidualTransformerConfig), documents["mars5"]
        ids = config_of(configs, "mars5", CodecLMConfig).vocab_size
        vocabulary = CodecVocabulary.read(texts[TEXT_FILE], texts[SPEECH_FILE], vocab_size=ids)
        return cls(Sizes.of(config_of(configs, "encodec", EncodecConfig), nar), vocabulary)

    def rehearsal(self) -> Mars5Request:
        """As of any model, of every network but the codec."""
        voice = np.zeros((self.sizes.n_codebooks, round(self.sizes.frame_rate)), np.int32)
        return self.request("Yes.", Mars5Options(seed=0, max_frames=16, timesteps=2), voice)

    def request(self, text: str, options: Mars5Options, prompt: PromptLike = None) -> Mars5Request:
        """As of any model. options.noise: one source, or one per piece."""
        check_one_speaker(text, "MARS5")
        paused = breaks.read("text", text)
        return self._request(paused, options, read_voice(prompt, self.sizes, options), "text")

    def requests(
        self,
        texts: Sequence[str],
        options: Mars5Options,
        prompts: PromptLike | Sequence[PromptLike],
        *,
        exactly: bool = False,
    ) -> list[Mars5Request]:
        """As of any model; texts with the same prompt share a voice, and those read exactly are one piece."""
        if exactly:
            options = replace(options, as_written=True, piece_seconds=None)
        voice = read_once(lambda prompt: read_voice(prompt, self.sizes, options))
        made = []
        for text in given_texts(texts, options, prompts):
            where = f"text {text.number}"
            paused = Paused.whole(text.text) if exactly else breaks.read(where, text.text)
            made.append(self._request(paused, text.options, voice(text.prompt), where))
        return made

    def _request(self, paused: Paused, options: Mars5Options, voice: Mars5Voice, where: str) -> Mars5Request:
        vocabulary, rate = self.vocabulary, self.sizes.frame_rate
        seed, most, noise = seed_of(options), frames_of(options, rate), cast(OwnNoise, options.noise)
        check_words(where, paused.blanked)
        parts = paused.parts if options.as_written else tuple(map(as_spoken, paused.parts))
        for name, words in (*((where, part) for part in parts), ("transcript", voice.transcript or "")):
            if found := [token for token in vocabulary.text.specials if token in words]:
                raise UsageError(f"{name}: {found[0]} is a special token of the model; remove it")
        texts, silences = replace(paused, parts=parts).cut(lambda part: cut(part, options.piece_seconds))
        sources = per_text(noise, [piece_seed(seed, index) for index in range(len(texts))], "piece")
        factor = options.eos_estimated_gen_length_factor
        pieces = [
            Mars5Piece(piece, vocabulary.prompt_of(piece, voice.transcript, length_factor=factor), source)
            for piece, source in zip(texts, sources, strict=True)
        ]
        diffusion = Diffusion(
            options.timesteps, options.cfg_scale, options.x_0_temp, options.q0_override_steps, options.draws
        )
        own, pacing = None if noise is not None else seed, Pacing(tuple(texts), silences, options.speed)
        made = Mars5Request(tuple(pieces), voice, options, diffusion, most, own, rate, pacing, where)
        return _completed(made, vocabulary)


def _completed(request: Mars5Request, vocabulary: CodecVocabulary) -> Mars5Request:
    """Add known ids of the reference to a deep clone's prompts; check that every prompt leaves room."""
    if request.deep and request.voice.codes is not None:
        speech = vocabulary.speech_ids(request.voice.codes[0])
        pieces = [replace(piece, prompt=piece.prompt.followed_by(speech)) for piece in request.pieces]
        request = replace(request, pieces=tuple(pieces))
    longest, max_len = max(len(piece.prompt.tokens) for piece in request.pieces), request.options.max_len
    if longest >= max_len:
        what = "reference and text take" if request.deep else "the text takes"
        raise UsageError(
            f"{request.where}: {what} {longest} of the {max_len} ids that they share with "
            "the speech; shorten them, or raise generate_max_len_override (--generate-max-len-override)"
        )
    return request


def cut(text: str, piece_seconds: float | None) -> list[str]:
    """Cut a text into pieces of at most about this many seconds; None does not cut."""
    if piece_seconds is None:
        return [text]
    most = int(CHARACTERS_PER_SECOND * piece_seconds)
    return [text] if len(text) <= most else split(text, most)


def for_vocoder(codes: np.ndarray, books: int, size: int) -> np.ndarray:
    """Map codes (Q, T) to the entries of a vocoder with `books` codebooks of `size` codes.

    The diffusion has one more class than there are codes. As in upstream, that class selects the first entry
    of the next codebook; in the last codebook, its last entry.
    """
    if len(codes) < books:
        return codes
    return np.concatenate([codes[:-1], np.minimum(codes[-1:], size - 1)])


facts = Mars5Facts.of
