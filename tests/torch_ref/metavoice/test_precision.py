"""MetaVoice's dtype policy: one choice for weights, cache, speaker and sampling, on simulated machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torch_ref
from tests.contract.speakers import folder
from tests.sides import ORACLE
from tests.tiny.metavoice_pipeline import reference
from tests.tiny.networks import Weights, first_stage_config, second_stage_config, tiny
from torch_ref import device as policy
from torch_ref.device import Precision
from torch_ref.metavoice.codes import predict
from torch_ref.metavoice.decoder import make_slots
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.second_stage import SecondStage
from tts_core.metavoice.decoding import VocosDecoder
from tts_core.metavoice.inputs import FirstStageSampling, MetaVoiceInputs, second_stage_rows
from tts_core.nn.noise import HostNoise

SPEAKERS = np.random.default_rng(2).normal(0, 1, (2, 10)).astype(np.float32)


class Refused(TorchDispatchMode):
    """Raise on any operation with a tensor of `kind`; count operations by dtype of their results."""

    def __init__(self, kind: torch.dtype):
        super().__init__()
        self.kind = kind
        self.seen: dict[torch.dtype, int] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor) and leaf.dtype == self.kind:
                raise AssertionError(f"{function} with {self.kind}")
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.seen[leaf.dtype] = self.seen.get(leaf.dtype, 0) + 1
        return result


def filled(network: torch.nn.Module, weights: Weights, dtype: torch.dtype) -> Any:
    state = {name: torch.from_numpy(weights.read(name)).to(dtype) for name in weights.names()}
    network.load_state_dict(state, assign=True)
    return network.eval()


def networks(precision: Precision) -> tuple[FirstStage, SecondStage]:
    first, second = first_stage_config(), second_stage_config()
    return (
        filled(FirstStage(first), tiny(first), precision.dtype),
        filled(SecondStage(second), tiny(second, 1), precision.wide),
    )


def speak(pipeline: Any, voice: Any) -> list[np.ndarray]:
    """By the rules of both inferences and with both decoders."""
    asked: list[dict[str, Any]] = [{}, {"cfg_scale": (2.0, 1.5), "top_p": 1.0, "decoder": "mbd"}]
    return [pipeline.generate("So.", prompt=voice, seed=1, max_frames=5, **one).audio for one in asked]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int]], None]:
    """A CUDA device of a compute capability."""

    def make(capability: tuple[int, int]) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)

    return make


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((7, 5), torch.float16), ((7, 0), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)],
)
def test_what_a_gpu_gets(
    gpu: Callable[[tuple[int, int]], None], capability: tuple[int, int], dtype: torch.dtype
) -> None:
    gpu(capability)
    precision = policy.choose(None, None, "metavoice")
    assert (precision.device.type, precision.dtype, precision.wide) == ("cuda", dtype, torch.float32)


def test_mps_and_cpu() -> None:
    assert policy.default_dtype(torch.device("mps"), "metavoice")[0] == "float16"
    assert policy.default_dtype(torch.device("mps"), "dia")[0] == "float32"
    assert policy.choose("cpu", None, "metavoice").dtype == torch.float32
    assert policy.choose("cpu", "float64", "metavoice").wide == torch.float64


@pytest.mark.parametrize(
    ("dtype", "other"), [(torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16)], ids=str
)
def test_a_gpu_never_meets_the_other_half_precision(dtype: torch.dtype, other: torch.dtype) -> None:
    """Loading, voice, stages and decoders; also where the original mixes in bfloat16 and fails on a T4."""
    with Refused(other) as refused:
        pipeline = torch_ref.MetaVoicePipeline.load(
            folder("metavoice"), device="cpu", dtype=cast(Any, policy.name_of(dtype))
        )
        made = speak(pipeline, reference(2.0))
    assert refused.seen[dtype] > 100
    assert refused.seen[torch.float32] > 100
    assert all(np.isfinite(audio).all() and len(audio) for audio in made)
    engine, vocos = pipeline.engine, pipeline.engine.decoders["vocos"]
    assert isinstance(vocos, VocosDecoder)
    small = [engine.second_stage, engine.speaker_encoder, vocos.vocoder]
    assert {tensor.dtype for network in small for tensor in network.parameters()} == {torch.float32}
    assert {tensor.dtype for tensor in engine.network.parameters()} == {dtype}
    with pytest.raises(AssertionError, match=f"with {dtype}"), Refused(dtype):
        speak(pipeline, reference(2.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.inference_mode()
def test_one_dtype_from_weights_to_cache_and_float32_where_it_counts(dtype: torch.dtype) -> None:
    precision = Precision(torch.device("cpu"), dtype)
    first, second = networks(precision)
    slots = make_slots(first, texts=1, capacity=9, end_of_text=0)
    ids = np.array([2050, 2060, 7], np.int32)
    slots.join({0: MetaVoiceInputs(ids, SPEAKERS[0], FirstStageSampling(), HostNoise(1))})
    assert slots.state.speakers.dtype == dtype
    slots.rows.begin()
    assert slots._made().dtype == torch.float32
    assert {buffer.dtype for layer in slots.caches for buffer in (layer.keys, layer.values)} == {dtype}
    norm = first.transformer.h[0].ln_1
    x = torch.randn(2, 3, 36, dtype=dtype)
    exact = torch.nn.functional.rms_norm(x.double(), (36,), None, 1e-5).float().to(dtype)
    assert torch.equal(norm(x), exact * norm.weight)  # type: ignore[operator]
    rows = second_stage_rows(np.array([1100, 1291]), np.zeros((2, 3), int), 40)
    assert predict(second, rows, SPEAKERS[0]).dtype == torch.float32


@torch.inference_mode()
def test_the_residual_stream_of_float16_is_wider() -> None:
    """It grows from layer to layer beyond the range of float16."""
    config = first_stage_config()
    weights = tiny(config)
    for i in range(config.num_hidden_layers):
        weights.tensors[f"transformer.h.{i}.mlp.c_proj.weight"] *= 6e3
    wide = filled(FirstStage(config), weights, torch.float32)
    half = filled(FirstStage(config), weights, torch.float16)
    ids = torch.tensor([[2050, 2060, 3, 2000]])
    results = []
    for network in (wide, half):
        heard = network.speakers(torch.from_numpy(SPEAKERS[:1]))
        x = network.transformer.embed(ids, heard, 0)
        for block, rows in zip(network.transformer.h, network.new_cache(4), strict=True):
            x = block(x, rows)
        results.append(x)
    assert results[0].abs().max() > torch.finfo(torch.float16).max
    assert results[1].isfinite().all()
    relative = (results[1] - results[0]).abs().max() / results[0].abs().max()
    assert relative < 0.02


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.inference_mode()
def test_half_precision_is_near(dtype: torch.dtype) -> None:
    """Logits change at most by the dtype's rounding, once per operation."""
    exact = ORACLE.network("metavoice", tiny("metavoice"))
    half = networks(Precision(torch.device("cpu"), dtype))[0]
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, 2300, (2, 30)))
    truth, own = (
        network(ids, network.speakers(torch.from_numpy(SPEAKERS).to(wide)), network.new_cache(30))
        for network, wide in ((exact, torch.float64), (half, torch.float32))
    )
    error = (own - truth).pow(2).mean().sqrt() / truth.pow(2).mean().sqrt()
    operations = 12 * first_stage_config().num_hidden_layers  # roundings that add up as a random walk
    assert error < operations**0.5 * torch.finfo(dtype).eps
