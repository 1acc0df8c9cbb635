"""Dia's requests: errors in one line that names the argument, and default values."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.conftest import Calls
from tests.tiny.networks import SAMPLING, dac_config, dia_config
from tests.tiny.recordings import snippet
from tts_core.dia import pieces
from tts_core.dia import request as module
from tts_core.dia.footprint import DiaJob
from tts_core.dia.options import DiaOptions
from tts_core.dia.request import DiaFacts, DiaRequest
from tts_core.errors import UsageError
from tts_core.memory.fits import together
from tts_core.nn.noise import HostNoise
from tts_core.prompt import Prompt

CONFIG = dia_config(positions=30, text_positions=20)  # room for 26 frames
CODES = np.zeros((4, 5), np.int32)


def request(
    texts: Any = None, prompts: Any = None, *, exactly: bool = True, config: Any = CONFIG, **given: Any
) -> list[DiaRequest]:
    texts = ["[S1] a", "b"] if texts is None else texts
    return DiaFacts(config, dac_config()).requests(texts, DiaOptions(**given), prompts, exactly=exactly)


def test_a_model_with_its_own_speakers_takes_no_recording_but_continues_codes() -> None:
    """Codes are of its own speech: pieces of a long text continue each other."""
    config = replace(CONFIG, own_speakers=("slt", "rms"))
    heard = snippet(np.full(31, 0.5), "[S1] a")
    with pytest.raises(UsageError, match=r"^prompt 1: this model speaks only as \[S1\] slt and \[S2\] rms"):
        request(["[S1] b"], [heard], config=config)
    request(["[S1] b"], [Prompt.of(codes=CODES, text="[S1] a")], config=config)
    request(["[S1] b"], [CODES], config=config)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an empty text": ({"texts": ["a", ""]}, "text 2: empty; there is nothing to say"),
    "NUL": (
        {"texts": ["[S1] a", "b\0"]},
        "text 2: character 2 is U+0000, which cannot be read; remove it",
    ),
    "half a character": (
        {"texts": ["\ud800", "b"]},
        "text 1: character 1 is U+D800, which cannot be read; remove it",
    ),
    "a long text": (
        {"texts": ["[S1]" + "é" * 10]},
        "text 1: 21 bytes, limit 20; split it at a turn",
    ),
    "a large seed": ({"seed": [0, 2**64]}, f"seed: {2**64} is outside [0, 2**64 - 1]"),
    "frames": (
        {"max_frames": [26, 27]},
        "max_frames: 27 exceeds this model's limit of 26 frames",
    ),
    "frames after a prompt": (
        {"prompts": [None, CODES], "max_frames": 22},
        "max_frames: 22 exceeds this model's limit of 21 frames",
    ),
    "a long prompt": (
        {"prompts": [None, np.zeros((4, 26), np.int32)]},
        "prompt 2: 26 frames fill all of the model's 26",
    ),
    "temperature": ({"temperature": -0.1}, "temperature: -0.1 is outside [0, 100] (0 is greedy)"),
    "cfg_scale": ({"cfg_scale": -1.0}, "cfg_scale: -1.0 is outside [0, 100]"),
    "top_p": ({"top_p": 0.0}, "top_p: 0.0 is outside (0, 1]"),
    "top_p above": ({"top_p": 1.01}, "top_p: 1.01 is outside (0, 1]"),
    "top_k": ({"top_k": -1}, "top_k: -1 is outside [0, 1000000] (0 keeps every id)"),
    "codes of one axis": (
        {"prompts": [np.zeros(4, np.int32), None]},
        "prompt 1: codes of shape (4,); expected (4, frames)",
    ),
    "codes of other channels": (
        {"prompts": [None, CODES.T]},
        "prompt 2: codes of shape (5, 4); expected (4, frames)",
    ),
    "special codes": ({"prompts": [CODES + 60, None]}, "prompt 1: codes outside 0 .. 59"),
    "negative codes": ({"prompts": [CODES - 1, None]}, "prompt 1: codes outside 0 .. 59"),
    "codes in fractions": (
        {"prompts": [CODES + 0.5, None]},
        "prompt 1: codes of type float64; give whole numbers",
    ),
    "audio, then codes of other channels": (
        {"prompts": [snippet(np.ones(9), "a"), CODES.T]},
        "prompt 2: codes of shape (5, 4); expected (4, frames)",
    ),
    "no audio": (
        {"prompts": [Prompt.of(text="a", audio=np.zeros(0, np.float32)), None]},
        "prompt 1: audio must be a non-empty 1-D array of finite samples",
    ),
    "stereo": (
        {"prompts": [None, Prompt.of(text="a", audio=np.zeros((9, 2), np.float32))]},
        "prompt 2: audio must be a non-empty 1-D array of finite samples",
    ),
    "broken audio": (
        {"prompts": [Prompt.of(text="a", audio=np.array([0.0, np.nan])), None]},
        "prompt 1: audio must be a non-empty 1-D array of finite samples",
    ),
    "16-bit audio": (
        {"prompts": [Prompt.of(text="a", audio=np.ones(9, np.int16)), None]},
        "prompt 1: audio must be floating-point samples in [-1, 1]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(UsageError) as caught:
        request(**given)
    assert str(caught.value) == message


def test_what_fits_exactly_is_taken() -> None:
    """Text of 20 bytes, with a tag as one; a prompt that leaves one frame."""
    filled = request(
        ["[S1]" + "é" * 9 + "a", "b"], [None, np.zeros((4, 25), np.int32)], max_frames=[26, 1], seed=2**64 - 1
    )
    assert [len(one.pieces[0].tokens) for one in filled] == [20, 1]
    assert [one.limits for one in filled] == [(26,), (1,)]


@pytest.mark.parametrize(
    ("frames", "prompt_frames", "new"),
    [([26, 3], 5, 26), ([3, 21], 5, 21), ([8, 3], 0, 8)],
    ids=["the text without a prompt", "the other", "no prompt"],
)
def test_memory_is_for_the_longest_speech_and_the_longest_prompt(
    frames: list[int], prompt_frames: int, new: int
) -> None:
    prompts = [None, CODES[:, :prompt_frames]]
    asked = request(["[S1] abcdef", "b"], prompts, max_frames=frames, cfg_scale=1.5)
    job = together([one.job() for one in asked])
    assert job == DiaJob(text_bytes=8, frames=new, prompt_frames=prompt_frames, batch=2, guided=True)


@pytest.mark.parametrize("exactly", [False, True])
def test_a_prompt_needs_its_transcript(exactly: bool) -> None:
    with pytest.raises(UsageError, match=r"^prompt 2: its transcript is missing; Dia needs the words"):
        request(["[S1] a", "b"], [None, Prompt.of(codes=CODES)], exactly=exactly)


def test_the_defaults_are_the_models() -> None:
    filled = request(prompts=[None, CODES])
    assert [one.sampling for one in filled] == [SAMPLING] * 2
    assert [one.limits for one in filled] == [(26,), (21,)]
    assert filled[0].seeds == filled[1].seeds
    assert [list(one.pieces[0].tokens) for one in filled] == [[1, 32, 97], [98]]


def test_given_values_replace_them_one_by_one() -> None:
    for name, value in {"temperature": 0.0, "cfg_scale": 0.0, "top_p": 1.0, "top_k": 0}.items():
        sampling = request(**{name: value})[0].sampling
        assert getattr(sampling, name) == value
        others = {field for field in vars(SAMPLING) if field != name}
        assert all(getattr(sampling, field) == getattr(SAMPLING, field) for field in others)


def test_one_number_or_one_per_text() -> None:
    assert [one.seeds for one in request(seed=3, max_frames=4)] == [[3], [3]]
    assert [one.limits for one in request(seed=np.int64(3), max_frames=4)] == [(4,), (4,)]
    mixed = request(seed=np.array([5, 6]), max_frames=(1, 2))
    assert [(one.seeds, one.limits) for one in mixed] == [([5], (1,)), ([6], (2,))]
    assert [one.noise[0].seed for one in mixed if isinstance(one.noise[0], HostNoise)] == [5, 6]


def test_prompts() -> None:
    """Audio through the codec, in float32; codes as int32, from any integer type."""
    heard: list[np.ndarray] = []

    def encode(samples: np.ndarray) -> np.ndarray:
        heard.append(samples)
        return CODES[:, :2]

    asked = request(
        ["a", "b", "c", "d"],
        [
            snippet(np.full(31, 0.5), "x"),  # 30 samples a frame
            CODES.astype(np.uint16),
            None,
            Prompt.of(text="y", codes=CODES[:, :0]),
        ],
    )
    assert heard == []
    assert [one.job().prompt_frames for one in asked] == [2, 5, 0, 0]
    voices = [one.encoded(encode).voice for one in asked]
    codes = [None if voice is None else voice.codes for voice in voices]
    assert [None if each is None else each.shape for each in codes] == [(4, 2), (4, 5), None, (4, 0)]
    assert {each.dtype for each in codes if each is not None} == {np.dtype(np.int32)}
    assert [samples.dtype for samples in heard] == [np.dtype(np.float32)]
    assert [one.limits for one in asked] == [(24,), (21,), (26,), (26,)]


def test_transcripts_go_in_front() -> None:
    texts, prompts = [" one", "two ", "three"], [Prompt.of(text="[S1] Said. ", codes=CODES), None, CODES]
    roomy = dia_config(positions=90, text_positions=90)

    def read(prompts: Any, *, exactly: bool) -> list[bytes]:
        asked = request(texts, prompts, exactly=exactly, config=roomy)
        return [bytes(one.pieces[0].tokens.astype(np.uint8)) for one in asked]

    assert read(prompts, exactly=True) == [b"\1 Said. one", b"two ", b"three"]
    assert read(None, exactly=True) == [text.encode() for text in texts]
    assert read(prompts, exactly=False) == [b"\1 Said. one", b"\1 two", b"\1 three"]


def test_a_text_is_prepared_and_tokenized_once(calls: Calls) -> None:
    """Once until it reaches the decoder; the other call counts the bytes of an empty transcript."""
    calls.watch(pieces, "rewritten", "tokenize")
    calls.watch(module, "tokenize", "prepare", "read_voice")
    asked = DiaFacts(dia_config(), dac_config()).request("[S1] Hello there.", DiaOptions(seed=1))
    asked.job()
    assert asked.grid().max_frames == asked.limits[0]
    assert asked.tokens is asked.pieces[0].tokens
    assert len(asked.pieces) == 1
    assert calls == {"rewritten": 1, "tokenize": 2, "read_voice": 1}
