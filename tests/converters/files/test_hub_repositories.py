"""Every published repository converts by its hub id: from a hub's cache with its list of files, offline."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest
from huggingface_hub.utils import filter_repo_objects
from safetensors.numpy import save_file

from converters import cli
from converters.files.pickles import TorchCheckpoint
from tests.converters.folders import DAC_HF, V_0626, V_0626_HF, V_V01
from tests.converters.test_published import shard
from tests.tiny.dia2 import GOLDEN as DIA2
from tests.tiny.mbd import published_content as mbd_content
from tests.tiny.mbd import write_published as write_mbd
from tests.tiny.metavoice_pipeline import bands_for
from tests.tiny.networks import tiny
from tests.tiny.published_models import (
    AR,
    ENCODEC,
    FIRST,
    NAR,
    SECOND,
    SPEAKER,
    VOCOS,
    arrays,
    encodec_tensors,
    pickled,
)
from tests.tiny.qwen3 import write_published as write_qwen3
from tts_core.codecs.encodec import from_shapes
from tts_core.command import runner

COMMIT = "0123456789" * 4
QWEN3 = """README.md config.json generation_config.json merges.txt model.safetensors preprocessor_config.json
    tokenizer_config.json vocab.json speech_tokenizer/config.json speech_tokenizer/configuration.json
    speech_tokenizer/model.safetensors speech_tokenizer/preprocessor_config.json"""
DIA2_FILES = """README.md added_tokens.json config.json dia2_assets.json merges.txt model.safetensors
    special_tokens_map.json tokenizer.json tokenizer_config.json vocab.json"""
SHARDS = "model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json"
# repository → its published files
PUBLISHED = {
    **{f"Qwen/Qwen3-TTS-12Hz-{size}-Base": QWEN3 for size in ("0.6B", "1.7B")},
    **{f"Qwen/Qwen3-TTS-12Hz-{size}-CustomVoice": QWEN3 for size in ("0.6B", "1.7B")},
    "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign": QWEN3,
    "Qwen/Qwen3-TTS-Tokenizer-12Hz": """config.json configuration.json model.safetensors
        preprocessor_config.json""",
    "nari-labs/Dia-1.6B": "README.md config.json dia-v0_1.pth model.safetensors",
    "nari-labs/Dia-1.6B-0626": f"""README.md audio_tokenizer_config.json config.json dia-v1.pth
        generation_config.json {SHARDS} preprocessor_config.json tokenizer_config.json""",
    "descript/dac_44khz": "config.json model.safetensors preprocessor_config.json",
    "nari-labs/Dia2-1B": DIA2_FILES,
    "nari-labs/Dia2-2B": DIA2_FILES,
    "kyutai/mimi": "README.md config.json model.safetensors preprocessor_config.json",
    "CAMB-AI/MARS5-TTS": "README.md mars5_ar.safetensors mars5_nar.safetensors",
    "charactr/vocos-encodec-24khz": "README.md config.yaml pytorch_model.bin",
    "facebook/encodec_24khz": "README.md config.json model.safetensors preprocessor_config.json",
    "metavoiceio/metavoice-1B-v0.1": """README.md config.json first_stage.pt second_stage.pt
        speaker_encoder.pt""",
    "facebook/multiband-diffusion": "README.md mbd_comp_8.pt mbd_musicgen_32khz.th",
}
MODES = {"Base": "base", "CustomVoice": "custom_voice", "VoiceDesign": "voice_design"}


def fill(repository: str, folder: Path) -> None:
    """Write the files of a repository that are read, small."""
    match repository.partition("/")[2].split("-"):
        case ["Qwen3", "TTS", "12Hz", size, mode]:
            write_qwen3(folder, MODES[mode], size={"0.6B": "0b6", "1.7B": "1b7"}[size])
        case ["Qwen3", "TTS", "Tokenizer", _]:
            write_qwen3(folder / "whole")
            shutil.copytree(folder / "whole/speech_tokenizer", folder, dirs_exist_ok=True)
            shutil.rmtree(folder / "whole")
        case ["Dia", "1.6B"]:
            shutil.copytree(V_V01, folder, dirs_exist_ok=True)
            read = TorchCheckpoint(V_V01 / "dia-v0_1.pth")
            save_file({name: read.read(name) for name in read.shapes}, folder / "model.safetensors")
        case ["Dia", "1.6B", "0626"]:
            shutil.copytree(V_0626_HF, folder, dirs_exist_ok=True)
            shutil.copy(V_0626 / "dia-v1.pth", folder)
            shard(folder)
        case ["dac_44khz"]:
            shutil.copytree(DAC_HF, folder, dirs_exist_ok=True)
        case ["Dia2", _]:
            for source in (*(DIA2 / "v_main").iterdir(), *(DIA2 / "tokenizer").iterdir()):
                shutil.copy(source, folder)
            assets = {"config": "config.json", "weights": "model.safetensors", "tokenizer": repository}
            (folder / "dia2_assets.json").write_text(json.dumps(assets | {"mimi": "kyutai/mimi"}))
        case ["mimi"]:
            shutil.copytree(DIA2 / "mimi", folder, dirs_exist_ok=True)
        case ["MARS5", "TTS"]:
            shutil.copy(AR, folder / "mars5_ar.safetensors")
            shutil.copy(NAR, folder / "mars5_nar.safetensors")
        case ["vocos", *_]:
            shutil.copytree(VOCOS, folder, dirs_exist_ok=True)
        case ["encodec_24khz"]:
            save_file(encodec_tensors(arrays(pickled(ENCODEC))), folder / "model.safetensors")
        case ["metavoice", *_]:
            for file in (FIRST, SECOND, SPEAKER):
                shutil.copy(file, folder)
        case ["multiband", _]:
            bands = bands_for(from_shapes(TorchCheckpoint(ENCODEC).shapes).hidden_size)
            write_mbd(folder / "mbd_comp_8.pt", mbd_content(bands, tiny(bands).tensors))


def publish(repository: str, folder: Path) -> Path:
    """Write the published files of a repository, and nothing else."""
    folder.mkdir(parents=True)
    fill(repository, folder)
    names = PUBLISHED[repository].split()
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in names:
            path.unlink()
    for name in names:
        if not (folder / name).exists():
            (folder / name).write_text("{}" if name.endswith(".json") else "")
    return folder


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Path:
    """The cache of a hub with these repositories: the client finds what it asks for, and nothing else."""
    cache, client = tmp_path / "hub", huggingface_hub.snapshot_download
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))

    def snapshot_download(repository, *, allow_patterns, **options):
        remote, held = tmp_path / "remote" / repository, cache / f"models--{repository.replace('/', '--')}"
        if not remote.exists():
            publish(repository, remote)
        (held / "refs").mkdir(parents=True, exist_ok=True)
        (held / "refs/main").write_text(COMMIT)
        for name in filter_repo_objects(PUBLISHED[repository].split(), allow_patterns=allow_patterns):
            target = held / "snapshots" / COMMIT / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                target.symlink_to(remote / name)
        return client(repository, allow_patterns=allow_patterns, **options)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return cache


@pytest.fixture
def convert(tmp_path) -> Callable[..., dict]:
    def call(*arguments: object) -> dict:
        out = tmp_path / "out" / str(len([*tmp_path.glob("out/*")]))
        flags = [*map(str, arguments), "--mlx-path", str(out), "--offline"]
        assert runner.run(cli.convert_weights, flags, debug=False) == 0
        return json.loads((out / "conversion.json").read_text())

    return call


CONVERSIONS = {  # repository that is given, with other flags → repositories that the parts are from
    **{(name,): {name} for name in PUBLISHED if "Qwen3-TTS-12Hz" in name},
    ("Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice", "--codec", "Qwen/Qwen3-TTS-Tokenizer-12Hz"): {
        "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice",
        "Qwen/Qwen3-TTS-Tokenizer-12Hz",
    },
    **{(name,): {name, "descript/dac_44khz"} for name in PUBLISHED if "/Dia-" in name},
    **{(name,): {name, "kyutai/mimi"} for name in PUBLISHED if "/Dia2-" in name},
    ("CAMB-AI/MARS5-TTS",): {
        "CAMB-AI/MARS5-TTS",
        "facebook/encodec_24khz",
        "charactr/vocos-encodec-24khz",
    },
    ("metavoiceio/metavoice-1B-v0.1", "--include-mbd"): {
        "metavoiceio/metavoice-1B-v0.1",
        "facebook/encodec_24khz",
        "charactr/vocos-encodec-24khz",
        "facebook/multiband-diffusion",
    },
}


def test_every_repository_is_tried():
    assert set().union(*CONVERSIONS.values()) == PUBLISHED.keys()


@pytest.mark.skipif(not FIRST.is_file(), reason=f"{FIRST} is missing")
@pytest.mark.parametrize("given", CONVERSIONS, ids=lambda given: given[0])
def test_a_repository_converts_by_its_hub_id_as_its_whole_folder_does(hub, tmp_path, convert, given):
    found = convert("--hf-path", *given)
    parts = found["parts"].values()
    assert {part["source"] for part in parts} == CONVERSIONS[given]
    assert {part["commit"] for part in parts} == {COMMIT}
    others = [
        flag for part in CONVERSIONS[given] - {given[0]} for flag in ("--hf-path", tmp_path / "remote" / part)
    ]
    flags = [flag for flag in given[1:] if flag == "--include-mbd"]
    if "--codec" in given:
        others = ["--codec", *others[1:]]
    whole = convert("--hf-path", tmp_path / "remote" / given[0], *others, *flags)
    written = (
        {name: file for name, file in each["written"].items() if name != "README.md"}
        for each in (found, whole)
    )
    assert next(written) == next(written)


@pytest.mark.skipif(not FIRST.is_file(), reason=f"{FIRST} is missing")
@pytest.mark.parametrize("given", ["CAMB-AI/MARS5-TTS", "metavoiceio/metavoice-1B-v0.1", "nari-labs/Dia2-1B"])
def test_a_converted_folder_that_was_uploaded_is_fetched_with_its_texts(
    hub, tmp_path, monkeypatch, convert, given
):
    first = convert("--hf-path", given)
    folder = tmp_path / "out/0"
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    shutil.copytree(folder, tmp_path / "remote/our/own")
    monkeypatch.setitem(PUBLISHED, "our/own", " ".join(files))
    again = convert("--hf-path", "our/own")
    assert {name for name in again["written"]} == {name for name in first["written"]}
