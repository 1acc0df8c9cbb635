"""`mlx-port generate` with Dia2: words with their times in captions."""

import json
import re

import numpy as np
import pytest
import soundfile

from tests.contract.speakers import folder as small
from tests.mlx_port.commands.running import one_line
from tests.mlx_port.commands.running import run as run_command
from tests.tiny.dia2 import recording
from tts_core.text.captions import Captions

pytestmark = pytest.mark.rest

TEXT = "[S1] Hello there friend. [S2] Oh, hello! (laughs) I can't wait."
WORDS = [word for word in TEXT.split() if not word.startswith("[")]


@pytest.fixture(scope="module")
def folder():
    return small("dia2")


def run(capsys, folder, *arguments):
    return run_command(capsys, "generate", "--model", folder, "--quiet", *arguments)


def test_captions_have_the_times_of_words(folder, tmp_path, capsys):
    """VTT marks each word with its time; SRT has cues of two lines at most, each at its first word."""
    from mlx_port import Dia2Pipeline

    long = " ".join([TEXT] * 2)
    given = ["-t", long, "--seed", "5", "--temp", "0.7", "--action-temperature", "0.5"]
    for kind in ("srt", "vtt"):
        out = ["-o", tmp_path / "a.wav", "--captions", tmp_path / f"a.{kind}"]
        assert run(capsys, folder, *given, *out) == (0, "", "")
    result = Dia2Pipeline.load(folder).generate(long, seed=5, temperature=0.7, action_temperature=0.5)
    sound, rate = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert (rate, len(sound)) == (24000, len(result.audio))
    assert [word.text for word in result.words] == WORDS * 2
    srt, vtt = ((tmp_path / f"a.{kind}").read_text() for kind in ("srt", "vtt"))
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


def test_recordings_with_transcripts(folder, tmp_path, capsys, monkeypatch):
    """A reference for each speaker; a remark says that words without times were spread."""
    monkeypatch.chdir(tmp_path)
    for name, one in zip("ab", recording().references, strict=True):
        soundfile.write(f"{name}.wav", np.asarray(one.audio), 24000)
    voices = ["--ref-audio", "a.wav", "--ref-text", "Hello there,"]
    voices += ["--ref-audio", "b.wav", "--ref-text", "Oh, hello friend"]
    flags = ["-t", "[S1] Yes.", *voices, "--seed", "1", "-o", "c.wav", "--json"]
    code, out, err = run_command(capsys, "generate", "--model", folder, *flags)
    assert code == 0, err
    assert "spread over the recording by their lengths" in err + out
    assert json.loads(out)["samples"] == len(soundfile.read("c.wav")[0])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-t", "[S3] Who?"], "[S3] is not a speaker"),
        (["-t", "..."], "there are no words"),
        (["-t", "Yes.", "--initial-padding", "251"], "--initial-padding: 251"),
        (["-t", "Yes.", "--include-prefix"], "--include-prefix: there are no recordings"),
        (["-t", "Yes.", "--max-seconds", "200"], "more than this model's limit"),
        (["-t", "Yes.", "--captions", "x.txt"], "captions"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(folder, tmp_path, capsys, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    one_line(capsys, 2, message, "generate", "--model", folder, *flags)
    assert list(tmp_path.iterdir()) == []
