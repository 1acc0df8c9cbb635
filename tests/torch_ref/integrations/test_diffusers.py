"""The diffusers drop-in on real models: as exact as the stock processor, no graph-cache collisions."""

import copy
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("diffusers")

from diffusers.models import attention_processor
from diffusers.models.attention_processor import Attention, AttnAddedKVProcessor2_0, IPAdapterAttnProcessor2_0

from tests.torch_ref.integrations.diffusion_models import (
    SD15,
    TINY,
    CustomAttnProcessor2_0,
    Prompt,
    Size,
    add_adapter,
    models,
    step,
)
from torch_ref.integrations.diffusers import REPLACED, ChunkedAttnProcessor, _replacement, install, uninstall
from torch_ref.layers.attention import AttentionPolicy, scaled_dot_product_attention
from torch_ref.limits import Backend, enforce, observe

pytestmark = pytest.mark.rest
CHUNKS = AttentionPolicy(37, 11, native=False)  # nothing divides evenly
PROMPTS = {
    "no mask": (False, False),
    "padding": (False, True),
    "regions": (True, False),
    "regions and padding": (True, True),
}


def prompts(size: Size, like: nn.Module, kind: str) -> dict[str, Prompt | None]:
    """Masks of the UNet and the ControlNet; the latter never has regions."""
    regions, padding = PROMPTS[kind]
    parameter = next(like.parameters())
    if not regions and not padding:
        return {"unet_prompt": None, "control_prompt": None}
    return {
        "unet_prompt": Prompt(size, regions=regions, padding=padding, like=parameter),
        "control_prompt": Prompt(size, regions=False, padding=padding, like=parameter),
    }


def regional(*networks: Any) -> None:
    for network in networks:
        network.set_attn_processor(CustomAttnProcessor2_0())


def run(networks: Iterable[Any], kind: str) -> torch.Tensor:
    unet, controlnet = networks
    with torch.inference_mode():
        return step(unet, controlnet, TINY, **prompts(TINY, unet, kind))


@pytest.fixture(scope="module")
def stock():
    networks = models(TINY)
    regional(*networks)
    return networks


@pytest.mark.parametrize("kind", PROMPTS)
def test_as_exact_as_the_stock_processor(stock, kind):
    truth = run((copy.deepcopy(network).double() for network in stock), kind)
    before = run(stock, kind)
    ours = [copy.deepcopy(network) for network in stock]
    assert [install(network, CHUNKS) for network in ours] == [14, 6]
    after = run(ours, kind)
    bound = 16 * (before.double() - truth).abs().max()
    assert (after.double() - truth).abs().max() <= bound
    assert bound < 1e-3 * truth.abs().max()  # and the bound is meaningful


def test_every_mask_matters(stock):
    outputs = [run(stock, kind) for kind in PROMPTS]
    pairs = [(a, b) for i, a in enumerate(outputs) for b in outputs[:i]]
    assert min((a - b).abs().max() for a, b in pairs) > 1e-3


# IP-Adapters


@pytest.fixture
def adapted():
    unet, controlnet = models(TINY)
    add_adapter(unet, TINY)
    return unet, controlnet


def test_an_adapter_is_as_exact_and_keeps_its_weights(adapted):
    truth = run((copy.deepcopy(network).double() for network in adapted), "no mask")
    before, keys = run(adapted, "no mask"), adapted[0].state_dict().keys()
    install(adapted[0], CHUNKS)
    after = run(adapted, "no mask")
    assert (after - truth).abs().max() <= 16 * (before - truth).abs().max()
    assert adapted[0].state_dict().keys() == keys


def test_scales_set_while_installed_act_and_stay(adapted):
    def off(unet: Any):
        silent: list[float | int] = [0.0]
        found: Any = unet.attn_processors.values()
        for processor in found:
            if isinstance(processor, IPAdapterAttnProcessor2_0):  # the scales that set_ip_adapter_scale sets
                processor.scale = silent

    install(adapted[0], CHUNKS)
    on = run(adapted, "no mask")
    off(adapted[0])
    without = run(adapted, "no mask")
    uninstall(adapted[0])
    assert (on - without).abs().max() > 1e-3
    assert torch.allclose(run(adapted, "no mask"), without, atol=1e-5)


@pytest.mark.parametrize("scale", [0.7, [0.2, 0.9]])
def test_adapter_masks(adapted, scale):
    layer = adapted[0].down_blocks[0].attentions[0].transformer_blocks[0].attn2
    layer.processor.scale = [scale]
    generator = torch.Generator().manual_seed(3)
    x, text, images = (
        torch.randn(*shape, generator=generator) for shape in ((2, 64, 32), (2, 20, 32), (2, 2, 4, 32))
    )
    masks = [torch.rand(1, 2, 16, 16, generator=generator)]
    before = layer(x, (text, [images]), ip_adapter_masks=masks)
    layer.set_processor(_replacement(layer.processor, CHUNKS))
    assert torch.allclose(layer(x, (text, [images]), ip_adapter_masks=masks), before, atol=1e-6)
    for wrong in ([], [masks[0][:, :1]], [masks[0][0]]):
        with pytest.raises(ValueError, match="IP-Adapter"):
            layer(x, (text, [images]), ip_adapter_masks=wrong)


# Single layers


def layer(**options: Any) -> Any:
    torch.manual_seed(4)
    return Attention(query_dim=32, heads=4, dim_head=8, **options).eval()


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (2, 50, 32)),
        ({"qk_norm": "layer_norm"}, (2, 50, 32)),
        ({"qk_norm": "rms_norm"}, (2, 50, 32)),
        ({"norm_num_groups": 4, "residual_connection": True, "rescale_output_factor": 2.0}, (2, 32, 7, 5)),
        ({"spatial_norm_dim": 8}, (2, 32, 7, 5)),
        ({"cross_attention_dim": 24, "cross_attention_norm": "layer_norm"}, (2, 50, 32)),
    ],
)
def test_layers_of_every_form(options, shape):
    attn, x = layer(**options), torch.randn(*shape, generator=torch.Generator().manual_seed(5))
    text = torch.randn(2, 9, 24) if "cross_attention_dim" in options else None
    temb = torch.randn(2, 8, 7, 5) if "spatial_norm_dim" in options else None
    before = attn(x, text, temb=temb)
    attn.set_processor(ChunkedAttnProcessor(CHUNKS))
    after = attn(x, text, temb=temb)
    assert after.shape == before.shape
    assert torch.allclose(after, before, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 9), (2, 1, 9), (2, 50, 9), (8, 50, 9), (8, 1, 9)])
def test_masks_of_every_form(shape):
    attn = layer(cross_attention_dim=24)
    x, text, mask = torch.randn(2, 50, 32), torch.randn(2, 9, 24), torch.randn(*shape)
    before = attn(x, text, mask)
    attn.set_processor(ChunkedAttnProcessor(CHUNKS))
    assert torch.allclose(attn(x, text, mask), before, atol=1e-5)


def test_a_mask_of_one_batch_serves_all():
    """The stock processor mistakes it for the mask of other heads (diffusers 0.42)."""
    attn, x, mask = layer(), torch.randn(2, 50, 32), torch.randn(1, 50, 50)
    attn.set_processor(ChunkedAttnProcessor(CHUNKS))
    assert torch.allclose(attn(x, None, mask), attn(x, None, mask.expand(2, -1, -1)), atol=1e-6)


def test_a_mask_of_another_length_is_refused():
    attn = layer(cross_attention_dim=24)
    attn.set_processor(ChunkedAttnProcessor())
    with pytest.raises(ValueError, match="for 9 keys"):
        attn(torch.randn(2, 50, 32), torch.randn(2, 9, 24), torch.zeros(2, 1, 8))


# Installing


def test_a_pipeline_in_one_call_and_back():
    unet, controlnet = models(TINY)
    pipeline = SimpleNamespace(unet=unet, controlnet=SimpleNamespace(nets=[controlnet, models(TINY)[1]]))
    stock = [dict(unet.attn_processors), dict(controlnet.attn_processors)]
    assert install(pipeline) == 14 + 6 + 6
    assert all(isinstance(p, ChunkedAttnProcessor) for p in unet.attn_processors.values())
    assert install(pipeline, CHUNKS) == 26
    assert all(p.policy is CHUNKS for p in controlnet.attn_processors.values())
    assert uninstall(pipeline) == 26
    assert [dict(unet.attn_processors), dict(controlnet.attn_processors)] == stock
    assert uninstall(pipeline) == 0


@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_is_there(name):
    """In diffusers; InvokeAI's class is imitated here."""
    known = CustomAttnProcessor2_0 if name == "CustomAttnProcessor2_0" else getattr(attention_processor, name)
    assert known.__name__ == name


def test_other_layers_are_named_and_nothing_is_changed():
    unet, _ = models(TINY)
    processors = dict(unet.attn_processors)
    strange = next(iter(processors))
    unet.set_attn_processor({**processors, strange: AttnAddedKVProcessor2_0()})
    with pytest.raises(ValueError, match=f"{strange} \\(AttnAddedKVProcessor2_0\\)"):
        install(unet)
    assert not any(isinstance(p, ChunkedAttnProcessor) for p in unet.attn_processors.values())


def test_nothing_to_install_in_is_said():
    with pytest.raises(ValueError, match="SimpleNamespace has no UNet"):
        install(SimpleNamespace())


# Under the rules of MPS


def test_a_step_of_the_stock_processors_breaks_none_either():
    """What broke there did so up to torch 2.6 (docs/use/attention.md)."""
    unet, controlnet = models(SD15, "meta")
    regional(unet, controlnet)
    masks = prompts(SD15, unet, "regions and padding")
    with observe(Backend("mps", "2.11.0", "15.2")) as watch, torch.inference_mode():
        step(unet, controlnet, SD15, **masks)
    assert watch.broken == {}
    assert watch.calls > 0


@pytest.mark.parametrize(
    ("release", "macos"), [("2.11.0", "14.5"), ("2.12.1", "15.2"), ("2.13.0", "26.2"), ("2.15.0", "27.0")]
)
def test_a_step_breaks_no_rule_once_installed(release, macos):
    unet, controlnet = models(TINY)
    install(SimpleNamespace(unet=unet, controlnet=controlnet))
    masks = prompts(TINY, unet, "regions and padding")
    with enforce(Backend("mps", release, macos, "M4")), torch.inference_mode():
        step(unet, controlnet, TINY, **masks)


# docs/use/attention.md


def test_the_recipe_for_invokeai(monkeypatch):
    page = (Path(__file__).parents[3] / "docs" / "use" / "attention.md").read_text()
    recipe = page.split("## InvokeAI")[1].split("```python\n")[1].split("```")[0]
    name = "invokeai.backend.stable_diffusion.diffusion.custom_atttention"
    parts = name.split(".")
    modules = {".".join(parts[: i + 1]): ModuleType(parts[i]) for i in range(len(parts))}
    for parent, child in pairwise(modules):
        setattr(modules[parent], child.rpartition(".")[2], modules[child])
    modules[name].__dict__["F"] = torch.nn.functional
    for known, module in modules.items():
        monkeypatch.setitem(sys.modules, known, module)
    _, controlnet = models(TINY)
    exec(recipe, {"controlnet": controlnet})
    x = torch.randn(1, 2, 5, 8)
    processor = modules[name]
    assert processor.F.scaled_dot_product_attention is scaled_dot_product_attention
    assert torch.equal(
        processor.F.scaled_dot_product_attention(x, x, x, attn_mask=None, dropout_p=0.0, is_causal=False),
        torch.nn.functional.scaled_dot_product_attention(x, x, x),
    )
    assert torch.equal(processor.F.pad(x, (1, 1)), torch.nn.functional.pad(x, (1, 1)))
    assert all(isinstance(p, ChunkedAttnProcessor) for p in controlnet.attn_processors.values())
