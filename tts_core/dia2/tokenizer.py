"""Dia2's tokenizer: byte-level BPE in the form of `tokenizer.json`, with digits split and added tokens.

Source: the file format is that of huggingface/tokenizers; the pattern is GPT-2's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from tts_core.config import mapping
from tts_core.errors import CheckpointError
from tts_core.files.json_object import parse_json
from tts_core.text.bpe import splitter
from tts_core.text.byte_bpe import MOST_IDS, ByteBpe, added_token, byte_signs, check_ids

FILE, CONFIG_FILE, ASSETS_FILE = "tokenizer.json", "tokenizer_config.json", "dia2_assets.json"
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGITS = r"\p{N}|[^\p{N}]+"


class Dia2Tokenizer(ByteBpe):
    """Texts to ids. content: of tokenizer.json.  most: ids that the network has.

    Raises CheckpointError for another kind of tokenizer.
    """

    def __init__(self, content: str, *, most: int = MOST_IDS):
        read, most = parse_json(content, FILE), min(most, MOST_IDS)
        model = mapping(read.get("model"), f"{FILE}: model")
        _check_kind(read, model)
        vocabulary = mapping(model.get("vocab"), f"{FILE}: vocab")
        check_ids(vocabulary, most, FILE)
        given, added = read.get("added_tokens"), dict[str, int]()
        for entry in given if isinstance(given, list) else []:
            token = mapping(entry, f"{FILE}: added_tokens")
            added |= added_token(token, token.get("id"), most, FILE)
        split = _words_of_digits if _splits_digits(read.get("pre_tokenizer")) else splitter(PATTERN)
        super().__init__(vocabulary, _merges(model.get("merges")), added, split=split, where=FILE)


@lru_cache(maxsize=4)
def shared_tokenizer(content: str, most: int) -> Dia2Tokenizer:
    """Build the tokenizer of a model once for all its requests; arguments and errors as in Dia2Tokenizer."""
    return Dia2Tokenizer(content, most=most)


def bos_id(tokenizer: Dia2Tokenizer, tokenizer_config: Mapping[str, Any]) -> int:
    """Return the id of the text's first step: the tokenizer's BOS, or 1 if that is 0 or missing."""
    token = tokenizer_config.get("bos_token")
    content = token.get("content") if isinstance(token, Mapping) else token
    return tokenizer.added.get(content, 0) or 1 if isinstance(content, str) else 1


def _check_kind(read: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    faults = [] if model.get("type") == "BPE" else [f"model {model.get('type')!r:.40}"]
    names = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
    faults += [f"{name} {model[name]!r:.40}" for name in names if model.get(name)]
    faults += ["a normalizer"] if read.get("normalizer") else []
    if faults:
        raise CheckpointError(f"{FILE}: {', '.join(faults)}; only byte-level BPE is supported")


def _splits_digits(given: object) -> bool:
    """Check the splitting before BPE: GPT-2's, with or without single digits. Returns True with them."""
    first = mapping(given, f"{FILE}: pre_tokenizer")
    steps = first.get("pretokenizers") if first.get("type") == "Sequence" else [first]
    steps = [mapping(step, f"{FILE}: pre_tokenizer") for step in steps] if isinstance(steps, list) else []
    digits = [step for step in steps if step.get("type") == "Digits"]
    *before, last = steps or [{}]
    whole = (
        last.get("type") == "ByteLevel" and last.get("use_regex", True) and not last.get("add_prefix_space")
    )
    if (
        not whole
        or before != digits
        or len(digits) > 1
        or any(not step.get("individual_digits") for step in digits)
    ):
        raise CheckpointError(
            f"{FILE}: pre_tokenizer {given!r:.80}; only single digits and ByteLevel are supported"
        )
    return bool(digits)


def _words_of_digits(text: str) -> list[str]:
    return [word for part in splitter(DIGITS)(text) for word in splitter(PATTERN)(part)]


def _merges(given: object) -> list[tuple[str, str]]:
    if not isinstance(given, list) or len(given) > MOST_IDS:
        raise CheckpointError(f"{FILE}: merges is not a list of at most {MOST_IDS}")
    return [_pair(pair, index) for index, pair in enumerate(given)]


def _pair(given: object, index: int) -> tuple[str, str]:
    """Read a merge: two tokens, or both in one string."""
    parts = given.split(" ") if isinstance(given, str) else given
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise CheckpointError(f"{FILE}: merge {index} is {given!r:.40}, expected two tokens")
    return parts[0], parts[1]


def byte_tokenizer(tags: Sequence[str]) -> str:
    """Write a tokenizer.json of single bytes and tags, for a model of random weights."""
    vocabulary = {sign: index for index, sign in enumerate(byte_signs())}
    read = {
        "added_tokens": [{"id": 256 + index, "content": tag} for index, tag in enumerate(tags)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    return json.dumps(read)
