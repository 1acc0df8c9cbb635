"""Converted folders by hub id: fetched and converted once, whole, and refused before a download."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mlx_port
from converters import cache
from converters.cache import Form, converted_folder, entries, remove
from converters.convert import convert
from converters.published import open_published
from tests.tiny.hub import COMMIT, VOICE, cached, online, write_voice
from tts_core.config import FORMAT_VERSION
from tts_core.errors import NotFoundError, ResourceError, UsageError
from tts_core.files.record import RECORD, Record

__all__ = ["online"]
MLX_COMMUNITY = Path(__file__).parents[1] / "data/golden/mlx_community"
DIA, TINY = "nari-labs/Dia-1.6B-0626", Form()


def test_the_second_start_asks_downloads_and_converts_nothing(online, monkeypatch):
    folder = converted_folder(VOICE, TINY)
    assert online.downloads == [VOICE]
    record = json.loads((folder / RECORD).read_text())
    assert {(part["source"], part["commit"]) for part in record["parts"].values()} == {(VOICE, COMMIT)}
    online.asked.clear()
    monkeypatch.setattr(cache, "write", None)
    assert converted_folder(VOICE, TINY) == folder
    assert converted_folder(VOICE, TINY, offline=True) == folder
    assert converted_folder(VOICE, TINY, revision=COMMIT) == folder
    assert online.asked == []


def test_a_folder_is_named_by_id_commit_form_and_format(online):
    found = {converted_folder(VOICE, form) for form in (TINY, Form("bfloat16"), Form(None, 8))}
    assert {folder.parent.name for folder in found} == {"our--voice"}
    assert sorted(folder.name for folder in found) == [
        f"{COMMIT}-bfloat16-format{FORMAT_VERSION}",
        f"{COMMIT}-published-8bit-format{FORMAT_VERSION}",
        f"{COMMIT}-published-format{FORMAT_VERSION}",
    ]
    assert online.downloads == [VOICE]
    how = [json.loads((folder / "config.json").read_text()).get("quantization") for folder in sorted(found)]
    assert [entry and entry["bits"] for entry in how] == [None, 8, None]


def test_one_line_before_the_download_and_one_after_the_conversion(online, caplog):
    with caplog.at_level(logging.WARNING, "converters"):
        folder = converted_folder(VOICE, TINY)
        converted_folder(VOICE, Form("float16"))
    before, after, _ = (record.getMessage() for record in caplog.records)
    files = [path for path in online.remote[VOICE].rglob("*") if path.suffix in (".safetensors", ".json")]
    size = sum(file.stat().st_size for file in files) / 1e9
    assert before.startswith(f"{VOICE}: commit {COMMIT}, {size:.2f} GB to download, ")
    assert before.endswith(f" GB free in {online.cache}")
    assert after.startswith(f"{VOICE}: converted (published), ")
    assert after.endswith(f" GB in {folder}")


def test_only_the_files_that_are_needed_are_fetched(online):
    for name in ("dia.ckpt", "demo.wav", "model.onnx", "other.pth"):
        (online.remote[VOICE] / name).write_bytes(b"0")
    converted_folder(VOICE, TINY)
    there = {path.name for path in online.cache.rglob("snapshots/**/*")}
    assert "model.safetensors" in there
    assert not there & {"dia.ckpt", "demo.wav", "model.onnx", "other.pth"}


def test_too_little_memory_refuses_before_the_download(online):
    weights = sum(file.stat().st_size for file in online.remote[VOICE].rglob("*.safetensors"))
    with pytest.raises(ResourceError, match=r"memory: our/voice's weights take .* are free; .*nothing"):
        converted_folder(VOICE, TINY, memory=weights - 1)
    assert online.downloads == []
    assert not cache.folders().exists()
    converted_folder(VOICE, TINY, memory=weights)


def test_the_weights_of_a_published_model_are_counted_in_the_form_that_is_asked_for(online):
    online.remote[DIA] = online.remote[VOICE]  # little to download; the sizes are known
    with pytest.raises(ResourceError, match=r"weights take 6\.\d\d GB, 3\.00 GB are free; --bits 8 takes"):
        converted_folder(DIA, TINY, memory=3 * 10**9)
    with pytest.raises(ResourceError, match=r"weights take 3\.\d\d GB, 3\.00 GB are free; --bits 8"):
        converted_folder(DIA, Form("bfloat16"), memory=3 * 10**9)
    assert online.downloads == []


def test_too_little_disk_refuses_before_the_download(online, monkeypatch):
    weights = sum(file.stat().st_size for file in online.remote[VOICE].rglob("*.safetensors"))
    monkeypatch.setattr(cache, "free_disk_bytes", lambda _: weights)  # but not both copies
    with pytest.raises(ResourceError, match=r"disk: our/voice takes .* converted, beside .* to download"):
        converted_folder(VOICE, TINY)
    monkeypatch.setattr("converters.files.hub.free_disk_bytes", lambda _: weights // 2)
    with pytest.raises(ResourceError, match=r"our/voice takes .* to download, .* has .* free; .*HF_HOME"):
        open_published(VOICE, flag="--hf-path")
    assert online.downloads == []


def test_a_mistyped_id_names_the_nearest_repositories(online):
    with pytest.raises(NotFoundError, match=r"did you mean nari-labs/Dia-1\.6B-0626") as found:
        converted_folder("nari-labs/Dia-1.6B-0626x", TINY)
    assert "\n" not in str(found.value)
    with pytest.raises(NotFoundError, match=r"did you mean Qwen/Qwen3-TTS-12Hz-0\.6B-Base"):
        converted_folder("Qwen/Qwen3-TTS-12Hz-0.6-Base", TINY)


def test_a_converted_repository_is_loaded_from_the_hubs_cache(online, tmp_path):
    convert(open_published(online.remote[VOICE], offline=True), tmp_path / "remote/own")
    online.remote["our/own"] = tmp_path / "remote/own"
    folder = converted_folder("our/own", TINY)
    assert folder.is_relative_to(online.cache)
    assert entries() == []
    Record.read(folder).check_sizes()
    assert converted_folder("our/own", Form(None, 8)).is_relative_to(cache.folders())


@pytest.mark.parametrize("name", ["base_bf16", "custom_8bit"])
def test_an_mlx_conversion_of_others_is_loaded_from_the_hubs_cache(online, tmp_path, name):
    """Nothing is converted, and all that loading needs is fetched."""
    remote = tmp_path / "remote/other"
    shutil.copytree(MLX_COMMUNITY / name, remote, ignore=shutil.ignore_patterns("golden*"))
    online.remote["mlx-community/qwen3"] = remote
    folder = converted_folder("mlx-community/qwen3", Form(None, None))
    assert folder.is_relative_to(online.cache)
    assert entries() == []
    assert type(mlx_port.load(folder)).__name__ == "Qwen3Pipeline"


def test_quantized_weights_are_not_quantized_again(online, tmp_path):
    how = Form(None, 8).quantization
    convert(open_published(online.remote[VOICE], offline=True), tmp_path / "remote/own", quantization=how)
    online.remote["our/own"] = tmp_path / "remote/own"
    with pytest.raises(UsageError, match="bits: our/own is quantized as published; leave --bits out"):
        converted_folder("our/own", Form(None, 4))


def test_a_folder_that_lost_a_file_is_converted_again(online):
    folder = converted_folder(VOICE, TINY)
    (folder / "model.safetensors").unlink()
    assert converted_folder(VOICE, TINY) == folder
    Record.read(folder).check_sizes()
    assert online.downloads == [VOICE]


def test_a_branch_keeps_its_commit_and_removal_forgets_it(online):
    first = converted_folder(VOICE, TINY, revision="release/1")
    assert converted_folder(VOICE, TINY, revision="release/1", offline=True) == first
    converted_folder(VOICE, Form("float16"))
    removed = remove(VOICE)
    assert [entry.path for entry in removed] == sorted({first, *(entry.path for entry in removed)}, key=str)
    assert (len(removed), entries()) == (2, [])
    assert {entry.commit for entry in removed} == {COMMIT}
    online.asked.clear()
    assert converted_folder(VOICE, TINY) == first
    assert online.asked
    with pytest.raises(UsageError, match="our/voices: not in the cache; did you mean our/voice"):
        remove("our/voices")


def test_a_failed_conversion_leaves_nothing(online, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ResourceError("DST: the disk is full")

    monkeypatch.setattr(cache, "write", broken)
    with pytest.raises(ResourceError):
        converted_folder(VOICE, TINY)
    monkeypatch.undo()
    assert not [*online.cache.parent.glob("cache/mlx-port/models/*/refs/*")]


CHILD = """
import sys
sys.stdin.readline()
from converters.cache import Form, converted_folder
print(converted_folder("our/voice", Form()))
"""


def test_two_processes_at_once_make_one_folder(tmp_path):
    cached(tmp_path / "home/hub", VOICE, write_voice(tmp_path / "voice"))
    shutil.rmtree(tmp_path / "voice")
    places = {"HF_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    settings = {name: text for name, text in os.environ.items() if name not in ("HF_HUB_CACHE", "HF_HOME")}
    root = Path(__file__).parents[2]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD],
            env=settings | places | {"HF_HUB_OFFLINE": "1"},
            cwd=root,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for child in both:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    ends = [child.communicate(timeout=300) for child in both]
    assert [child.returncode for child in both] == [0, 0], ends
    assert len({out for out, _ in ends}) == 1
    assert sorted(err.count(": converted (") for _, err in ends) == [0, 1]
    place = tmp_path / "cache/mlx-port/models/our--voice"
    assert [path.name for path in place.iterdir() if path.name not in (".lock", "refs")] == [
        f"{COMMIT}-published-format{FORMAT_VERSION}"
    ]
