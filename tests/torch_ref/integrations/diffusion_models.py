"""Small random UNets and ControlNets of diffusers, a step through both, and masks as in InvokeAI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from diffusers.models.attention_processor import AttnProcessor2_0, IPAdapterAttnProcessor2_0
from diffusers.models.controlnets.controlnet import ControlNetModel
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from torch import Tensor, nn

REJECT = -10000.0


@dataclass(frozen=True)
class Size:
    """A UNet's attention levels: which have attention, their channels and heads, and the latents' side."""

    attention: tuple[bool, ...]
    channels: tuple[int, ...]
    heads: tuple[int, ...]
    side: int
    text: int = 77
    text_width: int = 32


TINY = Size((True, True), (32, 64), (2, 4), 16, text=20)
SD15 = Size((True, True, True, False), (32, 64, 64, 64), (8, 8, 8, 8), 64)
SDXL = Size((False, True, True), (32, 80, 160), (5, 10, 20), 128)


def models(size: Size, device: str = "cpu") -> tuple[Any, Any]:
    """Random weights of seed 0; also for the ControlNet's zero convolutions, so that it has an effect."""
    torch.manual_seed(0)
    with torch.device(device):
        build: Any = UNet2DConditionModel
        unet = build(
            sample_size=size.side,
            block_out_channels=size.channels,
            down_block_types=tuple("CrossAttnDownBlock2D" if a else "DownBlock2D" for a in size.attention),
            up_block_types=tuple(
                "CrossAttnUpBlock2D" if a else "UpBlock2D" for a in reversed(size.attention)
            ),
            attention_head_dim=size.heads,
            layers_per_block=1,
            cross_attention_dim=size.text_width,
            norm_num_groups=8,
        ).eval()
        controlnet: Any = ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(8, 16)).eval()
    if device == "cpu":
        for convolution in [*controlnet.controlnet_down_blocks, controlnet.controlnet_mid_block]:
            nn.init.normal_(convolution.weight, std=0.1)
        nn.init.normal_(controlnet.controlnet_cond_embedding.conv_out.weight, std=0.1)
    return unet, controlnet


class Prompt:
    """Regions and padding of one prompt, with the interface of InvokeAI's RegionalPromptData."""

    def __init__(self, size: Size, *, regions: bool, padding: bool, like: Tensor):
        self.size, self.regions, self.padding, self.like = size, regions, padding, like

    def get_cross_attn_mask(self, query_seq_len: int, key_seq_len: int) -> Tensor:
        """(B, L or 1, S): with regions even columns read the first half of the text, odd ones the second."""
        rows = query_seq_len if self.regions else 1
        mask = self.like.new_zeros(2, rows, key_seq_len)
        if self.regions:
            left = torch.arange(rows, device=mask.device) % 2 == 0
            first = torch.arange(key_seq_len, device=mask.device) < key_seq_len // 2
            mask += (left[:, None] != first) * REJECT
        if self.padding:
            mask[0, :, key_seq_len - 3 :] += REJECT
        return mask


def step(
    unet: Any, controlnet: Any, size: Size, *, unet_prompt: Prompt | None, control_prompt: Prompt | None
) -> Tensor:
    """One step for a batch of two: the ControlNet, then the UNet."""
    like = next(unet.parameters())
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(like)

    sample, text = draw(2, 4, size.side, size.side), draw(2, size.text, size.text_width)
    picture = draw(2, 3, 2 * size.side, 2 * size.side)
    time = torch.tensor([10, 10], device=like.device)
    extra = {} if control_prompt is None else {"regional_prompt_data": control_prompt}
    down, middle = controlnet(
        sample, time, text, picture, cross_attention_kwargs=extra or None, return_dict=False
    )
    extra = {} if unet_prompt is None else {"regional_prompt_data": unet_prompt}
    images = None
    if unet.encoder_hid_proj is not None:
        images = {"image_embeds": [draw(2, 2, size.text_width)]}
    return unet(
        sample,
        time,
        text,
        cross_attention_kwargs=extra or None,
        added_cond_kwargs=images,
        down_block_additional_residuals=down,
        mid_block_additional_residual=middle,
    ).sample


class CustomAttnProcessor2_0(AttnProcessor2_0):
    """The stock processor with regions, as in InvokeAI (`install` goes by its name)."""

    def __call__(  # type: ignore[override]
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
        regional_prompt_data: Prompt | None = None,
    ) -> Tensor:
        if regional_prompt_data is not None and encoder_hidden_states is not None:
            attention_mask = regional_prompt_data.get_cross_attn_mask(
                query_seq_len=hidden_states.shape[1], key_seq_len=encoder_hidden_states.shape[1]
            )
        return super().__call__(attn, hidden_states, encoder_hidden_states, attention_mask, temb)


class Tokens(nn.Module):
    """Image states (B, N, D) to (B, N, 4, D), in place of an IP-Adapter's projection."""

    def forward(self, images: list[Tensor]) -> list[Tensor]:
        return [torch.stack([x, x.flip(-1), -x, x * 2], 2) for x in images]


def add_adapter(unet: Any, size: Size) -> None:
    """Give cross-attention layers an IP-Adapter of random weights, as load_ip_adapter does."""
    torch.manual_seed(2)
    processors = {}
    for name, processor in unet.attn_processors.items():
        layer = unet.get_submodule(name.removesuffix(".processor"))
        if name.endswith("attn2.processor"):
            width = layer.to_q.out_features
            processor = IPAdapterAttnProcessor2_0(width, size.text_width, num_tokens=(4,), scale=0.7)
            processor.to(next(unet.parameters()).dtype)
        processors[name] = processor
    unet.set_attn_processor(processors)
    unet.encoder_hid_proj = Tokens()
    unet.config.encoder_hid_dim_type = "ip_image_proj"
