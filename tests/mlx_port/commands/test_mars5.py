"""`mlx-port generate` with MARS5: its flags with a fake pipeline, and the real one from published files."""

from dataclasses import asdict, fields

import numpy as np
import pytest
import soundfile

from tests.mlx_port.commands.fake import FakePipeline, install
from tests.mlx_port.commands.running import SECRET, refused
from tests.mlx_port.commands.running import run as run_command
from tests.tiny.mars5 import converted, reference
from tts_core.audio.files import read_audio
from tts_core.mars5.options import Mars5Options
from tts_core.options import info

pytest.importorskip("torch", reason="the published pickles need torch")
VOICE = ["--ref-audio", "voice.wav"]


@pytest.fixture(scope="module")
def folder():
    return converted()


@pytest.fixture
def voice(tmp_path, monkeypatch):
    """A second and a half, in stereo, at another rate."""
    monkeypatch.chdir(tmp_path)
    sound = np.interp(np.arange(66150) / 44100, np.arange(len(reference())) / 24000, reference())
    sound = np.resize(sound[: int(0.13 * 44100)], 66150)
    soundfile.write(tmp_path / "voice.wav", np.stack([sound, 0.5 * sound], axis=1), 44100)
    return tmp_path / "voice.wav"


@pytest.fixture
def pipeline(monkeypatch):
    return install(monkeypatch, FakePipeline())


def run(capsys, folder, *arguments):
    return run_command(capsys, "generate", "--model", folder, *arguments)


def test_words_make_a_deep_clone(pipeline, capsys, folder, voice):
    words = ["--ref-audio", voice, "--ref-text", "At 3."]
    assert run(capsys, folder, "-t", SECRET, *words)[0] == 0
    assert pipeline.asked.voice.transcript == "At three."


def test_every_option_has_a_flag(pipeline, capsys, folder, voice):
    """Every value differs from its default."""
    given = {
        "cfg_scale": 2.5,
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "seed": 11,
        "max_seconds": 4.5,
        "piece_seconds": 8.0,
        "typical_p": 0.95,
        "freq_penalty": 2.0,
        "presence_penalty": 0.5,
        "rep_penalty_window": 100,
        "eos_penalty_factor": 1.5,
        "eos_penalty_decay": 0.25,
        "eos_estimated_gen_length_factor": 1.2,
        "generate_max_len_override": 1500,
        "timesteps": 50,
        "x_0_temp": 0.75,
        "q0_override_steps": 10,
        "trim_db": 30.0,
        "ref_audio_pad": 0.5,
        "max_prompt_dur": 11.0,
        "speed": 1.25,
    }
    known = {one.name: one.default for one in fields(Mars5Options) if info(one).flags}
    assert known.keys() == given.keys() | {"as_written", "deep_clone"}
    assert all(value != known[name] for name, value in given.items())
    flags = [word for name, value in given.items() for word in (f"--{name}", value)]
    words = ["--ref-audio", voice, "--ref-text", "Hello.", "--as-written", "--shallow", "--quiet"]
    assert run(capsys, folder, "-t", SECRET, *words, *flags) == (0, "", "")
    asked = pipeline.asked
    assert asked.voice.samples.shape == (36000 + 12000,), "half a second is padded"
    assert (asked.deep, asked.seed, pipeline.texts) == (False, 11, [SECRET])
    assert asked.diffusion.guidance_w == 2.5
    found = {name: value for name, value in asdict(pipeline.asked.options).items() if name in known}
    assert found == {**given, "as_written": True, "deep_clone": False}
    assert pipeline.asked.max_frames == 338  # 337.5


def test_unset_flags_are_left_to_the_model(pipeline, capsys, folder, voice):
    assert run(capsys, folder, "-t", SECRET, "--ref-audio", voice)[0] == 0
    assert pipeline.asked.options == Mars5Options()
    assert (pipeline.asked.deep, pipeline.asked.max_frames, pipeline.asked.seed) == (False, None, 7)


@pytest.mark.parametrize(("given", "most", "pieces"), [("5", 5.0, 5), ("0", None, 1), ("500", 500.0, 1)])
def test_pieces_of_another_length(pipeline, capsys, folder, voice, given, most, pieces):
    text = f"{SECRET} are heard in the morning and in the evening. " * 5
    code, _, err = run(capsys, folder, "-t", text, "--ref-audio", voice, "--piece-seconds", given)
    assert (code, pipeline.asked.options.piece_seconds, len(pipeline.texts)) == (0, most, pieces)
    assert err.startswith(f"{pieces} pieces") == (pieces > 1)


@pytest.mark.parametrize(
    ("message", "flags"),
    [
        ("prompt: MARS5 needs a reference voice; give 5 to 10 s of speech with --ref-audio", []),
        ("ref-text: --ref-audio is missing", ["--ref-text", "Hello."]),
        ("give its transcript, or deep_clone=False (--ref-text, or --shallow)", [*VOICE, "--deep"]),
        ("ref-text: there are no words", [*VOICE, "--ref-text", " "]),
        ("ref-text: there are no words", [*VOICE, "--ref-text", " ", "--shallow"]),
        ("ref-audio: 0.5 s are too short for a voice", ["--ref-audio", "short.wav"]),
        (
            "ref-audio: 13.0 s of reference, the limit is 12; cut it to 5 to 10 s, or raise max_prompt_dur "
            "(--max-prompt-dur)",
            ["--ref-audio", "long.wav"],
        ),
        ("ref-audio: the reference is silent", ["--ref-audio", "silent.wav"]),
        ("ref-audio: 2 given, mars5 takes 1", [*VOICE, *VOICE]),
        ("--frequency-penalty: no such flag", [*VOICE, "--frequency-penalty", "3"]),
        ("--trim-db: its value is missing", [*VOICE, "--trim-db"]),
        (
            "--rep-penalty-window: '.5' cannot be used; give a whole number",
            [*VOICE, "--rep-penalty-window", ".5"],
        ),
        ("--typical-p: 2.0 is outside (0, 1]", [*VOICE, "--typical-p", "2"]),
        (
            "decoder: mars5 takes no --decoder; it takes --seed, --max-seconds, --speed, --cfg-scale, --temp",
            [*VOICE, "--decoder", "mbd"],
        ),
        ("text: there are no words", [*VOICE, "--text", "..."]),
    ],
)
def test_refused_before_weights_are_read(pipeline, capsys, folder, voice, message, flags):
    for name, seconds, level in (("short", 0.5, 0.1), ("long", 13, 0.1), ("silent", 2, 0)):
        soundfile.write(f"{name}.wav", np.full(int(24000 * seconds), level, np.float32), 24000)
    refused(capsys, pipeline, 2, message, "--model", folder, "--text", SECRET, *flags)


@pytest.mark.parametrize("seconds", [1, 12])
def test_references_at_the_bounds(pipeline, capsys, folder, voice, seconds):
    soundfile.write("bound.wav", np.full(24000 * seconds, 0.1, np.float32), 24000)
    flags = ["--text", SECRET, "--ref-audio", "bound.wav", "--quiet"]
    assert run(capsys, folder, *flags) == (0, "", "")
    assert len(pipeline.asked.voice.samples) == 24000 * seconds


@pytest.mark.parametrize("words", [[], ["--ref-text", "The rain."]], ids=["shallow", "deep"])
@pytest.mark.parametrize("backend", ["mlx", "torch"])
def test_it_speaks(capsys, folder, voice, backend, words):
    """The random network never ends by itself, so it gets little room and few steps."""
    few = ["--timesteps", "2", "--generate-max-len-override", 200 if words else 40]
    flags = ["--ref-audio", voice, *words, "--backend", backend, "--seed", "3", *few]
    code, out, err = run(capsys, folder, "-t", f"{SECRET} at 5.", *flags, "-o", "a.wav")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("a.wav: ")
    assert lines[0].endswith("cut at the limit, seed 3")
    assert "real time (RTF " in lines[1]
    assert [part.split()[0] for part in lines[2].split(", ")] == ["codec", "AR", "NAR", "vocoder"]
    assert len(read_audio("a.wav", 24000)) > 0
