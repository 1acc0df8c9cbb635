"""`mlx-port generate` with a small copy of every model: both backends, voices, mistakes in one line."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

pytest.importorskip("torch", reason="the published pickles need torch")
pytest.importorskip("mlx.core", reason="the port needs MLX")

import mlx_port
from tests.contract.speakers import SMALL, converted
from tests.contract.speakers import folder as small
from tests.mlx_port.commands.fake import FakePipeline, install
from tests.mlx_port.commands.running import SECRET, one_line, run
from tests.tiny.dia2 import recording
from tests.tiny.metavoice_pipeline import reference
from tests.tiny.qwen3 import write_published
from tts_core import models
from tts_core.mars5.request import STAGES
from tts_core.metavoice.request import log_license
from tts_core.qwen3.config import BASE, CUSTOM_VOICE, MODES, VOICE_DESIGN
from tts_core.serving.voices import VoiceStore, voices_folder
from tts_core.text.captions import Captions

pytestmark = pytest.mark.rest

VOICE = ("--ref-audio", "v.wav")
# flags with which a model says a few frames
FEW: dict[str, tuple[Any, ...]] = {
    "dia": ("--max-seconds", 0.3),
    "dia2": ("--max-seconds", 0.6),
    "mars5": (*VOICE, "--timesteps", 2, "--generate-max-len-override", 40),
    "metavoice": (*VOICE, "--max-seconds", 0.15, "--guidance", 2),
    "qwen3": (*VOICE, "--max-seconds", 0.3),
}


@cache
def mode(name: str) -> Path:
    """A small Qwen3-TTS of a mode."""
    return converted(lambda made: write_published(made, name, eos=0.2))


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder with recordings, and no stored voices."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    whole = np.asarray(reference(30.5).one.audio)
    for name, seconds, level in (
        *(("v", 30.5, 1), ("two", 2, 1), ("shorter", 1.5, 1)),
        *(("short", 0.5, 1), ("long", 13, 1), ("silent", 2, 0)),
    ):
        soundfile.write(f"{name}.wav", level * whole[: int(24000 * seconds)], 24000)


DEEP = ("--ref-text", "The rain.", "--generate-max-len-override", 200)


@pytest.mark.parametrize(("name", "words"), [*((name, ()) for name in models.NAMES), ("mars5", DEEP)])
def test_both_backends_say_the_same(name: str, words: tuple[Any, ...], capsys: Any) -> None:
    reports, made = [], []
    voice = ("--ref-audio", "two.wav") if name == "mars5" else ()
    for backend in ("mlx", "torch"):
        flags = ["--text", f"{SECRET}.", "--seed", 3, "--backend", backend, "--json", "-o", f"{backend}.wav"]
        few = [flag for flag in FEW[name] if not voice or flag not in VOICE]
        code, out, err = run(capsys, "generate", "--model", small(name), *flags, *few, *voice, *words)
        assert code == 0, err
        reports.append(json.loads(out))
        made.append(soundfile.read(f"{backend}.wav")[0])
        assert name != "mars5" or list(reports[-1]["stage_seconds"]) == list(STAGES)
        assert reports[-1]["real_time_factor"] > 0
    same = ("frames", "samples", "seed", "token_count", "finish_reason", "sample_rate")
    assert [reports[0][one] for one in same] == [reports[1][one] for one in same]
    assert len(made[0]) == reports[0]["samples"] > 0
    np.testing.assert_allclose(made[0], made[1], rtol=0, atol=1e-3)


REFUSED: list[tuple[str, str, tuple[Any, ...]]] = [
    ("dia2", "[S3] is not a speaker", ("-t", "[S3] Who?")),
    ("dia2", "there are no words", ("-t", "...")),
    ("dia2", "--initial-padding: 251", ("--initial-padding", 251)),
    ("dia2", "--include-prefix: there are no recordings", ("--include-prefix",)),
    ("dia2", "more than this model's limit", ("--max-seconds", 200)),
    ("dia2", "captions", ("--captions", "x.txt")),
    ("mars5", "prompt: MARS5 needs a reference voice; give 5 to 10 s of speech with --ref-audio", ()),
    ("mars5", "ref-text: --ref-audio is missing", ("--ref-text", "Hello.")),
    ("mars5", "or deep_clone=False (--ref-text, or --shallow)", ("--ref-audio", "two.wav", "--deep")),
    ("mars5", "ref-text: there are no words", ("--ref-audio", "two.wav", "--ref-text", " ", "--shallow")),
    ("mars5", "ref-audio: 0.5 s are too short for a voice", ("--ref-audio", "short.wav")),
    ("mars5", "or raise max_prompt_dur (--max-prompt-dur)", ("--ref-audio", "long.wav")),
    ("mars5", "ref-audio: the reference is silent", ("--ref-audio", "silent.wav")),
    ("mars5", "ref-audio: 2 given, mars5 takes 1", (*VOICE, *VOICE)),
    ("mars5", "--frequency-penalty: no such flag", (*VOICE, "--frequency-penalty", 3)),
    ("mars5", "--trim-db: its value is missing", (*VOICE, "--trim-db")),
    ("mars5", "'.5' cannot be used; give a whole number", (*VOICE, "--rep-penalty-window", ".5")),
    ("mars5", "--typical-p: 2.0 is outside (0, 1]", (*VOICE, "--typical-p", 2)),
    ("mars5", "decoder: mars5 takes no --decoder; it takes --seed, --max-s", (*VOICE, "--decoder", "mbd")),
    ("metavoice", "MetaVoice needs a reference", ()),
    ("metavoice", "--ref-audio: 1.5 s are too short for a voice", ("--ref-audio", "shorter.wav")),
    ("metavoice", "metavoice takes no --ref-text", (*VOICE, "--ref-text", "Hello.")),
    ("metavoice", "Latin-1", (*VOICE, "-t", "漢")),
    ("metavoice", "--max-seconds: -1.0", (*VOICE, "--max-seconds", -1)),
    ("metavoice", "--decoder", (*VOICE, "--decoder", "wave")),
    (CUSTOM_VOICE, "CustomVoice takes no recording; give --voice, one of vivian, eric", VOICE),
    (CUSTOM_VOICE, "vivian is built in; leave --ref-audio and --ref-text out", ("--voice", "vivian", *VOICE)),
    (CUSTOM_VOICE, "speaks in a built-in voice; give one of vivian, eric", ()),
    (CUSTOM_VOICE, "did you mean vivian?", ("--voice", "vivien")),
    (VOICE_DESIGN, "ref-audio: Qwen3-TTS VoiceDesign takes no recording; leave it out", VOICE),
    (VOICE_DESIGN, "instruct: Qwen3-TTS VoiceDesign needs a description of the voice in words", ()),
    (BASE, "give --ref-audio", ()),
    (BASE, "or --trust-transcript", ("--ref-audio", "two.wav", "--ref-text", "An inn. " * 20)),
]


@pytest.mark.parametrize(("name", "message", "flags"), REFUSED)
def test_refused_before_weights_are_read(
    name: str, message: str, flags: tuple[Any, ...], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mode(name) if name in MODES else small(name)
    monkeypatch.setattr("mlx_port.loading._fill", lambda *_: pytest.fail("weights were read"))
    text = () if "-t" in flags else ("-t", SECRET)
    one_line(capsys, 2, message, "generate", "--model", model, "-o", "a.wav", *text, *flags)
    assert not Path("a.wav").exists()


def test_nothing_is_fetched(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    small("metavoice")
    for name in ("socket.socket.connect", "socket.getaddrinfo"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("the network was asked"))
    words = ["generate", "--model", small("metavoice"), "--text", SECRET]
    assert run(capsys, *words, *FEW["metavoice"])[0] == 0
    away = ("--ref-audio", "https://example.org/speaker.wav")
    one_line(capsys, 3, "example.org/speaker.wav is not there", *words, *away)


def test_recordings_of_one_voice_and_the_licence_of_the_diffusion(
    capsys: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they are long enough."""
    log_license.cache_clear()
    words = ["generate", "--model", small("metavoice"), "--text", SECRET, *FEW["metavoice"]]
    assert run(capsys, *words, "--decoder", "mbd")[0] == 0
    assert caplog.text.count("CC-BY-NC") == 1
    pipeline = install(monkeypatch, FakePipeline())
    twice = ("--ref-audio", "shorter.wav") * 2
    assert run(capsys, *words[:5], *twice)[0] == 0
    assert "reference: 3.0 s; the voice is closer with 30 s" in caplog.text
    assert len(pipeline.asked.voice.utterances) == 2


TEXT = "[S1] Hello there friend. [S2] Oh, hello! (laughs) I can't wait."
WORDS = [word for word in TEXT.split() if not word.startswith("[")]


def test_captions_have_the_times_of_words(capsys: Any) -> None:
    """VTT marks each word with its time; SRT has cues of two lines at most, each at its first word."""
    long = " ".join([TEXT] * 2)
    given = ["-t", long, "--seed", "5", "--temp", "0.7", "--action-temperature", "0.5", "--quiet"]
    for kind in ("srt", "vtt"):
        out = ["-o", "a.wav", "--captions", f"a.{kind}"]
        assert run(capsys, "generate", "--model", small("dia2"), *given, *out) == (0, "", "")
    pipeline = mlx_port.load(small("dia2"))
    result = pipeline.generate(long, seed=5, temperature=0.7, action_temperature=0.5)
    sound, rate = soundfile.read("a.wav", dtype="int16")
    assert (rate, len(sound)) == (24000, len(result.audio))
    assert [word.text for word in result.words] == WORDS * 2
    srt, vtt = (Path(f"a.{kind}").read_text() for kind in ("srt", "vtt"))
    assert (srt, vtt) == (Captions(result.cues).srt(), Captions(result.cues).vtt())
    starts = [seconds(found) for found in re.findall(r"(\S+) -->", srt)]
    assert len(starts) >= len(result.cues)
    known = {round(word.start, 3) for word in result.words}
    assert set(starts[1:]) <= known | {round(cue.start, 3) for cue in result.cues}
    marks = [seconds(found) for found in re.findall(r"<([\d:.]+)>", vtt)]
    assert len(marks) > len(WORDS)
    assert set(marks) <= known


def seconds(time: str) -> float:
    hours, minutes, rest = time.replace(",", ".").split(":")
    return round(3600 * int(hours) + 60 * int(minutes) + float(rest), 3)


def test_recordings_with_transcripts(capsys: Any) -> None:
    """A reference for each speaker; a remark says that words without times were spread."""
    for name, one in zip("ab", recording().references, strict=True):
        soundfile.write(f"{name}.wav", np.asarray(one.audio), 24000)
    voices = ["--ref-audio", "a.wav", "--ref-text", "Hello there,"]
    voices += ["--ref-audio", "b.wav", "--ref-text", "Oh, hello friend"]
    flags = ["-t", "[S1] Yes.", *voices, "--seed", "1", "-o", "c.wav", "--json"]
    code, out, err = run(capsys, "generate", "--model", small("dia2"), *flags)
    assert code == 0, err
    assert "spread over the recording by their lengths" in err + out
    assert json.loads(out)["samples"] == len(soundfile.read("c.wav")[0])


def test_a_stored_voice_of_a_built_in_name(capsys: Any, caplog: pytest.LogCaptureFixture) -> None:
    """CustomVoice takes no recordings, so it uses its own; Base has no other."""

    def heard(name: str, *flags: str) -> np.ndarray:
        words = ("--text", "The inn.", "--seed", "5", "--max-seconds", "0.3", "-o", "a.wav", "--quiet")
        assert run(capsys, "generate", "--model", mode(name), *words, *flags) == (0, "", "")
        return soundfile.read("a.wav", dtype="float32")[0]

    own = heard(CUSTOM_VOICE, "--voice", "vivian")
    pipeline = mlx_port.load(mode(CUSTOM_VOICE))
    expected = pipeline.generate("The inn.", voice="vivian", seed=5, max_seconds=0.3)
    np.testing.assert_allclose(own, expected.audio, rtol=0, atol=1e-4)
    assert own.tolist() != heard(CUSTOM_VOICE, "--voice", "Eric").tolist()
    assert run(capsys, "voices", "add", "vivian", "two.wav")[0] == 0
    assert own.tolist() == heard(CUSTOM_VOICE, "--voice", "vivian").tolist()
    warning = "voice: vivian is also stored; Qwen3-TTS CustomVoice, which takes no recordings, uses its own"
    assert warning in caplog.messages
    stored, given = heard(BASE, "--voice", "vivian"), heard(BASE, "--ref-audio", "two.wav")
    np.testing.assert_allclose(stored, given, rtol=0, atol=1e-4)
    VoiceStore(voices_folder()).remove("vivian")
    absent = ("--voice", "vivian", "--text", "The inn.")
    one_line(capsys, 3, "voice: vivian is not there", "generate", "--model", mode(BASE), *absent)


def test_every_model_is_here() -> None:
    assert FEW.keys() == SMALL.keys()
