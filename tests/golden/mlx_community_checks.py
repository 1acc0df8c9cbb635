"""Checks of MLX folders of Qwen3-TTS that mlx-audio wrote: MLX runs them as stored, PyTorch dequantized."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from tests.golden.bench import Bench, part_of
from tests.golden.cases import Case, Vectors
from tests.golden.codec_bench import CodecSide, codec_bench
from tests.golden.qwen3_bench import ModelSide, model_bench
from tts_core.qwen3 import speaker

MEL = 5e-2  # its own spectrogram differs by about 2e-2; the numbers that its network read are in.mel


@cache
def _on_mlx(folder: Path) -> dict[str, Any]:
    """Load both networks as `mlx_port.load` does."""
    from mlx_port.loading import open_networks

    return open_networks(folder, dtype="float32")


def check_folder(case: Case, side: str) -> None:
    """Check everything in a folder on one side."""
    vectors, model = case.vectors(), model_bench(side, case.folder)
    codec = codec_bench(side, "qwen3_codec", case.folder / "speech_tokenizer/model.safetensors")
    if side == "mlx":
        networks = _on_mlx(case.folder.resolve())
        model = Bench(ModelSide("mlx", networks["qwen3"]), model.torch32, model.torch64)
        codec = Bench(CodecSide("mlx", networks["qwen3_codec"]), codec.torch32, codec.torch64)
    config = model.side.network.config
    assert case.info["kind"] == f"mlx_audio_qwen3_{config.mode}"
    for name in ("text_embeds", "codec_embeds"):
        ids = vectors[f"in.{name.partition('_')[0]}_ids"]
        model.compare(f"{case}: {name}", vectors[f"out.{name}"], partial(_embeds, name=name, ids=ids))
    _check_frame(str(case), vectors, model)
    if config.speaker_encoder is not None:
        _check_speaker(str(case), vectors, model)
    _check_codec(str(case), vectors, codec)
    _check_weights(case, vectors, model.side)
    vectors.assert_all_read()


def check_dac(case: Case, side: str) -> None:
    """Check a DAC in mlx-audio's names and axes on one side, by its sound."""
    vectors, file = case.vectors(), case.folder / "model.safetensors"
    bench = codec_bench(side, "dac", file)
    codes = vectors["in.codes"]
    bench.compare(f"{case}: wav", vectors["out.wav"][..., 0], lambda each: each.decode(codes))
    vectors.assert_all_read()


def _embeds(side: ModelSide, name: str, ids: np.ndarray) -> np.ndarray:
    talker = side.network.talker
    with side.inference():
        embed = talker.embed_text if name == "text_embeds" else talker.model.codec_embedding
        return side.numpy(embed(side.array(ids.astype(np.int32))))


def _frame(side: ModelSide, vectors: Vectors) -> dict[str, np.ndarray]:
    """Read the inputs, then one more step, then the other codes of its frame."""
    talker, predictor = side.network.talker, side.network.talker.code_predictor
    inputs, step, frame = vectors["in.inputs"], vectors["in.step_inputs"], vectors["out.frame"]
    with side.inference():
        cache = talker.new_cache()
        hidden = talker(side.array(inputs), 0, cache)
        last = talker(side.array(step), inputs.shape[1], cache)
        stages, memory = [], predictor.new_cache()
        for stage in range(predictor.stages):
            embed = predictor.embed(stage - 1, side.array(frame[:, stage : stage + 1].astype(np.int32)))
            if stage == 0:
                first = talker.model.codec_embedding(side.array(frame[:, :1].astype(np.int32)))
                embed = side.array(np.concatenate([side.numpy(last), side.numpy(first)], axis=1))
            stages.append(side.numpy(predictor(stage, embed, memory)))
        return {
            "hidden": side.numpy(hidden),
            "logits": side.numpy(talker.logits(hidden)),
            "step_hidden": side.numpy(last),
            "step_logits": side.numpy(talker.logits(last)),
            "stage_logits": np.stack(stages, axis=1),
        }


def _check_frame(at: str, vectors: Vectors, model: Bench[ModelSide]) -> None:
    made = {id(each): _frame(each, vectors) for each in (model.side, model.torch32, model.torch64)}
    for name in made[id(model.side)]:
        golden = vectors[f"out.{name}"]
        model.compare(f"{at}: {name}", golden, lambda each, name=name: made[id(each)][name])
    own, codes = made[id(model.side)], model.side.network.config.codebook_size
    greedy = [own["step_logits"][0, 0, :codes].argmax(), *own["stage_logits"][0].argmax(-1)]
    np.testing.assert_array_equal(greedy, vectors["out.frame"][0], f"{at}: frame")


def _check_speaker(at: str, vectors: Vectors, model: Bench[ModelSide]) -> None:
    mel = vectors["in.mel"]
    own = speaker.mel(vectors["in.speaker_audio"], model.side.network.config.speaker_encoder)
    np.testing.assert_allclose(own, mel[0], rtol=0, atol=MEL, err_msg=f"{at}: mel")

    def embedding(side: ModelSide) -> np.ndarray:
        with side.inference():
            return side.numpy(side.network.speaker_encoder(side.array(mel)))

    model.compare(f"{at}: speaker_embedding", vectors["out.speaker_embedding"], embedding)


def _check_codec(at: str, vectors: Vectors, codec: Bench[CodecSide]) -> None:
    codes = vectors["in.dec_codes"].astype(np.int32)
    codec.compare(f"{at}: wav", vectors["out.wav"][:, 0], lambda each: each.decode(codes))
    heard = codec.side.encode(vectors["in.enc_audio"][:, 0])
    golden = vectors["out.enc_codes"][:, : heard.shape[1]]  # mlx-audio's are those of all books
    np.testing.assert_array_equal(heard, golden, f"{at}: enc_codes")


def _check_weights(case: Case, vectors: Vectors, side: ModelSide) -> None:
    """Compare the numbers of quantized layers, and the axes of a convolution."""
    part = part_of("qwen3", case.folder / "model.safetensors")
    for name in [name for name in vectors.names if name.startswith("weight.")]:
        key = f"{name.removeprefix('weight.').removesuffix('.weight')}.weight"
        own = part.read(key)
        own = own.transpose(0, 2, 1) if own.ndim == 3 else own
        np.testing.assert_allclose(own, vectors[name], rtol=1e-6, atol=1e-8, err_msg=f"{case}: {name}")
    quantized = {name.removesuffix(".weight") for name, move in part.moves.items() if len(move.sources) > 1}
    assert quantized == set(case.info["quantized_layers"])
    if side.kind == "mlx":
        from mlx.utils import tree_flatten

        parameters = cast(list[Any], tree_flatten(side.network.parameters()))
        held = {name.removesuffix(".scales") for name, _ in parameters if name.endswith(".scales")}
        assert held == quantized  # they run as they are stored
