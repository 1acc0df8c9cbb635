from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tts_core.codecs.vocos import (
    VOCOS_ENCODEC_24KHZ,
    VocosConfig,
    check_request,
    decode_lookahead,
    decode_window,
    read_published,
    read_yaml,
)
from tts_core.errors import CheckpointError, UsageError
from tts_core.nn.windows import Window

PUBLISHED = """
feature_extractor:
  class_path: vocos.feature_extractors.EncodecFeatures
  init_args:
    encodec_model: encodec_24khz
    bandwidths: [1.5, 3.0, 6.0, 12.0]
backbone:
  class_path: vocos.models.VocosBackbone
  init_args:
    input_channels: 128
    dim: 384
    intermediate_dim: 1152
    num_layers: 8
    adanorm_num_embeddings: 4
head:
  class_path: vocos.heads.ISTFTHead
  init_args:
    dim: 384
    n_fft: 1280
    hop_length: 320
    padding: same
"""
SHAPES = {"feature_extractor.codebook_weights": (16384, 128)}


def test_the_published_model():
    config = read_published(read_yaml(PUBLISHED), SHAPES)
    assert config == VOCOS_ENCODEC_24KHZ
    assert (config.n_bins, config.frame_rate) == (641, 75.0)


def test_padding_is_same_where_the_file_does_not_say():
    without = read_yaml(PUBLISHED.replace("    padding: same\n", ""))
    assert "padding" not in without["head"]["init_args"]
    assert read_published(without, SHAPES) == VOCOS_ENCODEC_24KHZ


@pytest.mark.parametrize("text", ["a: [1", "- 1", "", "!!python/object:os.system {}", "&a [*a]"])
def test_what_is_no_yaml_object_is_refused_in_one_line(text):
    with pytest.raises(CheckpointError, match=r"config\.yaml") as caught:
        read_yaml(text)
    assert "\n" not in str(caught.value)


def changed(path: str, value: Any) -> dict[str, Any]:
    config = read_yaml(PUBLISHED)
    *parents, last = path.split(".")
    place = config
    for parent in parents:
        place = place[parent]
    place[last] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("feature_extractor.class_path", "vocos.feature_extractors.MelSpectrogramFeatures", "Mel"),
        ("feature_extractor.init_args.encodec_model", "encodec_48khz", "encodec_48khz"),
        ("feature_extractor.init_args", None, "init_args"),
        ("backbone", None, "backbone"),
        ("backbone.init_args.adanorm_num_embeddings", None, "adanorm_num_embeddings None"),
        ("backbone.init_args.dim", 383, "dim"),
        ("backbone.init_args.dilation", 2, r"unknown backbone\.init_args\.dilation"),
        ("head.init_args.padding", "center", "center"),
        ("head.init_args.n_fft", 1281, "n_fft 1281"),
        ("head.init_args.hop_length", 321, "hop_length 321"),
        ("head.init_args.hop_length", 1280, "hop_length 1280"),
    ],
)
def test_other_variants_are_refused(path, value, named):
    with pytest.raises(CheckpointError, match=named) as caught:
        read_published(changed(path, value), SHAPES)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shapes", [{}, {"feature_extractor.codebook_weights": (1000, 128)}])
def test_the_codebooks_come_from_the_tensors(shapes):
    with pytest.raises(CheckpointError, match="codebook_weights"):
        read_published(read_yaml(PUBLISHED), shapes)


def test_missing_arguments_are_named():
    with pytest.raises(
        CheckpointError, match=r"missing backbone.init_args.dim, backbone.init_args.adanorm_num_embeddings"
    ):
        read_published(
            changed("backbone.init_args", {"input_channels": 1, "intermediate_dim": 1, "num_layers": 1}),
            SHAPES,
        )


def test_window_of_the_published_model():
    """Nine convolutions of seven taps reach 27 frames, plus two frames of overlap."""
    assert decode_window(VOCOS_ENCODEC_24KHZ, 100, 101, 1000) == Window(100, 101, 71, 130)
    assert decode_window(VOCOS_ENCODEC_24KHZ, 3, 8, 20) == Window(3, 8, 0, 20)
    assert decode_lookahead(VOCOS_ENCODEC_24KHZ) == 29


@pytest.mark.parametrize(("n_fft", "hop"), [(16, 4), (20, 6), (14, 12), (14, 2), (1280, 320)])
def test_windows_hold_every_frame_whose_transform_reaches_them(n_fft, hop):
    """By counting: frame t covers samples [t hop, t hop + n_fft) minus the samples cut at the start."""
    config = replace(VOCOS_ENCODEC_24KHZ, n_fft=n_fft, hop_length=hop, num_layers=1)
    frames, cut = 60, (n_fft - hop) // 2
    for start, stop in ((0, 1), (20, 21), (20, 27), (59, 60)):
        wanted = np.arange(start * hop, stop * hop) + cut
        reach = [
            t
            for t in range(frames)
            if (wanted >= t * hop).any() and (wanted[wanted >= t * hop] < t * hop + n_fft).any()
        ]
        window = decode_window(config, start, stop, frames)
        assert (window.first, window.last) == (max(0, reach[0] - 6), min(frames, reach[-1] + 7))


def test_requests_that_the_model_cannot_serve():
    config: VocosConfig = VOCOS_ENCODEC_24KHZ
    check_request(config, 16, 3)
    for books, bandwidth in ((0, 0), (17, 0)):
        with pytest.raises(UsageError, match="1 to 16"):
            check_request(config, books, bandwidth)
    for bandwidth in (-1, 4):
        with pytest.raises(UsageError, match="0 to 3"):
            check_request(config, 8, bandwidth)
