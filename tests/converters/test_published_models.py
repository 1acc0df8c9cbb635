"""MARS5 and MetaVoice opened: recognized by their keys; every wrong source is one clear line."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from safetensors.numpy import load_file

from converters import search
from converters.card import card_of
from converters.convert import convert, outline
from converters.files.pickles import TorchCheckpoint
from converters.files.readers import SafetensorsCheckpoint
from converters.published import open_published
from tests.converters.changed import fails, resave, save, without
from tests.converters.folders import DAC_HF, DAC_PTH, V_0626, V_0626_HF, left_in, write_safetensors
from tests.tiny.mbd import CONFIG as MBD_CONFIG
from tests.tiny.mbd import published_content, write_published
from tests.tiny.networks import tiny
from tests.tiny.published_models import (
    AR,
    ENCODEC,
    FIRST,
    NAR,
    SECOND,
    SOURCES,
    SPEAKER,
    VOCOS,
    edit,
    header,
    sources,
    tensors,
)
from tts_core import models
from tts_core.errors import CheckpointError, NotFoundError, UsageError

torch = pytest.importorskip("torch", reason="the published pickles need torch")
MODELS = list(SOURCES)


# recognition


@pytest.mark.parametrize("model", MODELS)
def test_the_model_is_told_by_its_files_in_any_order(model):
    opened = open_published(sources(model)[::-1])
    assert opened.model == model
    assert list(opened.parts) == list(SOURCES[model])
    assert opened.ignored == {}


@pytest.mark.parametrize("given", [*map(sources, MODELS), [V_0626_HF, DAC_HF], [V_0626, DAC_PTH]])
def test_opening_reads_no_tensor(monkeypatch, given):
    for reader in (SafetensorsCheckpoint, TorchCheckpoint):
        monkeypatch.setattr(reader, "read", lambda *_: pytest.fail("a tensor was read"))
    outline(open_published(given))


def test_a_folder_of_many_files(tmp_path):
    """Vectors and other models' codecs beside it are ignored, each with its reason."""
    for file in (AR, AR.with_suffix(".json"), NAR, NAR.with_suffix(".json"), ENCODEC):
        shutil.copy(file, tmp_path / file.name)
    shutil.copytree(VOCOS, tmp_path / "vocoder")
    (tmp_path / "vocoder").chmod(0o755)
    write_safetensors(tmp_path / "vectors.safetensors", {"x": np.ones(3, np.float32)})
    shutil.copytree(DAC_HF, tmp_path / "dac")
    torch.save({"vocab": header(AR), "model": {"x": torch.ones(2)}}, tmp_path / "other.pt")
    opened = open_published(tmp_path)
    assert opened.model == "mars5"
    assert opened.ignored == {
        "vectors.safetensors": "its tensors are of no known model",
        "dac/model.safetensors": "contains DAC (the codec), which is found elsewhere or not needed",
        "other.pt": "its tensors are of no known model",
    }


# sizes that no tensor shows


def test_mars5_heads(tmp_path):
    """From the JSON file beside the weights, from --config, else of the published width."""
    shutil.copy(NAR, tmp_path / "nar.safetensors")
    beside = NAR.with_suffix(".json")
    stated = json.loads(beside.read_text())["n_heads"]

    def heads(**options: Any) -> int:
        opened = open_published(tmp_path / "nar.safetensors", parts=["mars5_nar"], **options)
        return opened.parts["mars5_nar"].config.num_attention_heads

    width = open_published(NAR, parts=["mars5_nar"]).parts["mars5_nar"].config.hidden_size
    assert open_published(NAR, parts=["mars5_nar"]).parts["mars5_nar"].config.num_attention_heads == stated
    assert heads() == max(1, width // 64)
    assert heads(config=beside) == stated
    shutil.copy(beside, tmp_path / "config.json")
    assert heads() == stated
    (tmp_path / "more.json").write_text(json.dumps({"n_heads": width}))
    assert heads(config=tmp_path / "more.json") == width


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"n_heads": 7}', "7 heads do not divide a width of"),
        ('{"n_heads": "many"}', "n_heads|num_attention_heads"),
        ('{"n_head": 4}', "unknown n_head"),
        ('{"dim": 9}', "dim 9, not 48; it does not fit its checkpoint"),
        ("[4]", "not a JSON object"),
        ("{", "not readable as JSON"),
    ],
)
def test_mars5_sizes_that_do_not_fit(tmp_path, content, said):
    (tmp_path / "sizes.json").write_text(content)
    found = fails(CheckpointError, NAR, parts=["mars5_nar"], config=tmp_path / "sizes.json")
    assert re.search(said, found), found
    assert "--config: " in fails(NotFoundError, NAR, parts=["mars5_nar"], config=tmp_path / "size.json")


def test_flags_of_another_model(tmp_path):
    assert fails(UsageError, sources("mars5"), cross_rope=True).startswith("--cross-rope: not for MARS5")
    found = fails(UsageError, sources("metavoice"), config=NAR.with_suffix(".json"))
    assert found.startswith("--config: not for MetaVoice")
    assert fails(UsageError, sources("mars5"), include=["mbd"]).startswith("--include-mbd: not for MARS5")
    found = fails(UsageError, V_0626_HF, codec=DAC_HF, config=NAR.with_suffix(".json"))
    assert found.startswith("--config: not for Dia")


# missing and superfluous parts


@pytest.mark.parametrize(("model", "kind"), [(model, kind) for model in MODELS for kind in SOURCES[model]])
def test_a_missing_part_is_named(monkeypatch, model, kind):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    monkeypatch.setattr(search, "_beside", lambda places: [])  # tests keep all parts side by side
    found = fails(NotFoundError, without(model, kind))
    assert f"missing: weights of {models.network(kind).title}" in found
    assert ("--codec" in found) == (kind == "encodec")
    known = [name for each in models.NAMES for name in models.MODELS[each].networks] + [*models.CODECS]
    assert [name for name in known if f"weights of {models.network(name).title}" in found] == [kind]


def offline(*_: Any, **__: Any) -> str:
    raise huggingface_hub.errors.LocalEntryNotFoundError("no network")


@pytest.mark.parametrize(
    ("kind", "repository"),
    [("encodec", "facebook/encodec_24khz"), ("vocos", "charactr/vocos-encodec-24khz")],
)
@pytest.mark.parametrize("model", MODELS)
def test_codec_and_vocoder_are_fetched_where_nothing_else_is_missing(
    monkeypatch, tmp_path, model, kind, repository
):
    monkeypatch.setattr(search, "_beside", lambda places: [])  # tests keep all parts side by side
    asked = []

    def snapshot_download(
        wanted: str, *, allow_patterns: list[str], dry_run: bool = False, **_: Any
    ) -> str | list[Any]:
        if dry_run:
            return []
        asked.append(wanted)
        folder = tmp_path / "snapshots/abc"
        folder.mkdir(parents=True, exist_ok=True)
        for file in VOCOS.iterdir() if kind == "vocos" else [ENCODEC]:
            if any(file.match(pattern) for pattern in allow_patterns):
                shutil.copy(file, folder / file.name)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    part = open_published(without(model, kind)).parts[kind]
    assert set(asked) == {repository}
    assert (part.origin.repository, part.origin.commit) == (repository, "abc")
    fails(NotFoundError, without(model, kind, "mars5_nar", "metavoice_speaker_encoder"))
    assert len(asked) == 2  # its safetensors, then its pickles; nothing if more is missing


def test_codec_given_apart(tmp_path):
    (tmp_path / "codec").mkdir()
    shutil.copy(ENCODEC, tmp_path / "codec" / ENCODEC.name)
    opened = open_published(without("mars5", "encodec"), codec=tmp_path / "codec")
    assert opened.parts["encodec"].files == [tmp_path / "codec" / ENCODEC.name]
    found = fails(NotFoundError, without("mars5", "encodec"), codec=DAC_HF)
    assert "missing: weights of EnCodec (the codec)" in found


def test_two_models_together():
    found = fails(UsageError, [*sources("mars5"), FIRST])
    assert f"two models, MARS5 in {AR} and MetaVoice in {FIRST}" in found
    found = fails(UsageError, [V_0626_HF, AR], codec=DAC_HF)
    assert "two models, Dia in " in found


def test_only_what_several_models_share():
    found = fails(NotFoundError, [ENCODEC, VOCOS])
    assert "missing: weights of MARS5 (AR) and weights of MARS5 (NAR)" in found
    assert ", or weights of MetaVoice (first stage)" in found
    assert "Dia" not in found


def test_two_codecs_in_one_folder_are_both_named(tmp_path):
    for name in ("one.th", "two.th"):
        shutil.copy(ENCODEC, tmp_path / name)
    found = fails(UsageError, without("mars5", "encodec"), codec=tmp_path)
    assert f"{tmp_path / 'one.th'} and {tmp_path / 'two.th'} both contain EnCodec" in found


# parts that do not belong together


def test_mars5_file_without_its_tokenizers(tmp_path):
    bare = resave(tmp_path / "ar.safetensors", {}, {"format": "pt"}, AR)
    found = fails(CheckpointError, [bare, *without("mars5", "mars5")])
    assert "no tokenizers (texttok.model, speechtok.model) in its metadata" in found
    torch.save({"model": {name: torch.from_numpy(t) for name, t in load_file(AR).items()}}, tmp_path / "a.pt")
    assert "no tokenizers" in fails(CheckpointError, tmp_path / "a.pt", parts=["mars5"])


def shorter(text: str) -> str:
    """A tokenizer with one merge less."""
    return text.rstrip("\n").rpartition("\n")[0] + "\n"


def test_mars5_tokenizers_of_another_vocabulary(tmp_path):
    held = header(AR)
    held["texttok.model"] = re.sub(
        r"(?m)^(<\|\w+\|>) (\d+)$", lambda m: f"{m[1]} {int(m[2]) - 1}", shorter(held["texttok.model"])
    )
    changed = resave(tmp_path / "ar.safetensors", {}, held, AR)
    opened = open_published([changed, *without("mars5", "mars5")])
    with pytest.raises(CheckpointError, match="the network has"):
        outline(opened)
    held["texttok.model"] = "not a tokenizer"
    changed = resave(tmp_path / "ar.safetensors", {}, held, AR)
    with pytest.raises(CheckpointError, match="texttok"):
        outline(open_published([changed, *without("mars5", "mars5")]))


def test_mars5_nar_of_another_vocabulary(tmp_path):
    table = tensors("mars5_nar")["text_embed.weight"]
    changed = resave(tmp_path / "nar.safetensors", {"text_embed.weight": table[:-1]}, header(NAR), NAR)
    edit(tmp_path / "nar.json", lambda config: config.update(n_text_vocab=len(table) - 1))
    opened = open_published([AR, changed, ENCODEC, VOCOS])
    with pytest.raises(CheckpointError, match=r"the NAR reads \d+ text ids, the AR's tokenizer has \d+"):
        outline(opened)


def fewer_books(content: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor for name, tensor in content.items() if not re.search(r"vq\.layers\.[4-9]\.", name)}


@pytest.mark.parametrize("model", MODELS)
def test_codec_with_too_few_codebooks(tmp_path, model):
    codec = save(tmp_path / "encodec.th", ENCODEC, fewer_books)
    opened = open_published(without(model, "encodec"), codec=codec)
    with pytest.raises(CheckpointError, match=r"EnCodec: 4 codebooks of 1024 codes, \w+ needs 8 of 1024"):
        outline(opened)


@pytest.mark.parametrize("model", MODELS)
def test_vocoder_with_too_few_codebooks(tmp_path, model):
    shutil.copy(VOCOS / "config.yaml", tmp_path / "config.yaml")
    table = "feature_extractor.codebook_weights"
    save(
        tmp_path / "pytorch_model.bin",
        VOCOS / "pytorch_model.bin",
        lambda content: content | {table: content[table][: 3 * 1024].clone()},
    )
    opened = open_published([*without(model, "vocos"), tmp_path])
    with pytest.raises(CheckpointError, match=r"Vocos: 3 codebooks of 1024 codes, \w+ needs 8 of 1024"):
        outline(opened)


def test_metavoice_speaker_vectors_of_different_widths(tmp_path):
    def change(content: Any) -> None:
        state = content["model_state"]
        state |= {name: state[name][:-1].clone() for name in ("linear.weight", "linear.bias")}

    speaker = save(tmp_path / "speaker.pt", SPEAKER, change)
    opened = open_published([FIRST, SECOND, speaker, ENCODEC, VOCOS])
    with pytest.raises(CheckpointError, match=r"have speaker vectors of \d+, \d+ and \d+ numbers"):
        outline(opened)


def test_metavoice_tokenizer_that_does_not_fit(tmp_path):
    def change(content: Any) -> None:
        content["meta"]["tokenizer"]["offset"] = 7

    opened = open_published([save(tmp_path / "first.pt", FIRST, change), *without("metavoice", "metavoice")])
    with pytest.raises(CheckpointError, match="tokenizer of the first stage: ids 7 to"):
        outline(opened)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content["meta"].pop("tokenizer"), "meta: tokenizer"),
        (lambda content: content["meta"].pop("speaker_cond"), "speaker_cond"),
        (lambda content: content.pop("model_args"), "missing model_args"),
        (lambda content: content["model_args"].update(n_layer=3), "configuration and tensors disagree"),
        (lambda content: content["model_args"].update(norm_type="layernorm"), "norm_type 'layernorm'"),
        (lambda content: content["model_args"].update(n_layer=10**9), "n_layer 1000000000: expected"),
        (
            lambda content: content["meta"]["tokenizer"].update(mergeable_ranks={"a": 1}),
            "not every key is a byte string",
        ),
    ],
)
def test_metavoice_stages_that_are_not_understood(tmp_path, change, said):
    path = save(tmp_path / "first_stage.pt", FIRST, lambda content: change(content) and None)
    found = fails(CheckpointError, path, parts=["metavoice"])
    assert said in found
    assert str(tmp_path) in found


def test_metavoice_head_that_is_not_tied(tmp_path):
    def change(content: Any) -> None:
        mark = "_orig_mod." if any(name.startswith("_orig_mod.") for name in content["model"]) else ""
        head = content["model"][f"{mark}lm_heads.0.weight"].clone()
        head[3, 5] += 1
        content["model"][f"{mark}lm_heads.0.weight"] = head

    path = save(tmp_path / "first_stage.pt", FIRST, change)
    opened = open_published(path, parts=["metavoice"])
    with pytest.raises(CheckpointError, match=r"first_stage\.pt: .*lm_heads\.0\.weight: the model ties them"):
        convert(opened, tmp_path / "out")
    assert left_in(tmp_path) == ["first_stage.pt"]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (None, NotFoundError, "config.yaml of Vocos (the vocoder) beside"),
        ("{", CheckpointError, "config.yaml: not readable as YAML"),
        ("!!python/object/apply:os.system ['touch executed']", CheckpointError, "not readable as YAML"),
        ("head: 3", CheckpointError, "Vocos config.yaml: "),
    ],
)
def test_vocos_without_a_config_that_can_be_read(tmp_path, monkeypatch, text, kind, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    shutil.copy(VOCOS / "pytorch_model.bin", tmp_path / "pytorch_model.bin")
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    assert said in fails(kind, [*without("mars5", "vocos"), tmp_path])
    assert not (tmp_path / "executed").exists()


# multi-band diffusion


def write_mbd(folder: Path, width: int) -> Path:
    """Write multi-band diffusion for a codec of that width at 24 kHz."""
    from dataclasses import replace

    bands = tuple(replace(band, unet=replace(band.unet, codec_dim=width)) for band in MBD_CONFIG.bands)
    config = replace(MBD_CONFIG, sample_rate=24000, bands=bands)
    return write_published(folder / "mbd_comp_8.pt", published_content(config, tiny(config).tensors))


def test_mbd_is_left_out_unless_asked_for(tmp_path):
    for source in (FIRST, SECOND, SPEAKER, ENCODEC):
        shutil.copy(source, tmp_path / source.name)
    shutil.copytree(VOCOS, tmp_path / "vocos")
    (tmp_path / "vocos").chmod(0o755)
    width = open_published(ENCODEC, parts=["encodec"]).parts["encodec"].config.hidden_size
    write_mbd(tmp_path, width)
    plain = open_published(tmp_path)
    assert plain.ignored["mbd_comp_8.pt"] == "contains MBD (multi-band diffusion); add it with --include-mbd"
    assert "mbd" not in plain.parts
    opened = open_published(tmp_path, include=["mbd"])
    assert list(opened.parts)[-1] == "mbd"
    report = convert(opened, tmp_path / "out")
    assert report["parts"]["mbd"]["dtype"] == "float32"
    card = (tmp_path / "out/README.md").read_text()
    assert "\nlicense: cc-by-nc-4.0\n" in card
    assert "\n- MBD (multi-band diffusion): cc-by-nc-4.0\n" in card
    assert "\nCC-BY-NC 4.0 forbids commercial use. It applies to the folder mbd/ only.\n" in card
    assert report["parts"]["mbd"]["files"][0]["name"] == "mbd_comp_8.pt"
    free = card_of(plain, "float32", None, "1.0")  # of the same model without it
    assert "\nlicense: apache-2.0\n" in free
    assert "commercial" not in free.lower()
    assert "cc-by-nc" not in free.lower()
    assert "mbd" in open_published(tmp_path / "out").parts  # kept on request
    assert "mbd" not in open_published(without("metavoice", "encodec"), codec=tmp_path / "out").parts


def test_mbd_that_is_missing_or_of_another_codec(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    assert "missing: weights of MBD (multi-band diffusion)" in fails(
        NotFoundError, sources("metavoice"), include=["mbd"]
    )
    width = open_published(ENCODEC, parts=["encodec"]).parts["encodec"].config.hidden_size
    opened = open_published([*sources("metavoice"), write_mbd(tmp_path, width + 1)], include=["mbd"])
    with pytest.raises(CheckpointError, match=f"MBD: needs latents of {width + 1} at 24000 Hz"):
        outline(opened)
