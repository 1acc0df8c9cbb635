"""Qwen3-TTS's tokenizer: Qwen2's byte-level BPE from vocab.json and merges.txt, with added tokens.

Source: the published files; the pattern is that of huggingface/transformers' Qwen2 tokenizer, Apache-2.0.
Differs from upstream: never the pattern of Mistral, which transformers 4.57.3 puts in for local folders.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from tts_core.config import mapping
from tts_core.errors import CheckpointError, UsageError
from tts_core.files.json_object import parse_json
from tts_core.text.bpe import splitter
from tts_core.text.byte_bpe import ByteBpe

FILES = VOCABULARY, MERGES, CONFIG = ("vocab.json", "merges.txt", "tokenizer_config.json")
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MOST_IDS = 1 << 18
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")  # of an added token; all must be false


class Tokenizer:
    """Texts to ids. vocabulary, merges, config: contents of FILES.  most: ids that the network has.

    Raises CheckpointError for another kind of tokenizer.
    """

    def __init__(self, vocabulary: str, merges: str, config: str, *, most: int = MOST_IDS):
        most = min(most, MOST_IDS)
        ids = parse_json(vocabulary, VOCABULARY)
        _check_ids(ids, most, VOCABULARY)
        self.added = _added(parse_json(config, CONFIG).get("added_tokens_decoder", {}), most)
        longest_first = sorted(self.added, key=len, reverse=True)
        self._added = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._words = ByteBpe(ids, _merges(merges), splitter(PATTERN))

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids; added tokens in it are read as such.

        Raises UsageError for text that UTF-8 cannot encode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"text: character {error.start} is half of a surrogate pair") from None
        found, start = list[int](), 0
        for token in self._added.finditer(text):
            found += self._plain(text[start : token.start()])
            found.append(self.added[token[0]])
            start = token.end()
        return found + self._plain(text[start:])

    def check_plain(self, text: str, what: str) -> None:
        """Raise UsageError if a text of a request contains an added token, which would control the model."""
        token = self._added.search(text)
        if token is not None:
            raise UsageError(f"{what}: contains {token[0]!r}, which controls the model; remove it")

    def _plain(self, text: str) -> list[int]:
        return self._words.encode(unicodedata.normalize("NFC", text))


def _merges(content: str) -> list[tuple[str, str]]:
    lines = content.split("\n")
    lines = lines[1:] if lines[0].startswith("#version") else lines
    if len(lines) > MOST_IDS:
        raise CheckpointError(f"{MERGES}: more than {MOST_IDS} lines")
    pairs = [tuple(line.rstrip("\r").split(" ")) for line in lines if line.strip()]
    bad = next((place for place, pair in enumerate(pairs, 1) if len(pair) != 2), None)
    if bad is not None:
        raise CheckpointError(f"{MERGES}: merge {bad} is not two tokens")
    return [(pair[0], pair[1]) for pair in pairs]


def _added(given: object, most: int) -> dict[str, int]:
    added: dict[str, int] = {}
    for number, entry in mapping(given, f"{CONFIG}: added_tokens_decoder").items():
        token = mapping(entry, f"{CONFIG}: added_tokens_decoder")
        content = token.get("content")
        flags = [name for name in _FLAGS if token.get(name)]
        if not isinstance(content, str) or not content or not number.isdecimal() or flags:
            raise CheckpointError(
                f"{CONFIG}: added token {content!r:.40} {number:.20} {flags} is not supported"
            )
        added[content] = int(number)
    _check_ids(added, most, CONFIG)
    return added


def _check_ids(ids: Mapping[str, object], most: int, where: str) -> None:
    for token, id in ids.items():
        if type(id) is not int or not 0 <= id < most:
            raise CheckpointError(f"{where}: {token!r:.40} has id {id!r:.40}, the network has {most} ids")
