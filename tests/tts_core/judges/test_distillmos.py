"""DistillMOS in NumPy against the same network of PyTorch's modules, in float64, with random weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.tts_core.judges import weights
from tts_core.judges import distillmos
from tts_core.judges.distillmos import SECTION, STRIDES, DistillMos

pytestmark = pytest.mark.rest


class Oracle:
    """Written from the paper's description, with PyTorch's own transformer."""

    def __init__(self, state: dict[str, Tensor], dtype: torch.dtype):
        self.state = {name: one.to(dtype) for name, one in state.items()}
        layer = nn.TransformerEncoderLayer(200, 8, 400, dropout=0.0, batch_first=True)
        # the fast path of PyTorch's inference rounds differently
        self.encoder = nn.TransformerEncoder(layer, 7, enable_nested_tensor=False).to(dtype)
        prefix = "transformer_pool_attn.transformer.transformer_encoder."
        self.encoder.load_state_dict(
            {name.removeprefix(prefix): one for name, one in self.state.items() if name.startswith(prefix)}
        )

    def score(self, samples: np.ndarray) -> float:
        dtype = self.state["cnn.cnn.0.bias"].dtype
        x = torch.from_numpy(samples).to(dtype)
        x = (x / (x.abs().max() + 1e-8))[None]
        x = F.pad(x, (80, 80), mode="reflect")
        spectrum = torch.stft(
            x, 320, 160, window=torch.hann_window(320, dtype=dtype), center=False, return_complex=True
        )
        spectrum = spectrum * spectrum.abs().clamp_min(1e-12) ** -0.7
        x = torch.stack([spectrum.real, spectrum.imag], dim=1)
        for place, stride in enumerate(STRIDES):
            weight, bias = (self.state[f"cnn.cnn.{2 * place}.{kind}"] for kind in ("weight", "bias"))
            x = F.leaky_relu(F.conv2d(x, weight, bias, stride, (0, 1)), 0.1)
        x = self._norm("transformer.norm", self._norm("norm_input", x.flatten(1, 2)))
        x = self._linear("transformer.linear_proj", x.transpose(1, 2))
        x = x + self.state["transformer_pool_attn.transformer.position_encoding.pe"]
        with torch.no_grad():
            x = self._norm("norm_trans", self.encoder(x).transpose(1, 2)).transpose(1, 2)
        attention = self._linear("pool.linear2", self._linear("pool.linear1", x).relu()).softmax(1)
        return float(1 + 4 * self._linear("pool.linear3", (attention * x).sum(1)).sigmoid())

    def _norm(self, name: str, x: Tensor) -> Tensor:
        names = ("running_mean", "running_var", "weight", "bias")
        mean, variance, weight, bias = (self.state[f"transformer_pool_attn.{name}.{one}"] for one in names)
        return F.batch_norm(x, mean, variance, weight, bias)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        weight, bias = (self.state[f"transformer_pool_attn.{name}.{kind}"] for kind in ("weight", "bias"))
        return F.linear(x, weight, bias)


@pytest.fixture
def sound() -> np.ndarray:
    rng = np.random.default_rng(1)
    return (np.sin(np.arange(SECTION) / 9) * 0.2 + rng.normal(0, 0.02, SECTION)).astype(np.float32)


def test_one_section(tmp_path: Path, sound: np.ndarray) -> None:
    state = weights.distillmos(tmp_path / "a.pt")
    ours = DistillMos((tmp_path / "a.pt").read_bytes()).score(sound)
    theirs, exact = (Oracle(state, dtype).score(sound) for dtype in (torch.float32, torch.float64))
    eps = np.finfo(np.float32).eps
    assert abs(ours - exact) <= 16 * abs(theirs - exact) + 4 * eps * 5
    assert abs(exact - 3) > 1e-3, "the sigmoid's middle would hide a mistake"


@pytest.mark.parametrize(
    ("length", "starts"),
    [(1000, [0]), (SECTION, [0]), (SECTION + 1, [0, 1]), (SECTION + 16001, [0, 8000, 16001])],
)
def test_sections_of_long_and_short_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, starts: list[int]
) -> None:
    weights.distillmos(tmp_path / "a.pt")
    seen: list[np.ndarray] = []
    monkeypatch.setattr(DistillMos, "_section", lambda self, part: seen.append(part) or len(seen))
    sound = np.arange(1, length + 1, dtype=np.float32)
    assert DistillMos((tmp_path / "a.pt").read_bytes()).score(sound) == (len(starts) + 1) / 2
    assert [len(part) for part in seen] == [SECTION] * len(starts)
    assert [int(part[0]) - 1 for part in seen] == starts
    assert distillmos.MOST_HOP == 16000
