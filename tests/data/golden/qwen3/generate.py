"""Generate golden vectors of Qwen3-TTS by its original code, in the form of this folder's README.

    python tests/data/golden/qwen3/generate.py CHECKOUT OUT [--seed N] [--only FOLDER,...]

CHECKOUT is QwenLM/Qwen3-TTS at 022e286b98fbec7e1e916cb940cdf532cd9f488e (Apache-2.0). It needs torch,
transformers 4.57.3, tokenizers 0.22.2, librosa 0.11.0, and the root of this repository on PYTHONPATH.

This folder is the template: OUT gets its configurations, tokenizers, calls and inputs, and the values that
the original computes from them. Without --seed OUT has the committed weights, and equals this folder up to
rounding. With --seed each row of a weight gets its numbers in another order, recordings and logits change,
and the runs draw from other seeds. If the two best candidates of a draw are then within 1e-4, choose another.

Differences from the original: torch.multinomial takes the Gumbel maximum of given numbers; sox, onnxruntime
and torchaudio, which only the codec at 25 Hz needs, are stand-ins.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from tts_core.nn.noise import HostNoise

HERE = Path(__file__).parent
COMMIT = "022e286b98fbec7e1e916cb940cdf532cd9f488e"
VERSIONS = ("torch", "numpy", "safetensors", "transformers", "tokenizers", "librosa")
RECORDING = {"feature_extractor_type": "EncodecFeatureExtractor", "feature_size": 1, "sampling_rate": 24000}
CLOSE = 1e-4  # of a draw's two best candidates
Tensors = dict[str, np.ndarray]
Info = dict[str, Any]


def array(x: torch.Tensor) -> np.ndarray:
    """Convert as the files have it: integers in 32 bits, everything else in float32."""
    kind = np.float32 if x.is_floating_point() else np.int32
    return np.ascontiguousarray(x.detach().numpy().astype(kind))


def lead(scores: torch.Tensor) -> torch.Tensor:
    """The best score minus the second. (..., V) → (...)."""
    best = scores.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]


def gumbel(uniform: torch.Tensor) -> torch.Tensor:
    return -torch.log(-torch.log(uniform))


@contextmanager
def listening(**modules: Any) -> Iterator[dict[str, list[Any]]]:
    """Keep the outputs of modules, call by call."""
    heard: dict[str, list[Any]] = {name: [] for name in modules}

    def keep(name: str, _: Any, __: Any, output: Any) -> None:
        heard[name].append(output[0] if isinstance(output, tuple) else output)

    hooks = [module.register_forward_hook(partial(keep, name)) for name, module in modules.items()]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


class Draws:
    """Whole runs of the talker: what it is given, what it computes, and draws from given numbers."""

    def __init__(self, model: Any, seeds: list[int] | None):
        self.talker, self.predictor = model.talker, model.talker.code_predictor
        config = model.config.talker_config
        self.count = (
            config.vocab_size + (config.num_code_groups - 1) * config.code_predictor_config.vocab_size
        )
        self.vocabulary, self.noise = config.vocab_size, None if seeds is None else [*map(HostNoise, seeds)]
        self.stages: list[Any] = []
        self.given: Info = {}
        self.result: Any = None
        self._stage: int | None = None
        self._plain = self.talker.generate, self.predictor.generate

    def uniform(self, step: int) -> torch.Tensor:
        """All numbers of a step. → (B, V + (G - 1) V')."""
        assert self.noise is not None
        rows = [np.asarray(noise.uniform(step, (self.count,)), np.float32) for noise in self.noise]
        return torch.from_numpy(np.stack(rows))

    def talk(self, **given: Any) -> Any:
        self.given, self.result = given, self._plain[0](**given, output_scores=True, output_logits=True)
        return self.result

    def predict(self, **given: Any) -> Any:
        self._stage = 0
        result = self._plain[1](**given, output_scores=True, output_logits=True)
        self.stages.append(result)
        self._stage = None
        return result

    def multinomial(self, p: torch.Tensor, num_samples: int) -> torch.Tensor:
        assert num_samples == 1
        numbers = self.uniform(len(self.stages))
        begin = 0 if self._stage is None else self.vocabulary + self._stage * p.shape[-1]
        if self._stage is not None:
            self._stage += 1
        return (p.log() + gumbel(numbers[:, begin : begin + p.shape[-1]])).argmax(-1, keepdim=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(self.talker, "generate", self.talk))
            stack.enter_context(mock.patch.object(self.predictor, "generate", self.predict))
            stack.enter_context(mock.patch.object(torch, "multinomial", self.multinomial))
            yield

    def tensors(self, full: bool) -> Tensors:
        """Everything of a run but layers, codes and sound."""
        result, given = self.result, self.given
        made = {"prompt": given["inputs_embeds"], "mask": given["attention_mask"]}
        made |= {"trailing": given["trailing_text_hidden"], "pad_embed": given["tts_pad_embed"].reshape(-1)}
        made |= {"code0": result.sequences}
        made["frames"] = torch.stack([kept[-1] for kept in result.hidden_states if kept[-1] is not None], 1)
        logits = torch.stack(result.logits, 1)
        stage_logits = torch.stack([torch.stack(each.logits, 1) for each in self.stages], 1)
        scores = torch.stack(result.scores, 1)
        stage_scores = torch.stack([torch.stack(each.scores, 1) for each in self.stages], 1)
        if self.noise is not None:
            made |= {"count0": scores.isfinite().sum(-1), "count": stage_scores.isfinite().sum(-1)}
            numbers = torch.stack([self.uniform(step) for step in range(scores.shape[1])], 1)
            own, others = numbers[..., : self.vocabulary], numbers[:, :-1, self.vocabulary :]
            scores = scores + gumbel(own)
            stage_scores = stage_scores + gumbel(others.reshape(stage_scores.shape))
            made |= {"uniform": numbers} if full else {}
        made |= {"margin0": lead(scores), "margin": lead(stage_scores)}
        if full:
            made["hidden"] = torch.cat([kept[0][-1][:, -1:] for kept in result.hidden_states], 1)
        last = slice(None) if full else slice(-4, None)
        made |= {"logits": logits[:, last], "stage_logits": stage_logits[:, last]}
        return {name: array(x) for name, x in made.items()}


def run(
    wrapper: Any, info: Info, references: dict[str, tuple[np.ndarray, int]], shift: int
) -> tuple[Info, Tensors]:
    """Make a call of the wrapper. info: the template's, without what is computed."""
    seeds = None if info["seeds"] is None else [seed + shift for seed in info["seeds"]]
    draws, model, asked = Draws(wrapper.model, seeds), wrapper.model, dict[str, Any]()
    plain = model.generate

    def generate(**given: Any) -> Any:
        asked.update(given)
        asked["codes"], hidden = plain(**given)
        return asked["codes"], hidden

    arguments = dict(info["args"])
    if "ref" in info:
        recordings = [references[name] for name in info["ref"]]
        arguments["ref_audio"] = recordings if isinstance(arguments["text"], list) else recordings[0]
    layers = {f"layer.{i}": layer for i, layer in enumerate(draws.talker.model.layers)}
    stages = {f"stage_layer.{i}": layer for i, layer in enumerate(draws.predictor.model.layers)}
    sampled = {"do_sample": info["sampled"], "subtalker_dosample": info["sampled"]}
    with (
        draws.running(),
        mock.patch.object(model, "generate", generate),
        listening(**layers, **stages) as heard,
    ):
        waves, rate = getattr(wrapper, info["call"])(**arguments, **sampled)
    tensors = draws.tensors(info["full"])
    if info["full"]:
        positions = tensors["frames"].shape[-1] - 1  # calls of a frame: two positions, then one at a time
        tensors |= {name: array(heard[name][0]) for name in layers}
        tensors |= {name: array(torch.cat(heard[name][:positions], 1)) for name in stages}
    for b, (codes, wave) in enumerate(zip(asked["codes"], waves, strict=True)):
        tensors |= {f"codes.{b}": array(codes), f"wav.{b}": np.asarray(wave, np.float32)}
    end = draws.given["eos_token_id"]

    def ids(name: str) -> list[Any]:
        return [None if each is None else each[0].tolist() for each in asked.get(name) or []]

    settings = [name for name in info["settings"] if name in draws.given]
    made = info | {
        "seeds": seeds,
        "sample_rate": rate,
        **{name: ids(name) for name in ("input_ids", "instruct_ids", "ref_ids") if name in info},
        "frames": [len(codes) for codes in asked["codes"]],
        "samples": [len(wave) for wave in waves],
        "tokens": tensors["code0"].shape[1],
        "settings": {name: draws.given[name] for name in settings},
        "min_margin0": float(tensors["margin0"].min()),
        "min_margin": float(tensors["margin"].min()),
        "ended": [bool((row == end).any()) for row in tensors["code0"]],
    }
    if shift and min(made["min_margin0"], made["min_margin"]) < CLOSE:
        raise SystemExit(f"{info['name']}: two candidates are within {CLOSE}; choose another --seed")
    return made, {f"{info['name']}.{name}": x for name, x in tensors.items()}


def reference(wrapper: Any, name: str, audio: np.ndarray, rate: int, template: Tensors) -> Tensors:
    """A recording: codes, mel, speaker vector, and the encoder's stages where the template has them."""
    import librosa

    encoder, heard = wrapper.model.speaker_encoder, audio
    made = {"audio": audio}
    if rate != wrapper.model.speaker_encoder_sample_rate:
        heard = librosa.resample(y=audio, orig_sr=rate, target_sr=wrapper.model.speaker_encoder_sample_rate)
        made["resampled"] = heard
    stages = {f"block.{i}": block for i, block in enumerate(encoder.blocks)}
    stages |= {"mfa": encoder.mfa, "asp": encoder.asp}
    stages = {stage: module for stage, module in stages.items() if f"ref.{name}.{stage}" in template}
    mels: list[torch.Tensor] = []
    hook = encoder.register_forward_pre_hook(lambda _, given: mels.append(given[0]))
    with listening(**stages) as found:
        vector = wrapper.model.extract_speaker_embedding(audio=heard, sr=24000)
    hook.remove()
    made |= {stage: array(outputs[0][0]) for stage, outputs in found.items()}
    codes = wrapper.model.speech_tokenizer.encode(audio, sr=rate).audio_codes[0]
    made |= {"codes": array(codes), "mel": array(mels[0][0]), "embedding": array(vector)}
    return {f"ref.{name}.{part}": x for part, x in made.items()}


def checkpoint(folder: Path, info: Info, template: Tensors, shift: int, vary: Callable[..., Any]) -> Tensors:
    from qwen_tts import Qwen3TTSModel

    (folder / "speech_tokenizer/preprocessor_config.json").write_text(json.dumps(RECORDING))
    wrapper = Qwen3TTSModel.from_pretrained(str(folder), dtype=torch.float32, attn_implementation="eager")
    made: Tensors = {}
    references = {}
    for name, rate in info.get("ref_rates", {}).items():
        references[name] = vary(template[f"ref.{name}.audio"]), rate
        made |= reference(wrapper, name, *references[name], template)
    for i, each in enumerate(info["runs"]):
        info["runs"][i], found = run(wrapper, each, references, shift)
        made |= found
    if "cuts" in info:  # as the wrapper cuts a recording off its continuation
        info["cuts"] = [[a, b, n, int(a / max(b, 1) * n)] for a, b, n, _ in info["cuts"]]
    return made


def encoded(model: Any, clips: list[np.ndarray]) -> list[np.ndarray]:
    """Encode clips as one batch, padded with zeros. → (T, Q) each."""
    longest = max(map(len, clips))
    padded = torch.from_numpy(np.stack([np.pad(clip, (0, longest - len(clip))) for clip in clips]))
    mask = torch.tensor([[1] * len(clip) + [0] * (longest - len(clip)) for clip in clips])
    return [array(codes) for codes in model.encode(padded, mask, return_dict=True).audio_codes]


def codec(folder: Path, info: Info, template: Tensors, vary: Callable[..., Any]) -> Tensors:
    from qwen_tts.core import Qwen3TTSTokenizerV2Model

    model: Any = Qwen3TTSTokenizerV2Model.from_pretrained(folder, dtype=torch.float32).eval()
    encoder, decoder, made = model.encoder, model.decoder, dict[str, np.ndarray]()
    parts = {
        "seanet": encoder.encoder,
        "transformer": encoder.encoder_transformer,
        "latents": encoder.downsample,
    }
    plain = torch.cdist
    for i in range(info["encodings"]):
        name, distances = f"enc.{i}", list[torch.Tensor]()
        made[f"{name}.audio"] = vary(template[f"{name}.audio"])

        def cdist(*given: Any, distances: list[torch.Tensor] = distances, **how: Any) -> torch.Tensor:
            distances.append(plain(*given, **how))
            return distances[-1]

        with mock.patch.object(torch, "cdist", cdist), listening(**parts) as heard:
            [made[f"{name}.codes"]] = encoded(model, [made[f"{name}.audio"]])
        books = made[f"{name}.codes"].shape[1]
        made[f"{name}.margin"] = array(
            torch.stack([lead(-x.reshape(-1, x.shape[-1])) for x in distances[:books]])
        )
        for part, [output] in heard.items():
            if f"{name}.{part}" in template:
                x = output.last_hidden_state.swapaxes(1, 2) if part == "transformer" else output
                made[f"{name}.{part}"] = array(x)
    clips = [vary(template[f"batch.{i}.audio"]) for i in range(info["batch"])]
    for i, (clip, together) in enumerate(zip(clips, encoded(model, clips), strict=True)):
        [alone] = encoded(model, [clip])
        made |= {f"batch.{i}.audio": clip, f"batch.{i}.codes": together, f"batch.{i}.alone": alone}
    codes = torch.from_numpy(vary(template["dec.codes"])).long()
    modules = {f"dec.layer.{i}": layer for i, layer in enumerate(decoder.pre_transformer.layers)}
    modules |= {f"dec.upsample.{i}": blocks[-1] for i, blocks in enumerate(decoder.upsample)}
    modules |= {f"dec.stage.{i}": block for i, block in enumerate(decoder.decoder)}
    modules |= {"dec.pre_conv": decoder.pre_conv, "dec.transformer": decoder.pre_transformer}
    with listening(**{name: module for name, module in modules.items() if name in template}) as heard:
        made |= {"dec.codes": array(codes), "dec.wav": array(decoder(codes))}
    made["dec.quantized"] = array(decoder.quantizer.decode(codes))
    made |= {name: array(getattr(x, "last_hidden_state", x)) for name, [x] in heard.items()}
    for i, (size, context) in enumerate(info["split"]):
        made[f"chunk.{i}.wav"] = array(decoder.chunked_decode(codes, size, context))
    frames = len(template["pad.1.wav"]) // info["hop"]
    both = torch.full((2, codes.shape[2], codes.shape[1]), -1)
    both[0], both[1, :frames] = codes[0].T, codes[0, :, :frames].T.flip(1)
    made |= {
        f"pad.{i}.wav": array(x) for i, x in enumerate(model.decode(both, return_dict=True).audio_values)
    }
    info["min_margin"] = float(min(x.min() for name, x in made.items() if name.endswith(".margin")))
    info["clamped"] = float((np.abs(made["dec.wav"]) == 1).mean())
    if "long" in info:
        made |= long(model, info, torch.from_numpy(vary(template["long.codes"])).long())
    return made


def long(model: Any, info: Info, codes: torch.Tensor) -> Tensors:
    """More frames than a piece of the original."""
    [wave] = model.decode(codes.swapaxes(1, 2), return_dict=True).audio_values
    whole, border = model.decoder(codes).reshape(-1), info["long"]["chunk"] * info["hop"]
    apart = (whole - wave).abs()
    info["long"] |= {
        "difference_to_whole": float(apart.max()),
        "first_300_equal": float(apart[:border].max()),
    }
    return {"long.codes": array(codes), "long.wav": array(wave), "long.whole_tail": array(whole[border:])}


def sampler(folder: Path, info: Info, template: Tensors, vary: Callable[..., Any]) -> Tensors:
    filters, made = importlib.import_module("transformers.generation.logits_process"), dict[str, np.ndarray]()
    first, last = info["suppressed"]
    suppressed = [i for i in range(first, last) if i != info["eos"]]
    for i, each in enumerate(info["cases"]):
        arguments = {
            "RepetitionPenaltyLogitsProcessor": (each.get("repetition_penalty"),),
            "MinNewTokensLengthLogitsProcessor": (0, 2, info["eos"]),
            "SuppressTokensLogitsProcessor": (suppressed,),
            "TemperatureLogitsWarper": (each["temperature"],),
            "TopKLogitsWarper": (each["top_k"],),
            "TopPLogitsWarper": (each["top_p"],),
        }
        logits, history = vary(template[f"{i}.logits"]), template[f"{i}.history"]
        scores: Any = torch.from_numpy(logits)
        for name in each["processors"]:
            scores = getattr(filters, name)(*arguments[name])(torch.from_numpy(history).long(), scores)
        made |= {f"{i}.logits": logits, f"{i}.history": history, f"{i}.scores": array(scores)}
        each["count"], drawn = scores.isfinite().sum(-1).tolist(), scores
        if each["do_sample"]:
            made[f"{i}.uniform"] = template[f"{i}.uniform"]
            drawn = scores.softmax(-1).log() + gumbel(torch.from_numpy(made[f"{i}.uniform"]))
        each["pick"], each["margin"] = drawn.argmax(-1).tolist(), lead(drawn).tolist()
    return made


def tokenizer(folder: Path, cases: list[Info]) -> None:
    """Ids of texts in Qwen's pattern, and those of transformers' slow class where it differs."""
    import transformers

    fast = transformers.AutoTokenizer.from_pretrained(folder)
    slow = transformers.Qwen2Tokenizer.from_pretrained(folder)
    for each in cases:
        each["ids"] = fast(each["text"])["input_ids"]
        found = slow(each["text"])["input_ids"]
        each["slow_ids"] = None if found == each["ids"] else found


def shuffled(path: Path, random: np.random.Generator) -> None:
    """Put the numbers of each row of every weight in another order; usage of codes stays."""
    weights = load_file(path)
    for name, x in weights.items():
        if not name.endswith(("cluster_usage", "initialized")):
            weights[name] = np.ascontiguousarray(random.permuted(x, axis=-1)) if x.ndim else x
    save_file(weights, path, {"format": "pt"})


def varied(random: np.random.Generator | None, x: np.ndarray) -> np.ndarray:
    """Another input of the same form: turned along its last axis; tied logits and fixed codes stay."""
    if random is None or x.dtype != np.float32:
        return x
    return np.ascontiguousarray(np.roll(x, int(random.integers(x.shape[-1])), -1))


def stand_in() -> None:
    for name in ("sox", "onnxruntime", "torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"):
        sys.modules[name] = mock.MagicMock(__spec__=ModuleSpec(name, None), __path__=[])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int)
    parser.add_argument(
        "--only", default=",".join(sorted(path.parent.name for path in HERE.glob("*/info.json")))
    )
    given = parser.parse_args()
    sys.path.insert(0, str(given.checkout))
    stand_in()
    torch.set_num_threads(1)
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in VERSIONS}}
    for name in given.only.split(","):
        folder = given.out / name
        shutil.copytree(HERE / name, folder)
        random = None if given.seed is None else np.random.default_rng(given.seed)
        for path in sorted(folder.rglob("model.safetensors")) if random else []:
            shuffled(path, random)
        info, vary = json.loads((folder / "info.json").read_text()), partial(varied, random)
        if info["kind"] == "qwen3_tokenizer":
            cases = json.loads((folder / "cases.json").read_text())
            tokenizer(folder, cases["cases"])
            (folder / "cases.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False))
        else:
            template = load_file(HERE / name / "golden.safetensors")
            with torch.no_grad():
                if info["kind"] in ("qwen3_codec", "qwen3_sampler"):
                    make = codec if info["kind"] == "qwen3_codec" else sampler
                    tensors = make(folder, info, template, vary)
                else:
                    tensors = checkpoint(folder, info, template, 1000 * (given.seed or 0), vary)
            save_file(tensors, folder / "golden.safetensors")
        info["versions"] = versions | {"qwen3-tts": COMMIT}
        (folder / "info.json").write_text(json.dumps(info, indent=1, ensure_ascii=False))
        print(name, flush=True)


if __name__ == "__main__":
    main()
