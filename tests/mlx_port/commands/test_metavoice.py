"""`mlx-port generate` and `estimate` with a small MetaVoice, in this process, on both backends."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

pytest.importorskip("torch", reason="the published pickles need torch")
pytest.importorskip("mlx.core", reason="the port needs MLX")

from tests.mlx_port.commands.fake import FakePipeline, install
from tests.mlx_port.commands.running import SECRET, one_line, run
from tests.tiny.metavoice_pipeline import RATE, reference, write_model
from tts_core.metavoice.request import STAGES, log_license


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("metavoice")
    write_model(place)
    for name, seconds in (("speaker.wav", 30.5), ("short.wav", 4.0), ("shorter.wav", 1.5)):
        soundfile.write(place / name, np.asarray(reference(seconds).one.audio), RATE)
    return place


@pytest.fixture
def work(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return folder


def speak(capsys, work, *arguments, voice="speaker.wav", text=f"{SECRET}."):
    model = ["--model", work / "model", "--ref-audio", work / voice, "--text", text]
    return run(capsys, "generate", *model, "--max-seconds", "0.15", "--seed", 3, *arguments)


@pytest.mark.parametrize("decoder", [[], ["--decoder", "mbd"]], ids=["vocos", "mbd"])
def test_both_backends_say_the_same(work, capsys, decoder):
    reports, made = [], []
    for backend in ("mlx", "torch"):
        flags = ["--backend", backend, "--guidance", 2, "--json", "-o", f"{backend}.wav"]
        code, out, _ = speak(capsys, work, *flags, *decoder)
        assert code == 0
        reports.append(json.loads(out))
        made.append(soundfile.read(f"{backend}.wav")[0])
        assert list(reports[-1]["stage_seconds"]) == list(STAGES)
        assert reports[-1]["real_time_factor"] > 0
    same = ("frames", "samples", "seed", "token_count", "finish_reason", "sample_rate")
    assert [reports[0][name] for name in same] == [reports[1][name] for name in same]
    assert reports[0]["sample_rate"] == RATE
    np.testing.assert_allclose(made[0], made[1], rtol=0, atol=1e-3)


def test_short_references_are_warned_about_and_shorter_ones_refused(work, capsys, caplog):
    assert speak(capsys, work, voice="short.wav")[0] == 0
    assert "reference: 4.0 s; the voice is closer with 30 s" in caplog.text
    model = ["--model", work / "model", "--text", SECRET, "--ref-audio", work / "shorter.wav"]
    one_line(capsys, 2, "error: --ref-audio: 1.5 s are too short for a voice", "generate", *model)


def test_several_recordings_are_one_voice(work, capsys, caplog, monkeypatch):
    """Together they are long enough."""
    pipeline = install(monkeypatch, FakePipeline())
    assert speak(capsys, work, "--ref-audio", work / "shorter.wav", voice="shorter.wav")[0] == 0
    assert "reference: 3.0 s; the voice is closer with 30 s" in caplog.text
    assert len(pipeline.asked.voice.utterances) == 2


def test_the_licence_of_the_diffusion_is_told(work, capsys, caplog):
    log_license.cache_clear()
    assert speak(capsys, work, "--decoder", "mbd")[0] == 0
    assert caplog.text.count("CC-BY-NC") == 1


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("metavoice takes no --ref-text", ["--ref-text", "Hello."]),
        (
            "metavoice takes no --deep; it takes --seed, --max-seconds, --speed, --cfg-scale, --temp",
            ["--deep"],
        ),
        ("Latin-1", ["--text", "漢"]),
        ("no words", ["--text", "..."]),
        ("--max-seconds: -1.0", ["--max-seconds", -1]),
        ("--decoder", ["--decoder", "wave"]),
    ],
)
def test_flags_are_checked_before_weights_are_read(work, capsys, monkeypatch, message, arguments):
    monkeypatch.setattr("mlx_port.loading._fill", lambda *_: pytest.fail("weights were read"))
    model = ["--model", work / "model", "--text", SECRET]
    one_line(capsys, 2, message, "generate", *model, "--ref-audio", work / "speaker.wav", *arguments)


def test_a_reference_is_needed(work, capsys):
    err = one_line(
        capsys, 2, "MetaVoice needs a reference", "generate", "--model", work / "model", "--text", SECRET
    )
    assert "--ref-audio" in err


def test_nothing_is_fetched(work, capsys, monkeypatch):
    def refuse(*_, **__):
        pytest.fail("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    assert speak(capsys, work)[0] == 0
    words = ["--model", work / "model", "--text", SECRET, "--ref-audio", "https://example.org/speaker.wav"]
    one_line(capsys, 3, "example.org/speaker.wav is not there", "generate", *words)


def estimated(capsys, *arguments):
    code, out, err = run(capsys, "estimate", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_estimates_of_the_published_model_need_no_files(capsys):
    model = ["--model", "metavoiceio/metavoice-1B-v0.1", "--dtype", "bfloat16"]
    whole, four = estimated(capsys, *model), estimated(capsys, *model, "-q", "--q-bits", 4, "--seconds", 3)
    assert whole["job"]["frames"] == 852
    assert 3.2e9 < whole["backends"]["mlx-metal"]["total"] < 3.6e9
    assert four["backends"]["mlx-metal"]["total"] < 1.2e9 < 2.8e9 < four["backends"]["torch-cuda"]["total"]
    code, out, _ = run(capsys, "estimate", *model, "--text", "Hello.", "--batch", 2)
    assert code == 0
    assert out.splitlines()[0] == "MB at the peak of 2 texts of 2.8 s of speech"


def test_estimates_of_a_converted_folder(work, capsys):
    found = estimated(capsys, "--model", work / "model", "--text", "Hello.")
    assert found["job"]["mbd"]
    assert found["dtype"] == "float32"
