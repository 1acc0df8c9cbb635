"""MARS5's requests: voices, texts, pieces, seeds and settings, checked without a network."""

from dataclasses import fields, replace
from typing import Any, get_type_hints

import numpy as np
import pytest

from tests.tts_core.mars5.test_tokens import VOCABULARY
from tts_core.errors import UsageError
from tts_core.mars5.reference import Reference, Sizes, read_reference
from tts_core.mars5.request import (
    ARGUMENTS,
    Overrides,
    Request,
    choose_settings,
    for_vocoder,
    request_pieces,
    request_texts,
)
from tts_core.mars5.sampling import Mars5Settings
from tts_core.noise import HostNoise, piece_seed
from tts_core.prompt import Prompt
from tts_core.text.sentences import CHARACTERS_PER_SECOND

SIZES = Sizes(sample_rate=24000, hop_length=320, n_codebooks=8, codebook_size=1024)
SETTINGS = Mars5Settings()
SOUND = np.sin(np.arange(24000) / 20).astype(np.float32)
CODES = np.arange(8 * 5, dtype=np.int64).reshape(8, 5)


def read(prompt: Any, *, deep: bool | None = None, **settings: Any) -> Reference:
    return read_reference(prompt, SIZES, replace(SETTINGS, **settings), deep_clone=deep)


def pieces(text: str, **given: Any) -> Request:
    arguments = {
        "deep_clone": None,
        "as_written": False,
        "piece_seconds": 10.0,
        "seed": 1,
        "noise": None,
        "draws": "per cell",
    }
    prompt = given.pop("prompt", Prompt.of(audio=SOUND))
    return request_pieces(text, prompt, SIZES, SETTINGS, **{**arguments, **given})


def texts(said: Request) -> list[str]:
    return [item.text for item in said.items]


def test_every_setting_may_be_given_by_name() -> None:
    assert set(get_type_hints(Overrides)) == {field.name for field in fields(Mars5Settings)}


def test_settings() -> None:
    given = Mars5Settings(top_k=5, timesteps=7)
    assert choose_settings(None, None, {}) == SETTINGS
    assert choose_settings(given, 2.0, {"top_p": None, "top_k": 9}) == replace(
        given, top_k=9, nar_guidance_w=2.0
    )
    with pytest.raises(UsageError, match=r"freq_penality: .* did you mean freq_penalty\?"):
        choose_settings(None, None, {"freq_penality": 1.0})
    with pytest.raises(UsageError, match=r"promt: .* did you mean prompt"):
        choose_settings(None, None, {"promt": None})
    with pytest.raises(UsageError, match=r"xyz: .* it takes as_written, cfg_scale"):
        choose_settings(None, None, {"xyz": 1})
    assert len(set(ARGUMENTS)) == len(ARGUMENTS)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (None, "MARS5 speaks with the voice of a reference"),
        (Prompt.of(audio=np.zeros(9, np.int16)), "floating-point samples"),
        (Prompt.of(audio=np.zeros((2, 900), np.float32)), "1-D array"),
        (Prompt.of(audio=np.zeros(0, np.float32)), "non-empty"),
        (Prompt.of(audio=np.array([0.1, np.nan] * 200)), "finite"),
        (Prompt.of(audio=SOUND[:319]), "319 samples are less than a frame"),
        (Prompt.of(audio=np.zeros(900)), "silent"),
        (Prompt.of(audio=np.tile(SOUND, 13)), r"13\.0 s of reference, .* made for 12; cut it"),
        (Prompt.of(codes=np.zeros((7, 4), int)), r"shape \(7, 4\); expected \(8, frames\)"),
        (Prompt.of(codes=np.zeros((8, 0), int)), r"shape \(8, 0\)"),
        (Prompt.of(codes=np.zeros((8, 4))), "type float64"),
        (Prompt.of(codes=np.full((8, 4), 1024)), "outside 0 .. 1023"),
        (Prompt.of(codes=np.zeros((8, 901), int)), r"12\.0 s of reference"),
        (Prompt.of(audio=SOUND, text=""), "transcript: there are no words"),
        (Prompt.of(audio=SOUND, text="a\x00b"), "transcript: character 2 is U[+]0000"),
    ],
)
def test_voices_that_cannot_be_used(prompt: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(prompt)


def test_voices_of_exactly_twelve_seconds() -> None:
    """The silence in front is not counted."""
    heard = read(Prompt(audio=np.tile(SOUND, 12)), ref_audio_pad=0.5)
    assert heard.samples is not None
    assert (len(heard.samples), heard.frames) == (24000 * 12 + 12000, 938)
    assert read(Prompt(codes=np.zeros((8, 900), int))).frames == 900
    with pytest.raises(UsageError, match="made for 12"):
        read(Prompt(audio=np.append(np.tile(SOUND, 12), SOUND[:1])))


def test_longer_voices_where_they_are_wanted() -> None:
    assert read(Prompt.of(audio=np.tile(SOUND, 13)), max_prompt_dur=20.0).frames == 975
    assert read(CODES).frames == 5


def test_a_voice_is_deep_where_there_is_a_transcript() -> None:
    told = Prompt.of(codes=CODES, text="Hello.")
    assert read(told).transcript == "Hello."
    assert read(told, deep=False).transcript is None
    assert read(Prompt.of(codes=CODES)).transcript is None
    with pytest.raises(UsageError, match=r"deep_clone: .* give its transcript, or deep_clone=False"):
        read(Prompt.of(codes=CODES), deep=True)


def test_silence_in_front() -> None:
    padded = read(Prompt.of(audio=SOUND), ref_audio_pad=0.02)
    assert padded.samples is not None
    assert not padded.samples[:480].any()
    np.testing.assert_array_equal(padded.samples[480:], SOUND)
    assert padded.frames == 77  # of 76.5
    assert padded.samples.dtype == np.float32


def test_numbers_are_spoken_unless_told_otherwise() -> None:
    text = "Dr. Ray  paid\n$5."
    assert texts(pieces(text)) == ["Doctor Ray paid five dollars."]
    assert texts(pieces(text, as_written=True)) == [text]
    told = Prompt.of(audio=SOUND, text="At 3.")
    assert pieces(text, prompt=told).items[0].reference.transcript == "At three."
    assert pieces(text, prompt=told, as_written=True).items[0].reference.transcript == "At 3."


def test_a_text_of_exactly_a_piece_is_left_as_it_is() -> None:
    text = "a" * 149 + " "
    assert texts(pieces(text, as_written=True)) == [text]
    assert texts(pieces(text + " ", as_written=True)) == [text.strip()]


def test_long_texts_come_in_pieces() -> None:
    text = "One sentence stands here. " * 20
    said = texts(pieces(text))
    assert max(map(len, said)) <= 10 * CHARACTERS_PER_SECOND
    assert " ".join(said) == text.strip()
    assert all(piece.endswith(".") for piece in said)
    assert texts(pieces(text, piece_seconds=None)) == [text.strip()]
    assert texts(pieces(text, piece_seconds=None, as_written=True)) == [text]
    assert len(texts(pieces(text, piece_seconds=2.0))) == 20


@pytest.mark.parametrize("text", ["", " \n", "...", "a\x07"])
def test_texts_without_words(text: str) -> None:
    with pytest.raises(UsageError, match="text: "):
        pieces(text)
    with pytest.raises(UsageError, match="text 2: "):
        many(["One.", text])


def many(said: Any, voices: Any = CODES, **given: Any) -> Request:
    arguments = {"deep_clone": None, "seed": None, "noise": None, "draws": "per cell", **given}
    return request_texts(said, voices, SIZES, SETTINGS, **arguments)


def test_several_texts() -> None:
    both = many(["One 1.", "Two."], [CODES, Prompt.of(audio=SOUND)])
    assert texts(both) == ["One 1.", "Two."]
    assert [item.reference.frames for item in both.items] == [5, 75]
    shared = many(["One.", "Two."]).items
    assert shared[0].reference is shared[1].reference
    for given, message in (
        ({"said": []}, "the list is empty"),
        ({"said": "One."}, "got one string"),
        ({"said": ["One."], "voices": [CODES, CODES]}, "prompts: 2 for 1 texts"),
        ({"said": ["One."], "seed": [1, 2]}, "seed: 2 values for 1 texts"),
        ({"said": ["One."], "seed": 1.5}, "seed: 1.5 is not"),
        ({"said": ["One."], "noise": []}, "noise: 0 sources for 1 texts"),
    ):
        with pytest.raises(UsageError, match=message):
            many(**given)


def test_pieces_have_seeds_of_their_own() -> None:
    seeds = [piece_seed(7, place) for place in range(5)]
    assert seeds[0] == 7
    assert len({*seeds, *(piece_seed(8, place) for place in range(5))}) == 10
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert seeds == [piece_seed(7, place) for place in range(5)]
    said = pieces("One two. " * 9, seed=7, piece_seconds=2.0)
    sources = [item.noise for item in said.items]
    assert [source.seed for source in sources if isinstance(source, HostNoise)] == [
        piece_seed(7, place) for place in range(len(sources))
    ]
    assert (said.seed, pieces("One.", noise=HostNoise(1)).seed) == (7, None)
    fresh = pieces("One.", seed=None).seed
    assert fresh is not None
    assert fresh != pieces("One.", seed=None).seed


def test_prompts() -> None:
    item = pieces("There.", prompt=Prompt.of(codes=CODES, text="Then.")).items[0]
    prompt = item.prompt(CODES, VOCABULARY, SETTINGS)
    known = VOCABULARY.deep("There.", "Then.", CODES[0])
    np.testing.assert_array_equal(prompt.tokens, known.tokens)
    longer = item.prompt(CODES, VOCABULARY, replace(SETTINGS, eos_estimated_gen_length_factor=3.0))
    assert longer.expected_tokens == 3 * known.expected_tokens
    np.testing.assert_array_equal(
        item.prompt(
            CODES, VOCABULARY, replace(SETTINGS, generate_max_len_override=len(prompt.tokens) + 1)
        ).tokens,
        known.tokens,
    )
    full = replace(SETTINGS, generate_max_len_override=len(prompt.tokens))
    with pytest.raises(UsageError, match=f"reference and text take {len(prompt.tokens)} ids of the"):
        item.prompt(CODES, VOCABULARY, full)
    sneaky = pieces("A <|endoftext|> b.", as_written=True).items[0]
    with pytest.raises(UsageError, match=r"text: .* is a special token"):
        sneaky.prompt(CODES, VOCABULARY, SETTINGS)


def test_the_class_that_is_no_code() -> None:
    """A vocoder with more codebooks reads the next one's first entry, as upstream does."""
    codes = np.array([[0, 1024], [1024, 5]])
    np.testing.assert_array_equal(for_vocoder(codes, 4, 1024), codes)
    np.testing.assert_array_equal(for_vocoder(codes, 2, 1024), [[0, 1024], [1023, 5]])
