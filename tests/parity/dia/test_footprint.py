"""The estimate's counts against allocations on both sides; bad input is refused before any allocation."""

from typing import Any

import pytest
import torch

import mlx_port
import mlx_port.layers.cache
import mlx_port.runtime.memory
import torch_ref
import torch_ref.cuda.dia.decoder
import torch_ref.layers.cache
from tests.sides import PORT, YARDSTICK, Side
from tests.tiny.dia import compose
from tests.tiny.networks import dac_config, dia_config, tiny
from tts_core.codecs import dac
from tts_core.codecs.memory import codec_policy, decoder_widths, stream_states
from tts_core.dia.footprint import NOISE_STEPS, PLAN, DiaJob, cache_rows
from tts_core.memory.footprint import CACHE_CHUNK, SCORES
from tts_core.memory.machine import Machine
from tts_core.nn import attention

pytestmark = pytest.mark.rest

TEXT = "[S1] One, two."


def small(side: Side) -> Any:
    return compose(side, tiny("dia", seed=3, eos=0.0), tiny("dac"))


def test_constants_are_those_of_both_sides() -> None:
    for cache in (torch_ref.layers.cache, mlx_port.layers.cache):
        assert cache.CHUNK == CACHE_CHUNK
    assert torch_ref.cuda.dia.decoder.NOISE_STEPS == NOISE_STEPS
    assert attention.AttentionPolicy().budget_bytes == SCORES


def nbytes(arrays: Any) -> int:
    return sum(x.nbytes for x in arrays)


def test_weights_are_those_of_the_networks() -> None:
    network, codec = small(YARDSTICK).engine.network, small(YARDSTICK).engine.codec
    held = [*network.parameters(), *network.buffers(), *codec.parameters()]
    assert nbytes(held) == guessed("torch-cpu", 1, 1, guided=True).weights


@pytest.mark.parametrize(("batch", "frames", "guided"), [(1, 10, True), (2, 260, True), (3, 20, False)])
def test_caches_are_those_of_a_run(
    side: Side, batch: int, frames: int, guided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    most: dict[str, int] = {"cache": 0, "text": 0}
    slots = side.module("batch").RunningBatch
    launch = slots.launch

    def launched(slots: Any, steps: int) -> Any:
        found = launch(slots, steps)
        held = [each for cache in slots.caches for each in (cache.keys, cache.values)]
        copied = 0 if side is PORT else held[0].nbytes  # two copies of a buffer while it grows
        most["cache"] = max(most["cache"], nbytes(held) + copied)
        most["text"] = max(most["text"], text_bytes([*slots.state.keys, *slots.state.values], batch))
        return found

    monkeypatch.setattr(slots, "launch", launched)
    run(side, batch, frames, guided=guided)
    backend = "mlx-cpu" if side is PORT else "torch-cpu"
    guess = guessed(backend, batch, frames, guided=guided)
    rows = 1 + frames + dia_config().longest_delay
    most["cache"] = most["cache"] * cache_rows(rows, backend) // rows  # as if others were longer
    states, _ = stream_states(dac.carried(dac_config()), batch, Machine("float32", backend))
    assert guess.row == most["cache"] + most["text"] + states


def run(side: Side, batch: int, frames: int, *, guided: bool) -> None:
    cfg_scale = 3.0 if guided else 0.0
    small(side).generate_codes([TEXT] * batch, max_frames=frames, seed=1, cfg_scale=cfg_scale)


def guessed(backend: str, batch: int, frames: int, *, guided: bool) -> Any:
    job = DiaJob(len(TEXT) - 3, frames, batch=batch, guided=guided)
    return PLAN.footprint({"dia": dia_config(), "dac": dac_config()}, job, Machine("float32", backend))


def text_bytes(crossed: list[Any], batch: int) -> int:
    """Keys and values of the text, and its encoding twice."""
    encoded = 2 * 4 * batch * (len(TEXT) - 3) * dia_config().encoder_config.hidden_size
    return nbytes(crossed) + encoded


def test_the_widest_layer_is_that_of_a_run() -> None:
    codec, sizes = small(YARDSTICK).engine.codec, []
    for module in codec.decoder.modules():
        module.register_forward_hook(lambda module, inputs, output: sizes.append(output.numel()))
    for frames in (1, 9, 40):
        sizes.clear()
        codec.decoder(torch.zeros(1, dac_config().hidden_size, frames))
        assert max(sizes) == max(decoder_widths(dac_config(), frames))


def test_a_loaded_codec_works_in_windows_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    import mlx_port.loading
    import torch_ref.loading
    from mlx_port.stored_voice import converted_voice
    from tts_core.codecs.policy import CodecPolicy
    from tts_core.voice.embedded import CODEC, DIA

    sides = (
        (
            torch_ref.loading,
            "torch-cpu",
            lambda: torch_ref.DiaPipeline.load(DIA, codec=CODEC, device="cpu"),
        ),
        (
            mlx_port.loading,
            mlx_port.runtime.memory.backend_name(),
            lambda: mlx_port.DiaPipeline.load(converted_voice()),
        ),
    )
    for code, backend, load in sides:
        codec = load().engine.codec
        assert codec.policy == CodecPolicy(256)
        free = 230 * 10**6
        monkeypatch.setattr(code, "free_bytes", lambda *device, free=free: free)
        scarce = load().engine.codec
        assert scarce.policy == codec_policy(codec.config, Machine("float32", backend, free))
        assert scarce.policy.max_frames < 256
