"""A hub id in place of a folder: generate, serve, batch, bench, cache, and `load` on both sides."""

from __future__ import annotations

import json
from typing import Any

import pytest

import mlx_port
from mlx_port.commands.bench import measure
from mlx_port.commands.loading_flags import Loading
from mlx_port.commands.opening import on_this_machine, open_model
from mlx_port.commands.serve.run import sources
from mlx_port.commands.serve.settings import Settings
from mlx_port.loading import open_parts
from tests.converters.files.test_hub_repositories import hub
from tests.mlx_port.commands.running import one_line, run
from tests.tiny.hub import COMMIT, VOICE, online
from tests.tiny.published_models import FIRST
from tts_core import models
from tts_core.errors import UsageError

__all__ = ["hub", "online"]
SAY = ["--model", VOICE, "--seed", "3", "--max-seconds", "0.2", "--output", "a.wav"]


def test_generate_speaks_with_a_hub_id_and_downloads_once(online, capsys, tmp_path, monkeypatch):
    code, out, err = run(capsys, "generate", "Hello.", *SAY)
    assert code == 0, err
    assert out.startswith("a.wav: 0.2")
    assert online.downloads == [VOICE]
    online.asked.clear()
    code, out, _ = run(capsys, "generate", "Hello.", *SAY[:-1], "b.wav", "--offline", "--json", "--check")
    assert (code, online.asked) == (0, [])
    assert json.loads(out)["model"] == VOICE
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()
    folder = next((tmp_path / "cache/mlx-port/models/our--voice").glob(f"{COMMIT}*"))
    code, out, _ = run(capsys, "generate", "Hello.", "--model", folder, *SAY[2:-1], "c.wav")
    assert (code, (tmp_path / "c.wav").read_bytes()) == (0, (tmp_path / "a.wav").read_bytes())


def test_generate_with_bits_quantizes_the_converted_copy(online, capsys, tmp_path):
    code, _, err = run(capsys, "generate", "Hello.", *SAY, "--bits", "8")
    assert code == 0, err
    [config] = tmp_path.glob("cache/mlx-port/models/our--voice/*8bit*/config.json")
    assert json.loads(config.read_text())["quantization"]["bits"] == 8


def test_a_folder_with_the_name_of_a_hub_id_is_used(online, capsys, tmp_path):
    run(capsys, "generate", "Hello.", *SAY)
    folder = next((tmp_path / "cache/mlx-port/models/our--voice").glob(f"{COMMIT}*"))
    (tmp_path / "our").mkdir()
    folder.rename(tmp_path / "our/voice")
    online.asked.clear()
    assert on_this_machine(VOICE, Loading())[0] == VOICE
    assert mlx_port.load(VOICE, model="dia").sample_rate
    assert online.asked == []
    for flags, code, message in (
        (["--bits", "8"], 2, "bits: our/voice is a local folder and is loaded as it is; quantize it first: "),
        (["--revision", "v2"], 2, "revision: our/voice is a local folder; leave it out, or give a hub id"),
    ):
        one_line(capsys, code, message, "generate", "Hello.", *SAY, *flags)


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--bits", "8"], 2, "bits: the embedded voice has none; give a hub id with --model"),
        (["--revision", "v2"], 2, "revision: the embedded voice has none; give a hub id"),
        (["--bits", "8", "--backend", "torch", "--model", VOICE], 2, "bits: PyTorch runs no quantized"),
        (["--model", "our/voicce"], 3, "model: our/voicce is not on the hub, or is private"),
        (["--model", "nari-labs/Dia-1.6B", "--language", "en"], 2, "language: dia takes no --language"),
    ],
)
def test_mistakes_are_one_line_and_download_nothing(online, capsys, flags, code, message):
    err = one_line(capsys, code, "", "generate", "Hello.", *flags)
    assert message.lower() in err.lower()
    assert online.downloads == []


def test_serve_names_a_model_by_its_hub_id_and_loads_it_again_without_the_hub(online):
    source = sources(Settings(models=(VOICE,)))[VOICE]
    online.asked.clear()
    assert source.load().sample_rate
    assert online.asked == []


def test_batch_speaks_with_a_hub_id_and_is_resumed(online, capsys, tmp_path):
    (tmp_path / "rows.txt").write_text("Hello.\n")
    words = ["batch", "rows.txt", "--out", "out", "--model", VOICE, "--max-seconds", "0.2", "--format", "wav"]
    assert run(capsys, *words, "--revision", "main")[0] == 0
    sounds = [*(tmp_path / "out").rglob("*.wav")]
    before = [sound.stat().st_mtime_ns for sound in sounds]
    code, _, err = run(capsys, *words, "--offline")
    assert code == 0, err
    assert ([sound.stat().st_mtime_ns for sound in sounds], len(sounds)) == (before, 1)


def test_bench_times_a_hub_id_with_bits(online, capsys, monkeypatch):
    monkeypatch.setattr(measure, "READ_BYTES", 2**20)
    flags = ["--seconds", "0.2", "--runs", "1", "--bits", "8", "--json"]
    code, out, err = run(capsys, "bench", "--model", VOICE, *flags)
    assert code == 0, err
    assert [case["bits"] for case in json.loads(out)["cases"]] == [8]


def test_cache_lists_and_removes(online, capsys, tmp_path):
    folder, _ = on_this_machine(VOICE, Loading(bits=8))
    code, out, err = run(capsys, "cache")
    assert code == 0
    assert out.startswith(f"{VOICE} {COMMIT[:12]} published-8bit: 0.")
    assert out.endswith(f" GB in {folder}\n")
    assert err.endswith(f"in {tmp_path / 'cache/mlx-port/models'}\n")
    listed = json.loads(run(capsys, "cache", "list", "--json")[1])
    assert [(each["repository"], each["path"]) for each in listed] == [(VOICE, folder)]
    one_line(
        capsys, 2, "our/voicex: not in the cache; did you mean our/voice?", "cache", "remove", "our/voicex"
    )
    code, out, _ = run(capsys, "cache", "remove", VOICE)
    assert (code, out.startswith(f"{folder}: removed, ")) == (0, True)
    assert run(capsys, "cache", "list", "--json")[1] == "[]\n"


def test_both_sides_load_a_hub_id(online, tmp_path):
    torch_ref = pytest.importorskip("torch_ref")
    said = {"seed": 3, "max_seconds": 0.2}
    there = torch_ref.load(VOICE, model="dia", device="cpu").generate("Hello.", **said)
    assert online.downloads == [VOICE]
    assert not (tmp_path / "cache/mlx-port/models").exists()
    here = mlx_port.load(VOICE, model="dia", offline=True).generate("Hello.", **said)
    assert here.codes.tolist() == there.codes.tolist()
    assert online.downloads == [VOICE]
    place, how = on_this_machine(VOICE, Loading("torch"))
    assert COMMIT in str(place)
    assert open_model(place, how).model == "dia"
    with pytest.raises(UsageError, match="revision"):
        mlx_port.load(tmp_path, revision="v2")


MAIN = [
    "nari-labs/Dia-1.6B-0626",
    "nari-labs/Dia-1.6B",
    "nari-labs/Dia2-1B",
    "CAMB-AI/MARS5-TTS",
    "metavoiceio/metavoice-1B-v0.1",
    "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice",
]


@pytest.mark.skipif(not FIRST.is_file(), reason=f"{FIRST} is missing")
@pytest.mark.parametrize("repository", MAIN)
def test_every_model_loads_by_its_main_id_with_parts_of_others(hub, monkeypatch, tmp_path, repository):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    parts = open_parts(repository, offline=True)
    spec = models.MODELS[models.published()[repository][0]]
    assert (parts.model, set(parts.configs)) == (spec.name, set(spec.parts))
    pipeline: Any = mlx_port.load(repository, offline=True)
    assert spec is pipeline.model
    assert parts.folder.is_relative_to(tmp_path / "cache")
