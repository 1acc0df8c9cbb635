"""Exact attention in blocks for diffusers' UNets and ControlNets.

    from torch_ref.integrations.diffusers import install, uninstall
    from torch_ref.layers.attention import AttentionPolicy

    install(pipeline)  # UNet and ControlNet, with native attention if it is exact
    install(pipeline.unet, AttentionPolicy(budget_bytes=64 * 2**20, native=False))
    uninstall(pipeline)

The layer computes the same as diffusers' AttnProcessor2_0 and IPAdapterAttnProcessor2_0 (Apache-2.0, 0.42),
with another attention call and without repeating masks per head. docs/use/attention.md lists the failures
without it, and shows how InvokeAI takes the same function.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torch_ref.layers.attention import AttentionPolicy, scaled_dot_product_attention

REPLACED = (  # processors that compute the same as this module
    "AttnProcessor",
    "AttnProcessor2_0",
    "SlicedAttnProcessor",
    "XFormersAttnProcessor",
    "IPAdapterAttnProcessor",
    "IPAdapterAttnProcessor2_0",
    "IPAdapterXFormersAttnProcessor",
    "CustomAttnProcessor2_0",  # InvokeAI's, for regional prompts
)


class RegionalPrompt(Protocol):
    """InvokeAI's RegionalPromptData, or anything with its method."""

    def get_cross_attn_mask(self, query_seq_len: int, key_seq_len: int) -> Tensor:
        """Return a mask (B, L or 1, S), added to cross-attention's scores of L positions and S tokens."""
        ...


class ChunkedAttnProcessor:
    """A diffusers attention processor with torch_ref's attention and no weights.

    It takes these cross_attention_kwargs: `regional_prompt_data` (added to the mask of cross-attention),
    `ip_adapter_masks` (layers with an IP-Adapter), `scale` and `percent_through` (no effect, as in
    diffusers).
    """

    def __init__(self, policy: AttentionPolicy | None = None):
        self.policy = policy
        self.replaced: tuple[Any, ...] = ()

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
        scale: float | None = None,
        regional_prompt_data: RegionalPrompt | None = None,
        percent_through: Any = None,
    ) -> Tensor:
        """Attend. hidden_states (B, L, C) or (B, C, height, width) → same. attn: layer with the weights."""
        text = encoder_hidden_states
        return _attend(attn, hidden_states, text, attention_mask, temb, regional_prompt_data, self.policy)


@functools.cache
def _adapter_class() -> type:
    """Define the processor for IP-Adapter layers, a subclass of diffusers' own, so that scales can be set."""
    from diffusers.models.attention_processor import IPAdapterAttnProcessor2_0

    class ChunkedIPAdapterAttnProcessor(IPAdapterAttnProcessor2_0):
        """IP-Adapter processor with the weights of the one that it replaces."""

        policy: AttentionPolicy | None
        replaced: tuple[Any, ...]

        def __call__(
            self,
            attn: Any,
            hidden_states: Tensor,
            encoder_hidden_states: tuple[Tensor, Sequence[Tensor]] | None = None,
            attention_mask: Tensor | None = None,
            temb: Tensor | None = None,
            scale: float | None = None,
            ip_adapter_masks: Sequence[Tensor | None] | Tensor | None = None,
            regional_prompt_data: RegionalPrompt | None = None,
            percent_through: Any = None,
        ) -> Tensor:
            if not isinstance(encoder_hidden_states, tuple):
                kind = type(encoder_hidden_states).__name__
                raise ValueError(
                    f"IP-Adapter layer: encoder_hidden_states is {kind}; give (text, [image states, ...])"
                )
            text, images = encoder_hidden_states
            adapter = functools.partial(_image_attention, self, images, ip_adapter_masks)
            return _attend(
                attn, hidden_states, text, attention_mask, temb, regional_prompt_data, self.policy, adapter
            )

    return ChunkedIPAdapterAttnProcessor


def install(pipeline_or_model: Any, policy: AttentionPolicy | None = None) -> int:
    """Install the processor in every attention layer of a model, or of a pipeline's UNet and ControlNets.

    Returns the number of layers. Installing again only changes the policy.
    Raises ValueError if a layer computes something else, before any layer is changed.
    """
    models = _models(pipeline_or_model)
    strange = {
        f"{name} ({type(processor).__name__})"
        for model in models
        for name, processor in model.attn_processors.items()
        if type(processor).__name__ not in REPLACED and not _ours(processor)
    }
    if strange:
        raise ValueError(
            f"install: these layers compute something else: {', '.join(sorted(strange))}; "
            "give a model without them"
        )
    for model in models:
        model.set_attn_processor(
            {name: _replacement(processor, policy) for name, processor in model.attn_processors.items()}
        )
    return sum(len(model.attn_processors) for model in models)


def uninstall(pipeline_or_model: Any) -> int:
    """Restore the processors that `install` replaced. Returns the number of layers."""
    layers = 0
    for model in _models(pipeline_or_model):
        processors = dict(model.attn_processors)
        for name, processor in processors.items():
            if _ours(processor):
                (processors[name],) = processor.replaced
                layers += 1
                if isinstance(processor, nn.Module):
                    processors[name].scale = processor.scale
        model.set_attn_processor(processors)
    return layers


def _models(pipeline_or_model: Any) -> list[Any]:
    if hasattr(pipeline_or_model, "attn_processors"):
        return [pipeline_or_model]
    found = [getattr(pipeline_or_model, name, None) for name in ("unet", "controlnet")]
    models: list[Any] = []
    for model in found:
        models += getattr(model, "nets", None) or (model if isinstance(model, (list, tuple)) else [model])
    models = [model for model in models if hasattr(model, "attn_processors")]
    if not models:
        raise ValueError(
            f"install: {type(pipeline_or_model).__name__} has no UNet or ControlNet; give the model itself"
        )
    return models


def _ours(processor: Any) -> bool:
    return hasattr(processor, "replaced")


def _replacement(processor: Any, policy: AttentionPolicy | None) -> Any:
    if _ours(processor):
        processor.policy = policy
        return processor
    if isinstance(processor, nn.Module) and hasattr(processor, "to_k_ip"):
        new: Any = object.__new__(_adapter_class())
        new.__dict__.update(processor.__dict__)  # the same modules, hence the same weights and state dict
    else:
        new = ChunkedAttnProcessor()
    new.policy = policy
    new.replaced = (processor,)  # in a tuple, or torch would register it as a submodule
    return new


def _attend(
    attn: Any,
    hidden_states: Tensor,
    text: Tensor | None,
    mask: Tensor | None,
    temb: Tensor | None,
    region: RegionalPrompt | None,
    policy: AttentionPolicy | None,
    adapter: Any = None,
) -> Tensor:
    residual = hidden_states
    if attn.spatial_norm is not None:
        hidden_states = attn.spatial_norm(hidden_states, temb)
    shape = hidden_states.shape
    if len(shape) == 4:
        hidden_states = hidden_states.flatten(2).transpose(1, 2)
    if region is not None and text is not None:
        bias = region.get_cross_attn_mask(query_seq_len=hidden_states.shape[1], key_seq_len=text.shape[1])
        mask = bias if mask is None else mask + bias
    if attn.group_norm is not None:
        hidden_states = attn.group_norm(hidden_states.transpose(1, 2)).transpose(1, 2)

    query = _heads(attn.to_q(hidden_states), attn.heads)
    source = (
        hidden_states if text is None else attn.norm_encoder_hidden_states(text) if attn.norm_cross else text
    )
    key, value = _heads(attn.to_k(source), attn.heads), _heads(attn.to_v(source), attn.heads)
    if attn.norm_q is not None:
        query = attn.norm_q(query)
    if attn.norm_k is not None:
        key = attn.norm_k(key)
    mask = _mask(mask, query, key.shape[2])
    hidden_states = _merged(scaled_dot_product_attention(query, key, value, mask, policy=policy))
    if adapter is not None:
        hidden_states = hidden_states + adapter(query, policy)

    for layer in attn.to_out:  # projection, dropout
        hidden_states = layer(hidden_states)
    if len(shape) == 4:
        hidden_states = hidden_states.transpose(1, 2).reshape(shape)
    if attn.residual_connection:
        hidden_states = hidden_states + residual
    return hidden_states / attn.rescale_output_factor


def _heads(x: Tensor, heads: int) -> Tensor:
    """Split heads. (B, T, H E) → (B, H, T, E)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _merged(x: Tensor) -> Tensor:
    """Merge heads. (B, H, T, E) → (B, T, H E)."""
    return x.transpose(1, 2).flatten(2)


def _mask(mask: Tensor | None, query: Tensor, keys: int) -> Tensor | None:
    """View a mask (B, S), (B, L or 1, S) or (B H, L or 1, S) as (1 or B, 1 or H, L or 1, S)."""
    if mask is None:
        return None
    batch, heads = query.shape[:2]
    if mask.shape[-1] != keys:
        raise ValueError(f"attention mask: {tuple(mask.shape)} for {keys} keys; pad it to the text")
    mask = mask if mask.dtype == torch.bool else mask.to(query.dtype)
    if mask.dim() == 2:
        return mask[:, None, None]
    if mask.dim() == 4:
        return mask
    if heads > 1 and mask.shape[0] == batch * heads:
        return mask.unflatten(0, (batch, heads))
    return mask.unsqueeze(1)


def _image_attention(
    processor: Any,
    images: Sequence[Tensor],
    masks: Sequence[Tensor | None] | Tensor | None,
    query: Tensor,
    policy: AttentionPolicy | None,
) -> Tensor | float:
    """Attend to each image's tokens for an IP-Adapter, times scale and mask. (B, L, H E).

    images: per adapter (B, N, S, D), or (B, S, D) without masks. masks: per adapter (1, N, height, width) or
    None.
    """
    if masks is None:
        masks = [None] * len(processor.scale)
    elif isinstance(masks, Tensor):
        masks = list(masks.unsqueeze(1))
    if not len(masks) == len(processor.scale) == len(images):
        raise ValueError(
            f"IP-Adapter: {len(images)} image states, {len(processor.scale)} scales, {len(masks)} masks"
        )
    total: Tensor | float = 0.0
    weights = zip(images, processor.scale, processor.to_k_ip, processor.to_v_ip, masks, strict=True)
    for states, scale, to_key, to_value, mask in weights:
        for part, part_scale, part_mask in _parts(states, scale, mask, query):
            if part_scale:
                heads = query.shape[1]
                key, value = _heads(to_key(part), heads), _heads(to_value(part), heads)
                out = _merged(scaled_dot_product_attention(query, key, value, policy=policy))
                total = total + part_scale * (out if part_mask is None else out * part_mask)
    return total


def _parts(
    states: Tensor, scale: float | list[float], mask: Tensor | None, query: Tensor
) -> Iterator[tuple[Tensor, float, Tensor | None]]:
    """Yield tokens, scale and mask (B, L, 1) of each image; without masks, of all an adapter's images."""
    if mask is None:
        if isinstance(scale, list):
            raise ValueError("IP-Adapter: one scale per image needs a mask per image; give ip_adapter_masks")
        yield states.flatten(1, -2), scale, None
        return
    from diffusers.image_processor import IPAdapterMaskProcessor

    scales = scale if isinstance(scale, list) else [scale] * mask.shape[1]
    if mask.dim() != 4 or not mask.shape[1] == states.shape[1] == len(scales):
        found = f"masks {tuple(mask.shape)}, {states.shape[1]} images, {len(scales)} scales"
        raise ValueError(f"IP-Adapter: {found}; give masks (1, images, height, width) and as many scales")
    batch, _, rows, _ = query.shape
    for i, image_scale in enumerate(scales):
        small = IPAdapterMaskProcessor.downsample(mask[:, i], batch, rows, 1)
        yield states[:, i], image_scale, small.to(query)
