"""Text rules in a request to Dia, its own limits, and remarks for the caller."""

import math

import numpy as np
import pytest

from tests.tiny.networks import dac_config, dia_config
from tts_core.dia.options import DiaOptions
from tts_core.dia.request import DiaFacts, DiaRequest
from tts_core.dia.text import notes
from tts_core.errors import CheckpointError, UsageError
from tts_core.prompt import Prompt
from tts_core.text.duration import longest_frames
from tts_core.text.rules import FILE, NO_RULES, TextRules, read_rules
from tts_core.voice.embedded import DIA

CONFIG, CODEC = dia_config(positions=900, text_positions=200), dac_config()
RULES_TEXT = (DIA / FILE).read_text("utf-8")
RULES = read_rules({FILE: RULES_TEXT})
CODES = np.zeros((4, 5), np.int32)
RATE = CODEC.frame_rate


def asked(
    text: str, prompt: Prompt | np.ndarray | None = None, *, rules: TextRules = RULES, **given: object
) -> DiaRequest:
    return DiaFacts(CONFIG, CODEC, rules).request(text, DiaOptions(seed=1, **given), prompt)  # type: ignore[arg-type]


def texts(made: DiaRequest) -> list[str]:
    return [piece.text for piece in made.pieces]


READ = {
    "[S1] Hello": "[S1] Hello.",
    "Hello": "[S1] Hello.",
    "[s2] Dr. Who": "[S2] Doctor Who.",
    "[S1] Is it 5?[S2]No,  42 [S1]": "[S1] Is it five? [S2] No, forty two. [S1]",
    "[S1]“Oh”\n\n[S2] (sighs)": "[S1] Oh. [S2] sighs.",
    "intro [S1] a": "[S1] intro. [S1] a.",
}


@pytest.mark.parametrize("text", READ)
def test_rules_of_the_folder_apply_to_every_turn(text: str) -> None:
    assert texts(asked(text)) == [READ[text]]
    [made] = DiaFacts(CONFIG, CODEC, RULES).requests([text], DiaOptions(seed=1), None)
    assert bytes(made.pieces[0].tokens.astype(np.uint8)) == READ[text].encode().replace(
        b"[S1]", b"\1"
    ).replace(b"[S2]", b"\2")


def test_no_rules_where_they_are_not_wanted() -> None:
    assert texts(asked("[S1] Größe 5,", as_written=True)) == ["[S1] Größe 5,"]
    assert texts(asked("[S1] Größe 5,", rules=NO_RULES)) == ["[S1] Größe 5,"]
    [made] = DiaFacts(CONFIG, CODEC, RULES).requests(["5"], DiaOptions(seed=1), None, exactly=True)
    assert bytes(made.pieces[0].tokens.astype(np.uint8)) == b"5"


def test_a_transcript_gets_no_end_mark() -> None:
    """The text may go on in its sentence."""
    made = asked("I have 3", Prompt.of(codes=CODES, text="[s1] So, 2 of"))
    assert texts(made) == ["[S1] So, two of I have three."]
    assert made.voice is not None
    assert made.voice.transcript == "[S1] So, two of"
    [one] = DiaFacts(CONFIG, CODEC, RULES).requests(
        ["yes"], DiaOptions(), [Prompt.of(codes=CODES, text="2 of")]
    )
    assert bytes(one.pieces[0].tokens.astype(np.uint8)) == b"\1 two of yes."


def test_unknown_characters() -> None:
    with pytest.raises(UsageError, match=r"^text: the model has not learned 東 京; write"):
        asked("[S1] 東京")
    with pytest.raises(UsageError, match=r"^transcript: the model has not learned 東; write"):
        asked("Yes", Prompt.of(codes=CODES, text="東 a"))
    with pytest.raises(UsageError, match=r"^text 2: the model has not learned 東; write"):
        DiaFacts(CONFIG, CODEC, RULES).requests(["a", "o東"], DiaOptions(), None)
    assert texts(asked("[S1] 東 Yes, я", skip_unknown=True)) == ["[S1] Yes."]
    with pytest.raises(UsageError, match="there are no words in it"):
        asked("[S1] 東京", skip_unknown=True)
    with pytest.raises(UsageError, match=r"turn 1 of 2, \[S1\], has no words"):
        asked("[S1] 東京 [S2] Yes.", skip_unknown=True)


@pytest.mark.parametrize(
    ("text", "captions"),
    [
        ("Hello there.", ["Hello there."]),
        ("Hello. [pause:1] So.", ["Hello.", "So."]),
        ("[S1] Hello. [pause:1] So.", ["[S1] Hello.", "[S1] So."]),
        ("[s2] Hello.", ["[S2] Hello."]),
        ("Hello. [S2] Hi.", ["[S1] Hello. [S2] Hi."]),
    ],
)
def test_captions_have_a_tag_only_where_the_text_has_one(text: str, captions: list[str]) -> None:
    made = asked(text)
    assert [*made.pacing.texts] == captions
    assert all(one.startswith("[S") for one in texts(made))
    if "[" not in text.replace("[pause", ""):
        assert [*asked(text, Prompt.of(codes=CODES, text="[S2] So, two of")).pacing.texts] == captions


def test_accented_letters_are_read_without_accents_and_noted_once() -> None:
    made = asked("[S1] Café naïve. [S2] Straße, café.", Prompt.of(codes=CODES, text="[S1] Déjà vu."))
    assert texts(made) == texts(
        asked("[S1] Cafe naive. [S2] Strasse, cafe.", Prompt.of(codes=CODES, text="[S1] Deja vu."))
    )
    assert [note for note in made.notes if "accents" in note] == [
        "text: read without accents: é as e, ï as i, ß as ss"
    ]
    written = asked("[S1] Café", as_written=True)
    assert texts(written) == ["[S1] Café"]
    assert not [note for note in written.notes if "accents" in note]


def test_skipping_needs_an_alphabet() -> None:
    with pytest.raises(UsageError, match=r"^skip_unknown: this model has no alphabet; leave it out$"):
        asked("Hi.", rules=NO_RULES, skip_unknown=True)
    with pytest.raises(UsageError, match=r"^skip_unknown: as_written reads every character"):
        asked("Hi.", as_written=True, skip_unknown=True)


def test_long_texts_are_refused_with_places_of_the_text_as_it_is_read() -> None:
    with pytest.raises(UsageError, match=r"split it after character \d+ of the text as it is read \("):
        asked("[S1] " + "100 dogs. " * 40, piece_seconds=None)
    with pytest.raises(UsageError, match=r"split it after character \d+ \("):
        asked("[S1] " + "A dog. " * 40, piece_seconds=None)


def test_the_limit_comes_from_the_own_length() -> None:
    """A tag counts as a character, a transcript not at all; a given limit replaces it."""
    short = longest_frames(len("_ Hello.") / 15, RATE)
    assert asked("[S1] Hello.").limits == (short,)
    assert asked("[S1] Hello.").own_limits
    voice = Prompt.of(codes=CODES, text="[S1] " + "And so it was. " * 5)
    assert asked("[S1] Hello.", voice).limits == (short,)
    assert asked("[S1] Hello.", max_frames=700).limits == (700,)
    assert not asked("[S1] Hello.", max_frames=700).own_limits
    assert asked("[S1] Hello.", max_seconds=1).limits == (math.ceil(RATE),)
    small = dia_config(positions=60, text_positions=200)
    assert DiaFacts(small, CODEC).request("[S1] la la.", DiaOptions(piece_seconds=None), None).limits == (
        small.max_frames,
    )
    numbers = longest_frames(
        len("_ one two three four five six seven eight nine one two three four five six seven") / 15, RATE
    )
    assert asked("[S1] 1234567891234567", rules=NO_RULES).limits == (numbers,)


@pytest.mark.parametrize("exactly", [False, True])
def test_limits_in_a_batch(exactly: bool) -> None:
    def batch(**given: object) -> list[int]:
        options = DiaOptions(seed=1, **given)  # type: ignore[arg-type]
        made = DiaFacts(CONFIG, CODEC, RULES).requests(
            ["[S1] Hi.", "[S1] Hello."], options, None, exactly=exactly
        )
        assert {one.own_limits for one in made} == {not given}
        return [one.limits[0] for one in made]

    assert batch() == [longest_frames(len(f"_ {word}.") / 15, RATE) for word in ("Hi", "Hello")]
    assert batch(max_frames=[8, 500]) == [8, 500]
    assert batch(max_seconds=2) == [math.ceil(2 * RATE)] * 2


def test_remarks() -> None:
    tag = "text: no speaker's tag at its start, [S1] speaks it"
    assert asked("Hello.").notes == ()  # a plain text has no tags to miss
    assert asked("Hello. [S2] No.").notes == (tag,)
    assert asked("[s1] Hello.").notes == ()
    assert asked("[pause:1] [S1] Hello. [pause:1] Yes.").notes == ()
    assert asked("Hello.", Prompt.of(codes=CODES, text="So")).notes == ()
    assert asked("So Hello. [s2] No.", CODES).notes == (tag,)
    advice = "text: about 0.5 s of speech; Dia's authors advise 5 to 20 s"
    last = ", and the tag of the second-to-last speaker at the end"
    assert asked("[S1] Hello.", rules=NO_RULES).notes == (advice + last,)
    assert notes("[S1] Hello. [S2]", 0.53, NO_RULES, continues=False) == (advice,)
    assert notes("[S1] Hello.", 5.0, NO_RULES, continues=False) == ()


def test_rules_are_read_from_the_documents() -> None:
    configs, options = {"dia": CONFIG, "dac": CODEC}, DiaOptions()
    assert texts(DiaFacts.of(configs, {"dia": {FILE: RULES_TEXT}, "dac": {}}).request("5", options)) == [
        "[S1] five."
    ]
    assert texts(DiaFacts.of(configs, {"dia": {}, "dac": {}}).request("5", options)) == ["[S1] 5"]
    with pytest.raises(CheckpointError, match=FILE):
        DiaFacts.of(configs, {"dia": {FILE: ""}}).request("5", options)


def test_a_piece_that_stops_inside_a_sentence_gets_an_end_mark() -> None:
    script = "[S1] One two three, four five six. [S2] No, not now, not here [S1]"
    marked, plain = asked(script, piece_seconds=1), asked(script, piece_seconds=1, as_written=True)
    assert len(marked.pieces) == len(plain.pieces) > 4
    for one, other in zip(texts(marked), texts(plain), strict=True):
        assert one.removesuffix(" [S1]")[-1] == "."
        assert one.replace(".", "") == other.replace(".", "").replace(",", "")
    assert not any(text.endswith(".") for text in texts(plain)[:2])
