"""MetaVoice from text and voice to speech on both sides, from one converted folder, with the same draws."""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlx_port
import torch_ref
from tests.tiny.metavoice_pipeline import LONG, RATE, TEXT, Ending, reference, write_model
from tests.tolerance import assert_within
from tts_core.audio.loudness import TARGET, integrated_loudness, normalize_loudness
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import CancelledError, UsageError
from tts_core.metavoice.footprint import MetaVoiceJob, positions
from tts_core.metavoice.net import MetaVoiceSource
from tts_core.metavoice.options import Decoder, MetaVoiceOptions
from tts_core.metavoice.request import STAGES, MetaVoiceRequest, log_license
from tts_core.nn.noise import HostNoise
from tts_core.pipeline import Callbacks
from tts_core.prompt import Prompt
from tts_core.speaking.session import SpeechSession
from tts_core.speaking.speech import Sound
from tts_core.text.pace import CHARACTERS_PER_SECOND

pytestmark = pytest.mark.rest

FRAMES = 14
MOST = 13 / CHARACTERS_PER_SECOND  # seconds per piece: three pieces in LONG


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("metavoice"))


@pytest.fixture(scope="module")
def sides(folder: Path) -> dict[str, Any]:
    return {
        "oracle": torch_ref.load(folder, device="cpu", dtype="float64"),
        "torch": torch_ref.MetaVoicePipeline.load(folder, device="cpu"),
        "mlx": mlx_port.MetaVoicePipeline.load(folder),
    }


@pytest.fixture(scope="module")
def voice(sides: dict[str, Any]) -> np.ndarray:
    return sides["torch"].speaker(reference())


@pytest.fixture(params=["torch", "mlx"])
def side(request: pytest.FixtureRequest, sides: dict[str, Any]) -> Any:
    return sides[request.param]


def together(*prompts: Prompt) -> Prompt:
    """Several recordings of one voice."""
    return Prompt(tuple(prompt.one for prompt in prompts))


def forbid_networks(side: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every network of the model raise when it is called."""
    engine = side.engine
    for network in (engine.network, engine.second_stage, engine.speaker_encoder):
        monkeypatch.setattr(type(network), "__call__", lambda *_, **__: pytest.fail("a network ran"))
    monkeypatch.setattr(type(engine.network), "speakers", lambda *_: pytest.fail("a network ran"))
    monkeypatch.setattr(type(engine.speaker_encoder), "embed", lambda *_: pytest.fail("a network ran"))
    for decoder in engine.decoders.values():
        monkeypatch.setattr(type(decoder), "decode", lambda *_, **__: pytest.fail("a network ran"))


def test_a_voice_is_the_same(sides: dict[str, Any]) -> None:
    oracle, torch, mlx = (side.speaker(together(reference(), reference(3))) for side in sides.values())
    assert abs(np.linalg.norm(mlx) - 1) < 1e-6
    assert_within(mlx, torch, oracle.astype(np.float64), "vector")


@pytest.mark.parametrize(
    "given",
    [
        {"text": LONG, "piece_seconds": MOST},
        {"text": TEXT, "decoder": "mbd"},
        {
            "text": LONG,
            "piece_seconds": MOST,
            "decoder": "mbd",
            "max_frames": 5,
            "cfg_scale": 1.0,
            "top_k": 40,
        },
        {"text": "12 of them", "cfg_scale": (2.0, 1.5), "top_p": 0.8, "temperature": 0.9},
        {"text": TEXT, "cfg_scale": 1.5, "temperature": 0.0, "as_written": True},
    ],
    ids=["vocos", "mbd", "unguided", "slow rule", "greedy"],
)
def test_both_sides_say_the_same(sides: dict[str, Any], voice: np.ndarray, given: dict[str, Any]) -> None:
    asked = {"prompt": voice, "max_frames": FRAMES, "seed": 3} | given
    oracle, torch, mlx = (side.generate(**asked) for side in sides.values())
    for one in (torch, mlx):
        np.testing.assert_array_equal(one.codes, oracle.codes)
        assert (one.finish_reason, one.token_count, one.seed) == (oracle.finish_reason, oracle.token_count, 3)
        assert one.sample_rate == RATE
        assert list(one.stage_seconds) == list(STAGES)
        assert one.stage_seconds["first stage"] > 0
    assert oracle.codes.shape[0] == 8
    assert 0 < oracle.codes.shape[1] <= asked["max_frames"]
    assert_within(mlx.audio, torch.audio, oracle.audio.astype(np.float64), "audio")


def endings(*at: int) -> list[HostNoise]:
    return [Ending(place, step) for place, step in enumerate(at)]


def test_pieces_do_not_depend_on_each_other(side: Any, voice: np.ndarray) -> None:
    """The last piece by itself, with its seed in the whole, equals the end of the whole."""
    whole = side.generate(LONG, prompt=voice, piece_seconds=MOST, noise=endings(12, 9, 15), top_p=1.0)
    assert whole.finish_reason == "stop"
    last = side.generate("Who are you?", prompt=voice, noise=endings(12, 9, 15)[2], top_p=1.0)
    np.testing.assert_array_equal(whole.codes[:, -last.codes.shape[1] :], last.codes)
    np.testing.assert_array_equal(whole.audio[-len(last.audio) + RATE // 25 :], last.audio[RATE // 25 :])
    silence = RATE // 5
    assert len(whole.audio) == 320 * whole.codes.shape[1] + 2 * silence
    assert not whole.audio[-len(last.audio) - silence : -len(last.audio)].any()


def test_loudness_is_a_pieces_own(side: Any, voice: np.ndarray) -> None:
    made = side.generate(TEXT, prompt=voice, seed=3, max_frames=75, top_k=100)
    (wave,) = side.engine.decoders["vocos"].decode([made.codes], [HostNoise(0)])
    np.testing.assert_array_equal(made.audio, normalize_loudness(wave, RATE))
    assert len(wave) == made.codes.shape[1] * 320 > 9600
    assert abs(integrated_loudness(np.arctanh(made.audio.astype(np.float64)), RATE) - TARGET) < 0.1


def test_the_cache_is_of_the_requests_size(
    side: Any, voice: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots, opened = side.engine.slots, []
    monkeypatch.setattr(side.engine, "slots", lambda *sizes: opened.append(sizes) or slots(*sizes))
    side.generate(TEXT, prompt=voice, seed=4, max_frames=9)
    side.generate(TEXT, prompt=voice, seed=4, max_frames=9, cfg_scale=1.0)
    ids = len(side.engine.facts.tokenizers.first_stage.encode(TEXT))
    room = positions(side.engine.network.config, MetaVoiceJob(ids, 9))
    assert room == ids + 2 * 9
    assert opened == [(1, 2, room), (1, 1, room)]


def test_an_end_and_a_cut_are_told(side: Any, voice: np.ndarray, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ended = side.generate(TEXT, prompt=voice, noise=Ending(0, 10), top_p=1.0)
        assert (ended.finish_reason, ended.token_count) == ("stop", 11)
        limited = side.generate(
            LONG, prompt=voice, piece_seconds=MOST, noise=endings(10, 10, 10), top_p=1.0, max_frames=6
        )
        assert limited.finish_reason == "length"
        assert limited.codes.shape[1] == 6
        assert caplog.text == ""
        cut = side.generate(TEXT, prompt=voice, noise=Ending(0, 10**6), top_k=50)
    assert cut.finish_reason == "length"
    assert "piece 1 of 1 did not end within" in caplog.text
    first = side.generate(LONG, prompt=voice, piece_seconds=MOST, noise=endings(10**6, 10, 10), top_p=1.0)
    assert "piece 1 of 3 did not end within" in caplog.text
    assert first.finish_reason == "length", "though the last piece ended"


def test_a_piece_that_says_nothing(side: Any, voice: np.ndarray) -> None:
    made = side.generate(LONG, prompt=voice, piece_seconds=MOST, noise=endings(0, 0, 0), top_p=1.0)
    assert (made.codes.shape, made.finish_reason, made.token_count) == ((8, 0), "stop", 3)
    some = side.generate(LONG, prompt=voice, piece_seconds=MOST, noise=endings(12, 0, 12), top_p=1.0)
    assert some.codes.shape[1] > 0
    assert np.isfinite(some.audio).all()


def test_the_licence_is_told_once(side: Any, voice: np.ndarray, caplog: pytest.LogCaptureFixture) -> None:
    log_license.cache_clear()
    with caplog.at_level(logging.WARNING):
        side.generate("So.", prompt=voice, seed=1, max_frames=2)
        assert "CC-BY-NC" not in caplog.text
        for _ in range(2):
            side.generate("So.", prompt=voice, seed=1, max_frames=2, decoder="mbd")
    assert caplog.text.count("CC-BY-NC") == 1


def test_references(side: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    first = side.speaker(reference(30.0))
    assert caplog.text == ""
    monkeypatch.setattr(type(side.engine.speaker_encoder), "embed", lambda *_: pytest.fail("read again"))
    again = side.speaker(reference(30.0))
    again[:] = 0  # a copy
    np.testing.assert_array_equal(side.speaker(reference(30.0)), first)
    np.testing.assert_array_equal(side.speaker(first), first)
    monkeypatch.undo()
    side.speaker(together(reference(15.0), reference(14.9)))
    assert "reference: 29.9 s; the voice is closer with 30 s" in caplog.text


WAVE = np.zeros(3 * RATE, np.float32) + 0.1
BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "no reference": ("needs a reference voice", {"prompt": None}),
    "a list": ("needs audio of a voice", {"prompt": [Prompt.of(audio=WAVE)]}),
    "a path": (r"'x\.wav' is text; give Prompt\.from_file", {"prompt": "x.wav"}),
    "short": ("prompt: 1.9 s are too short", {"prompt": Prompt.of(audio=WAVE[: int(1.9 * RATE)])}),
    "short ones": (
        "prompt: 1.8 s are too short",
        {"prompt": together(*[Prompt.of(audio=WAVE[: int(0.9 * RATE)])] * 2)},
    ),
    "silent": ("silent", {"prompt": Prompt.of(audio=0 * WAVE)}),
    "integers": ("floating-point", {"prompt": Prompt.of(audio=np.ones(9, np.int16))}),
    "not finite": ("finite", {"prompt": Prompt.of(audio=WAVE * np.nan)}),
    "codes": ("needs audio of a voice", {"prompt": Prompt.of(codes=np.zeros((8, 9), np.int32))}),
    "another vector": ("a speaker vector of", {"prompt": np.ones(3, np.float32)}),
    "control": (r"U\+0007", {"text": "Hello\a"}),
    "another script": ("Latin-1", {"text": "Hello 漢"}),
    "special": ("special token", {"text": "Hello <|endoftext|>", "piece_seconds": None}),
    "too long a piece": ("leave no room", {"text": "word " * 2000, "piece_seconds": None}),
    "pieces of nothing": ("piece_seconds: 0", {"piece_seconds": 0}),
    "frames and seconds": ("max_seconds sets the same limit", {"max_frames": 9, "max_seconds": 1.0}),
    "noise": ("2 sources for 1 piece;", {"noise": [HostNoise(1)] * 2}),
    "decoder": ("decoder: 'wave' is not known; use vocos or mbd", {"decoder": "wave"}),
    "guidance": ("cfg_scale: -1", {"cfg_scale": -1}),
    "a triple": ("neither a number nor a pair", {"cfg_scale": (1, 2, 3)}),
    "the slow rule's guidance": ("cfg_scale: 0.5", {"cfg_scale": (0.5, 1.0)}),
    "both filters": ("takes only one of them", {"cfg_scale": (2.0, 1.5), "top_k": 5, "top_p": 0.5}),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_before_any_work(
    side: Any, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    message, given = BAD[case]
    forbid_networks(side, monkeypatch)
    asked: dict[str, Any] = {"text": TEXT, "prompt": reference()} | given
    with pytest.raises(UsageError, match=message) as caught:
        side.stream(**asked)
    assert "\n" not in str(caught.value)


def test_a_model_without_diffusion(side: Any, voice: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side, "facts", replace(side.facts, decoders=("vocos",)))
    with pytest.raises(UsageError, match="convert-weights --include-mbd"):
        side.stream(TEXT, prompt=voice, decoder="mbd")


def test_a_long_decode_is_cancelled_inside_a_step(side: Any, voice: np.ndarray) -> None:
    session, cancel = side.session(1), threading.Event()
    asked = side.request(TEXT, MetaVoiceOptions(seed=5, max_frames=9, decoder="mbd"), voice)
    key = session.join(asked, cancel=cancel)
    cancel.set()
    events = []
    while session.running:
        events += session.step()
    [event] = events
    assert event.key == key
    assert isinstance(event.error, CancelledError)


def run(session: SpeechSession, request: MetaVoiceRequest) -> list[Any]:
    events = list[Any]()
    session.join(request)
    while session.running:
        events += session.step()
    return events


def test_loops_look_whether_they_are_cancelled(
    side: Any, voice: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between ids, windows of Vocos and timesteps of the diffusion."""
    asked = side.request(TEXT, MetaVoiceOptions(seed=3, max_frames=FRAMES), voice)
    [piece], looks = asked.pieces, []
    watch = Callbacks()
    monkeypatch.setattr(watch, "check", lambda: looks.append(None))
    session = side.opened(1, asked.job(), streamed=True, report=watch, has_sound=False)
    [part] = [event.result for event in run(session, asked)]
    assert len(looks) == part.token_count
    codes = side.engine.fill(piece, np.full((2, 20), 7, np.int32), voice).result()
    diffusion = side.engine.decoders["mbd"].diffusion
    monkeypatch.setattr(sys.modules[type(diffusion).__module__], "default_steps", lambda _: [7, 4, 2, 0])
    windows = len(list(CodecPolicy().decode_cuts(20)))
    assert windows > 1
    counts: dict[Decoder, int] = {"vocos": windows, "mbd": 3 * len(diffusion.config.bands)}
    for decoder, times in counts.items():
        looks.clear()
        sound = Sound(codes, 0, source=MetaVoiceSource(decoder, piece.noise))
        side.engine.decode([sound], None, watch.check)
        assert len(looks) == times


def test_texts_are_cut_by_what_both_windows_hold(side: Any) -> None:
    def pieces(window: int) -> list[str]:
        facts = side.engine.facts
        first, second = (replace(one, max_position_embeddings=window) for one in (facts.first, facts.second))
        facts = replace(facts, first=first, second=second)
        made = facts.request(LONG, MetaVoiceOptions(), reference()).pieces
        return [facts.tokenizers.first_stage.decode(piece.first[:-1]) for piece in made]

    assert pieces(96) == ["Hello there.", "It is late.", "Who are you?"]
    assert len(pieces(2048)) == 1
