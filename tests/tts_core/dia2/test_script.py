"""Reading with a tokenizer that lacks the speakers' tags, as upstream does: both are the id of a new word."""

from dataclasses import dataclass, field

from tts_core.dia2.recordings import align
from tts_core.dia2.script import Entry, Reader
from tts_core.text.captions import Word

NEW = 2


@dataclass
class Characters:
    """Code points as ids."""

    added: dict[str, int] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        return [ord(sign) for sign in text]


def entry(text: str, said: str, *first: int) -> Entry:
    tokens = (*first, *map(ord, said))
    return Entry(tokens, text, len(tokens))


def test_without_tags_every_turn_is_written_as_the_first_speakers():
    reader = Reader.of(Characters(), NEW, 12.5)
    assert reader.speakers == (NEW, NEW)
    assert reader.entries("[S1] a [S2] b c") == [
        entry("a", "[S1] a", NEW),
        entry("b", "[S1] b"),
        entry("c", "c"),
    ]
    assert reader.lines(["a", "b"]) == [entry("a", "a", NEW), entry("b", "b", NEW)]


def test_one_tag_alone_is_known():
    reader = Reader.of(Characters({"[S2]": 9}), NEW, 12.5)
    assert reader.speakers == (NEW, 9)
    assert reader.entries("[S2] b") == [entry("b", "[S2] b", NEW)]


def test_words_of_a_recording_get_only_a_tag_that_is_known():
    for tokenizer, said in ((Characters(), "a"), (Characters({"[S1]": 9}), "[S1] a")):
        [(tokens, _, _)], steps = align(tokenizer, 0, [Word("a", 0.4, 0.5)], 12.5)
        assert (tokens, steps) == (tuple(map(ord, said)), [4])
