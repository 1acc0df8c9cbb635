"""`mlx-port generate` with MARS5: its flags around a fake pipeline, and the real one from published files."""

import json
from dataclasses import fields

import numpy as np
import pytest
import soundfile

from mlx_port.commands import main as cli
from mlx_port.commands import mars5 as cli_mars5
from mlx_port.commands.generate import Wish
from tests.converters.models import sources
from tests.mlx_port.commands.fake import FakePipeline, install
from tests.tiny.mars5 import reference
from tts_core.audio.files import read_audio
from tts_core.mars5.sampling import Mars5Settings

pytest.importorskip("torch", reason="the published pickles need torch")
SECRET = "Xylophones"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Through the real command, once."""
    where = tmp_path_factory.mktemp("mars5") / "model"
    given = [flag for path in sources("mars5") for flag in ("--hf-path", str(path))]
    assert cli.run(["convert", *given, "--mlx-path", str(where), "--dtype", "float32"]) == 0
    return where


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
    """Exit code, stdout, stderr."""
    capsys.readouterr()
    code = cli.run(["generate", "--model", str(folder), *map(str, arguments)])
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    assert "Traceback" not in err
    return code, out, err


def test_flags_reach_the_pipeline(pipeline, capsys, folder, voice):
    flags = "--cfg-scale 2.5 --temp 0.6 --top-p 0.9 --top-k 20 --seed 11 --shallow --as-written --quiet"
    words = ["--ref-audio", voice, "--ref-text", "Hello."]
    assert run(capsys, folder, "-t", SECRET, *words, *flags.split()) == (0, "", "")
    prompt = pipeline.asked.pop("prompt")
    assert prompt.transcript == "Hello."
    assert prompt.audio.shape == (36000,)
    assert pipeline.asked == {
        "text": SECRET,
        "deep_clone": False,
        "settings": Mars5Settings(nar_guidance_w=2.5, temperature=0.6, top_p=0.9, top_k=20),
        "as_written": True,
        "piece_seconds": 10.0,
        "seed": 11,
    }


def test_settings_by_name(pipeline, capsys, folder, voice):
    given = "--timesteps 50 --set rep_penalty_window=100 --set freq-penalty=2 --set x_0_temp=0.6 --quiet"
    assert run(capsys, folder, "-t", SECRET, "--ref-audio", voice, *given.split()) == (0, "", "")
    known = Mars5Settings(timesteps=50, rep_penalty_window=100, freq_penalty=2.0, x_0_temp=0.6)
    assert pipeline.asked["settings"] == known


def test_every_setting_can_be_given():
    """With a flag of its own, or by its name."""
    for field in fields(Mars5Settings):
        if field.name not in cli_mars5.HAVE_FLAGS:
            value = getattr(Mars5Settings(), field.name)
            assert cli_mars5.read_settings([f"{field.name}={value}"]) == {field.name: value}
    for flag in cli_mars5.HAVE_FLAGS.values():
        assert flag.split()[0].removeprefix("--").replace("-", "_") in vars(Wish)["__dataclass_fields__"]


def test_unset_flags_are_left_to_the_model(pipeline, capsys, folder, voice):
    assert run(capsys, folder, "-t", SECRET, "--ref-audio", voice)[0] == 0
    del pipeline.asked["text"], pipeline.asked["prompt"]
    assert pipeline.asked == {
        "deep_clone": None,
        "settings": Mars5Settings(),
        "as_written": False,
        "piece_seconds": 10.0,
        "seed": None,
    }


@pytest.mark.parametrize(("given", "most", "pieces"), [("5", 5.0, 5), ("0", None, 1), ("500", 500.0, 1)])
def test_pieces_of_another_length(pipeline, capsys, folder, voice, given, most, pieces):
    text = f"{SECRET} are heard in the morning and in the evening. " * 5
    code, _, err = run(capsys, folder, "-t", text, "--ref-audio", voice, "--piece-seconds", given)
    assert (code, pipeline.asked["piece_seconds"]) == (0, most)
    assert err.startswith(f"{pieces} pieces") == (pieces > 1)


def test_a_long_text_is_announced(pipeline, capsys, folder, voice):
    text = f"{SECRET} are heard in the morning and in the evening. " * 200
    code, out, err = run(capsys, folder, "-t", text, "--ref-audio", voice)
    assert code == 0
    pieces, seconds = int(err.split()[0]), int(err.split()[3])
    assert err == f"{pieces} pieces, about {seconds} s of speech\n"
    assert 5 * pieces < seconds <= 10 * pieces
    assert "pieces" not in out
    assert run(capsys, folder, "-t", text, "--ref-audio", voice, "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("message", "flags"),
    [
        ("ref-audio: missing; MARS5 speaks with the voice of a reference", []),
        ("ref-audio: missing", ["--ref-text", "Hello."]),
        ("deep: --ref-text is missing", ["--ref-audio", "voice.wav", "--deep"]),
        ("ref-text: there are no words", ["--ref-audio", "voice.wav", "--ref-text", " "]),
        ("ref-audio: 0.5 s long; give 1 to 12 s of speech", ["--ref-audio", "short.wav"]),
        ("ref-audio: 13.0 s long; give 1 to 12 s of speech", ["--ref-audio", "long.wav"]),
        ("ref-audio: nothing is to be heard", ["--ref-audio", "silent.wav"]),
        (
            "piece_seconds: 0.5 is not a number of 1 and more",
            ["--ref-audio", "voice.wav", "--piece-seconds", "0.5"],
        ),
        ("timesteps: 0 is outside 1 .. 1000", ["--ref-audio", "voice.wav", "--timesteps", "0"]),
        ("set: top_k has a flag of its own; give --top-k", ["--ref-audio", "voice.wav", "--set", "top_k=3"]),
        ("set: deep_clone has a flag", ["--ref-audio", "voice.wav", "--set", "deep_clone=True"]),
        ("set: beam_width is always 1", ["--ref-audio", "voice.wav", "--set", "beam_width=3"]),
        ("did you mean freq_penalty?", ["--ref-audio", "voice.wav", "--set", "frequency_penalty=3"]),
        ("set: trim_db is given twice", ["--ref-audio", "voice.wav", *["--set", "trim_db=3"] * 2]),
        ("set: trim_db takes a number, as trim_db=27", ["--ref-audio", "voice.wav", "--set", "trim_db"]),
        (
            "set: rep_penalty_window takes a whole number",
            ["--ref-audio", "voice.wav", "--set", "rep_penalty_window=.5"],
        ),
        ("typical_p: 2.0 is outside 0 .. 1", ["--ref-audio", "voice.wav", "--set", "typical_p=2"]),
        ("max-seconds: mars5 takes no --max-seconds", ["--ref-audio", "voice.wav", "--max-seconds", "3"]),
        ("decoder: mars5 takes no --decoder", ["--ref-audio", "voice.wav", "--decoder", "mbd"]),
        ("top_p: 1.5 is outside 0 .. 1", ["--ref-audio", "voice.wav", "--top-p", "1.5"]),
        ("text: there are no words", ["--ref-audio", "voice.wav", "--text", "..."]),
    ],
)
def test_refused_before_weights_are_read(pipeline, capsys, folder, voice, message, flags):
    for name, seconds, level in (("short", 0.5, 0.1), ("long", 13, 0.1), ("silent", 2, 0)):
        soundfile.write(f"{name}.wav", np.full(int(24000 * seconds), level, np.float32), 24000)
    code, out, err = run(capsys, folder, "--text", SECRET, *flags)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert pipeline.loaded == []


@pytest.mark.parametrize("seconds", [1, 12])
def test_references_at_the_bounds(pipeline, capsys, folder, voice, seconds):
    soundfile.write("bound.wav", np.full(24000 * seconds, 0.1, np.float32), 24000)
    flags = ["--text", SECRET, "--ref-audio", "bound.wav", "--quiet"]
    assert run(capsys, folder, *flags) == (0, "", "")
    assert len(pipeline.asked["prompt"].audio) == 24000 * seconds


@pytest.mark.parametrize("words", [[], ["--ref-text", "The rain."]], ids=["shallow", "deep"])
@pytest.mark.parametrize("backend", ["mlx", "torch"])
def test_it_speaks(capsys, folder, voice, backend, words):
    """The random network never ends by itself: here it has little room, and few steps."""

    room = f"generate_max_len_override={200 if words else 40}"
    flags = [
        "--ref-audio",
        voice,
        *words,
        "--backend",
        backend,
        "--seed",
        "3",
        "--timesteps",
        "2",
        "--set",
        room,
    ]
    code, out, err = run(capsys, folder, "-t", f"{SECRET} at 5.", *flags, "-o", "a.wav")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("a.wav: ")
    assert lines[0].endswith("cut at the limit, seed 3")
    assert "than real time)" in lines[1]
    assert [part.split()[0] for part in lines[2].split(", ")] == ["codec", "AR", "NAR", "vocoder"]
    code, out, _ = run(capsys, folder, "-t", SECRET, *flags, "-o", "b.wav", "--stream", "--json")
    assert code == 0
    facts = json.loads(out)
    assert list(facts["stage_seconds"]) == ["codec", "AR", "NAR", "vocoder"]
    assert len(read_audio("b.wav", 24000)) == facts["samples"] > 0
