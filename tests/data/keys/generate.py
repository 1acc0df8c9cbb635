"""Write the lists of names and shapes of the full-size published checkpoints that lie beside this file.

Independent of converters/maps: the nari, descript, facebook and charactr lists follow the tables of the
published files, the transformers lists come from transformers' own modules on the meta device (transformers
5.23).

    python tests/data/keys/generate.py
"""

from __future__ import annotations

import json
from pathlib import Path

Shapes = dict[str, list[int]]


def dia_nari() -> Shapes:
    """nari-labs/Dia-1.6B and Dia-1.6B-0626: kernels (input axes, output axes)."""
    shapes: Shapes = {"encoder.embedding.weight": [256, 1024]}
    for i in range(12):
        at = f"encoder.layers.{i}"
        shapes[f"{at}.pre_sa_norm.weight"] = shapes[f"{at}.post_sa_norm.weight"] = [1024]
        for p in "qkv":
            shapes[f"{at}.self_attention.{p}_proj.weight"] = [1024, 16, 128]
        shapes[f"{at}.self_attention.o_proj.weight"] = [16, 128, 1024]
        shapes[f"{at}.mlp.wi_fused.weight"] = [1024, 2, 4096]
        shapes[f"{at}.mlp.wo.weight"] = [4096, 1024]
    shapes["encoder.norm.weight"] = [1024]
    for channel in range(9):
        shapes[f"decoder.embeddings.{channel}.weight"] = [1028, 2048]
    for i in range(18):
        at = f"decoder.layers.{i}"
        for norm in ("pre_sa_norm", "pre_ca_norm", "pre_mlp_norm"):
            shapes[f"{at}.{norm}.weight"] = [2048]
        shapes[f"{at}.self_attention.q_proj.weight"] = [2048, 16, 128]
        shapes[f"{at}.self_attention.k_proj.weight"] = [2048, 4, 128]
        shapes[f"{at}.self_attention.v_proj.weight"] = [2048, 4, 128]
        shapes[f"{at}.self_attention.o_proj.weight"] = [16, 128, 2048]
        shapes[f"{at}.cross_attention.q_proj.weight"] = [2048, 16, 128]
        shapes[f"{at}.cross_attention.k_proj.weight"] = [1024, 16, 128]
        shapes[f"{at}.cross_attention.v_proj.weight"] = [1024, 16, 128]
        shapes[f"{at}.cross_attention.o_proj.weight"] = [16, 128, 2048]
        shapes[f"{at}.mlp.wi_fused.weight"] = [2048, 2, 8192]
        shapes[f"{at}.mlp.wo.weight"] = [8192, 2048]
    shapes["decoder.norm.weight"] = [2048]
    shapes["decoder.logits_dense.weight"] = [2048, 9, 1028]
    return shapes


def dac_descript(names: tuple[str, str]) -> Shapes:
    """weights_44khz_8kbps_0.0.1.pth. names: what the gain and the direction of weight norm are called."""
    gain, direction = names
    shapes: Shapes = {}

    def conv(at: str, weight: list[int], out: int) -> None:
        shapes[f"{at}.{gain}"] = [weight[0], 1, 1]
        shapes[f"{at}.{direction}"] = weight
        shapes[f"{at}.bias"] = [out]

    def residual_unit(at: str, width: int) -> None:
        shapes[f"{at}.0.alpha"] = shapes[f"{at}.2.alpha"] = [1, width, 1]
        conv(f"{at}.1", [width, width, 7], width)
        conv(f"{at}.3", [width, width, 1], width)

    conv("encoder.block.0", [64, 1, 7], 64)
    for block, (width, stride) in enumerate(((64, 2), (128, 4), (256, 8), (512, 8)), 1):
        at = f"encoder.block.{block}.block"
        for unit in range(3):
            residual_unit(f"{at}.{unit}.block", width)
        shapes[f"{at}.3.alpha"] = [1, width, 1]
        conv(f"{at}.4", [2 * width, width, 2 * stride], 2 * width)
    shapes["encoder.block.5.alpha"] = [1, 1024, 1]
    conv("encoder.block.6", [1024, 1024, 3], 1024)
    for q in range(9):
        at = f"quantizer.quantizers.{q}"
        conv(f"{at}.in_proj", [8, 1024, 1], 8)
        conv(f"{at}.out_proj", [1024, 8, 1], 1024)
        shapes[f"{at}.codebook.weight"] = [1024, 8]
    conv("decoder.model.0", [1536, 1024, 7], 1536)
    for block, (width, stride) in enumerate(((1536, 8), (768, 8), (384, 4), (192, 2)), 1):
        at = f"decoder.model.{block}.block"
        shapes[f"{at}.0.alpha"] = [1, width, 1]
        conv(f"{at}.1", [width, width // 2, 2 * stride], width // 2)
        for unit in (2, 3, 4):
            residual_unit(f"{at}.{unit}.block", width // 2)
    shapes["decoder.model.5.alpha"] = [1, 96, 1]
    conv("decoder.model.6", [1, 96, 7], 1)
    return shapes


def encodec_facebook() -> Shapes:
    """encodec_24khz-d7cc33bc.th."""
    shapes: Shapes = {}

    def conv(at: str, weight: list[int], out: int) -> None:
        shapes[f"{at}.weight_g"] = [weight[0], 1, 1]
        shapes[f"{at}.weight_v"] = weight
        shapes[f"{at}.bias"] = [out]

    def residual(at: str, width: int) -> None:
        conv(f"{at}.block.1.conv.conv", [width // 2, width, 3], width // 2)
        conv(f"{at}.block.3.conv.conv", [width, width // 2, 1], width)
        conv(f"{at}.shortcut.conv.conv", [width, width, 1], width)

    def lstm(at: str) -> None:
        for layer in (0, 1):
            for kind in ("ih", "hh"):
                shapes[f"{at}.lstm.weight_{kind}_l{layer}"] = [2048, 512]
                shapes[f"{at}.lstm.bias_{kind}_l{layer}"] = [2048]

    conv("encoder.model.0.conv.conv", [32, 1, 7], 32)
    for at, width, kernel in ((3, 32, 4), (6, 64, 8), (9, 128, 10), (12, 256, 16)):
        residual(f"encoder.model.{at - 2}", width)
        conv(f"encoder.model.{at}.conv.conv", [2 * width, width, kernel], 2 * width)
    lstm("encoder.model.13")
    conv("encoder.model.15.conv.conv", [128, 512, 7], 128)
    for q in range(32):
        at = f"quantizer.vq.layers.{q}._codebook"
        shapes[f"{at}.inited"] = [1]
        shapes[f"{at}.cluster_size"] = [1024]
        shapes[f"{at}.embed"] = shapes[f"{at}.embed_avg"] = [1024, 128]
    conv("decoder.model.0.conv.conv", [512, 128, 7], 512)
    lstm("decoder.model.1")
    for at, width, kernel in ((3, 512, 16), (6, 256, 10), (9, 128, 8), (12, 64, 4)):
        conv(f"decoder.model.{at}.convtr.convtr", [width, width // 2, kernel], width // 2)
        residual(f"decoder.model.{at + 1}", width // 2)
    conv("decoder.model.15.conv.conv", [1, 32, 7], 1)
    return shapes


def encodec_transformers() -> Shapes:
    """model.safetensors of facebook/encodec_24khz: saved with the old names of weight norm."""
    parametrized = from_transformers("EncodecModel", "EncodecConfig")
    old = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
    renamed = {}
    for name, shape in parametrized.items():
        for new, before in old.items():
            name = name.replace(new, before)
        renamed[name] = shape
    return renamed


def vocos_charactr() -> Shapes:
    """pytorch_model.bin of charactr/vocos-encodec-24khz."""
    shapes: Shapes = {
        "feature_extractor.codebook_weights": [16384, 128],
        "backbone.embed.weight": [384, 128, 7],
        "backbone.embed.bias": [384],
        "backbone.norm.scale.weight": [4, 384],
        "backbone.norm.shift.weight": [4, 384],
    }
    for i in range(8):
        at = f"backbone.convnext.{i}"
        shapes[f"{at}.gamma"] = shapes[f"{at}.dwconv.bias"] = shapes[f"{at}.pwconv2.bias"] = [384]
        shapes[f"{at}.dwconv.weight"] = [384, 1, 7]
        shapes[f"{at}.norm.scale.weight"] = shapes[f"{at}.norm.shift.weight"] = [4, 384]
        shapes[f"{at}.pwconv1.weight"], shapes[f"{at}.pwconv1.bias"] = [1152, 384], [1152]
        shapes[f"{at}.pwconv2.weight"] = [384, 1152]
    shapes["backbone.final_layer_norm.weight"] = shapes["backbone.final_layer_norm.bias"] = [384]
    shapes["head.out.weight"], shapes["head.out.bias"] = [1282, 384], [1282]
    shapes["head.istft.window"] = [1280]
    return shapes


def from_transformers(model_class: str, config_class: str) -> Shapes:
    """What transformers' module of the default (full) size would save."""
    import torch
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, model_class)(getattr(transformers, config_class)())
    return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}


if __name__ == "__main__":
    lists = {
        "dia_nari": dia_nari(),
        "dia_transformers": from_transformers("DiaForConditionalGeneration", "DiaConfig"),
        "dac_descript": dac_descript(("weight_g", "weight_v")),
        "dac_descript_parametrized": dac_descript(
            ("parametrizations.weight.original0", "parametrizations.weight.original1")
        ),
        "dac_transformers": from_transformers("DacModel", "DacConfig"),
        "encodec_facebook": encodec_facebook(),
        "encodec_transformers": encodec_transformers(),
        "encodec_transformers_parametrized": from_transformers("EncodecModel", "EncodecConfig"),
        "vocos_charactr": vocos_charactr(),
    }
    for name, shapes in lists.items():
        lines = ",\n".join(
            f" {json.dumps(key)}: {json.dumps(shape)}" for key, shape in sorted(shapes.items())
        )
        Path(__file__).with_name(f"{name}.json").write_text(f"{{\n{lines}\n}}\n")
        print(name, len(shapes))
