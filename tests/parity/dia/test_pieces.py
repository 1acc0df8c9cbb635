"""Long texts in pieces: equal on both sides, in the first piece's voices, each equal to its single run."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlx_port.api import embedded_voice as mlx_voice
from tests.contract.speakers import to_end
from tests.hosts import Late, LateStream
from tests.sides import ORACLE, PORT, YARDSTICK, Side
from tests.tiny.dia import compose
from tests.tiny.networks import dia_config, tiny
from tests.tiny.noise import CountingNoise
from tests.tiny.recordings import snippet
from tests.tolerance import assert_within
from torch_ref.api import embedded_voice as torch_voice
from tts_core.audio.splicing import PAUSE
from tts_core.audio.splicing import splice as join_waves
from tts_core.dia.options import DiaOptions
from tts_core.errors import ResourceError
from tts_core.memory.fits import Plan
from tts_core.nn.noise import piece_seed
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, merge
from tts_core.serving.session import Part
from tts_core.speaking.running import Running

pytestmark = pytest.mark.rest

# the window holds 11.9 s, a piece 3 s or 44 characters
TEXT = (
    "[S1] Lorem ipsum dolor. [S2] Sit amet! [S1] Consectetur adipiscing elit, sed do. [S2] Eiusmod tempor "
    "incididunt ut. [S1] Ut labore et dolore magna. [S2] Aliqua? [S2]"
)
PIECES = [
    "[S1] Lorem ipsum dolor. [S2] Sit amet!",
    "[S1] Consectetur adipiscing elit, sed do.",
    "Eiusmod tempor incididunt ut.",  # the last speaker of the first piece goes on without a tag
    "[S1] Ut labore et dolore magna. [S2] Aliqua? [S2]",
]
SHORT = "[S1] Lorem ipsum dolor. [S2] Sit amet! [S1] Consectetur."
LATE = "[S1] " + "Lorem ipsum dolor sit amet elit. " * 3 + "[S2] Consectetur? [S1] Adipiscing elit, sed do."
PAUSED = "[S1] The inn is near. [pause:0.2] [S2] There it ends!"
DIALOGUES = Path(__file__).parents[3] / "examples/train_voice/evaluation/dialogues.txt"
RATE = 1000  # samples a second


@cache
def pipeline(side: Side, *, eos: float = 1.3) -> Any:
    config = dia_config(positions=400, text_positions=300)
    return compose(side, tiny(config, seed=3, eos=eos), tiny("dac"))


@cache
def said(side: Side, text: str) -> GenerationResult:
    return pipeline(side).generate(text, seed=SEED)


def spoken(side: Side) -> GenerationResult:
    return said(side, TEXT)


SEED = 22
CODES = np.random.default_rng(1).integers(0, 60, (4, 20)).astype(np.int32)


def assert_same_sound(one: GenerationResult, other: GenerationResult, truth: GenerationResult) -> None:
    """Require equal samples up to rounding; truth: as spoken in float64."""
    assert_within(one.audio, other.audio, truth.audio.astype(np.float64), "joined")


def codes_of(result: GenerationResult) -> list[np.ndarray]:
    return [piece.codes for piece in result.pieces]


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        (TEXT, None),
        (LATE, None),
        (TEXT, Prompt.of(codes=CODES, text="[S1] Before. [S2] That.")),
        (TEXT, Prompt.of(codes=CODES, text="[S2] Before.")),
    ],
    ids=["bare", "late", "prompt", "half a prompt"],
)
def test_both_sides_say_the_same(text: str, prompt: Prompt | None) -> None:
    ours, theirs, truth = (
        said(side, text) if prompt is None else pipeline(side).generate(text, prompt=prompt, seed=SEED)
        for side in (PORT, YARDSTICK, ORACLE)
    )
    assert len(ours.pieces) >= 3
    assert sum(codes.shape[1] > 3 for codes in codes_of(ours)) >= 2, "little was said: choose another seed"
    np.testing.assert_array_equal(ours.codes, theirs.codes)
    assert [piece.text for piece in ours.pieces] == [piece.text for piece in theirs.pieces]
    assert_same_sound(ours, theirs, truth)


def test_pieces_and_their_voices(side: Side) -> None:
    result = spoken(side)
    assert [piece.text for piece in result.pieces] == PIECES
    np.testing.assert_array_equal(result.audio, join_waves([piece.audio for piece in result.pieces], RATE))
    first, *rest = result.pieces
    assert first.prompt is None
    assert first.codes.shape[1] > 0
    for piece in rest:
        assert piece.prompt is not None
        assert piece.prompt.one.text == first.text
        np.testing.assert_array_equal(piece.prompt.one.codes, first.codes)
    assert [piece.seed for piece in result.pieces] == [piece_seed(SEED, place) for place in range(4)]
    assert result.seed == SEED


def test_a_second_anchor_stands_behind_the_first(side: Side) -> None:
    pieces = said(side, LATE).pieces
    late = next(place for place, piece in enumerate(pieces) if "[S2]" in piece.text)
    assert 1 <= late == len(pieces) - 2
    *_, last = pieces
    assert last.prompt is not None
    assert last.prompt.one.text == f"{pieces[0].text} {pieces[late].text}"
    both = [pieces[0].codes, pieces[late].codes]
    assert min(codes.shape[1] for codes in both) > 0
    np.testing.assert_array_equal(last.prompt.one.codes, np.concatenate(both, axis=1))


def test_a_reference_is_every_piece_s_prompt(side: Side) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, 600).astype(np.float32)
    voice = pipeline(side)
    given = snippet(samples, "[S1] Before. [S2] That.")
    pieces = voice.generate(TEXT, prompt=given, seed=SEED).pieces
    assert voice.generate(SHORT, prompt=given, seed=SEED, max_frames=1).pieces == ()
    for piece in pieces:
        assert piece.prompt is not None
        assert piece.prompt.one.text == given.one.text
        np.testing.assert_array_equal(
            piece.prompt.one.codes, np.asarray(voice.engine.codec.encode(samples[None]))[0]
        )


def test_each_piece_is_what_it_is_alone(side: Side) -> None:
    """Each piece can be generated again from the result; with another prompt its codes differ."""
    voice, result = pipeline(side), spoken(side)
    for piece in result.pieces:
        given = {"seed": piece.seed, "max_frames": piece.max_frames, "piece_seconds": None}
        single = voice.generate(piece.text, prompt=piece.prompt, **given)
        np.testing.assert_array_equal(single.codes, piece.codes)
        np.testing.assert_array_equal(single.audio, piece.audio)
        assert single.finish_reason == piece.finish_reason
        if piece.prompt is not None:
            free = voice.generate(piece.text, **given)
            assert free.codes.shape != single.codes.shape or (free.codes != single.codes).any()


def test_pieces_run_side_by_side(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pieces that only need the first run together, or fewer if memory is short, with the same codes."""
    voice, running = pipeline(side), list[int]()
    turn = Running.advance

    def counted(slots: Running) -> Any:
        if slots.taken and (not running or running[-1] != len(slots.taken)):
            running.append(len(slots.taken))
        return turn(slots)

    monkeypatch.setattr(Running, "advance", counted)
    voice.generate(TEXT, seed=SEED)
    assert running[:2] == [1, 3]
    running.clear()
    list(voice.stream(TEXT, seed=SEED))
    assert running == [1]
    running.clear()
    monkeypatch.setattr(Plan, "places", lambda *_: 2)
    codes = voice.generate(TEXT, seed=SEED).codes
    assert max(running) == 2
    np.testing.assert_array_equal(codes, spoken(side).codes)
    monkeypatch.setattr(type(voice.engine.host), "free_bytes", lambda _: 1000)
    for speak in (voice.generate, voice.stream):
        with pytest.raises(ResourceError, match=r"memory: .* of speech take"):
            speak(TEXT)


def test_a_piece_without_an_end_is_told(side: Side) -> None:
    """The limit is twice the expected time plus 2 s; a model that never ends is cut in every piece."""
    result = pipeline(side, eos=0.0).generate(TEXT, seed=1)
    assert [piece.finish_reason for piece in result.pieces] == ["length"] * 4
    assert [piece.codes.shape[1] for piece in result.pieces] == [piece.max_frames for piece in result.pieces]
    first, *rest = [piece.max_frames for piece in result.pieces]
    assert first == 2 * -(-(len(PIECES[0]) - 6) * 100 // 45) + 66
    assert {first + frames for frames in rest} == {396}, "the window is full"
    assert result.finish_reason == "length"


def test_pieces_in_which_nothing_is_said(side: Side) -> None:
    """A silent anchor is not used as a prompt; the other pieces go on."""
    voice = pipeline(side, eos=40.0)
    results = [voice.generate(TEXT, seed=seed) for seed in range(5)]
    mute = next(result for result in results if result.pieces[0].codes.shape[1] == 0)
    assert [piece.prompt for piece in mute.pieces] == [None] * 4
    assert mute.finish_reason == "stop"
    joined = merge(list(voice.stream(TEXT, seed=mute.seed)))
    np.testing.assert_array_equal(joined.codes, mute.codes)
    np.testing.assert_array_equal(joined.audio, mute.audio)


@pytest.mark.parametrize(
    "prompt", [None, Prompt.of(codes=CODES, text="[S1] Before.")], ids=["bare", "prompt"]
)
def test_a_text_that_fits_is_spoken_at_once(side: Side, prompt: Prompt | None) -> None:
    voice = pipeline(side)
    before = f"{prompt.one.text} " if prompt else ""
    [codes] = voice.generate_codes([before + SHORT], [None if prompt is None else CODES], seed=3)
    for seconds in ("auto", None, 30):
        result = voice.generate(SHORT, prompt=prompt, seed=3, piece_seconds=seconds)
        np.testing.assert_array_equal(result.codes, codes)
        assert result.pieces == ()
    assert len(voice.generate(SHORT, prompt=prompt, seed=3, piece_seconds=2).pieces) > 1


def test_temperature_zero_and_other_values_reach_every_piece(side: Side) -> None:
    voice = pipeline(side)
    given = {"temperature": 0, "cfg_scale": 0, "top_k": 5, "top_p": 0.5}
    result = voice.generate(TEXT, **given)
    for piece in result.pieces:
        single = {"prompt": piece.prompt, "max_frames": piece.max_frames, "piece_seconds": None, **given}
        np.testing.assert_array_equal(voice.generate(piece.text, **single).codes, piece.codes)
    np.testing.assert_array_equal(voice.generate(TEXT, **given, seed=99).codes, result.codes)


def test_the_next_piece_begins_before_the_sound_of_the_one_before(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the device decodes beside the steps, and late; the speech is that of a session elsewhere."""
    session = pipeline(side).session(8)
    session.join(pipeline(side).request(PAUSED, DiaOptions(seed=3)))
    expected = merge([event.result for event in to_end(session)])
    session.close()
    monkeypatch.setattr(pipeline(side).engine, "host", LateStream(pipeline(side).engine.host))
    monkeypatch.setattr(Late, "ready", lambda _: False)
    sources = [CountingNoise(piece_seed(3, place)) for place in range(2)]
    session, parts = pipeline(side).session(8), list[GenerationResult]()
    session.join(pipeline(side).request(PAUSED, DiaOptions(noise=sources)))
    began = False
    while session.running:
        for event in session.step():
            assert isinstance(event, Part)
            parts.append(event.result)
        began = began or (bool(sources[1].steps) and not any(part.pieces for part in parts))
    session.close()
    assert began
    found = merge(parts)
    np.testing.assert_array_equal(found.codes, expected.codes)
    np.testing.assert_array_equal(found.audio, expected.audio)
    assert (found.cues, found.token_count) == (expected.cues, expected.token_count)
    for one, other in zip(found.pieces, expected.pieces, strict=True):
        np.testing.assert_array_equal(one.audio, other.audio)
        assert (one.text, one.max_frames) == (other.text, other.max_frames)


@pytest.mark.slow
def test_the_embedded_voice_says_a_minute_alike() -> None:
    """Ten dialogues at the default settings: all codes are equal on both sides, and every piece ends."""
    text = " ".join(DIALOGUES.read_text().splitlines()[:10])
    ours, theirs = (voice().generate(text, seed=5) for voice in (mlx_voice, torch_voice))
    np.testing.assert_array_equal(ours.codes, theirs.codes)
    assert 45 < ours.audio_seconds < 60
    assert len(ours.pieces) > 8
    assert ours.finish_reason == "stop"
    inside = np.concatenate([np.abs(np.diff(piece.audio)) for piece in ours.pieces])
    steps, end, pause = np.abs(np.diff(ours.audio)), 0, round(PAUSE * ours.sample_rate)
    for piece in ours.pieces[:-1]:
        end += len(piece.audio)
        assert steps[end - 1 : end + pause].max() <= np.quantile(inside, 0.999)
        end += pause
