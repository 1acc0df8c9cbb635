"""Write the lists of names and shapes of the full-size published checkpoints, beside this file.

Independent of converters/maps: the nari, descript, facebook, kyutai and charactr lists, and Mimi's, follow
the tables of the published files, the transformers lists come from transformers' own modules on the meta
device (transformers 5.23).

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


def dia2(layers: int, width: int, depformer_layers: int, sets: int) -> Shapes:
    """nari-labs/Dia2-1B and Dia2-2B; sets: of the weights that a schedule gives to the stages."""
    shapes: Shapes = {f"transformer.audio_embeds.{stream}.weight": [2050, width] for stream in range(32)}
    shapes["transformer.text_embed.embedding.weight"] = [49280, width]
    for name in ("main_proj", "second_proj"):
        shapes[f"transformer.text_embed.{name}.weight"] = [width, width]
    for i in range(layers):
        at = f"transformer.layers.{i}"
        shapes[f"{at}.pre_norm.weight"] = shapes[f"{at}.post_norm.weight"] = [width]
        shapes[f"{at}.attn.q_proj.weight"], shapes[f"{at}.attn.o_proj.weight"] = [2048, width], [width, 2048]
        shapes[f"{at}.attn.k_proj.weight"] = shapes[f"{at}.attn.v_proj.weight"] = [1024, width]
        shapes[f"{at}.attn.q_norm.weight"] = shapes[f"{at}.attn.k_norm.weight"] = [128]
        shapes[f"{at}.mlp.wi.weight"], shapes[f"{at}.mlp.wo.weight"] = [12288, width], [width, 6144]
    shapes["transformer.norm.weight"] = [width]
    shapes["transformer.action_head.weight"] = [2, width]
    shapes["transformer.cb0_head.weight"] = [2050, width]
    for stage in range(31):
        shapes[f"depformer.audio_embeds.{stage}.weight"] = [2050, 1024]
        shapes[f"depformer.logits.{stage}.weight"] = [2050, 1024]
    for number in range(sets):
        shapes[f"depformer.depformer_in.{number}.weight"] = [1024, width]
    for i in range(depformer_layers):
        at = f"depformer.layers.{i}"
        shapes[f"{at}.pre_norm.weight"] = shapes[f"{at}.post_norm.weight"] = [1024]
        for number in range(sets):
            shapes[f"{at}.self_attention.in_proj.{number}.weight"] = [3072, 1024]
            shapes[f"{at}.self_attention.out_proj.{number}.weight"] = [1024, 1024]
        for name in ("q_norm", "k_norm"):
            shapes[f"{at}.self_attention.{name}.weight"] = [128]
        shapes[f"{at}.mlp.wi.weight"], shapes[f"{at}.mlp.wo.weight"] = [6144, 1024], [1024, 3072]
    return shapes | {"depformer.norm.weight": [1024]}


def qwen3(width: int, inner: int, encoder: bool) -> Shapes:
    """Qwen/Qwen3-TTS-12Hz-0.6B and -1.7B. encoder: Base, with its speaker encoder."""
    shapes: Shapes = {
        "talker.model.text_embedding.weight": [151936, 2048],
        "talker.model.codec_embedding.weight": [3072, width],
        "talker.text_projection.linear_fc1.weight": [2048, 2048],
        "talker.text_projection.linear_fc1.bias": [2048],
        "talker.text_projection.linear_fc2.weight": [width, 2048],
        "talker.text_projection.linear_fc2.bias": [width],
        "talker.codec_head.weight": [3072, width],
    }
    stacks = ("talker.model", 28, width, inner), ("talker.code_predictor.model", 5, 1024, 3072)
    for part, layers, wide, gate in stacks:
        for i in range(layers):
            at = f"{part}.layers.{i}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                shapes[f"{at}.{norm}.weight"] = [wide]
            for p, rows in (("q", 2048), ("k", 1024), ("v", 1024)):
                shapes[f"{at}.self_attn.{p}_proj.weight"] = [rows, wide]
            shapes[f"{at}.self_attn.o_proj.weight"] = [wide, 2048]
            for norm in ("q_norm", "k_norm"):
                shapes[f"{at}.self_attn.{norm}.weight"] = [128]
            shapes[f"{at}.mlp.gate_proj.weight"] = shapes[f"{at}.mlp.up_proj.weight"] = [gate, wide]
            shapes[f"{at}.mlp.down_proj.weight"] = [wide, gate]
        shapes[f"{part}.norm.weight"] = [wide]
    at = "talker.code_predictor"
    for q in range(15):
        shapes[f"{at}.model.codec_embedding.{q}.weight"] = [2048, width]
        shapes[f"{at}.lm_head.{q}.weight"] = [2048, 1024]
    if width != 1024:
        shapes[f"{at}.small_to_mtp_projection.weight"] = [1024, width]
        shapes[f"{at}.small_to_mtp_projection.bias"] = [1024]
    return shapes | (qwen3_speaker(width) if encoder else {})


def qwen3_speaker(width: int) -> Shapes:
    """The speaker encoder of Qwen3-TTS's Base."""
    shapes: Shapes = {}

    def conv(at: str, *weight: int) -> None:
        shapes[f"speaker_encoder.{at}.weight"] = list(weight)
        shapes[f"speaker_encoder.{at}.bias"] = [weight[0]]

    conv("blocks.0.conv", 512, 128, 5)
    for i in (1, 2, 3):
        for name in ("tdnn1", "tdnn2"):
            conv(f"blocks.{i}.{name}.conv", 512, 512, 1)
        for j in range(7):
            conv(f"blocks.{i}.res2net_block.blocks.{j}.conv", 64, 64, 3)
        conv(f"blocks.{i}.se_block.conv1", 128, 512, 1)
        conv(f"blocks.{i}.se_block.conv2", 512, 128, 1)
    conv("mfa.conv", 1536, 1536, 1)
    conv("asp.tdnn.conv", 128, 4608, 1)
    conv("asp.conv", 1536, 128, 1)
    conv("fc", width, 3072, 1)
    return shapes


def qwen3_codec() -> Shapes:
    """speech_tokenizer/model.safetensors: Mimi's encoder in transformers' names, and a decoder of its own."""
    parts = ("encoder.", "encoder_transformer.", "downsample.", "quantizer.")
    mimi = mimi_transformers()
    shapes: Shapes = {f"encoder.{name}": shape for name, shape in mimi.items() if name.startswith(parts)}

    def layer(at: str, *weight: int, out: int | None = None) -> None:
        shapes[f"decoder.{at}.weight"] = list(weight)
        shapes[f"decoder.{at}.bias"] = [weight[0] if out is None else out]

    def snake(at: str, width: int) -> None:
        shapes[f"decoder.{at}.alpha"] = shapes[f"decoder.{at}.beta"] = [width]

    for half, count in (("first", 1), ("rest", 15)):
        at = f"decoder.quantizer.rvq_{half}"
        shapes[f"{at}.input_proj.weight"], shapes[f"{at}.output_proj.weight"] = [256, 512, 1], [512, 256, 1]
        for q in range(count):
            book = f"{at}.vq.layers.{q}._codebook"
            shapes[f"{book}.embedding_sum"], shapes[f"{book}.cluster_usage"] = [2048, 256], [2048]
    layer("pre_conv.conv", 1024, 512, 3)
    layer("pre_transformer.input_proj", 512, 1024)
    layer("pre_transformer.output_proj", 1024, 512)
    shapes["decoder.pre_transformer.norm.weight"] = [512]
    for i in range(8):
        at = f"decoder.pre_transformer.layers.{i}"
        for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
            shapes[f"{at}.{name}"] = [512]
        for name in ("self_attn", "mlp"):
            shapes[f"{at}.{name}_layer_scale.scale"] = [512]
        for p in "qkv":
            shapes[f"{at}.self_attn.{p}_proj.weight"] = [1024, 512]
        shapes[f"{at}.self_attn.o_proj.weight"] = [512, 1024]
        shapes[f"{at}.mlp.gate_proj.weight"] = shapes[f"{at}.mlp.up_proj.weight"] = [1024, 512]
        shapes[f"{at}.mlp.down_proj.weight"] = [512, 1024]
    for i in (0, 1):
        layer(f"upsample.{i}.0.conv", 1024, 1024, 2)
        layer(f"upsample.{i}.1.dwconv.conv", 1024, 1, 7)
        layer(f"upsample.{i}.1.norm", 1024)
        layer(f"upsample.{i}.1.pwconv1", 4096, 1024)
        layer(f"upsample.{i}.1.pwconv2", 1024, 4096)
        shapes[f"decoder.upsample.{i}.1.gamma"] = [1024]
    layer("decoder.0.conv", 1536, 1024, 7)
    for block, (width, rate) in enumerate(((1536, 8), (768, 5), (384, 4), (192, 3)), 1):
        half = width // 2
        snake(f"decoder.{block}.block.0", width)
        layer(f"decoder.{block}.block.1.conv", width, half, 2 * rate, out=half)
        for unit in (2, 3, 4):
            at = f"decoder.{block}.block.{unit}"
            snake(f"{at}.act1", half)
            snake(f"{at}.act2", half)
            layer(f"{at}.conv1.conv", half, half, 7)
            layer(f"{at}.conv2.conv", half, half, 1)
    snake("decoder.5", 96)
    layer("decoder.6.conv", 1, 96, 7)
    return shapes


def dac_descript(names: tuple[str, str]) -> Shapes:
    """weights_44khz_8kbps_0.0.1.pth. names: of the gain and the direction of weight norm."""
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


def mimi_transformers() -> Shapes:
    """kyutai/mimi: the flat names of the published file; transformers 5 nests them in memory."""
    shapes: Shapes = {}
    for side in ("encoder", "decoder"):
        for at, weight, out in mimi_convolutions(side):
            shapes[f"{side}.layers.{at}.conv.weight"], shapes[f"{side}.layers.{at}.conv.bias"] = weight, [out]
        for i in range(8):
            at = f"{side}_transformer.layers.{i}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                shapes[f"{at}.{norm}.weight"] = shapes[f"{at}.{norm}.bias"] = [512]
            for p in "qkvo":
                shapes[f"{at}.self_attn.{p}_proj.weight"] = [512, 512]
            shapes[f"{at}.mlp.fc1.weight"], shapes[f"{at}.mlp.fc2.weight"] = [2048, 512], [512, 2048]
            shapes[f"{at}.self_attn_layer_scale.scale"] = shapes[f"{at}.mlp_layer_scale.scale"] = [512]
    shapes["downsample.conv.weight"], shapes["upsample.conv.weight"] = [512, 512, 4], [512, 1, 4]
    for half, count in (("semantic", 1), ("acoustic", 31)):
        at = f"quantizer.{half}_residual_vector_quantizer"
        shapes[f"{at}.input_proj.weight"], shapes[f"{at}.output_proj.weight"] = [256, 512, 1], [512, 256, 1]
        for q in range(count):
            shapes[f"{at}.layers.{q}.codebook.embed_sum"] = [2048, 256]
            shapes[f"{at}.layers.{q}.codebook.cluster_usage"] = [2048]
            shapes[f"{at}.layers.{q}.codebook.initialized"] = [1]
    return shapes


def mimi_kyutai() -> Shapes:
    """tokenizer-e351c8d8-checkpoint125.safetensors of kyutai's own repositories."""
    shapes: Shapes = {}
    for side in ("encoder", "decoder"):
        for at, weight, out in mimi_convolutions(side):
            transposed = side == "decoder" and at in ("2", "5", "8", "11")
            name = f"{side}.model.{at}.{'convtr.convtr' if transposed else 'conv.conv'}"
            shapes[f"{name}.weight"], shapes[f"{name}.bias"] = weight, [out]
        for i in range(8):
            at = f"{side}_transformer.transformer.layers.{i}"
            for norm in ("norm1", "norm2"):
                shapes[f"{at}.{norm}.weight"] = shapes[f"{at}.{norm}.bias"] = [512]
            shapes[f"{at}.self_attn.in_proj_weight"] = [1536, 512]
            shapes[f"{at}.self_attn.out_proj.weight"] = [512, 512]
            shapes[f"{at}.linear1.weight"], shapes[f"{at}.linear2.weight"] = [2048, 512], [512, 2048]
            shapes[f"{at}.layer_scale_1.scale"] = shapes[f"{at}.layer_scale_2.scale"] = [512]
    shapes["downsample.conv.conv.conv.weight"] = [512, 512, 4]
    shapes["upsample.convtr.convtr.convtr.weight"] = [512, 1, 4]
    for half, count in (("first", 1), ("rest", 31)):
        at = f"quantizer.rvq_{half}"
        shapes[f"{at}.input_proj.weight"], shapes[f"{at}.output_proj.weight"] = [256, 512, 1], [512, 256, 1]
        for q in range(count):
            book = f"{at}.vq.layers.{q}._codebook"
            shapes[f"{book}.embedding_sum"], shapes[f"{book}.cluster_usage"] = [2048, 256], [2048]
            shapes[f"{book}._initialized"] = [1]
    return shapes


def mimi_convolutions(side: str) -> list[tuple[str, list[int], int]]:
    """Place, weight and outputs of every convolution of Mimi's encoder or decoder."""
    sizes = ((64, 4), (128, 5), (256, 6), (512, 8))
    if side == "encoder":
        found = [("0", [64, 1, 7], 64)]
        for i, (width, stride) in enumerate(sizes):
            found += mimi_block(1 + 3 * i, width)
            found.append((f"{3 + 3 * i}", [2 * width, width, 2 * stride], 2 * width))
        return [*found, ("14", [512, 1024, 3], 512)]
    found = [("0", [1024, 512, 7], 1024)]
    for i, (width, stride) in enumerate(reversed(sizes)):
        found.append((f"{2 + 3 * i}", [2 * width, width, 2 * stride], width))
        found += mimi_block(3 + 3 * i, width)
    return [*found, ("14", [1, 64, 3], 1)]


def mimi_block(at: int, width: int) -> list[tuple[str, list[int], int]]:
    """Both convolutions of a residual block of Mimi."""
    half = width // 2
    return [(f"{at}.block.1", [half, width, 3], half), (f"{at}.block.3", [width, half, 1], width)]


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


def multi_band_diffusion() -> Shapes:
    """mbd_comp_8.pt, with sizes derived from its length; names are paths. Bands 2 and 3 are processed."""
    shapes: Shapes = {}

    def norm(at: str, width: int) -> None:
        shapes[f"{at}.weight"] = shapes[f"{at}.bias"] = [width]

    def blocks(at: str, width: int) -> None:
        for block in (0, 1):
            for half in (1, 2):
                norm(f"{at}.res_blocks.{block}.norm{half}", width)
                shapes[f"{at}.res_blocks.{block}.conv{half}.weight"] = [width, width, 3]
                shapes[f"{at}.res_blocks.{block}.conv{half}.bias"] = [width]

    for band in range(4):
        at = f"{band}.model_state"
        for level, (into, width) in enumerate(((1, 48), (48, 192), (192, 768), (768, 3072))):
            shapes[f"{at}.encoders.{level}.conv.weight"] = [width, into, 8]
            shapes[f"{at}.decoders.{3 - level}.convtr.weight"] = [width, into, 8]
            for part in (f"encoders.{level}", f"decoders.{3 - level}"):
                norm(f"{at}.{part}.norm", width)
                blocks(f"{at}.{part}", width)
            table = f"embeddings.{level - 1}" if level else "embedding"
            shapes[f"{at}.{table}.weight"] = [1000, width]
        shapes[f"{at}.conv_codec.weight"], shapes[f"{at}.conv_codec.bias"] = [3072, 128, 1], [3072]
        if band >= 2:
            at = f"{band}.processor_state"
            shapes[f"{at}.counts"] = [1]
            shapes[f"{at}.sum_x"] = shapes[f"{at}.sum_x2"] = shapes[f"{at}.sum_target_x2"] = [8]
            shapes[f"{at}.split_bands.lowpass.filters"] = [7, 1, 629]
    return shapes


def mars5_ar() -> Shapes:
    """mars5_en_checkpoints_ar-3000000; 2,050 text and 6,146 speech ids replace the file's own numbers."""
    shapes: Shapes = {"embed.weight": [8196, 1536], "ar.output.weight": [8196, 1536]}
    for i in range(26):
        at = f"ar.layers.{i}"
        for name in ("wq", "wk", "wv", "wo"):
            shapes[f"{at}.attention.{name}.weight"] = [1536, 1536]
        shapes[f"{at}.feed_forward.w1.weight"] = shapes[f"{at}.feed_forward.w3.weight"] = [3584, 1536]
        shapes[f"{at}.feed_forward.w2.weight"] = [1536, 3584]
        shapes[f"{at}.attention_norm.weight"] = shapes[f"{at}.ffn_norm.weight"] = [1536]
    shapes["ar.norm.weight"] = [1536]
    shapes["pos_embedding.alpha"] = [1]
    for q in range(8):
        shapes[f"ref_chunked_emb.embs.{q}.weight"] = [1025, 192]
    shapes["spk_identity_emb.weight"] = [1, 1536]
    return shapes | mars5_layers("spk_encoder", 2, 1536)


def mars5_nar() -> Shapes:
    """mars5_en_checkpoints_nar-1980000; 2,050 text ids replace the file's own number."""
    shapes: Shapes = {f"{kind}pos_embedding.alpha": [1] for kind in ("", "cond_", "ref_")}
    shapes |= mars5_layers("tfm.encoder", 8, 1024)
    shapes |= mars5_layers("tfm.decoder", 16, 1024, cross=True)
    shapes |= mars5_layers("spk_encoder", 3, 1024)
    for side in ("encoder", "decoder"):
        for i in (0, 2):
            shapes[f"timestep_{side}_emb.{i}.weight"] = [1024, 1024]
            shapes[f"timestep_{side}_emb.{i}.bias"] = [1024]
    shapes["text_embed.weight"] = [2051, 1024]
    shapes["spk_identity_emb.weight"] = [1, 1024]
    for q in range(8):
        shapes[f"ref_embedder.embs.{q}.weight"] = shapes[f"residual_encoder.embs.{q}.weight"] = [1025, 128]
        shapes[f"residual_decoder.{q}.0.weight"] = shapes[f"residual_decoder.{q}.0.bias"] = [1024]
        shapes[f"residual_decoder.{q}.1.weight"] = [1025, 1024]
        shapes[f"residual_decoder.{q}.1.bias"] = [1025]
    return shapes


def mars5_layers(at: str, count: int, width: int, *, cross: bool = False) -> Shapes:
    """A transformer's layers and last norm, gated feed-forwards three times as wide."""
    shapes: Shapes = {f"{at}.norm.weight": [width], f"{at}.norm.bias": [width]}
    for i in range(count):
        layer = f"{at}.layers.{i}"
        for attention in ("self_attn", "multihead_attn")[: 1 + cross]:
            shapes[f"{layer}.{attention}.in_proj_weight"] = [3 * width, width]
            shapes[f"{layer}.{attention}.in_proj_bias"] = [3 * width]
            shapes[f"{layer}.{attention}.out_proj.weight"] = [width, width]
            shapes[f"{layer}.{attention}.out_proj.bias"] = [width]
        shapes[f"{layer}.linear2.weight"] = [width, 3 * width]
        shapes[f"{layer}.linear2.bias"] = [width]
        for gate in "VW":
            shapes[f"{layer}.activation.{gate}.weight"] = [3 * width, width]
        for norm in ("norm1", "norm2", "norm3")[: 2 + cross]:
            shapes[f"{layer}.{norm}.weight"] = shapes[f"{layer}.{norm}.bias"] = [width]
    return shapes


def metavoice_first_stage() -> Shapes:
    """first_stage.pt of metavoiceio/metavoice-1B-v0.1, its entry `model`."""
    shapes: Shapes = {
        "transformer.wtes.0.weight": [2562, 2048],
        "transformer.wpe.weight": [2048, 2048],
        "transformer.ln_f.weight": [2048],
        "speaker_cond_pos.weight": [2048, 256],
        "lm_heads.0.weight": [2562, 2048],
    }
    for i in range(24):
        at = f"transformer.h.{i}"
        shapes[f"{at}.ln_1.weight"] = shapes[f"{at}.ln_2.weight"] = [2048]
        shapes[f"{at}.attn.c_attn.weight"] = [6144, 2048]
        shapes[f"{at}.attn.c_proj.weight"] = [2048, 2048]
        shapes[f"{at}.mlp.swiglu.w1.weight"] = shapes[f"{at}.mlp.swiglu.w3.weight"] = [5632, 2048]
        shapes[f"{at}.mlp.c_proj.weight"] = [2048, 5632]
    return shapes


def metavoice_second_stage() -> Shapes:
    """second_stage.pt of metavoiceio/metavoice-1B-v0.1, its entry `model`."""
    shapes: Shapes = {
        "transformer.wtes.0.weight": [1538, 384],
        "transformer.wtes.1.weight": [1025, 384],
        "transformer.wpe.weight": [1024, 384],
        "transformer.ln_f.weight": [384],
        "speaker_cond_pos.weight": [384, 256],
    }
    for i in range(6):
        at = f"transformer.h.{i}"
        shapes[f"{at}.ln_1.weight"] = shapes[f"{at}.ln_2.weight"] = [384]
        shapes[f"{at}.attn.c_attn.weight"] = [1152, 384]
        shapes[f"{at}.attn.c_proj.weight"] = [384, 384]
        shapes[f"{at}.mlp.c_fc.weight"] = [1536, 384]
        shapes[f"{at}.mlp.c_proj.weight"] = [384, 1536]
        shapes[f"lm_heads.{i}.weight"] = [1025, 384]
    return shapes


def metavoice_speaker_encoder() -> Shapes:
    """speaker_encoder.pt of metavoiceio/metavoice-1B-v0.1, its entry `model_state`."""
    shapes: Shapes = {"similarity_weight": [1], "similarity_bias": [1]}
    for i in range(3):
        shapes[f"lstm.weight_ih_l{i}"] = [1024, 256 if i else 40]
        shapes[f"lstm.weight_hh_l{i}"] = [1024, 256]
        shapes[f"lstm.bias_ih_l{i}"] = shapes[f"lstm.bias_hh_l{i}"] = [1024]
    return shapes | {"linear.weight": [256, 256], "linear.bias": [256]}


def from_transformers(model_class: str, config_class: str) -> Shapes:
    """Names and shapes that transformers' module of the default (full) size saves."""
    import torch
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, model_class)(getattr(transformers, config_class)())
    return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}


if __name__ == "__main__":
    lists = {
        "dia_nari": dia_nari(),
        "dia_transformers": from_transformers("DiaForConditionalGeneration", "DiaConfig"),
        "dia2_1b": dia2(30, 1024, 3, 3),
        "dia2_2b": dia2(28, 2048, 4, 5),
        "qwen3_0.6b_custom_voice": qwen3(1024, 3072, encoder=False),
        "qwen3_0.6b_base": qwen3(1024, 3072, encoder=True),
        "qwen3_1.7b_custom_voice": qwen3(2048, 6144, encoder=False),
        "qwen3_1.7b_base": qwen3(2048, 6144, encoder=True),
        "qwen3_codec": qwen3_codec(),
        "dac_descript": dac_descript(("weight_g", "weight_v")),
        "dac_descript_parametrized": dac_descript(
            ("parametrizations.weight.original0", "parametrizations.weight.original1")
        ),
        "dac_transformers": from_transformers("DacModel", "DacConfig"),
        "encodec_facebook": encodec_facebook(),
        "encodec_transformers": encodec_transformers(),
        "encodec_transformers_parametrized": from_transformers("EncodecModel", "EncodecConfig"),
        "mimi_transformers": mimi_transformers(),
        "mimi_kyutai": mimi_kyutai(),
        "vocos_charactr": vocos_charactr(),
        "mars5_ar": mars5_ar(),
        "mars5_nar": mars5_nar(),
        "metavoice_first_stage": metavoice_first_stage(),
        "metavoice_second_stage": metavoice_second_stage(),
        "metavoice_speaker_encoder": metavoice_speaker_encoder(),
        "multi_band_diffusion": multi_band_diffusion(),
    }
    for name, shapes in lists.items():
        lines = ",\n".join(
            f" {json.dumps(key)}: {json.dumps(shape)}" for key, shape in sorted(shapes.items())
        )
        Path(__file__).with_name(f"{name}.json").write_text(f"{{\n{lines}\n}}\n")
        print(name, len(shapes))
