"""Dia2's tokenizer: byte-level BPE in the form of `tokenizer.json`, with digits split and added tokens.

Sources: Radford et al. 2019, "Language models are unsupervised multitask learners" (bytes as characters, the
pattern); the file format is that of huggingface/tokenizers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tts_core.config import mapping
from tts_core.errors import CheckpointError, UsageError
from tts_core.files.json_object import parse_json
from tts_core.text.bpe import merge, splitter

FILE, CONFIG_FILE = "tokenizer.json", "tokenizer_config.json"
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # GPT-2's
DIGITS = r"\p{N}|[^\p{N}]+"
BYTES = 256
MOST_IDS = 1 << 18
MOST_FORMS = 16  # merges that make the same token


class Tokenizer:
    """Texts to ids. content: of tokenizer.json.  most: ids that the network has.

    Raises CheckpointError for another kind of tokenizer.
    """

    def __init__(self, content: str, *, most: int = MOST_IDS):
        read = parse_json(content, FILE)
        model = mapping(read.get("model"), f"{FILE}: model")
        _check_kind(read, model)
        vocabulary = _vocabulary(model.get("vocab"), min(most, MOST_IDS))
        self.added = _added(read.get("added_tokens"), min(most, MOST_IDS))
        self._digits = _splits_digits(read.get("pre_tokenizer"))
        longest_first = sorted(self.added, key=len, reverse=True)
        self._specials = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._merges(vocabulary, model.get("merges"))

    def _merges(self, vocabulary: Mapping[str, int], merges: object) -> None:
        """Number every byte and every merge, in the order of the file; a token may have several merges."""
        signs = byte_signs()
        missing = [sign for sign in signs if sign not in vocabulary]
        if missing:
            raise CheckpointError(
                f"{FILE}: {len(missing)} of 256 bytes have no token, {missing[0]!r} for one"
            )
        if not isinstance(merges, list) or len(merges) > MOST_IDS:
            raise CheckpointError(f"{FILE}: merges is not a list of at most {MOST_IDS}")
        forms: dict[str, list[int]] = {sign: [place] for place, sign in enumerate(signs)}
        self._ids = [vocabulary[sign] for sign in signs]
        self._pairs: dict[tuple[int, int], int] = {}
        for place, pair in enumerate(merges, BYTES):
            left, right = _pair(pair, place - BYTES)
            token = left + right
            if left not in forms or right not in forms or token not in vocabulary:
                raise CheckpointError(
                    f"{FILE}: merge {place - BYTES} of {left!r:.40} and {right!r:.40} is unknown"
                )
            for one in forms[left]:
                for other in forms[right]:
                    self._pairs.setdefault((one, other), place)
            made = forms.setdefault(token, [])
            made.append(place)
            if len(made) > MOST_FORMS:
                raise CheckpointError(f"{FILE}: more than {MOST_FORMS} merges make {token!r:.40}")
            self._ids.append(vocabulary[token])

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids, without special tokens around it; added tokens in it are read as such.

        Raises UsageError for text that UTF-8 cannot encode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"text: character {error.start} is half of a surrogate pair") from None
        found, start = list[int](), 0
        for special in self._specials.finditer(text):
            found += self._plain(text[start : special.start()])
            found.append(self.added[special[0]])
            start = special.end()
        return found + self._plain(text[start:])

    def _plain(self, text: str) -> list[int]:
        parts = splitter(DIGITS)(text) if self._digits else [text]
        words = [word for part in parts for word in splitter(PATTERN)(part)]
        return [self._ids[place] for word in words for place in merge(list(word.encode()), self._pairs)]


def byte_signs() -> list[str]:
    """Return the character that stands for each byte: itself if it is printable, else one from 256 on."""
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    others = [byte for byte in range(BYTES) if byte not in printable]
    return [chr(byte if byte in printable else BYTES + others.index(byte)) for byte in range(BYTES)]


def bos_id(tokenizer: Tokenizer, tokenizer_config: Mapping[str, Any]) -> int:
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


def _vocabulary(given: object, most: int) -> Mapping[str, int]:
    vocabulary = mapping(given, f"{FILE}: vocab")
    bad = next((token for token, place in vocabulary.items() if not _is_id(place, most)), None)
    if bad is not None:
        raise CheckpointError(
            f"{FILE}: {bad!r:.40} has id {vocabulary[bad]!r:.40}, the network has {most} ids"
        )
    return vocabulary


def _added(given: object, most: int) -> dict[str, int]:
    added: dict[str, int] = {}
    for entry in given if isinstance(given, list) else []:
        token = mapping(entry, f"{FILE}: added_tokens")
        content, place = token.get("content"), token.get("id")
        if (
            not isinstance(content, str)
            or not content
            or not isinstance(place, int)
            or not _is_id(place, most)
        ):
            raise CheckpointError(
                f"{FILE}: added token {content!r:.40} with id {place!r:.40}; {most} ids are there"
            )
        if any(token.get(name) for name in ("single_word", "lstrip", "rstrip", "normalized")):
            raise CheckpointError(
                f"{FILE}: added token {content!r:.40} takes in its surroundings; not supported"
            )
        added[content] = place
    return added


def _is_id(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most


def _pair(given: object, place: int) -> tuple[str, str]:
    """Read a merge: two tokens, or both in one string."""
    parts = given.split(" ") if isinstance(given, str) else given
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise CheckpointError(f"{FILE}: merge {place} is {given!r:.40}, expected two tokens")
    return parts[0], parts[1]
