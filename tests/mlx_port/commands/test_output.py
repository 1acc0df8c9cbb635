"""Where speech is written: nothing is overwritten, a disk is looked at first, a broken-off file is valid."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mlx_port.commands import collect, output
from mlx_port.commands import main as cli
from tests.mlx_port.commands.running import refused
from tests.mlx_port.commands.running import run as run_command
from tts_core.audio.files import read_audio
from tts_core.audio.formats import names
from tts_core.extras import install

ROOT = Path(__file__).parents[3]


def run(capsys, *arguments):
    return run_command(capsys, "generate", "-t", "Hum.", *arguments)


@pytest.mark.parametrize("flags", [[], ["--stream"]])
def test_the_default_output_keeps_what_exists(pipeline, capsys, tmp_path, flags):
    for name in ("speech.wav", "speech-2.wav", "speech-4.wav"):
        (tmp_path / name).write_text("mine")
    code, out, _ = run(capsys, *flags)
    assert (code, out.splitlines()[0]) == (0, "speech-3.wav: 1.50 s of speech, seed 7")
    assert json.loads(run(capsys, "--json", *flags)[1])["output"] == "speech-5.wav"
    assert [(tmp_path / f"speech{n}.wav").read_text() for n in ("", "-2", "-4")] == ["mine"] * 3
    assert len(read_audio(tmp_path / "speech-5.wav", 16000)) == 24000


def test_a_name_that_was_given_is_replaced(pipeline, capsys, tmp_path):
    (tmp_path / "speech.wav").write_text("old")
    assert run(capsys, "-o", "speech.wav")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["speech.wav"]
    assert len(read_audio("speech.wav", 16000)) == 24000


def test_a_default_name_that_another_process_takes_meanwhile(pipeline, capsys, tmp_path, monkeypatch):
    def take(result, check=collect.check_sound):
        (tmp_path / "speech.wav").write_text("mine")
        check(result)

    monkeypatch.setattr(collect, "check_sound", take)
    assert run(capsys)[1].startswith("speech-2.wav: ")
    assert (tmp_path / "speech.wav").read_text() == "mine"


def test_a_failed_run_leaves_no_empty_file(pipeline, capsys, tmp_path):
    pipeline.error, pipeline.seconds = KeyboardInterrupt(), 0
    assert run(capsys, "--stream")[0] == 130
    assert [path for path in tmp_path.iterdir() if not path.stat().st_size] == []


def test_the_disk_of_the_output_is_looked_at_before_the_work(pipeline, capsys, tmp_path, monkeypatch):
    asked = []

    def usage(folder):
        asked.append(Path(folder))
        return shutil._ntuple_diskusage(10**9, 10**9, 1000)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    (tmp_path / "deep").mkdir()
    message = "output: the disk of deep/a.mp3 has 0.0 MB free, 0.2 MB may be needed; free some space"
    refused(capsys, pipeline, 5, message, "-t", "Hum and hum and hum.", "-o", "deep/a.mp3")
    assert asked == [tmp_path / "deep"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, a disk without room")
def test_a_disk_that_gets_full_is_named_with_the_file(pipeline, capsys, monkeypatch):
    def full(path, *how, **named):
        return opened("/dev/full" if str(path) == "a.wav" else path, *how, **named)

    opened = open
    monkeypatch.setattr(output, "open", full, raising=False)
    code, _, err = run(capsys, "--stream", "-o", "a.wav")
    assert code == 5
    assert "output: a.wav could not be written to the end (No space left on device); is the disk full?" in err


STREAM = """
import os, signal, sys
number = int(sys.argv.pop())
signal.signal(signal.SIGINT, signal.default_int_handler)  # job runners start tests with SIGINT ignored
from mlx_port.commands import collect, main
def add(self, part):
    print(part.samples, flush=True)
    os.kill(os.getpid(), number)
collect.Display.add = add
main.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_stream_ends_with_the_part_that_it_has(tmp_path, number):
    """The embedded voice, interrupted after its first part: nothing more is spoken, the header is right, and
    Ctrl-C names the file.
    """
    text = "[S1] This is one of a number of sentences, and it is not the last one of them. " * 20
    words = ["generate", "--stream", "--text", text, "--seed", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", STREAM, *words, str(int(number))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    [first] = map(int, done.stdout.split())
    with wave.open(str(tmp_path / "speech.wav")) as sound:
        frames = sound.getnframes()
        samples = np.frombuffer(sound.readframes(frames), "<i2")
    assert len(samples) == frames == first > 0
    if number == signal.SIGINT:
        assert done.stderr == f"error: interrupted; speech.wav keeps {frames / 16000:.2f} s of speech\n"


def test_captions_that_cannot_be_written_leave_nothing_and_name_the_speech(
    pipeline, capsys, tmp_path, monkeypatch
):
    def full(source, target, replace=os.replace):
        if target.suffix == ".srt":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    code, _, err = run(capsys, "-o", "a.wav", "--captions", "a.srt")
    said = "--captions: a.srt could not be written (No space left on device); the speech is in a.wav"
    assert (code, err) == (5, f"error: {said}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"]


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".mp3", ".opus"])
def test_formats(pipeline, capsys, suffix):
    """Streamed, it is the same file; Opus has a random serial number."""
    assert run(capsys, "-o", f"whole{suffix}")[0] == 0
    assert run(capsys, "-o", f"pieces{suffix}", "--stream")[0] == 0
    whole, pieces = (read_audio(f"{name}{suffix}", 16000) for name in ("whole", "pieces"))
    assert whole.shape == (24000,)
    np.testing.assert_array_equal(whole, pieces)
    if suffix != ".opus":
        assert Path(f"whole{suffix}").read_bytes() == Path(f"pieces{suffix}").read_bytes()


def test_pcm_has_no_header(pipeline, capsys):
    assert run(capsys, "-o", "a.pcm")[0] == 0
    assert run(capsys, "-o", "a.wav")[0] == 0
    assert Path("a.pcm").read_bytes() == Path("a.wav").read_bytes()[44:]


def test_aac_needs_an_extra(pipeline, capsys, monkeypatch):
    monkeypatch.setattr(names, "find_spec", lambda name: None)
    message = f"aac: PyAV is not installed; {install('formats')}"
    refused(capsys, pipeline, 3, message, "-t", "Hum.", "-o", "a.aac")
    refused(capsys, pipeline, 3, message, "-t", "Hum.", "-o", "-", "--format", "aac")


@pytest.mark.parametrize("flags", [(), ("--format", "mp3"), ("--stream", "--format", "pcm")])
def test_stdout_takes_the_sound_and_stderr_the_report(pipeline, capsysbinary, tmp_path, flags):
    assert cli.run(["generate", "-t", "Hum.", "-o", "-", *flags]) == 0
    out, err = capsysbinary.readouterr()
    assert err.startswith(b"stdout: 1.50 s of speech, seed 7\n")
    assert list(tmp_path.iterdir()) == []
    if "pcm" in flags:
        assert len(out) == 48000
        return
    (tmp_path / "a.sound").write_bytes(out)
    assert 24000 <= len(read_audio("a.sound", 16000)) < 24000 + 5 * 576
    assert soundfile.info("a.sound").format == ("MP3" if flags else "WAV")


def test_a_terminal_takes_no_sound(pipeline, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    refused(capsys, pipeline, 2, "output: stdout is a terminal; pipe the sound on", "-t", "Hum.", "-o", "-")
