import pytest

from tts_core.codecs.dac import (
    DacConfig,
    decode_lookahead,
    decode_window,
    decoded_length,
    decoder_layers,
    encode_window,
    encoder_layers,
    parameter_shapes,
    read_descript,
    read_transformers,
)
from tts_core.errors import CheckpointError
from tts_core.nn.windows import Window, input_span, output_length

DESCRIPT = {  # metadata.kwargs of the 44.1 kHz 8 kbps checkpoint
    "encoder_dim": 64,
    "encoder_rates": [2, 4, 8, 8],
    "latent_dim": None,
    "decoder_dim": 1536,
    "decoder_rates": [8, 8, 4, 2],
    "n_codebooks": 9,
    "codebook_size": 1024,
    "codebook_dim": 8,
    "quantizer_dropout": 0.5,
    "sample_rate": 44100,
}
TRANSFORMERS = {  # descript/dac_44khz
    "architectures": ["DacModel"],
    "model_type": "dac",
    "encoder_hidden_size": 64,
    "downsampling_ratios": [2, 4, 8, 8],
    "upsampling_ratios": [8, 8, 4, 2],
    "decoder_hidden_size": 1536,
    "hidden_size": 1024,
    "n_codebooks": 9,
    "codebook_size": 1024,
    "codebook_dim": 8,
    "hop_length": 512,
    "sampling_rate": 44100,
    "quantizer_dropout": 0.0,
    "commitment_loss_weight": 0.25,
    "codebook_loss_weight": 1.0,
    "torch_dtype": "float32",
    "transformers_version": "4.50.0",
}
FULL = read_descript(DESCRIPT)


def test_both_published_schemas_mean_the_same():
    assert read_transformers(TRANSFORMERS) == FULL
    assert (FULL.hop_length, FULL.hidden_size, FULL.sample_rate) == (512, 1024, 44100)
    assert FULL.frame_rate == pytest.approx(86.1328125, abs=0)
    assert FULL.codebook_dim == (8,) * 9


def test_latent_width_and_codebook_widths_of_their_own():
    config = read_descript(
        DESCRIPT | {"latent_dim": 72, "codebook_dim": list(range(1, 10)), "something_new": 1}
    )
    assert (config.hidden_size, config.encoder_width) == (72, 1024)
    assert config.codebook_dim == tuple(range(1, 10))
    shapes = parameter_shapes(config)
    assert shapes["encoder.conv2.weight"] == (72, 1024, 3)
    assert shapes["decoder.conv1.weight"] == (1536, 72, 7)
    assert shapes["quantizer.quantizers.2.in_proj.weight"] == (3, 72, 1)


def test_transformers_fields_that_can_be_derived():
    given_less = {
        k: v for k, v in TRANSFORMERS.items() if k not in ("hidden_size", "upsampling_ratios", "hop_length")
    }
    assert read_transformers(given_less) == FULL


@pytest.mark.parametrize(
    ("read", "full", "needed"),
    [
        (
            read_descript,
            DESCRIPT,
            "encoder_dim encoder_rates decoder_dim decoder_rates n_codebooks sample_rate",
        ),
        (
            read_transformers,
            TRANSFORMERS,
            "sampling_rate downsampling_ratios decoder_hidden_size codebook_dim",
        ),
    ],
)
def test_missing_fields_are_named(read, full, needed):
    for name in needed.split():
        with pytest.raises(CheckpointError, match=name):
            read({k: v for k, v in full.items() if k != name})
    with pytest.raises(CheckpointError) as caught:
        read({})
    assert all(name in str(caught.value) for name in needed.split())


def test_unknown_fields_are_named():
    with pytest.raises(CheckpointError, match="causal, extra"):
        read_transformers(TRANSFORMERS | {"extra": 1, "causal": True})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codebook_dim": [8, 8]}, "2 .*9 codebooks"),
        ({"decoder_rates": [8, 8, 4, 4]}, "do not match"),
        ({"decoder_dim": 1000}, "1000.*halve"),
        (
            {"encoder_rates": [2, 4, 8, -8]},
            "encoder_rates .*: expected a list, with each item a whole number from 2",
        ),
    ],
)
def test_nonsense_is_refused(change, message):
    with pytest.raises(CheckpointError, match=message):
        read_descript(DESCRIPT | change)


def test_receptive_field_of_the_published_codec():
    """The figures measured on the original (specs of DAC): 10 frames around for decoding, 8 for encoding."""
    assert decode_window(FULL, 20, 21, 100) == Window(20, 21, 10, 31)
    assert decode_lookahead(FULL) == 10
    assert encode_window(FULL, 20, 21, 100) == Window(20, 21, 12, 29)
    first, last = input_span(encoder_layers(FULL), 0, 1)
    assert (-first, last - 512) == (3733, 3733)
    reached = [s for s in range(20 * 512 - 6000, 21 * 512 + 6000) if _reads(FULL, s, 20)]
    assert (reached[0] - 512 * 20, reached[-1] + 1 - 512 * 20) == (-4757, 5269)


def _reads(config: DacConfig, sample: int, frame: int) -> bool:
    first, last = input_span(decoder_layers(config), sample, sample + 1)
    return first <= frame < last


@pytest.mark.parametrize("strides", [(2, 4, 8, 8), (2, 4, 5, 8), (3, 5), (2, 2), (7,)])
def test_lengths(strides):
    config = _codec(strides)
    hop = config.hop_length
    for frames in (1, 2, 7):
        assert output_length(encoder_layers(config), frames * hop) == frames
        short = 0
        for stride in config.upsampling_ratios:
            short = short * stride + stride % 2
        assert decoded_length(config, frames) == hop * frames - short
    if strides == (2, 4, 5, 8):
        assert decoded_length(config, 100) == 320 * 100 - 8


def _codec(strides) -> DacConfig:
    return read_descript(
        {
            "encoder_dim": 4,
            "encoder_rates": list(strides),
            "decoder_dim": 16,
            "decoder_rates": list(strides)[::-1],
            "n_codebooks": 2,
            "codebook_size": 16,
            "codebook_dim": 3,
            "sample_rate": 8000,
        }
    )
