"""MARS5's two tokenizers, for text and for codes of the first codebook, and the prompts built with them.

The file format is minbpe's: `minbpe v1`, an unused line, the number of special tokens, a line `NAME ID` for
each, then one line `LEFT RIGHT` per merge; a merge's id is its index after the base symbols. Text is always
split by GPT-4's pattern; the pattern in the file's second line is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tts_core.errors import CheckpointError, UsageError
from tts_core.text.bpe import merge, splitter

TEXT_FILE, SPEECH_FILE = (
    "texttok.model",
    "speechtok.model",
)  # names of the files, and of entries in checkpoints
BYTES, CODES = 256, 1024  # base symbols of text and of speech
LONGEST = 1024  # symbols of a token: each merge may double them, and the network may draw it at every step
MOST_SYMBOLS = 1 << 20  # of all tokens; the published tables have some 10,000
MOST_IDS = 1 << 17
MOST_SPECIALS = 256
START_OF_TEXT, END_OF_TEXT = "<|startoftext|>", "<|endoftext|>"
END_OF_SPEECH = "<|endofspeech|>"
PATTERN = (  # GPT-4's
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class MergeTable:
    """The content of a tokenizer file."""

    specials: dict[str, int]  # in the file's order
    parts: list[tuple[int, int]]  # the two ids of each merge
    base: int  # number of ids without a merge

    @property
    def pairs(self) -> dict[tuple[int, int], int]:
        """Map of two ids to the id of their merge."""
        return {pair: new for new, pair in enumerate(self.parts, self.base)}

    @property
    def size(self) -> int:
        """Number of ids, from 0."""
        return len(set(range(self.base + len(self.parts))) | set(self.specials.values()))

    def special(self, token: str, name: str) -> int:
        """Return the id of a special token that the model needs. name: of the file, for the error."""
        if token not in self.specials:
            found = ", ".join(self.specials) or "none"
            raise CheckpointError(f"{name}: no special token {token}; it has {found}")
        return self.specials[token]


def read_table(content: str, base: int, name: str, *, most: int = MOST_IDS) -> MergeTable:
    """Parse a tokenizer file's content, checking its bounds before anything is built.

    base: number of symbols before the first merge.
    name: of the file, for the errors.
    most: ids that the network has for it.
    Raises CheckpointError with the line number for a malformed file, for more ids than `most`, and for tokens
    of more than LONGEST symbols, or MOST_SYMBOLS in all.
    """
    content, most = content.rstrip(), min(most, MOST_IDS)
    if (count := content.count("\n")) > 2 * most + 3:
        raise CheckpointError(f"{name}: {count} lines, the network has {most} ids for it")
    lines = [line.strip() for line in content.split("\n")]
    if lines[0] != "minbpe v1":
        raise CheckpointError(f"{name}: line 1 is {lines[0]!r:.40}, expected 'minbpe v1'")
    number = int(lines[2]) if len(lines) > 2 and re.fullmatch(r"[0-9]{1,6}", lines[2]) else None
    if number is None or number > len(lines) - 3:
        raise CheckpointError(f"{name}: line 3 is not the number of special tokens")
    merges = len(lines) - 3 - number
    if base + merges > most:
        raise CheckpointError(f"{name}: {base + merges} ids, the network has {most} for it")
    if number > MOST_SPECIALS:
        raise CheckpointError(f"{name}: {number} special tokens; more than {MOST_SPECIALS} are not supported")

    def entry(at: int, pattern: str, what: str) -> tuple[str, str]:
        found = re.fullmatch(pattern, lines[at])
        if found is None:
            raise CheckpointError(f"{name}: line {at + 1} is {lines[at]!r:.40}, expected {what}")
        return found[1], found[2]

    table = MergeTable({}, [], base)
    for at in range(3, 3 + number):
        token, id_ = entry(at, r"(\S{1,256})\s+([0-9]{1,9})", "a special token and its id")
        table.specials[token] = int(id_)
    lengths, symbols = [1] * base, base
    for new, at in enumerate(range(3 + number, len(lines)), base):
        left, right = map(int, entry(at, r"([0-9]{1,9})\s+([0-9]{1,9})", "the two ids of a merge"))
        if max(left, right) >= new:
            raise CheckpointError(
                f"{name}: line {at + 1} merges ids {left} and {right}, but only {new} are known"
            )
        table.parts.append((left, right))
        lengths.append(lengths[left] + lengths[right])
        symbols += lengths[-1]
        if lengths[-1] > LONGEST:
            raise CheckpointError(f"{name}: line {at + 1} makes a token of more than {LONGEST} symbols")
        if symbols > MOST_SYMBOLS:
            raise CheckpointError(f"{name}: at line {at + 1} all tokens exceed {MOST_SYMBOLS} symbols")
    if (last := max(table.specials.values(), default=0)) >= table.size:
        raise CheckpointError(f"{name}: special id {last} leaves a gap after the {table.size} ids")
    return table


class TextTokenizer:
    """Byte-level BPE with GPT-4's pre-split. content: the text of a tokenizer file.  most: limit of ids."""

    def __init__(self, content: str, *, most: int = MOST_IDS):
        table = read_table(content, BYTES, TEXT_FILE, most=most)
        self.size, self.specials = table.size, table.specials
        for token in (START_OF_TEXT, END_OF_TEXT):
            table.special(token, TEXT_FILE)
        self._pairs = table.pairs
        self._bytes = {i: bytes([i]) for i in range(BYTES)}
        for new, (left, right) in enumerate(table.parts, BYTES):
            self._bytes[new] = self._bytes[left] + self._bytes[right]
        self._bytes |= {id_: token.encode() for token, id_ in table.specials.items()}

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids; special tokens that occur in it are read as such.

        Raises UsageError for text that UTF-8 cannot encode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"text: character {error.start} is half of a surrogate pair") from None
        ids: list[int] = []
        for part in re.split(f"({'|'.join(map(re.escape, self.specials))})", text):
            if part in self.specials:
                ids.append(self.specials[part])
            else:
                for word in splitter(PATTERN)(part):
                    ids += merge(word.encode(), self._pairs)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self._bytes[id_] for id_ in ids).decode(errors="replace")


class SpeechTokenizer:
    """BPE over codes. content: the text of a tokenizer file.  most: limit of ids."""

    def __init__(self, content: str, *, most: int = MOST_IDS):
        table = read_table(content, CODES, SPEECH_FILE, most=most)
        self.size, self.specials = table.size, table.specials
        self.end = table.special(END_OF_SPEECH, SPEECH_FILE)
        self._pairs = table.pairs
        self._codes: dict[int, list[int | str]] = {i: [i] for i in range(CODES)}
        for new, (left, right) in enumerate(table.parts, CODES):
            self._codes[new] = self._codes[left] + self._codes[right]
        self._codes |= {id_: [token] for token, id_ in table.specials.items()}

    def encode(self, codes: Sequence[int]) -> list[int]:
        """Encode codes 0 .. 1023 as ids. Raises UsageError for others."""
        if wrong := [code for code in codes if not 0 <= code < CODES]:
            raise UsageError(f"codes: {wrong[0]} is outside 0 .. {CODES - 1}")
        return merge(codes, self._pairs)

    def decode(self, ids: Sequence[int]) -> list[int | str]:
        """Decode ids to codes, with special tokens by their names."""
        return [part for id_ in ids for part in self._codes[id_]]


@dataclass(frozen=True)
class CodecPrompt:
    """The autoregressive network's prompt, and the numbers needed to read its output.

    tokens: (N,) int32, text ids, then speech ids if the reference is part of the prompt.
    """

    tokens: np.ndarray
    text_tokens: int  # the first of them, which are text; the NAR reads these
    expected_tokens: int  # ending before this many new ids is penalized
    first_code: int  # index in prompt and output of the first id that is decoded to codes

    def followed_by(self, speech: np.ndarray) -> CodecPrompt:
        """Complete the prompt of a deep clone. speech: (N,) ids of its reference, from `speech_ids`."""
        return replace(self, tokens=np.concatenate([self.tokens, speech]))


class CodecVocabulary:
    """Both tokenizers as one range of ids: text, then speech."""

    def __init__(self, text: TextTokenizer, speech: SpeechTokenizer):
        self.text, self.speech = text, speech
        self.first_speech = text.size
        self.size = text.size + speech.size
        self.end = text.size + speech.end  # end of speech
        self.lowest = text.size - 1  # lowest id that may be drawn: upstream forbids all text ids but the last

    @classmethod
    def read(cls, text: str, speech: str, *, vocab_size: int) -> CodecVocabulary:
        """Read the content of the two tokenizer files. vocab_size: number of the network's ids.

        Raises CheckpointError for what is no such file, and unless the network has just these ids; those of
        each file are counted before its tokens are built.
        """
        first = TextTokenizer(text, most=vocab_size - CODES)
        made = cls(first, SpeechTokenizer(speech, most=vocab_size - first.size))
        if made.size != vocab_size:
            raise CheckpointError(
                f"tokenizers: {made.first_speech} text ids and {made.speech.size} speech ids, the network "
                f"has {vocab_size}; give the tokenizers that belong to it"
            )
        return made

    def shallow(self, text: str, *, length_factor: float = 1.0) -> CodecPrompt:
        """Build the prompt of a shallow clone, which uses only the voice: the text, stripped.

        length_factor: expected new ids per character of `text` as given.
        """
        return self.prompt_of(text, None, length_factor=length_factor)

    def prompt_of(self, text: str, transcript: str | None, *, length_factor: float) -> CodecPrompt:
        """Build the text part of a prompt. transcript: of a deep clone; like upstream, it is not stripped."""
        spoken = text.strip() if transcript is None else f"{transcript} {text.strip()}"
        ids = self.text.encode(f"{START_OF_TEXT}{spoken}{END_OF_TEXT}")
        return CodecPrompt(
            tokens=np.array(ids, dtype=np.int32),
            text_tokens=len(ids),
            expected_tokens=round(length_factor * len(text)),
            first_code=len(ids) + 1,
        )

    def deep(
        self, text: str, transcript: str, codes: np.ndarray, *, length_factor: float = 1.0
    ) -> CodecPrompt:
        """Build the whole prompt of a deep clone. codes: (P,), the reference's first codebook."""
        prompt = self.prompt_of(text, transcript, length_factor=length_factor)
        return prompt.followed_by(self.speech_ids(codes))

    def speech_ids(self, codes: np.ndarray) -> np.ndarray:
        """Encode codes of the first codebook as ids. (P,) → (N,) int32, N ≤ P."""
        ids = [self.first_speech + id_ for id_ in self.speech.encode(codes.tolist())]
        return np.array(ids, dtype=np.int32)

    def codes(self, ids: np.ndarray, *, first: int = 0) -> np.ndarray:
        """Decode ids to codes of the first codebook. ids: (N,), prompt and generated ids → (T,) int32.

        first: the prompt's `first_code`. As in upstream, it cuts off one id too many: the first generated
        one, or the first of the reference; and the last text id, which the network may draw, is code 0.
        """
        speech = np.maximum(ids[first:] - self.first_speech, 0)
        parts = self.speech.decode(speech.tolist())
        return np.array([part for part in parts if isinstance(part, int)], dtype=np.int32)


def random_tables(text: int, speech: int) -> dict[str, str]:
    """Write both files of a vocabulary for random weights. text, speech: ids of each.

    Merges join two base symbols each.
    """

    def table(base: int, size: int, specials: tuple[str, str]) -> str:
        merges = size - base - len(specials)
        lines = ["minbpe v1", "", str(len(specials))]
        lines += [f"{name} {base + merges + id_}" for id_, name in enumerate(specials)]
        lines += [f"{merge // base} {merge % base}" for merge in range(merges)]
        return "\n".join(lines) + "\n"

    return {
        TEXT_FILE: table(BYTES, text, (START_OF_TEXT, END_OF_TEXT)),
        SPEECH_FILE: table(CODES, speech, ("<|startofspeech|>", END_OF_SPEECH)),
    }
