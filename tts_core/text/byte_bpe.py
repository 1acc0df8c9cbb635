"""Byte-level BPE in the form of GPT-2, with added tokens: Dia2's and Qwen3-TTS's.

Radford et al. 2019, "Language models are unsupervised multitask learners": bytes as characters, words by a
pattern. Added tokens are those of huggingface/tokenizers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tts_core.errors import CheckpointError, UsageError
from tts_core.text.bpe import merge

BYTES = 256
MOST_IDS = 1 << 18
MOST_FORMS = 16  # merges that make the same token
_SURROUNDINGS = ("single_word", "lstrip", "rstrip", "normalized")  # flags of an added token


class ByteBpe:
    """Texts to ids.

    vocabulary, added: token → id, the latter of tokens that a text may contain as they are.
    merges: in order; a token may have several.
    split: text → words.
    where: the file, for the errors.
    Raises CheckpointError for a merge of unknown tokens, and bytes without a token.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        added: Mapping[str, int],
        *,
        split: Callable[[str], list[str]],
        where: str,
    ):
        signs = byte_signs()
        missing = [sign for sign in signs if sign not in vocabulary]
        if missing:
            raise CheckpointError(
                f"{where}: {len(missing)} of 256 bytes have no token, {missing[0]!r} for one"
            )
        self.added, self._split = dict(added), split
        longest_first = sorted(added, key=len, reverse=True)
        self._added = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._ids = [vocabulary[sign] for sign in signs]
        self._pairs: dict[tuple[int, int], int] = {}
        forms: dict[str, list[int]] = {sign: [index] for index, sign in enumerate(signs)}
        for index, (left, right) in enumerate(merges, BYTES):
            token = left + right
            if left not in forms or right not in forms or token not in vocabulary:
                raise CheckpointError(
                    f"{where}: merge {index - BYTES} of {left!r:.40} and {right!r:.40} is unknown"
                )
            for form in forms[left]:
                for other in forms[right]:
                    self._pairs.setdefault((form, other), index)
            made = forms.setdefault(token, [])
            made.append(index)
            if len(made) > MOST_FORMS:
                raise CheckpointError(f"{where}: more than {MOST_FORMS} merges make {token!r:.40}")
            self._ids.append(vocabulary[token])

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

    def first_added(self, text: str) -> str | None:
        """Return the first added token in a text; None if there is none."""
        found = self._added.search(text)
        return None if found is None else found[0]

    def _plain(self, text: str) -> list[int]:
        words = self._split(text)
        return [self._ids[index] for word in words for index in merge(list(word.encode()), self._pairs)]


def check_ids(ids: Mapping[str, object], most: int, where: str) -> None:
    """Raise CheckpointError unless every token has an id below `most`. where: the file."""
    for token, id in ids.items():
        if type(id) is not int or not 0 <= id < most:
            raise CheckpointError(f"{where}: {token!r:.40} has id {id!r:.40}, the network has {most} ids")


def added_token(entry: Mapping[str, Any], id: object, most: int, where: str) -> dict[str, int]:
    """Read an entry of added tokens → its content and its id. where: the file.

    Raises CheckpointError for an id that is not below `most`, and for a token that takes in its surroundings.
    """
    content = entry.get("content")
    if not isinstance(content, str) or not content or type(id) is not int or not 0 <= id < most:
        raise CheckpointError(
            f"{where}: added token {content!r:.40} with id {id!r:.40}; {most} ids are there"
        )
    if any(entry.get(name) for name in _SURROUNDINGS):
        raise CheckpointError(
            f"{where}: added token {content!r:.40} takes in its surroundings; not supported"
        )
    return {content: id}


def byte_signs() -> list[str]:
    """Return a character for each byte: itself if it is printable, else one from 256 on."""
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    others = [byte for byte in range(BYTES) if byte not in printable]
    return [chr(byte if byte in printable else BYTES + others.index(byte)) for byte in range(BYTES)]
