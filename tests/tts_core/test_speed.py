"""Facts about models' steps: bytes, real time, and stand-ins for files."""

import math

import numpy as np
import pytest

from tts_core import models
from tts_core.speed import VOICE_RATE, VOICE_SECONDS, step_bytes, voice

EIGHT = {"group_size": 64, "bits": 8, "mode": "affine"}


def configs(name):
    return next(iter(models.MODELS[name].sizes.values()))


@pytest.mark.parametrize(
    ("name", "billions", "real_time"),
    [("dia", 2.53, 11.6), ("mars5", 1.375, 13.3), ("metavoice", 2.48, 6.67)],
)
def test_bytes_and_real_time_of_a_step_are_those_of_the_published_sizes(name, billions, real_time):
    """Two bytes for each weight of the layers and the head."""
    read = step_bytes(name, configs(name), "bfloat16")
    assert read / 1e9 == pytest.approx(billions, rel=0.005)
    assert step_bytes(name, configs(name), "float32") == pytest.approx(2 * read, rel=0.001)
    assert models.MODELS[name].speed.real_time(configs(name)) == pytest.approx(real_time, rel=0.005)


def test_quantized_layers_are_counted_with_their_scales():
    known, every = models.network("dia"), models.network("dia").parameter_shapes(configs("dia")["dia"])
    read = {name: math.prod(shape) for name, shape in every.items() if models.MODELS["dia"].speed.reads(name)}
    large = sum(size for name, size in read.items() if known.is_large(name))
    norms = sum(size for name, size in read.items() if known.stays_float32(name))
    rest = sum(read.values()) - large - norms
    scales = 2 * 2 * large // 64
    assert step_bytes("dia", configs("dia"), "bfloat16", EIGHT) == large + scales + 2 * rest + 4 * norms


def test_text_is_projected_once_and_read_in_no_step():
    reads = models.MODELS["dia"].speed.reads
    assert reads("model.decoder.layers.3.cross_attention.q_proj.weight")
    for name in (
        "model.decoder.layers.3.cross_attention.k_proj.weight",
        "model.encoder.layers.0.mlp.down_proj.weight",
        "model.decoder.embeddings.embed.weight",
    ):
        assert not reads(name)


@pytest.mark.parametrize("name", models.NAMES)
def test_documents_fit_the_published_sizes(name):
    for sizes in models.MODELS[name].sizes.values():
        documents = models.MODELS[name].speed.documents(sizes)
        assert set(documents) == set(models.MODELS[name].parts)
        models.check_fits(name, sizes, documents)


@pytest.mark.parametrize("name", models.NAMES)
def test_every_step_reads_layers_of_the_first_network(name):
    shapes = models.network(name).parameter_shapes(configs(name)[name])
    read = {tensor for tensor in shapes if models.MODELS[name].speed.reads(tensor)}
    large = {tensor for tensor in shapes if models.network(name).is_large(tensor)}
    assert read & large
    assert read < set(shapes)


def test_only_models_that_need_a_voice_get_one():
    assert voice(models.MODELS["dia"]) is None
    prompt = voice(models.MODELS["mars5"])
    assert prompt is not None
    (reference,) = prompt.references
    assert reference.audio is not None
    assert reference.audio.shape == (VOICE_RATE * VOICE_SECONDS,)
    assert 0.1 < np.abs(reference.audio).max() < 1
