"""Dia-1.6B with random weights, for benchmarks, and a run of it by transformers."""

from __future__ import annotations

from typing import Any

from benchmarks.lib.random_networks import dac_law, gpu, network
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.policy import own
from tts_core.dia.model import DIA_0626

TEXT = (
    "[S1] Dia is an open weights text to dialogue model. [S2] You get full control over scripts and voices. "
    "[S1] Wow. Amazing. (laughs) [S2] Try it now on Git hub or Hugging Face."
)
FULL = DIA_0626
SPECIAL = {name: getattr(FULL, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}


def full_network(dtype: str) -> Any:
    """Dia-1.6B in torch_ref with random weights."""
    return network("torch", "dia", FULL, dtype, device=gpu(), edit=silent_end)


def full_pipeline(dtype: str) -> Any:
    """Dia-1.6B in torch_ref with DAC at 44.1 kHz in float32, both with random weights, on an NVIDIA GPU."""
    from torch_ref.dia.pipeline import compose
    from torch_ref.loading import Parts

    codec = network("torch", "dac", DAC_44KHZ, "float32", device="cuda", law=dac_law)
    codec.policy = own("torch-cuda")
    return compose({"dia": full_network(dtype), "dac": codec}, **Parts.fastest("dia", codec))


def silent_end(name: str, value: Any) -> None:
    """Let EOS never be the largest, so that runs have their full length."""
    if name == "logits_dense.weight":
        value[FULL.eos_token_id] = 0


def transformers_rows(model: Any, said: str, batch: int, frames: int) -> Any:
    """Generate rows of as many texts by transformers. → (batch, 1 + frames, channels) ids."""
    import torch

    text = list(said.encode().replace(b"[S1]", b"\x01").replace(b"[S2]", b"\x02"))
    ids = torch.tensor([text] * batch, device=model.device)
    begin = model.generation_config.bos_token_id
    start = torch.full((batch, 1, model.config.decoder_config.num_channels), begin)
    return model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        decoder_input_ids=start.to(model.device),
        max_new_tokens=frames,
        min_new_tokens=frames - 1,
        do_sample=True,
        guidance_scale=3.0,
        temperature=1.2,
        top_k=45,
        top_p=0.95,
    )
