"""MARS5's requests: voices, texts, pieces, seeds and limits, checked without a network."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.conftest import Calls
from tests.tts_core.mars5.test_tokens import VOCABULARY
from tts_core.errors import UsageError
from tts_core.mars5 import request as module
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.reference import Mars5Voice, Sizes, read_voice
from tts_core.mars5.request import Mars5Facts, Mars5Request, for_vocoder
from tts_core.nn.noise import HostNoise, piece_seed
from tts_core.prompt import Prompt
from tts_core.text.pace import CHARACTERS_PER_SECOND

SIZES = Sizes(sample_rate=24000, hop_length=320, n_codebooks=8, codebook_size=1024)
SOUND = np.sin(np.arange(24000) / 20).astype(np.float32)
CODES = np.arange(8 * 5, dtype=np.int64).reshape(8, 5)


def read(prompt: Any, *, deep: bool | None = None, **options: Any) -> Mars5Voice:
    return read_voice(prompt, SIZES, Mars5Options(deep_clone=deep, **options))


def pieces(text: str, prompt: Any = None, **given: Any) -> Mars5Request:
    options = Mars5Options(**{"seed": 1, **given})
    return Mars5Facts(SIZES, VOCABULARY).request(
        text, options, Prompt.of(audio=SOUND) if prompt is None else prompt
    )


def texts(said: Mars5Request) -> list[str]:
    return [piece.text for piece in said.pieces]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (None, "MARS5 needs a reference voice"),
        ("voice.wav", r"prompt: 'voice\.wav' is text; give Prompt\.from_file"),
        (Prompt.of(audio=SOUND[:-1]), "too short for a voice"),
        (Prompt.of(audio=np.tile(SOUND, 13)), r"13\.0 s of reference, the limit is 12; cut it"),
        (Prompt.of(codes=np.zeros((7, 4), int)), r"shape \(7, 4\); expected \(8, frames\)"),
        (Prompt.of(codes=np.zeros((8, 0), int)), r"shape \(8, 0\)"),
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
    """Silence at the start is not counted."""
    heard = read(Prompt.of(audio=np.tile(SOUND, 12)), ref_audio_pad=0.5)
    assert heard.samples is not None
    assert (len(heard.samples), heard.frames) == (24000 * 12 + 12000, 938)
    assert read(Prompt.of(codes=np.zeros((8, 900), int))).frames == 900
    with pytest.raises(UsageError, match="the limit is 12"):
        read(Prompt.of(audio=np.append(np.tile(SOUND, 12), SOUND[:1])))


def test_longer_voices_where_they_are_wanted() -> None:
    assert read(Prompt.of(audio=np.tile(SOUND, 13)), max_prompt_dur=20.0).frames == 975
    assert read(CODES).frames == 5


def test_a_voice_is_deep_where_there_is_a_transcript() -> None:
    prompt = Prompt.of(codes=CODES, text="Hello.")
    assert read(prompt).transcript == "Hello."
    assert read(prompt, deep=False).transcript is None
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
    prompt = Prompt.of(audio=SOUND, text="At 3.")
    assert pieces(text, prompt).voice.transcript == "At three."
    assert pieces(text, prompt, as_written=True).voice.transcript == "At 3."


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


def many(said: Any, voices: Any = CODES, **given: Any) -> list[Mars5Request]:
    return Mars5Facts(SIZES, VOCABULARY).requests(said, Mars5Options(**given), voices, exactly=True)


def test_several_texts() -> None:
    both = many(["One 1.", "Two."], [CODES, Prompt.of(audio=SOUND)])
    assert [texts(one) for one in both] == [["One 1."], ["Two."]]
    assert [one.voice.frames for one in both] == [5, 75]
    shared = many(["One.", "Two."])
    assert shared[0].voice is shared[1].voice
    long = "One sentence stands here. " * 20
    assert [texts(one) for one in many([long, "x"])] == [[long], ["x"]]


def test_pieces_have_seeds_of_their_own() -> None:
    said = pieces("One two. " * 9, seed=7, piece_seconds=2.0)
    sources = [piece.noise for piece in said.pieces]
    assert [source.seed for source in sources if isinstance(source, HostNoise)] == [
        piece_seed(7, place) for place in range(len(sources))
    ]
    assert (said.seed, pieces("One.", noise=HostNoise(1)).seed) == (7, None)
    fresh = pieces("One.", seed=None).seed
    assert fresh is not None
    assert fresh != pieces("One.", seed=None).seed


def test_prompts() -> None:
    prompt = Prompt.of(codes=CODES, text="Then.")
    [piece] = pieces("There.", prompt).pieces
    known = VOCABULARY.deep("There.", "Then.", CODES[0])
    np.testing.assert_array_equal(piece.prompt.tokens, known.tokens)
    [longer] = pieces("There.", prompt, eos_estimated_gen_length_factor=3.0).pieces
    assert longer.prompt.expected_tokens == 3 * known.expected_tokens
    full = len(known.tokens)
    with pytest.raises(UsageError, match=f"reference and text take {full} of the {full} ids that"):
        pieces("There.", prompt, generate_max_len_override=full)
    assert pieces("There.", prompt, generate_max_len_override=full + 1).job().max_len == full + 1
    with pytest.raises(UsageError, match=r"text: .* is a special token"):
        pieces("A <|endoftext|> b.", as_written=True)
    with pytest.raises(UsageError, match=r"transcript: .* is a special token"):
        pieces("There.", Prompt.of(codes=CODES, text="A <|endoftext|> b."), as_written=True)


def test_a_reference_is_read_when_it_is_encoded() -> None:
    """Until then a deep clone's prompts are text, and memory is counted as one id per frame."""
    asked = pieces("There. " * 30, Prompt.of(audio=SOUND, text="Then."), piece_seconds=2.0)
    assert len(asked.pieces) > 3
    assert all(len(piece.prompt.tokens) == piece.prompt.text_tokens for piece in asked.pieces)
    longest = max(len(piece.prompt.tokens) for piece in asked.pieces)
    assert (asked.job().prompt_ids, asked.job().prompt_frames) == (longest + 75, 75)
    codes, heard = np.tile(CODES[:, :1], 75).astype(np.int32), list[np.ndarray]()

    def encode(samples: np.ndarray) -> np.ndarray:
        heard.append(samples)
        return codes

    ready = asked.encoded(encode, VOCABULARY)
    assert [samples.tolist() for samples in heard] == [SOUND.tolist()]
    for piece, text in zip(ready.pieces, texts(asked), strict=True):
        known = VOCABULARY.deep(text, "Then.", codes[0])
        np.testing.assert_array_equal(piece.prompt.tokens, known.tokens)
    assert ready.job().prompt_ids == max(len(piece.prompt.tokens) for piece in ready.pieces)
    assert ready.encoded(encode, VOCABULARY) is ready
    tight = replace(asked, options=replace(asked.options, generate_max_len_override=longest + 2))
    with pytest.raises(UsageError, match="text: reference and text take"):
        tight.encoded(encode, VOCABULARY)


def test_limits() -> None:
    text = "There. " * 30  # 14 s
    free = pieces(text)
    assert free.max_frames is None
    assert free.seconds == pytest.approx(sum(map(len, texts(free))) / CHARACTERS_PER_SECOND)
    assert free.job().frames == int(75 * max(map(len, texts(free))) / CHARACTERS_PER_SECOND) + 1
    short = pieces(text, max_frames=30)
    assert (short.max_frames, short.seconds, short.job().frames) == (30, 0.4, 30)
    assert pieces(text, max_seconds=1.001).max_frames == 76
    assert pieces(text, max_frames=10**6).job() == free.job()


def test_the_class_that_is_no_code() -> None:
    """A vocoder with more codebooks reads the next one's first entry, as upstream does."""
    codes = np.array([[0, 1024], [1024, 5]])
    np.testing.assert_array_equal(for_vocoder(codes, 4, 1024), codes)
    np.testing.assert_array_equal(for_vocoder(codes, 2, 1024), [[0, 1024], [1023, 5]])


def test_each_text_is_prepared_once(calls: Calls) -> None:
    """Spelled out whole, cut whole, then each piece tokenized."""
    calls.watch(module, "check_words", "as_spoken", "cut", "read_voice")
    calls.watch(type(VOCABULARY), "prompt_of")
    assert len(pieces("There in the inn. " * 20).pieces) == 3
    assert calls == {"check_words": 1, "as_spoken": 1, "cut": 1, "read_voice": 1, "prompt_of": 3}
