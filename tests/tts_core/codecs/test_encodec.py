from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny.every_codec import codebooks_at
from tts_core.codecs.encodec import (
    ENCODEC_24KHZ,
    EncodecConfig,
    decode_tail,
    decode_windows,
    encode_tail,
    encode_windows,
    from_shapes,
    parameter_shapes,
    read_transformers,
)
from tts_core.errors import CheckpointError
from tts_core.nn.windows import Window

PUBLISHED = {  # facebook/encodec_24khz
    "architectures": ["EncodecModel"],
    "audio_channels": 1,
    "chunk_length_s": None,
    "codebook_dim": 128,
    "codebook_size": 1024,
    "compress": 2,
    "dilation_growth_rate": 2,
    "hidden_size": 128,
    "kernel_size": 7,
    "last_kernel_size": 7,
    "model_type": "encodec",
    "norm_type": "weight_norm",
    "normalize": False,
    "num_filters": 32,
    "num_lstm_layers": 2,
    "num_residual_layers": 1,
    "overlap": None,
    "pad_mode": "reflect",
    "residual_kernel_size": 3,
    "sampling_rate": 24000,
    "target_bandwidths": [1.5, 3.0, 6.0, 12.0, 24.0],
    "torch_dtype": "float32",
    "transformers_version": "4.31.0.dev0",
    "trim_right_ratio": 1.0,
    "upsampling_ratios": [8, 5, 4, 2],
    "use_causal_conv": True,
    "use_conv_shortcut": True,
}


def test_the_published_model():
    config = read_transformers(PUBLISHED)
    assert config == ENCODEC_24KHZ
    assert (config.hop_length, config.frame_rate, config.width) == (320, 75.0, 512)
    assert [codebooks_at(config, kbps) for kbps in (1.5, 3, 6, 12, 24)] == [2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            {"use_causal_conv": False, "audio_channels": 2},
            "audio_channels 2, not 1; use_causal_conv False, not True",
        ),
        ({"norm_type": "time_group_norm"}, "norm_type"),
        ({"num_residual_layers": 3}, "num_residual_layers 3"),
        ({"codebook_dim": 64}, "codebook_dim 64"),
        ({"beta": 1}, "unknown beta"),
        ({"upsampling_ratios": [8, 1]}, "upsampling_ratios"),
        ({"upsampling_ratios": []}, "upsampling_ratios"),
        ({"upsampling_ratios": 8}, "upsampling_ratios"),
        ({"target_bandwidths": [0.1]}, "n_codebooks 0"),
        ({"target_bandwidths": ["6"]}, "target_bandwidths"),
        ({"compress": 33}, "33"),
    ],
)
def test_other_models_and_nonsense_are_refused(change, named):
    with pytest.raises(CheckpointError, match=named) as caught:
        read_transformers(PUBLISHED | change)
    assert "\n" not in str(caught.value)


def test_missing_fields_are_all_named():
    with pytest.raises(CheckpointError, match=r"missing sampling_rate, .*upsampling_ratios.* pad_mode"):
        read_transformers({})
    with pytest.raises(CheckpointError, match="expected an object"):
        read_transformers([])  # pyright: ignore[reportArgumentType]


CONFIGS = st.builds(
    EncodecConfig,
    sample_rate=st.just(24000),
    hidden_size=st.integers(1, 9),
    num_filters=st.integers(3, 7),
    upsampling_ratios=st.lists(st.integers(2, 9), min_size=1, max_size=5).map(tuple),
    kernel_size=st.integers(1, 9),
    last_kernel_size=st.integers(1, 9),
    residual_kernel_size=st.integers(1, 5),
    compress=st.integers(1, 3),
    num_lstm_layers=st.integers(1, 3),
    n_codebooks=st.integers(1, 5),
    codebook_size=st.sampled_from([8, 1024]),
)


@settings(max_examples=60)
@given(config=CONFIGS)
def test_shapes_tell_every_size(config):
    shapes = parameter_shapes(config)
    found = from_shapes(shapes)
    assert parameter_shapes(found) == shapes
    assert replace(found, compress=config.compress) == config


@pytest.mark.parametrize(
    "damage", ["no codebooks", "no residual blocks", "stereo", "nothing", "uneven blocks"]
)
def test_shapes_of_something_else_are_refused(damage):
    shapes = parameter_shapes(ENCODEC_24KHZ)
    if damage == "nothing":
        shapes = {}
    elif damage == "stereo":
        shapes["encoder.layers.0.conv.weight"] = (32, 2, 7)
    elif damage == "uneven blocks":
        shapes["encoder.layers.4.block.1.conv.weight"] = (31, 64, 3)
    else:
        part = {"no codebooks": "codebook", "no residual blocks": "block"}[damage]
        shapes = {name: shape for name, shape in shapes.items() if part not in name}
    with pytest.raises(CheckpointError, match="EnCodec"):
        from_shapes(shapes)


def test_windows_of_the_published_model():
    """Context before a window: two frames for the strided convolutions, six for the others."""
    assert encode_windows(ENCODEC_24KHZ, 600, 256) == [
        Window(0, 256, 0, 256),
        Window(256, 512, 254, 512),
        Window(512, 600, 510, 600),
    ]
    assert decode_windows(ENCODEC_24KHZ, 257, 256) == [Window(0, 256, 0, 256), Window(256, 257, 250, 257)]
    assert (encode_tail(ENCODEC_24KHZ), decode_tail(ENCODEC_24KHZ)) == (6, 2)
    assert encode_windows(ENCODEC_24KHZ, 0, 256) == []


def test_a_window_is_never_too_short_to_be_mirrored():
    assert [window.stop for window in encode_windows(ENCODEC_24KHZ, 20, 1)] == [7, 14, 20]
    assert [window.stop for window in decode_windows(ENCODEC_24KHZ, 20, 9)] == [9, 18, 20]
