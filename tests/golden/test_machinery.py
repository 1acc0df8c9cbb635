"""The golden tests can fail: every tensor, file and key is broken in a copy, and the check must fail."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.golden.cases import DEFAULT, Case, discover
from tests.golden.test_folders import check

pytestmark = pytest.mark.rest

pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")

FULL, PROMPT, HF, V01, CODEC = ["v_0626", "v_0626_prompt", "v_0626_prompt_hf", "v_v01", "v_dac"]


def of(case: str, *names: str) -> list[tuple[str, str]]:
    return [(case, name) for name in names]


def every(case: str) -> list[tuple[str, str]]:
    return of(case, *(name for name in Case(DEFAULT / "dia" / case).vectors().names if "nopad" not in name))


# (case, tensor); together they have every name that a golden file can have
ALTERED = [
    *(*every(FULL), *every(V01), *every(HF), *every(CODEC)),
    *of(PROMPT, "prompt_codes.0", "delayed_prefill", "prefill_steps"),
    *of("e2e", "v_0626_prompt.wav"),
    *of("sampler/head", "cond", "uncond", "0.prob", "1.token", "2.count", "4.argmax"),
    *of("sampler/v1", "0.prob", "1.token", "2.count", "4.argmax"),
    *of("sampler/hf", "0.prob", "1.token", "2.count"),
]


@pytest.fixture
def dia(tmp_path: Path) -> Path:
    """A copy of the committed vectors, by links: weights that a test does not change load only once."""
    copy = tmp_path / "dia"
    shutil.copytree(
        DEFAULT / "dia", copy, copy_function=lambda source, target: os.symlink(Path(source).resolve(), target)
    )
    return copy


def edit(file: Path, change) -> None:
    """Apply `change` to a safetensors file's dict of tensors, or to a JSON file's dict."""
    if file.suffix == ".json":
        values = json.loads(file.read_text())
        change(values)
        file.unlink()
        file.write_text(json.dumps(values))
        return
    tensors = load_file(file)
    with safe_open(file, "np") as opened:
        metadata = opened.metadata()
    change(tensors)
    file.unlink()
    save_file(tensors, file, metadata)


@pytest.mark.parametrize(("where", "name"), ALTERED)
def test_every_tensor_is_compared(where, name, dia, loader):
    def alter(tensors: dict[str, np.ndarray]) -> None:
        tensor = tensors[name]
        step = 1 if tensor.dtype.kind in "iu" else 10 * np.abs(tensor).max()
        tensor.flat[0] += -step if name == "uncond" else step

    case, _, file = where.partition("/")
    edit(dia / case / f"{file or 'golden'}.safetensors", alter)
    with pytest.raises(AssertionError):
        check(Case(dia / case), "torch", loader)


@pytest.mark.parametrize("case", [FULL, HF, CODEC, "e2e"])
def test_an_unknown_tensor_is_never_passed_over(case, dia, loader):
    edit(dia / case / "golden.safetensors", lambda tensors: tensors.update(novel=np.zeros(3, np.float32)))
    with pytest.raises(AssertionError, match="never compared: novel"):
        check(Case(dia / case), "torch", loader)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        *of(FULL, "text_tokens", "encoder_out", "cross_v.0", "tf.tokens", "tf.self_k.0", "greedy.codes.0"),
        *of(PROMPT, "prompt_codes.0"),
        *of(HF, "encoder_out_uncond", "generate.sequences", "decoder_attention_mask", "generate.codes.0"),
        *of(CODEC, "enc.margin", "dec3.wav", "rt.wav"),
        *of("e2e", "v_v01.wav"),
    ],
)
def test_a_missing_tensor_is_named(case, name, dia, loader):
    edit(dia / case / "golden.safetensors", lambda tensors: tensors.pop(name))
    with pytest.raises(AssertionError, match=f"missing.*{re.escape(name)}|{re.escape(name)}.*missing"):
        check(Case(dia / case), "torch", loader)


@pytest.mark.parametrize("name", ["cond", "0.prob", "3.token", "4.argmax"])
def test_a_missing_sampler_tensor_is_named(name, dia, loader):
    edit(dia / "sampler" / "head.safetensors", lambda tensors: tensors.pop(name))
    with pytest.raises(AssertionError, match=f"{re.escape(name)}.*missing"):
        check(Case(dia / "sampler"), "torch", loader)


@pytest.mark.parametrize(
    ("case", "file"),
    [
        *of(FULL, "../v_0626_hf/model.safetensors", "config.json", "golden.safetensors", "info.json"),
        *of(V01, "dia-v0_1.pth"),
        *of(HF, "../v_0626_hf/model.safetensors", "../v_0626_prompt/golden.safetensors"),
        *of(CODEC, "weights_dac.pth"),
        *of("e2e", "../v_v01/golden.safetensors", "../v_dac/weights_dac.pth"),
        *of("sampler", "v1.safetensors", "head.safetensors"),
    ],
)
def test_a_missing_file_is_named(case, file, dia, loader):
    (dia / case / file).unlink()
    with pytest.raises(AssertionError, match=re.escape(Path(file).name)):
        check(Case(dia / case), "torch", loader)


def test_half_of_the_transformers_copy_of_a_codec_is_an_error(dia, loader):
    (dia / CODEC / "hf").mkdir()
    (dia / CODEC / "hf" / "config.json").write_text("{}")
    with pytest.raises(AssertionError, match=r"hf/model\.safetensors"):
        check(Case(dia / CODEC), "torch", loader)


@pytest.mark.parametrize(
    ("case", "key"),
    [
        *of(FULL, "kind", "layout", "generation", "weights", "config", "texts", "prompts", "generate"),
        *of(HF, "frames"),
        *of("e2e", "dac", "waves", "codes_key"),
    ],
)
def test_a_missing_key_is_named(case, key, dia, loader):
    edit(dia / case / "info.json", lambda info: info.pop(key))
    with pytest.raises(AssertionError, match=f"'{key}'"):
        check(Case(dia / case), "torch", loader)


def test_an_unknown_kind_is_an_error(dia, loader):
    edit(dia / FULL / "info.json", lambda info: info.update(kind="waltz"))
    with pytest.raises(AssertionError, match="waltz"):
        check(Case(dia / FULL), "torch", loader)


def test_the_other_release_is_not_accepted(dia, loader):
    edit(dia / FULL / "info.json", lambda info: info.update(generation="v0.1"))
    with pytest.raises(AssertionError, match="read as 0626"):
        check(Case(dia / FULL), "torch", loader)


def test_absent_subfolders_and_folders_without_vectors_collect_nothing(tmp_path):
    assert discover("mars5", tmp_path) == []
    (tmp_path / "dia" / "notes").mkdir(parents=True)
    (tmp_path / "dia" / "README.md").write_text("")
    assert discover("dia", tmp_path) == []


def test_a_sampler_has_the_kind_that_its_file_states(tmp_path):
    folder = tmp_path / "dia" / "sampler"
    folder.mkdir(parents=True)
    [case] = discover("dia", tmp_path)
    assert case.kind == "sampler"
    (folder / "info.json").write_text('{"kind": "qwen3_sampler"}')
    folder.rename(folder.parent / "draws")
    (folder.parent / "sampler").mkdir()
    (folder.parent / "sampler" / "info.json").write_text('{"kind": "waltz"}')
    assert [case.kind for case in discover("dia", tmp_path)] == ["qwen3_sampler", "waltz"]


def test_cases_are_found_under_any_name(dia):
    (dia / "v_v01").rename(dia / "something else")
    found = [str(case) for case in discover("dia", dia.parent)]
    assert "dia/something else" in found
    assert found == sorted(found)
