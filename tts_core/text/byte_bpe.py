"""Byte-level BPE in the form of GPT-2's vocab.json and merges.txt.

Radford et al. 2019, "Language models are unsupervised multitask learners": bytes as characters, words by a
pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tts_core.errors import CheckpointError
from tts_core.text.bpe import merge

BYTES = 256
MOST_FORMS = 16  # merges that make the same token


class ByteBpe:
    """Words to ids.

    split: text → words.  Raises CheckpointError for a merge of unknown tokens, and bytes without a token.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        split: Callable[[str], list[str]],
    ):
        signs = byte_signs()
        missing = [sign for sign in signs if sign not in vocabulary]
        if missing:
            raise CheckpointError(
                f"vocabulary: {len(missing)} of 256 bytes have no token, {missing[0]!r} for one"
            )
        self._split = split
        self._ids = [vocabulary[sign] for sign in signs]
        self._pairs: dict[tuple[int, int], int] = {}
        forms: dict[str, list[int]] = {sign: [place] for place, sign in enumerate(signs)}
        for place, (left, right) in enumerate(merges, BYTES):
            token = left + right
            if left not in forms or right not in forms or token not in vocabulary:
                raise CheckpointError(
                    f"merges: {left!r:.40} and {right!r:.40}, number {place - BYTES}, are unknown"
                )
            for one in forms[left]:
                for other in forms[right]:
                    self._pairs.setdefault((one, other), place)
            made = forms.setdefault(token, [])
            made.append(place)
            if len(made) > MOST_FORMS:
                raise CheckpointError(f"merges: more than {MOST_FORMS} make {token!r:.40}")
            self._ids.append(vocabulary[token])

    def encode(self, text: str) -> list[int]:
        """Encode text that UTF-8 can encode."""
        words = self._split(text)
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
