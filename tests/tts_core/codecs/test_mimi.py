import json

import pytest

from tests.tiny.dia2 import GOLDEN
from tts_core.codecs.mimi import (
    MIMI_24KHZ,
    check_codebooks,
    encode_windows,
    read_transformers,
)
from tts_core.errors import CheckpointError, UsageError
from tts_core.nn.windows import Window

TINY = json.loads((GOLDEN / "mimi" / "config.json").read_text())
PUBLISHED = TINY | {  # kyutai/mimi: its sizes, among the fields that both have
    "codebook_dim": 256,
    "codebook_size": 2048,
    "head_dim": 64,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_filters": 64,
    "num_hidden_layers": 8,
    "num_key_value_heads": 8,
    "num_quantizers": 32,
    "sliding_window": 250,
    "upsample_groups": 512,
    "vector_quantization_hidden_dimension": 256,
}
NEW = {  # as transformers 5 writes the same
    **{name: value for name, value in PUBLISHED.items() if name not in ("rope_theta", "frame_rate")},
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "_frame_rate": None,
}


@pytest.mark.parametrize("given", [PUBLISHED, NEW], ids=["published", "transformers 5"])
def test_the_published_model(given):
    config = read_transformers(given)
    assert config == MIMI_24KHZ
    assert (config.step_length, config.hop_length, config.frame_rate, config.width) == (960, 1920, 12.5, 1024)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            {"use_causal_conv": False, "audio_channels": 2},
            "audio_channels 2, not 1; use_causal_conv False, not True",
        ),
        ({"use_conv_shortcut": True}, "use_conv_shortcut True"),
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
        ({"beta": 1}, "unknown beta"),
        ({"frame_rate": 25.0}, r"frame_rate 25\.0, expected 12\.5"),
        ({"frame_rate": "fast"}, "frame_rate 'fast'"),
        ({"frame_rate": 0}, "frame_rate 0"),
        ({"vector_quantization_hidden_dimension": 128}, "vector_quantization_hidden_dimension 128"),
        ({"upsample_groups": 1}, "upsample_groups 1, not 512"),
        ({"normalize": True}, "normalize True"),
        ({"upsampling_ratios": 8}, "upsampling_ratios 8: expected a list"),
        ({"upsampling_ratios": [8, 1]}, "each item a whole number from 2"),
        ({"num_key_value_heads": 3}, "8 heads of 64 for 3 key heads"),
        ({"head_dim": 63}, "an even width"),
        ({"num_semantic_quantizers": 32}, "32 of 32 codebooks are semantic"),
        ({"num_residual_layers": 40}, "dilations of 40 blocks"),
        ({"compress": 65}, "64 channels cannot be narrowed 65 times"),
    ],
)
def test_what_is_not_supported_is_named(change, named):
    with pytest.raises(CheckpointError, match=named):
        read_transformers(PUBLISHED | change)


@pytest.mark.parametrize("name", ["hidden_size", "pad_mode", "num_quantizers", "upsampling_ratios"])
def test_a_missing_field_is_named(name):
    given = {key: value for key, value in PUBLISHED.items() if key != name}
    with pytest.raises(CheckpointError, match=name):
        read_transformers(given)


def test_the_base_of_the_angles_is_needed():
    with pytest.raises(CheckpointError, match="missing rope_theta"):
        read_transformers({key: value for key, value in PUBLISHED.items() if key != "rope_theta"})
    scaled = {"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear"}}
    with pytest.raises(CheckpointError, match="rope_type 'linear'"):
        read_transformers(NEW | scaled)
    with pytest.raises(CheckpointError, match="expected an object"):
        read_transformers([])  # pyright: ignore[reportArgumentType]


def test_codebooks_that_are_not_there_are_refused():
    check_codebooks(MIMI_24KHZ, 1)
    check_codebooks(MIMI_24KHZ, 32)
    for count in (0, 33):
        with pytest.raises(UsageError, match="give 1 to 32"):
            check_codebooks(MIMI_24KHZ, count)


def test_windows_of_the_published_model():
    """One frame of context before a window of the encoder."""
    assert encode_windows(MIMI_24KHZ, 150, 64) == [
        Window(0, 64, 0, 64),
        Window(64, 128, 62, 128),
        Window(128, 150, 126, 150),
    ]
    assert encode_windows(MIMI_24KHZ, 0, 64) == []
