"""Float32 of every codec is exact, whatever cuDNN's flags are outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from tests.sides import ORACLE, YARDSTICK, Side
from tests.tiny.every_codec import DECODED, ENCODED, ENCODERS, WEIGHTS, codes_for
from tests.tiny.inputs import normal
from tests.tiny.mbd import CONFIG
from tests.tiny.networks import speaker_config, tiny
from torch_ref.codecs.mbd import MultiBandDiffusion
from torch_ref.limits.precision import Precision, arithmetic, choose_precision, computing
from torch_ref.metavoice import speaker_encoder as metavoice
from torch_ref.qwen3 import speaker_encoder as qwen3
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import UsageError
from tts_core.memory.machine import Machine
from tts_core.metavoice.config import SpeakerEncoderConfig
from tts_core.nn.noise import HostNoise


def codec(name: str, side: Side) -> Any:
    return side.network(name, WEIGHTS[name]())


CONVOLUTIONS = ("conv1d", "conv2d", "conv_transpose1d", "lstm")  # cuDNN's on CUDA
PRODUCTS = ("linear", "matmul", "__matmul__", "bmm", "einsum", "scaled_dot_product_attention")


class Flags(TorchFunctionMode):
    """What convolutions, LSTMs and products of networks see, each as it runs.

    matmul: for products, which have a flag of their own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cudnn: list[bool] = []
        self.matmul: list[bool] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in CONVOLUTIONS:
            self.cudnn.append(torch.backends.cudnn.allow_tf32)
        if name in PRODUCTS:
            self.matmul.append(bool(torch.backends.cuda.matmul.allow_tf32))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flags]:
    """A caller that lets cuDNN use TF32."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    with Flags() as seen:
        yield seen
    assert torch.backends.cudnn.allow_tf32, "the caller's flag is back"
    assert not any(seen.matmul), "nobody rounds products"


def exact(seen: Flags) -> bool:
    """Return True if something ran, and none of it in TF32."""
    return bool(seen.cudnn) and not any(seen.cudnn)


@pytest.mark.parametrize("precision", get_args(Precision))
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_precision_is_of_the_decoder_only(name: str, precision: Precision, flags: Flags) -> None:
    made = codec(name, YARDSTICK)
    made.precision = precision
    made.decode(codes_for(made), *DECODED.get(name, ()))
    assert set(flags.cudnn) == {precision == "tf32"}
    if name in ENCODERS:
        flags.cudnn.clear()
        made.encode(normal(1, 1, 700), *ENCODED.get(name, ()))
        assert exact(flags)


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_decoder_in_bfloat16_gives_float32(name: str) -> None:
    """torch.autocast on a CPU, in place of CUDA's. bfloat16 rounds to 8 bits: noise far below the signal."""
    made = codec(name, YARDSTICK)
    codes = codes_for(made)
    plain = made.decode(codes, *DECODED.get(name, ()))
    with torch.autocast("cpu", torch.bfloat16):
        found = made.decode(codes, *DECODED.get(name, ()))
    assert found.dtype == plain.dtype == torch.float32
    assert 0 < (found - plain).norm() < 0.2 * plain.norm()


def test_a_precision_is_refused_where_it_cannot_be() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert [choose_precision(name, cuda) for name in get_args(Precision)] == [*get_args(Precision)]
    assert choose_precision("float32", cpu) == choose_precision(None, cpu) == "float32"
    with pytest.raises(UsageError, match=r"^codec_precision: tf32 is for CUDA; cpu decodes in float32"):
        choose_precision("tf32", cpu)
    with pytest.raises(UsageError, match=r"^codec_precision: 'half' is not one of float32, tf32, bfloat16$"):
        choose_precision("half", cuda)


@pytest.mark.parametrize(
    ("device", "dtype", "chosen"),
    [
        ("cuda", torch.bfloat16, "tf32"),
        ("cuda", torch.float16, "tf32"),
        ("cuda", torch.float32, "float32"),
        ("cuda", torch.float64, "float32"),
        ("cpu", torch.bfloat16, "float32"),
        ("mps", torch.float16, "float32"),
    ],
)
def test_the_default_follows_the_networks(device: str, dtype: torch.dtype, chosen: str) -> None:
    """A half-precision network on CUDA rounds more than TF32 does; exact ones keep an exact codec. The memory
    plan has the same default.
    """
    assert choose_precision(None, torch.device(device), dtype) == chosen
    assert Machine(str(dtype).removeprefix("torch."), f"torch-{device}").decoded_in == chosen
    assert choose_precision("float32", torch.device(device), dtype) == "float32"


def test_multi_band_diffusion_is_exact(flags: Flags) -> None:
    """Networks, band splitting, and the levels of the bands."""
    tensors = {name: torch.from_numpy(value) for name, value in tiny("mbd").tensors.items()}

    def weights(band: int) -> dict[str, torch.Tensor]:
        start = f"bands.{band}."
        return {key.removeprefix(start): x for key, x in tensors.items() if key.startswith(start)}

    made = MultiBandDiffusion(CONFIG, weights)
    made.decode([normal(2, CONFIG.codec_dim, 3)], [normal(3, 300)], [HostNoise(1)], steps=[9, 0])
    assert exact(flags)


def test_the_speaker_encoder_of_metavoice_is_exact(flags: Flags) -> None:
    """Its LSTM is cuDNN's, too."""
    torch.manual_seed(0)
    encoder = metavoice.SpeakerEncoder(SpeakerEncoderConfig(40, 24, 2, 16))
    encoder.embed([normal(4, 30_000)])
    assert exact(flags)
    assert flags.matmul


def test_the_speaker_encoder_of_qwen3_is_exact(flags: Flags) -> None:
    torch.manual_seed(0)
    qwen3.SpeakerEncoder(speaker_config()).embed(normal(5, 24_000))
    assert exact(flags)


def test_the_arithmetic_of_products() -> None:
    cuda, cpu, before = torch.device("cuda"), torch.device("cpu"), torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed, found in ((False, "float32"), (True, "tf32")):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            assert (arithmetic(cuda), arithmetic(cpu)) == (found, "float32")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def error_of(name: str, run: Callable[[Any], torch.Tensor]) -> tuple[float, float]:
    """Errors of a float32 decode on CUDA, and on the CPU, against float64: by norm."""
    exact = run(codec(name, ORACLE)).double().cpu()
    plain = run(codec(name, YARDSTICK)).double().cpu()
    found = run(codec(name, YARDSTICK).to("cuda")).double().cpu()
    return float((found - exact).norm()), float((plain - exact).norm())


@pytest.mark.cuda
@pytest.mark.parametrize("name", WEIGHTS)
def test_float32_is_exact_on_cuda(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within sixteen times the CPU's own rounding; TF32 is a thousand times that."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    codes = codes_for(codec(name, YARDSTICK))
    found, plain = error_of(name, lambda made: made.decode(codes, *DECODED.get(name, ())))
    assert found <= 16 * plain


@pytest.mark.cuda
def test_a_precision_changes_what_dac_computes_on_cuda() -> None:
    """So that the test above can fail."""
    made = codec("dac", YARDSTICK).to("cuda")
    codes = codes_for(made)
    exact = made.decode(codes)
    made.precision = "tf32"
    assert not torch.equal(made.decode(codes), exact)
    with computing("float32", torch.device("cuda")):
        assert not torch.backends.cudnn.allow_tf32


@pytest.mark.cuda
@pytest.mark.parametrize("name", ENCODERS)
def test_codes_are_those_of_every_precision(name: str) -> None:
    """On a GPU, whose decoder rounds in each of them."""
    made, samples = codec(name, YARDSTICK).to("cuda"), normal(2, 1, 4000)
    codes, sounds = [], []
    for precision in get_args(Precision):
        made.precision = precision
        codes.append(made.encode(samples, *ENCODED.get(name, ())).cpu().numpy())
        sounds.append(made.decode(codes[0]).cpu())
    np.testing.assert_array_equal(codes[1], codes[0])
    np.testing.assert_array_equal(codes[2], codes[0])
    assert not torch.equal(sounds[2], sounds[0]), "the precision reaches the decoder"


@pytest.mark.cuda
@torch.inference_mode()
def test_a_stream_in_tf32_equals_the_whole_within_its_bound() -> None:
    """Each of some twenty convolutions in a row rounds inputs and weights to 11 bits, in windows and whole.

    cuDNN takes TF32 for some shapes only, so one of them may be nearer to float64 than the other.
    """
    made = codec("dac", YARDSTICK).to("cuda")
    random = np.random.default_rng(5)
    codes = random.integers(0, made.config.codebook_size, (2, made.config.n_codebooks, 120)).astype(np.int32)
    given = torch.from_numpy(codes).cuda()
    truth = codec("dac", ORACLE).to("cuda").decode_whole(given).double()
    made.policy = CodecPolicy(16, first_frames=3)
    made.precision = "tf32"
    whole, stream = made.decode_whole(given).double(), made.decode(given).double()
    assert stream.shape == truth.shape
    depth = 2 + sum(1 + 2 * 3 for _ in made.config.upsampling_ratios)
    bound = depth * 2 * 2**-11 * truth.norm()
    assert 0 < (stream - truth).norm() < bound
    assert 0 < (whole - truth).norm() < bound
