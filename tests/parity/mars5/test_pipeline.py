"""MARS5's pipeline on both sides: equal from text to sound; batches, streams, limits, seeds."""

import re
import threading
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.sides import SIDES
from tests.tiny.mars5 import CODES, LONG, SAID, TEXT, limit, pipeline, reference, voice
from tests.tiny.noise import CountingNoise
from tests.tolerance import assert_within
from tests.windows import Windows
from tts_core.audio.silence import loud_span
from tts_core.audio.splicing import splice as join_waves
from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import CancelledError
from tts_core.mars5.diffusion import FIRST_DRAW
from tts_core.mars5.inputs import CodecSequence
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.request import BANDWIDTH_ID, STAGES, for_vocoder
from tts_core.nn.noise import HostNoise, piece_seed
from tts_core.prompt import Prompt
from tts_core.results import merge
from tts_core.speaking.session import SpeechSession

pytestmark = pytest.mark.rest

PIECES = {"piece_seconds": 1.4, "timesteps": 2}  # 21 characters per piece


@pytest.mark.parametrize(
    ("seed", "draws", "said"),
    [
        pytest.param(1, "per class", None, id="1-per class-shallow"),
        pytest.param(2, "per class", SAID, id="2-per class-deep"),
        pytest.param(2, "per cell", None, id="2-per cell-shallow"),
        pytest.param(1, "per cell", SAID, id="1-per cell-deep"),
    ],
)
def test_both_sides_say_the_same(said: str | None, draws: Any, seed: int) -> None:
    """From the reference's samples: the same codes, and the same sound within the derived bound."""
    heard = pipeline("torch").engine.encode(reference())
    results = {
        name: pipeline(name).generate(
            TEXT,
            prompt=voice(said=said),
            timesteps=6,
            generate_max_len_override=limit(TEXT, 14, said, heard),
            noise=HostNoise(seed),
            draws=draws,
        )
        for name in SIDES
    }
    codes = results["torch"].codes
    np.testing.assert_array_equal(results["mlx"].codes, codes)
    assert codes.shape[1] > 3
    wave = {name: decoded(name, codes) for name in SIDES}
    oracle = decoded("torch", codes, "float64")
    start, stop = loud_span(wave["torch"], Mars5Options().trim_db)
    for name, result in results.items():
        assert_within(result.audio, wave["torch"][start:stop], oracle[start:stop], f"{name}: sound")
        assert (result.seed, result.finish_reason, result.sample_rate) == (None, "length", 24000)
        assert result.token_count == 14


def decoded(side: str, codes: np.ndarray, dtype: str = "float32") -> np.ndarray:
    vocoder = pipeline(side, dtype).engine.vocoder
    readable = for_vocoder(codes, vocoder.config.n_codebooks, vocoder.config.codebook_size)
    return np.asarray(vocoder.decode(readable[None], BANDWIDTH_ID))[0]


def test_a_part_is_a_piece_and_counts_its_ids(side: str) -> None:
    given = {"prompt": voice(), "seed": 4, "generate_max_len_override": 24, **PIECES}
    parts = list(pipeline(side).stream(LONG, **given))
    whole, joined = pipeline(side).generate(LONG, **given), merge(parts)
    np.testing.assert_array_equal(joined.audio, whole.audio)
    assert len(parts) == 4
    assert parts[-1].finish_reason == "length"
    assert list(whole.stage_seconds) == list(STAGES)
    assert all(seconds > 0 for seconds in whole.stage_seconds.values())
    assert sum(whole.stage_seconds.values()) <= whole.processing_time_seconds
    drawn = [24 - limit(sentence, 0) for sentence in re.findall(r".+?[.!]", LONG)]  # the rest of the limit
    assert [part.token_count for part in parts] == np.cumsum(drawn).tolist()
    assert whole.token_count == joined.token_count == sum(drawn)


def test_windows_of_the_vocoder_are_no_parts_of_the_stream(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished waveform is one part: its windows would arrive all at once."""
    given = {"prompt": voice(), "seed": 4, "timesteps": 1, "generate_max_len_override": 24, "trim_db": 0.5}
    whole = pipeline(side).generate(TEXT, **given)
    monkeypatch.setattr(pipeline(side).engine.vocoder, "policy", CodecPolicy(3, 1))
    [part] = pipeline(side).stream(TEXT, **given)
    assert part.codes.shape[1] > 9
    np.testing.assert_array_equal(part.codes, whole.codes)
    Windows("mars5", partial(pipeline, "torch")).assert_same(part, whole)
    assert whole.samples < 320 * whole.codes.shape[1], "nothing was trimmed: choose another level"


def test_a_stream_that_nobody_hears_opens_nothing(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reference is encoded and its arguments are checked; a session follows with the first part."""
    speaking, opened, closed = pipeline(side), list[int](), list[SpeechSession]()
    slots, close = speaking.engine.slots, SpeechSession.close
    monkeypatch.setattr(speaking.engine, "slots", lambda *sizes: opened.append(1) or slots(*sizes))
    monkeypatch.setattr(SpeechSession, "close", lambda self: closed.append(self) or close(self))
    asked = {"prompt": voice(), "seed": 3, **PIECES}
    speaking.stream(LONG, **asked)
    heard = speaking.stream(LONG, **asked)
    assert opened == []
    first = next(heard)
    assert first.stage_seconds["codec"] > 0
    assert (len(opened), closed) == (1, [])
    heard.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert len(closed) == 1
    speaking.generate(TEXT, **asked)
    assert len(opened) == len(closed) == 2


@pytest.mark.parametrize(
    ("ends", "reason"),
    [([False, True], "length"), ([True, False], "length"), ([True, True], "stop")],
    ids=["first cut", "last cut", "none cut"],
)
def test_a_piece_that_is_cut_off_is_told(
    side: str, ends: list[bool], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result names every piece without an end."""
    accept, left = CodecSequence.accept, list(ends)

    def ending(sequence: CodecSequence, drawn: int) -> None:
        accept(sequence, drawn)
        if sequence.done:
            assert sequence.finish_reason == "length"
            sequence.ended = left.pop(0)

    monkeypatch.setattr(CodecSequence, "accept", ending)
    given = {"timesteps": 1, "generate_max_len_override": 30}
    made = pipeline(side).generate(
        "The inn is near. Then it thins out.",
        prompt=Prompt.of(codes=CODES),
        piece_seconds=1.3,
        seed=9,
        **given,
    )
    assert (left, made.finish_reason) == ([], reason)


def test_pieces_are_what_they_are_alone(side: str) -> None:
    """Each piece draws its own numbers."""
    texts = ["The inn is near.", "Then it thins out.", "There it ends!"]
    given = {"prompt": voice(), "timesteps": 2, "generate_max_len_override": 30}
    whole = pipeline(side).generate(" ".join(texts), seed=9, piece_seconds=1.3, **given)
    single = [
        pipeline(side).generate(text, seed=piece_seed(9, place), **given) for place, text in enumerate(texts)
    ]
    np.testing.assert_array_equal(whole.codes, np.concatenate([piece.codes for piece in single], axis=1))
    np.testing.assert_array_equal(whole.audio, join_waves([piece.audio for piece in single], 24000))


def test_a_batch_encodes_a_recording_once(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shallow and deep clones of it."""
    voices, texts = [voice(), voice(said=SAID), voice()], ["The inn is near.", TEXT, LONG]
    given = {"timesteps": 1, "generate_max_len_override": 48, "piece_seconds": 4.0}
    speak, codec, heard = pipeline(side), pipeline(side).engine.codec, list[int]()
    encode = codec.encode
    monkeypatch.setattr(speak.engine, "_codes", VoiceCache())
    monkeypatch.setattr(codec, "encode", lambda wave, books: (heard.append(1), encode(wave, books))[1])
    batch = speak.generate_batch(texts, prompts=voices, seed=[3, 4, 5], **given)
    assert len(heard) == 1
    one = speak.generate_batch(texts[:2], prompts=voices[0], noise=HostNoise(3), **given)
    np.testing.assert_array_equal(one[0].codes, batch[0].codes)
    assert one[0].seed is None


@pytest.mark.parametrize("steps", [1, 5])
def test_timesteps_are_the_steps_taken(side: str, steps: int) -> None:
    noise = CountingNoise(1)
    pipeline(side).generate_codes([TEXT], CODES, noise=noise, timesteps=steps, generate_max_len_override=14)
    assert [step for step in noise.steps if step >= FIRST_DRAW] == [
        *range(FIRST_DRAW, FIRST_DRAW + steps + 1)
    ]


@pytest.mark.parametrize("said", [None, SAID], ids=["shallow", "deep"])
def test_a_text_that_gives_no_frame_is_silent(side: str, said: str | None) -> None:
    """The first new id is cut off, as upstream does: a single id gives no sound."""
    prompt = Prompt.of(codes=CODES, text=said)
    result = pipeline(side).generate(
        TEXT, prompt=prompt, seed=1, timesteps=1, generate_max_len_override=limit(TEXT, 1, said)
    )
    assert result.codes.shape[0] == 8
    assert result.samples == 320 * result.codes.shape[1] if said else result.samples == 0
    assert result.is_final_chunk


@pytest.mark.parametrize("said", [None, SAID], ids=["shallow", "deep"])
def test_max_frames_cuts_one_piece(side: str, said: str | None) -> None:
    """An id may code several frames: those of the last id are cut, earlier ids stay."""
    prompt, ids = Prompt.of(codes=CODES, text=said), list[int]()
    drawn = {"seed": 3, "temperature": 2.0, "top_p": 1.0}  # the second id is one of a merge
    given = {"prompt": prompt, "timesteps": 1, "generate_max_len_override": limit(TEXT, 9, said), **drawn}
    whole = pipeline(side).generate(TEXT, **given)
    for most in range(1, 5):
        made = pipeline(side).generate(TEXT, **given, max_frames=most)
        assert (made.codes.shape, made.finish_reason) == ((8, most), "length")
        np.testing.assert_array_equal(made.codes[0], whole.codes[0, :most])
        ids.append(made.token_count)
    assert ids == sorted(ids)
    assert len({*ids}) < len(ids), "no id was cut: choose other draws"
    assert ids[-1] < whole.token_count
    same = pipeline(side).generate(TEXT, **given, max_frames=whole.codes.shape[1])
    np.testing.assert_array_equal(same.codes, whole.codes)
    np.testing.assert_array_equal(same.audio, whole.audio)


def test_an_end_before_max_frames_stops(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    accept = CodecSequence.accept

    def ending(sequence: CodecSequence, drawn: int) -> None:
        accept(sequence, drawn)
        sequence.ended |= len(sequence.generated) == 6

    monkeypatch.setattr(CodecSequence, "accept", ending)
    made = pipeline(side).generate(TEXT, prompt=Prompt.of(codes=CODES), seed=1, timesteps=1, max_frames=900)
    assert (made.token_count, made.finish_reason) == (6, "stop")
    frames = made.codes.shape[1]
    given = {"prompt": Prompt.of(codes=CODES), "seed": 1, "piece_seconds": 1.4, "timesteps": 1}
    cut_off = pipeline(side).generate(f"{TEXT} {TEXT}", **given, max_frames=frames)
    assert (cut_off.codes.shape[1], cut_off.finish_reason) == (frames, "length"), (
        "the second piece is missing"
    )


def test_progress(side: str) -> None:
    """Every stage of every piece, with the seconds generated so far and those expected."""
    heard: list[Any] = []
    given = {"prompt": voice(), "seed": 4, "generate_max_len_override": 24, **PIECES}
    made = merge(list(pipeline(side).stream(LONG, **given, progress=heard.append)))
    heard = [one for one in heard if not one.step]  # as stages begin; the others come by the clock
    stages = ["AR", "NAR", "vocoder", "speech"]
    assert [one.stage for one in heard] == ["codec", *stages * 4]
    assert [one.seconds for one in heard] == sorted(one.seconds for one in heard)
    assert (heard[0].seconds, heard[-1].seconds) == (0, made.audio_seconds)
    assert [one.expected for one in heard] == pytest.approx([(len(LONG) - 3) / 15] * 17)
    assert {one.steps for one in heard if one.stage == "NAR"} == {PIECES["timesteps"]}
    heard = []
    pipeline(side).generate(LONG, **given, progress=heard.append)
    heard = [one for one in heard if not one.step]
    assert [one.stage for one in heard[:5]] == ["codec", *["AR"] * 4], "all pieces begin at once"
    assert [one.stage for one in heard].count("speech") == 4
    heard = []
    both = pipeline(side).generate_batch(
        [TEXT, TEXT], prompts=CODES, seed=4, timesteps=1, max_frames=3, progress=heard.append
    )
    heard = [one for one in heard if not one.step]
    assert Counter(one.stage for one in heard) == Counter(["codec", *stages] * 2)
    assert [one.stage for one in heard[:4]] == ["codec", "codec", "AR", "AR"], "both begin at once"
    assert [one.stage for one in heard[-2:]] == ["vocoder", "speech"]
    assert heard[-1].seconds == sum(one.audio_seconds for one in both)
    assert [one.expected for one in heard] == pytest.approx([6 / 75] * 10)


@pytest.mark.parametrize(("stage", "draws"), [("AR", 5), ("NAR", 3)])
def test_cancel_ends_within_a_stage(side: str, stage: str, draws: int) -> None:
    """Between ids and between timesteps; no further number is drawn."""
    cancel, other = threading.Event(), {"AR": 0, "NAR": FIRST_DRAW}[stage]

    class Cancelling(CountingNoise):
        def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
            if step == other + draws:
                cancel.set()
            return super().uniform(step, shape)

    noise = Cancelling(1)
    given = {"prompt": Prompt.of(codes=CODES), "timesteps": 50, "max_frames": 30, "noise": noise}
    with pytest.raises(CancelledError):
        list(pipeline(side).stream(TEXT, **given, cancel=cancel))
    assert max(noise.steps) <= other + draws + 1, "launched ahead, at the most"


def test_cancel_before_the_reference_is_read(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cancel, codec = threading.Event(), pipeline(side).engine.codec
    cancel.set()
    monkeypatch.setattr(codec, "encode", lambda *_: pytest.fail("the reference was encoded"))
    with pytest.raises(CancelledError):
        pipeline(side).generate(TEXT, prompt=voice(), cancel=cancel)
