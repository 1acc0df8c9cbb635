"""MetaVoice's text: normalized to Latin-1, then encoded with the byte-pair table in each of its checkpoints.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0); the merging rule is tiktoken's (MIT).
Differs from upstream: no known difference. Its table writes ™ as decimal 2122, which is another character,
so that ™ is rejected there and here.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from tts_core.config import exact_fields, mapping
from tts_core.errors import CheckpointError, UsageError
from tts_core.files.json_object import parse_json
from tts_core.metavoice.config import (
    CODEBOOK_SIZE,
    END_OF_AUDIO,
    FirstStageConfig,
    SecondStageConfig,
)
from tts_core.text.bpe import merge, pairs_of_ranks, splitter

TOKENIZER = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
# of the published tables: GPT-2's. A table with another is refused: matching it could take exponential time
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LONGEST = 256  # bytes of a token: finding its pairs takes their square
MOST_BYTES = 1 << 20  # of all tokens
MOST_SPECIALS = 256
_REPLACED = {
    **dict.fromkeys((0x1FEF, 0x1FFD, 0x1FFE, 0x2018, 0x2019, 0x2032, 0x2035, 0x00B4), "'"),
    **dict.fromkeys(range(0x2010, 0x2016), "-"),
    **dict.fromkeys((0x201C, 0x201D, 0x201F, 0x2033, 0x2036), '"'),
    **{0x2016: "||", 0x201A: ",", 0x201B: "`", 0x201E: ",,", 0x2024: ".", 0x2025: "..", 0x2026: "..."},
    2122: "TM",  # meant to be 0x2122
}
_SPACES = str.maketrans(dict.fromkeys("\t\n\r*", " "))
_RUN = re.compile(r"\s\s+")


def normalise(text: str) -> str:
    """Replace typographic quotes, dashes and dots by plain ones and tidy white space; no spelling out, no
    change of case.

    Raises UsageError naming the characters that are not in Latin-1.
    """
    check_characters(text)
    return _RUN.sub(" ", text.translate(_REPLACED).translate(_SPACES).strip())


def is_readable(char: str) -> bool:
    """Decide whether a character is in Latin-1, also when normalized."""
    return ord(char) < 256 or ord(char) in _REPLACED


def check_characters(text: str) -> None:
    """Raise UsageError naming the characters that are not in Latin-1 even when normalized."""
    plain = text.translate(_REPLACED)
    unknown = list(dict.fromkeys(character for character in plain if ord(character) >= 256))
    if unknown:
        named = ", ".join(f"{character} (U+{ord(character):04X})" for character in unknown[:10])
        more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
        raise UsageError(f"text: MetaVoice reads only Latin-1 characters, found {named}{more}")


@dataclass(frozen=True)
class MetaVoiceTokenizer:
    """The table of one checkpoint: byte strings with their ranks. An id is a rank plus the offset."""

    pat_str: str  # splits text into words; no pair crosses their borders
    mergeable_ranks: Mapping[bytes, int]
    special_tokens: Mapping[str, int]
    offset: int  # added to every id, as the codes' ids come first

    def __post_init__(self) -> None:
        if self.pat_str != PATTERN:
            raise CheckpointError(
                f"tokenizer: pat_str is {self.pat_str!r:.80}, not the published one; no other is supported"
            )
        lengths = [*map(len, self.mergeable_ranks)]
        if max(lengths, default=0) > LONGEST or sum(lengths) > MOST_BYTES:
            raise CheckpointError(
                f"tokenizer: tokens of {max(lengths)} bytes, {sum(lengths)} in all; at most {LONGEST} and "
                f"{MOST_BYTES} are supported"
            )
        ids = [*self.mergeable_ranks.values(), *self.special_tokens.values()]
        whole = all(type(token) is int and 0 <= token < 2**30 for token in ids)
        names = [name for name in self.special_tokens if isinstance(name, str) and name]
        wrong = {
            f"special token {END_OF_TEXT} missing": END_OF_TEXT not in self.special_tokens,
            "not every byte has a rank": any(bytes([b]) not in self.mergeable_ranks for b in range(256)),
            "ids are not whole numbers of 30 bits": not whole,
            "two entries share an id": whole and len(set(ids)) < len(ids),
            f"offset {self.offset!r:.40}": type(self.offset) is not int or not 0 <= self.offset < 2**30,
            f"special tokens are not 1 to {MOST_SPECIALS} names": len(self.special_tokens) > MOST_SPECIALS
            or len(names) < len(self.special_tokens),
        }
        if any(wrong.values()):
            faults = [fault for fault, is_there in wrong.items() if is_there]
            raise CheckpointError(f"tokenizer: {'; '.join(faults)}")

    @property
    def end_of_text(self) -> int:
        """The id that ends every text."""
        return self.special_tokens[END_OF_TEXT] + self.offset

    @property
    def last_id(self) -> int:
        """The largest id of a text."""
        return max(*self.mergeable_ranks.values(), *self.special_tokens.values()) + self.offset

    def encode(self, text: str) -> np.ndarray:
        """Encode a text as (S,) int32 ids, with the end of text. The text is not normalized.

        Raises UsageError for text that contains a special token.
        """
        spelt = [special for special in self.special_tokens if special in text]
        if spelt:
            raise UsageError(f"text: {spelt[0]} is a special token and cannot be spoken; remove it")
        ids: list[int] = []
        for word in splitter(PATTERN)(text):
            data = word.encode("utf-8", "replace")
            whole = self.mergeable_ranks.get(data)
            ids += merge([self._bytes[byte] for byte in data], self._pairs) if whole is None else [whole]
        return np.array([*ids, self.special_tokens[END_OF_TEXT]], np.int32) + np.int32(self.offset)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decode ids to text, special tokens by name; bytes that are not UTF-8 become U+FFFD.

        Raises UsageError for an id that is not in the table.
        """
        pieces = [self._pieces.get(int(token) - self.offset) for token in ids]
        if None in pieces:
            raise UsageError(f"ids: {int(ids[pieces.index(None)])} is not in the tokenizer's table")
        return b"".join(piece for piece in pieces if piece is not None).decode("utf-8", "replace")

    def to_dict(self) -> dict[str, Any]:
        """Return a form for JSON, with byte strings in base64, as they may not be valid text."""
        ranks = {b64encode(piece).decode("ascii"): rank for piece, rank in self.mergeable_ranks.items()}
        special = dict(self.special_tokens)
        return {
            "pat_str": self.pat_str,
            "mergeable_ranks": ranks,
            "special_tokens": special,
            "offset": self.offset,
        }

    @cached_property
    def _pairs(self) -> dict[tuple[int, int], int]:
        return pairs_of_ranks(self.mergeable_ranks)

    @cached_property
    def _bytes(self) -> list[int]:
        return [self.mergeable_ranks[bytes([byte])] for byte in range(256)]

    @cached_property
    def _pieces(self) -> dict[int, bytes]:
        special = {rank: name.encode() for name, rank in self.special_tokens.items()}
        return special | {rank: piece for piece, rank in self.mergeable_ranks.items()}


@dataclass(frozen=True)
class Tokenizers:
    """Both stages' tables; each is a tokenizer.json in a converted folder."""

    first_stage: MetaVoiceTokenizer
    second_stage: MetaVoiceTokenizer

    def check_fits(self, first: FirstStageConfig, second: SecondStageConfig) -> None:
        """Raise CheckpointError unless each stage's text ids follow its codes and fit its vocabulary."""
        for stage, table, lowest, size in (
            ("first", self.first_stage, END_OF_AUDIO + 1, first.vocab_size),
            ("second", self.second_stage, CODEBOOK_SIZE + 1, second.vocab_sizes[0]),
        ):
            if table.offset < lowest or table.last_id >= size:
                raise CheckpointError(
                    f"tokenizer of the {stage} stage: ids {table.offset} to {table.last_id}, the network has "
                    f"{lowest} to {size - 1} for text"
                )


def read_published(tokenizer: object) -> MetaVoiceTokenizer:
    """Read `meta["tokenizer"]` of a published checkpoint, a dict with byte strings as keys.

    Raises CheckpointError for a malformed table.
    """
    given = mapping(tokenizer, "meta: tokenizer")
    missing = [field.name for field in fields(MetaVoiceTokenizer) if field.name not in given]
    if missing:
        raise CheckpointError(f"meta: tokenizer: {', '.join(missing)} missing")
    ranks: Mapping[Any, int] = mapping(given["mergeable_ranks"], "meta: tokenizer: mergeable_ranks")
    if not all(isinstance(piece, bytes) for piece in ranks):
        raise CheckpointError("meta: tokenizer: mergeable_ranks: not every key is a byte string")
    special = mapping(given["special_tokens"], "meta: tokenizer: special_tokens")
    return MetaVoiceTokenizer(given["pat_str"], dict(ranks), dict(special), given["offset"])


def read_tokenizers(documents: Mapping[str, Mapping[str, str]]) -> Tokenizers:
    """Read both stages' tables. documents: kind → name → text.

    Raises CheckpointError naming unknown, missing and malformed entries.
    """
    return Tokenizers(
        first_stage=_read_table(documents["metavoice"][TOKENIZER], "first_stage"),
        second_stage=_read_table(documents["metavoice_second_stage"][TOKENIZER], "second_stage"),
    )


def _read_table(text: str, stage: str) -> MetaVoiceTokenizer:
    """Read the content of a tokenizer.json, as `MetaVoiceTokenizer.to_dict` returns it."""
    where = f"{TOKENIZER}: {stage}"
    given = exact_fields(MetaVoiceTokenizer, parse_json(text, where), where)
    try:
        table = mapping(given["mergeable_ranks"], where)
        ranks: dict[bytes, Any] = {b64decode(piece, validate=True): rank for piece, rank in table.items()}
    except (Base64Error, ValueError):
        raise CheckpointError(f"{where}: mergeable_ranks: not every key is base64") from None
    if len(ranks) < len(table):
        raise CheckpointError(f"{where}: mergeable_ranks: two keys are the same bytes")
    special = mapping(given["special_tokens"], where)
    return MetaVoiceTokenizer(given["pat_str"], ranks, dict(special), given["offset"])


def byte_tokenizer(offset: int) -> str:
    """Write a tokenizer of single bytes, for a model of random weights. offset: added to each id."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    return json.dumps(MetaVoiceTokenizer(PATTERN, ranks, {END_OF_TEXT: 256}, offset).to_dict())
