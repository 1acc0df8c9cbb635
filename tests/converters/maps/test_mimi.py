"""The maps of Mimi on small published files; at full size: test_full_size.py."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from converters.published import open_published
from tests.golden.cases import DEFAULT
from tts_core.errors import CheckpointError, SpeechError

TINY = DEFAULT / "dia2" / "mimi"


def test_both_layouts_hold_the_same_numbers(tmp_path):
    """kyutai's file needs transformers' config.json beside it where the sizes are not the published ones."""
    theirs = tmp_path / "kyutai"
    theirs.mkdir()
    (theirs / "model.safetensors").write_bytes((TINY / "kyutai/tokenizer.safetensors").read_bytes())
    (theirs / "config.json").write_bytes((TINY / "config.json").read_bytes())
    [first] = open_published(TINY, parts=["mimi"]).parts.values()
    [second] = open_published(theirs, parts=["mimi"]).parts.values()
    assert (first.layout, second.layout) == ("mimi_transformers", "mimi_kyutai")
    assert first.config == second.config
    for name in first.names():
        np.testing.assert_array_equal(first.read(name), second.read(name), err_msg=name)


def test_other_sizes_than_the_published_ones_need_a_configuration():
    with pytest.raises(CheckpointError, match=r"linear1\.weight has shape \(34, 20\), which gives"):
        open_published(TINY / "kyutai/tokenizer.safetensors", parts=["mimi"])


def test_transformers_layout_needs_its_configuration(tmp_path):
    (tmp_path / "model.safetensors").write_bytes((TINY / "model.safetensors").read_bytes())
    with pytest.raises(SpeechError, match=r"config\.json of Mimi \(the codec\) beside"):
        open_published(tmp_path, parts=["mimi"], offline=True)


def test_an_entry_that_was_never_used_is_its_sum_over_the_floor(tmp_path):
    tensors = load_file(TINY / "model.safetensors")
    book = "quantizer.semantic_residual_vector_quantizer.layers.0.codebook"
    tensors[f"{book}.cluster_usage"][:2] = 0, 2e-6
    tensors[f"{book}.embed_sum"][:2] = 3e-5
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((TINY / "config.json").read_bytes())
    [part] = open_published(tmp_path, parts=["mimi"]).parts.values()
    np.testing.assert_allclose(part.read(f"{book}.embed")[:2], 3.0, rtol=1e-6)
