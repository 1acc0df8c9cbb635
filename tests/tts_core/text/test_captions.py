"""Captions as SubRip and WebVTT read them."""

from pathlib import Path

import pytest

from tts_core.errors import NotFoundError, UsageError
from tts_core.text.captions import Captions, Cue, Word, in_turns, turn_texts

TWO = Captions((Cue("Hello there.", 0, 1.2344), Cue("[S1] How are you? [S2] Well.", 61.5, 3725.9996)))


def test_srt() -> None:
    assert TWO.srt() == (
        "1\n00:00:00,000 --> 00:00:01,234\nHello there.\n\n"
        "2\n00:01:01,500 --> 00:44:08,206\n[S1] How are you?\n\n"
        "3\n00:44:08,206 --> 01:02:06,000\n[S2] Well.\n"
    )


def test_vtt() -> None:
    assert TWO.vtt() == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.234\nHello there.\n\n"
        "00:01:01.500 --> 00:44:08.206\n[S1] How are you?\n\n"
        "00:44:08.206 --> 01:02:06.000\n[S2] Well.\n"
    )


def test_none() -> None:
    assert (Captions(()).srt(), Captions(()).vtt(), len(Captions(()))) == ("", "WEBVTT\n", 0)


def test_marks_of_the_formats_are_only_text() -> None:
    """No tag, no arrow and no empty line of a text acts in a caption; nothing is lost on the screen."""
    text = "a <b> & </i> <3 \n\n --> {\\an8} &amp; <00:01.000>"
    cue = Captions((Cue(text, 0, 1),))
    vtt, srt = cue.vtt().split("\n", 3)[3], cue.srt().split("\n", 2)[2]
    assert vtt == "a &lt;b&gt; &amp; &lt;/i&gt; &lt;3 --&gt; {\\an8} &amp;amp;\n&lt;00:01.000&gt;\n"
    assert srt.replace("\u200b", "").split() == text.split()
    for mark in ("-->", "<b", "</", "{\\", "\n\n"):
        assert mark not in srt
    assert "<3" in srt


def test_lines_are_short() -> None:
    words = "Consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna aliqua."
    lines = Captions((Cue(words, 0, 1),)).srt().splitlines()[2:]
    assert " ".join(lines) == words
    assert [len(line) for line in lines] == [35, 38, 20]
    long = "x" * 60
    assert Captions((Cue(f"a {long} b", 0, 1),)).srt().splitlines()[2:] == ["a", long, "b"]


def test_words_are_marked_with_their_times() -> None:
    """Inside the cue and in order, as WebVTT asks; a word that begins with the cue needs no mark."""
    words = (
        Word("Hello", 1.0),
        Word(" <you>", 1.5),
        Word("and", 1.5),
        Word("me.", 2.25, 2.9),
        Word("!", 3.0),
    )
    cue = Cue("Hello <you> and me. !", 1.0, 3.0, words)
    assert Captions((cue,)).vtt().splitlines()[3] == (
        "Hello <00:00:01.500>&lt;you&gt; and <00:00:02.250>me. !"
    )
    assert Captions((cue,)).srt().splitlines()[2] == "Hello <\u200byou> and me. !"


def test_long_cues_with_timed_words_are_cut_into_screens() -> None:
    """Two lines at most, cut before a turn or after a sentence where there is one; words keep their times."""
    text = (
        "[S1] Hello there my friend. [S2] Oh, hello! It is a long way from here to the inn, and then some "
        "more of it follows until the end of this one sentence without any stop"
    )
    spoken = [word for word in text.split() if not word.startswith("[")]
    words = tuple(Word(word, 1 + 0.5 * place) for place, word in enumerate(spoken))
    captions = Captions((Cue(text, 0.5, 30.0, words),))
    assert len(captions) == 1
    blocks = captions.srt().split("\n\n")
    assert [block.splitlines()[2:] for block in blocks] == [
        ["[S1] Hello there my friend."],
        ["[S2] Oh, hello!"],
        ["It is a long way from here to the inn, and", "then some more of it follows until the end"],
        ["of this one sentence without any stop"],
    ]
    times = [block.splitlines()[1] for block in blocks]
    assert times[0] == "00:00:00,500 --> 00:00:03,000"
    assert times[1] == "00:00:03,000 --> 00:00:04,000"
    assert times[-1].endswith("00:00:30,000")
    vtt = captions.vtt()
    assert "[S1] <00:00:01.500>" not in vtt
    assert "<00:00:01.000>[S1] Hello <00:00:01.500>there" in vtt
    assert vtt.count(" --> ") == 4
    other = Cue("Numbers: 12.", 0.0, 2.0, (Word("Numbers", 0.1), Word("twelve", 0.8), Word(".", 1.2)))
    assert "Numbers <00:00:00.800>twelve" in Captions((other,)).vtt()


SAID = "[S1] One two. [S2] Three, four! [S1] Five. [S2]"


def numbered(*words: str) -> tuple[Word, ...]:
    return tuple(Word(word, float(place)) for place, word in enumerate(words))


def test_turns() -> None:
    """A tag at the end begins none; words before the first tag are a turn."""
    assert turn_texts(SAID) == ["[S1] One two.", "[S2] Three, four!", "[S1] Five."]
    assert turn_texts("Hello there.[S2]Well.") == ["Hello there.", "[S2]Well."]
    assert turn_texts("Plain [text].") == ["Plain [text]."]


def test_turns_with_times_begin_with_their_words() -> None:
    words = numbered("One", "two.", "Three,", "four!", "Five.")
    found = in_turns(Cue(SAID, 0.0, 9.0, words, 3))
    assert [(cue.text, cue.start, cue.end) for cue in found] == [
        ("[S1] One two.", 0.0, 2.0),
        ("[S2] Three, four!", 2.0, 4.0),
        ("[S1] Five.", 4.0, 9.0),
    ]
    assert [len(cue.words) for cue in found] == [2, 2, 1]
    assert {cue.piece for cue in found} == {3}


def test_turns_that_were_not_reached_have_no_caption_and_a_recordings_words_have_their_own() -> None:
    cut = in_turns(Cue(SAID, 0.0, 9.0, numbered("One", "two.", "Three,")))
    assert [(cue.text, cue.end) for cue in cut] == [("[S1] One two.", 2.0), ("[S2] Three, four!", 9.0)]
    heard = numbered("So,", "then:", "One", "two.", "Three,", "four!", "Five.")
    assert [(cue.text, cue.start) for cue in in_turns(Cue(SAID, 0.0, 9.0, heard))] == [
        ("So, then:", 0.0),
        ("[S1] One two.", 2.0),
        ("[S2] Three, four!", 4.0),
        ("[S1] Five.", 6.0),
    ]


def test_turns_without_times_of_words_share_the_time_or_end_where_that_is_known() -> None:
    found = in_turns(Cue("[S1] abcd [S2] abcdef", 1.0, 11.0))
    assert [(cue.start, cue.end) for cue in found] == [(1.0, 5.0), (5.0, 11.0)]
    found = in_turns(Cue("[S1] abcd [S2] abcdef", 1.0, 11.0), [2.5])
    assert [(cue.start, cue.end) for cue in found] == [(1.0, 2.5), (2.5, 11.0)]


def test_a_word_ends_where_the_next_begins() -> None:
    words = (Word("Hello", 1.0), Word("you", 1.5, 1.8), Word("all.", 2.0))
    assert [word.end for word in Cue("Hello you all.", 1.0, 3.0, words).timed()] == [1.5, 1.8, 3.0]
    assert Cue("Hello.", 1.0, 3.0).timed() == ()


@pytest.mark.parametrize("name", ["a.srt", "a.SRT", "a.vtt", "a.VTT"])
def test_files(tmp_path: Path, name: str) -> None:
    captions = Captions((Cue("Grüß Gott.", 0, 1),))
    captions.save(tmp_path / name)
    written = (tmp_path / name).read_bytes().decode()
    assert written == (captions.srt() if name in ("a.srt", "a.SRT") else captions.vtt())


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^captions: a\.txt ends in '\.txt'; use \.srt, \.vtt"):
        TWO.save("a.txt")
    with pytest.raises(NotFoundError, match=r"^captions: the folder .*none does not exist"):
        TWO.save(tmp_path / "none" / "a.srt")
    (tmp_path / "folder.srt").mkdir()
    with pytest.raises(UsageError, match="a folder; give the name of a file"):
        TWO.save(tmp_path / "folder.srt")


@pytest.mark.parametrize(
    "cue",
    [
        Cue("a", float("nan"), 1),
        Cue("a", 0, float("inf")),
        Cue("a", -1, 1),
        Cue("a", 0, 1, (Word("a", float("nan")),)),
        Cue("a", 0, 1, (Word("a", 0, float("inf")),)),
    ],
)
def test_times_that_no_caption_has(cue: Cue) -> None:
    with pytest.raises(UsageError, match=r"captions: cue 2 has the time .*; give seconds from 0 on"):
        Captions((Cue("a", 0, 1), cue))


@pytest.mark.parametrize("cue", [Cue("a\ud800", 0, 1), Cue("a", 0, 1, (Word("a\0", 0),))])
def test_characters_that_no_caption_has(cue: Cue) -> None:
    with pytest.raises(UsageError, match=r"captions: cue 1: character 2 is U"):
        Captions((cue,))
