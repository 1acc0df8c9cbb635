"""Voices by name: kept by one command, used by another; the folder is the server's."""

import json

import numpy as np
import pytest
import soundfile

from mlx_port.commands import main as cli
from mlx_port.commands import voices
from tests.mlx_port.commands.running import SECRET, one_line, refused, run
from tts_core.serving.voices import VoiceStore, voices_folder

NO = ["--consent", "I do not agree"]
OWN = (
    "the embedded voice takes no recording, give --model: this model speaks only as [S1] slt and [S2] rms, "
    "whatever the recording\n"
)
SAID = "[S1] These are the words of the recording."


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    for name, pitch in (("a.wav", 20), ("b.wav", 31)):
        soundfile.write(tmp_path / name, 0.3 * np.sin(np.arange(48000) / pitch), 16000)
    return tmp_path


def test_a_voice_is_added_listed_and_removed(capsys):
    assert run(capsys, "voices", "list")[1:] == (
        "",
        "none; add one: mlx-port voices add NAME sample.wav --text ...\n",
    )
    assert run(capsys, "voices", "add", "anna", "a.wav", "--text", SAID) == (0, "anna: added, 3.0 s\n", OWN)
    agreed = ["--consent", "I agree", "--consent-note", "Both agreed."]
    assert run(capsys, "voices", "add", "duo", "a.wav", "b.wav", *agreed)[0] == 0
    assert run(capsys, "voices", "add", "word", "a.wav", "--consent", "Yes")[0] == 0
    listed = "anna: 3.0 s, [S1] These are the words of the recording.\n" + 2 * "duo: 3.0 s, no transcript\n"
    listed += "word: 3.0 s, no transcript\n"
    assert run(capsys, "voices", "list") == (0, listed, OWN)
    assert run(capsys, "voices") == (0, listed, OWN)
    found = json.loads(run(capsys, "voices", "list", "--json")[1])
    assert [(one["name"], one["consent"]) for one in found] == [
        ("anna", voices.CONSENT),
        ("duo", "Both agreed."),
        ("word", "Yes"),
    ]
    assert VoiceStore(voices_folder()).names() == ["anna", "duo", "word"]
    assert run(capsys, "voices", "remove", "anna") == (0, "anna: removed\n", "")
    assert VoiceStore(voices_folder()).names() == ["duo", "word"]


def test_a_joined_recording_is_kept_whole(capsys, folder):
    """Ogg and FLAC stopped at the end of the first sound."""
    sound = soundfile.read("a.wav")[0]
    for form in ("ogg", "flac"):
        soundfile.write(f"one.{form}", sound, 16000)
        (folder / f"two.{form}").write_bytes((folder / f"one.{form}").read_bytes() * 2)
        assert run(capsys, "voices", "add", form, f"two.{form}")[1] == f"{form}: added, 6.0 s\n"
        kept = VoiceStore(voices_folder()).prompt(form).one.audio
        assert kept is not None
        assert kept.shape == (96000,)


def test_a_loud_recording_is_scaled_and_integers_are_refused(capsys):
    """Both were clipped without a word."""
    sound = soundfile.read("a.wav")[0]
    soundfile.write("loud.wav", sound * 10, 16000, subtype="FLOAT")
    assert run(capsys, "voices", "add", "loud", "loud.wav")[0] == 0
    kept = VoiceStore(voices_folder()).prompt("loud").one.audio
    assert kept is not None
    np.testing.assert_allclose(kept, sound / abs(sound).max(), atol=1.5 / 32768 + 1e-6)
    soundfile.write("loud.wav", sound * 32768, 16000, subtype="FLOAT")
    one_line(capsys, 2, "audio: loud.wav: its peak is 98", "voices", "add", "x", "loud.wav")


@pytest.mark.parametrize(
    ("code", "message", "arguments"),
    [
        (2, "name: use 1 to 64 letters", ["add", "../x", "a.wav"]),
        (2, "text: 1 given for 2 recordings; give one for each", ["add", "x", "a.wav", "b.wav", "-t", SAID]),
        (3, "audio: c.wav is not there", ["add", "x", "c.wav"]),
        (3, "audio: c.wav is not there", ["add", "x", "a.wav", "c.wav", "-t", SAID]),
        (2, "ad: no such command; did you mean add?", ["ad"]),
        (2, "SAMPLE...: missing; see mlx-port voices add --help", ["add", "x"]),
        (2, "consent: 'I do not agree' is not one of true, yes", ["add", "x", "a.wav", *NO]),
        (2, "consent-note: it explains --consent; give", ["add", "x", "a.wav", "--consent-note", "n"]),
        (3, "voice: x is not there; there is none yet", ["remove", "x"]),
        (2, "play: no such command; choose one of add, list, remove", ["play"]),
    ],
)
def test_mistakes_with_voices(capsys, code, message, arguments):
    one_line(capsys, code, f"error: {message}", "voices", *arguments)
    assert VoiceStore(voices_folder()).names() == []


def test_generate_speaks_with_a_voice(pipeline, takes_recordings, capsys, folder):
    # the fixture of the pipeline has its own working folder
    assert run(capsys, "voices", "add", "anna", folder / "a.wav", "--text", SAID)[0] == 0
    assert run(capsys, "generate", "--text", SECRET, "--voice", "anna", "--quiet") == (0, "", "")
    assert pipeline.asked.voice.transcript == SAID
    assert pipeline.asked.voice.samples.shape == (48000,)


def test_a_voice_without_a_transcript_says_which_models_need_one(capsys):
    needed = "no transcript, which Dia and Dia2 need: give --text\n"
    assert run(capsys, "voices", "add", "mute", "a.wav") == (0, "mute: added, 3.0 s\n", needed + OWN)


def test_the_embedded_voice_takes_no_recording(pipeline, capsys, folder):
    """It spoke as somebody else: likeness 0.4 to 0.7 to the recording, 0.8 or more to one of its own."""
    assert run(capsys, "voices", "add", "anna", folder / "a.wav", "--text", SAID)[0] == 0
    why = "this model speaks only as [S1] slt and [S2] rms, whatever the recording; leave it out"
    refused(capsys, pipeline, 2, f"voice: anna has 1 recording, {why}", "-t", SECRET, "--voice", "anna")
    flags = ["--ref-audio", folder / "a.wav", "--ref-text", SAID]
    refused(capsys, pipeline, 2, f"ref-audio: {why}", "-t", SECRET, *flags)
    refused(capsys, pipeline, 2, f"ref-audio: {why}", "-t", SECRET, *flags[:2])


def test_voices_that_generate_cannot_use(pipeline, takes_recordings, capsys, folder):
    assert run(capsys, "voices", "add", "mute", folder / "a.wav")[0] == 0
    speak = ["--text", SECRET, "--voice"]
    refused(capsys, pipeline, 3, "voice: mut is not there; did you mean mute?", *speak, "mut")
    refused(
        capsys, pipeline, 2, "voice: mute has no transcript, which Dia needs; add it with one", *speak, "mute"
    )
    message = "voice: it brings its recording; leave --ref-audio and --ref-text out"
    refused(capsys, pipeline, 2, message, *speak, "mute", "--ref-audio", folder / "a.wav")


def test_help_of_each(capsys):
    for words in (["voices"], ["voices", "add"], ["voices", "list"], ["voices", "remove"]):
        assert cli.run([*words, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"Usage: mlx-port {' '.join(words)}")
