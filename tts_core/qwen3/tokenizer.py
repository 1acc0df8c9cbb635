"""Qwen3-TTS's tokenizer: Qwen2's byte-level BPE from vocab.json and merges.txt, with added tokens.

Source: the published files; the pattern is that of huggingface/transformers' Qwen2 tokenizer, Apache-2.0.
Differs from upstream: never the pattern of Mistral, which transformers 4.57.3 puts in for local folders.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from tts_core.config import mapping
from tts_core.errors import CheckpointError, UsageError
from tts_core.files.json_object import parse_json
from tts_core.text.bpe import splitter
from tts_core.text.byte_bpe import MOST_IDS, ByteBpe, added_token, byte_signs, check_ids

FILES = VOCABULARY, MERGES, CONFIG = ("vocab.json", "merges.txt", "tokenizer_config.json")
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Qwen3Tokenizer(ByteBpe):
    """Texts to ids. vocabulary, merges, config: contents of FILES.  most: ids that the network has.

    Raises CheckpointError for another kind of tokenizer.
    """

    def __init__(self, vocabulary: str, merges: str, config: str, *, most: int = MOST_IDS):
        most = min(most, MOST_IDS)
        ids = parse_json(vocabulary, VOCABULARY)
        check_ids(ids, most, VOCABULARY)
        where, added = f"{CONFIG}: added_tokens_decoder", dict[str, int]()
        for number, entry in mapping(
            parse_json(config, CONFIG).get("added_tokens_decoder", {}), where
        ).items():
            id = int(number) if number.isdecimal() else number
            added |= added_token(mapping(entry, where), id, most, CONFIG)
        super().__init__(ids, _merges(merges), added, split=_words, where=f"{VOCABULARY}, {MERGES}")

    def check_plain(self, text: str, what: str) -> None:
        """Raise UsageError if a text of a request contains an added token, which would control the model.

        what: the argument, for the error.
        """
        token = self.first_added(text)
        if token is not None:
            raise UsageError(f"{what}: contains {token!r}, which controls the model; remove it")

    def settled(self, text: str) -> str:
        """Return the beginning of a text that goes on whose ids no further text can change."""
        words = _words(text)
        last = max((index for index, word in enumerate(words) if not word.isspace()), default=0)
        return "".join(words[:last])


@lru_cache(maxsize=4)
def shared_tokenizer(vocabulary: str, merges: str, config: str, most: int) -> Qwen3Tokenizer:
    """Build the tokenizer of a model once for all its requests; arguments and errors as in Qwen3Tokenizer."""
    return Qwen3Tokenizer(vocabulary, merges, config, most=most)


def _words(text: str) -> list[str]:
    return splitter(PATTERN)(unicodedata.normalize("NFC", text))


def _merges(content: str) -> list[tuple[str, str]]:
    lines = content.split("\n")
    lines = lines[1:] if lines[0].startswith("#version") else lines
    if len(lines) > MOST_IDS:
        raise CheckpointError(f"{MERGES}: more than {MOST_IDS} lines")
    pairs = [tuple(line.rstrip("\r").split(" ")) for line in lines if line.strip()]
    bad = next((index for index, pair in enumerate(pairs, 1) if len(pair) != 2), None)
    if bad is not None:
        raise CheckpointError(f"{MERGES}: merge {bad} is not two tokens")
    return [(pair[0], pair[1]) for pair in pairs]


def byte_tokenizer(tags: Mapping[int, str]) -> dict[str, str]:
    """Write the files of a tokenizer of single bytes and tags, for a model of random weights."""
    vocabulary = {sign: index for index, sign in enumerate(byte_signs())}
    read = {"added_tokens_decoder": {str(id): {"content": tag} for id, tag in tags.items()}}
    return {VOCABULARY: json.dumps(vocabulary), MERGES: "", CONFIG: json.dumps(read)}
