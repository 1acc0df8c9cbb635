"""The jobs of benchmarks/memory.py: how each model is built with random weights, and what it speaks."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.lib import dia2_networks, qwen3_networks
from benchmarks.lib.random_networks import PACKAGES, RandomParts, dac_law, network, tensors
from converters.published import open_published
from tts_core import models
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.mbd import PUBLISHED_UNET, MbdBandConfig, MbdConfig, MbdScheduleConfig
from tts_core.codecs.policy import own
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ
from tts_core.dia.footprint import DiaJob
from tts_core.dia.model import DIA_0626
from tts_core.dia2.footprint import Dia2Job
from tts_core.mars5.footprint import Mars5Job
from tts_core.mars5.model import MARS5_AR, MARS5_NAR
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary
from tts_core.metavoice.config import CODEBOOK_SIZE, END_OF_AUDIO, is_quantisable
from tts_core.metavoice.footprint import MetaVoiceJob
from tts_core.metavoice.model import METAVOICE_FIRST_STAGE, METAVOICE_SECOND_STAGE, METAVOICE_SPEAKER_ENCODER
from tts_core.metavoice.text import PATTERN, MetaVoiceTokenizer
from tts_core.nn.noise import HostNoise
from tts_core.prompt import Prompt, Reference
from tts_core.qwen3 import layout as layouts
from tts_core.qwen3 import speaker
from tts_core.qwen3.footprint import Qwen3Job
from tts_core.qwen3.layout import Qwen3Choice, Qwen3Inputs, Qwen3Sampling
from tts_core.results import GenerationResult
from tts_core.voice.embedded import CODEC, DIA

Speak = Callable[[], GenerationResult | None]


@dataclass(frozen=True)
class Model:
    """A model's jobs.

    jobs: default ones of each size, the default size first.
    configs: size, job → configurations of all parts.
    parse: job → what the estimate takes.
    build: flags, job → speaks once; returns a result if its speed is to be printed.
    """

    jobs: Mapping[str, str]
    dtype: str
    configs: Callable[[str, str], dict[str, Any]]
    parse: Callable[[str], Any]
    build: Callable[[Namespace, str], Speak]


def numbers(spec: str, *defaults: int) -> list[int]:
    """Parse 1x2x3; `defaults` are those of the last numbers."""
    given = [int(number) for number in spec.split("x")]
    return [*given, *defaults[len(given) :]]


def wave(samples: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, samples).astype(np.float32)


VOICE = open_published([DIA], codec=CODEC, offline=True).parts
SIZES = {"full": (DIA_0626, DAC_44KHZ), "voice": (VOICE["dia"].config, VOICE["dac"].config)}


def dia_configs(size: str, spec: str) -> dict[str, Any]:
    return dict(zip(("dia", "dac"), SIZES[size], strict=True))


def dia_job(spec: str) -> DiaJob:
    text, frames, batch, prompt = numbers(spec, 0, 0, 1, 0)
    return DiaJob(text, frames, prompt, batch)


def dia(given: Namespace, spec: str) -> Speak:
    """A recording of the prompt's length is encoded first. The codec's windows are a loaded model's."""
    (config, codec), job = SIZES[given.size], dia_job(spec)

    def silent_end(name: str, value: Any) -> None:
        if name == "logits_dense.weight":
            value[config.eos_token_id] = 0  # never the likeliest, so every run has its full length

    compose = import_module(f"{PACKAGES[given.side]}.dia.pipeline").compose
    decoder = network(given.side, "dac", codec, "float32", device=given.device, law=dac_law)
    forms = {} if given.side == "mlx" else import_module("torch_ref.loading").Parts.fastest("dia", decoder)
    built = network(given.side, "dia", config, given.dtype, device=given.device, edit=silent_end)
    pipeline = compose({"dia": built, "dac": decoder}, **forms)
    pipeline.engine.codec.policy = own(given.backend)
    text = ("[S1] " + "so it goes " * 200)[: job.text_bytes + 3]
    shape = config.decoder_config.num_channels, job.prompt_frames
    codes = np.random.default_rng(0).integers(0, codec.codebook_size, shape, np.int32)

    def speak() -> None:
        if job.prompt_frames:
            pipeline.engine.encode(wave(job.prompt_frames * codec.hop_length))
        if job.batch == 1 and not job.prompt_frames:
            made = pipeline.generate(text, seed=1, max_frames=job.frames, piece_seconds=None)
        else:
            prompts = [codes if job.prompt_frames else None] * job.batch
            texts = [text] * job.batch
            made = pipeline.generate_batch(texts, prompts=prompts, seed=1, max_frames=job.frames)[0]
        assert made.codes.shape[1] == job.frames, f"the text ended after {made.codes.shape[1]} frames"

    return speak


def dia2_configs(size: str, spec: str) -> dict[str, Any]:
    config = dia2_networks.SIZES[size]
    return {"dia2": config, "mimi": dia2_networks.codec_of(config)}


def dia2_job(spec: str) -> Dia2Job:
    frames, texts, recording = numbers(spec, 0, 1, 0)
    return Dia2Job(frames, recording, batch=texts)


def dia2(given: Namespace, spec: str) -> Speak:
    job = dia2_job(spec)
    engine, _ = dia2_networks.engine(
        given.side, dia2_networks.SIZES[given.size], given.dtype, device=given.device
    )
    pipeline = import_module(f"{PACKAGES[given.side]}.dia2.pipeline").Dia2Pipeline(engine)
    prompt = None
    if job.prefix_frames:
        said = "so it goes on " * (job.prefix_frames // 12)
        prompt = Prompt((Reference(wave(1920 * job.prefix_frames), said, sample_rate=24000),))
    text = "[S1] " + "so it goes on " * (job.frames // 20 + 2)

    def speak() -> None:
        found = pipeline.generate_batch([text] * job.batch, prompts=prompt, seed=1, max_frames=job.frames)
        assert all(item.codes.shape[1] == job.frames for item in found), "a text ended by itself"

    return speak


TEXT, SAID = "so it goes and goes until the end of it all", "and so it went, day after day, year after year"
# without merges: an id is a frame
MARS5_DOCUMENTS = {
    TEXT_FILE: "minbpe v1\n\n2\n<|startoftext|> 256\n<|endoftext|> 257\n",
    SPEECH_FILE: "minbpe v1\n\n1\n<|endofspeech|> 1024\n",
}
VOCABULARY = CodecVocabulary.read(
    MARS5_DOCUMENTS[TEXT_FILE], MARS5_DOCUMENTS[SPEECH_FILE], vocab_size=258 + 1025
)


def mars5_configs(size: str, spec: str) -> dict[str, Any]:
    """A small vocabulary. size "middle" has smaller transformers."""
    ar = replace(MARS5_AR, vocab_size=VOCABULARY.size)
    nar = replace(MARS5_NAR, text_rows=VOCABULARY.first_speech + 1)
    if size == "middle":
        ar = replace(ar, hidden_size=768, intermediate_size=1792, num_hidden_layers=8, num_attention_heads=12)
        ar = replace(ar, speaker_heads=12, speaker_intermediate_size=2304)
        nar = replace(nar, hidden_size=512, intermediate_size=1536, encoder_layers=3, decoder_layers=5)
        nar = replace(nar, num_attention_heads=8, speaker_heads=8, speaker_intermediate_size=1536)
    return {"mars5": ar, "mars5_nar": nar, "encodec": ENCODEC_24KHZ, "vocos": VOCOS_ENCODEC_24KHZ}


def mars5_job(spec: str) -> Mars5Job:
    """Count the prompt's ids."""
    frames, reference, *deep = spec.split("x")
    text = len(
        VOCABULARY.deep(TEXT, SAID, np.zeros(0, int)).tokens if deep else VOCABULARY.shallow(TEXT).tokens
    )
    ids = text + int(reference) * bool(deep)
    longest = ids + int(frames) + 1
    return Mars5Job(ids, int(frames), int(reference), bool(deep), max_len=longest, text_ids=text)


def composed(given: Namespace, model: str, parts: RandomParts) -> Any:
    """Build a side's pipeline of random networks."""
    networks = {kind: parts.network(kind) for kind in models.MODELS[model].loaded(parts.configs)}
    forms = {} if given.side == "mlx" else import_module("torch_ref.loading").Parts.fastest(model)
    return import_module(f"{PACKAGES[given.side]}.{model}.pipeline").compose(
        networks, parts.documents, **forms
    )


def mars5(given: Namespace, spec: str) -> Speak:
    """The end is never drawn."""
    job = mars5_job(spec)

    def law(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
        is_norm = "norm" in name and name.endswith("weight")
        return (1, 0) if is_norm else (0, max(1, int(np.prod(shape[1:]))) ** -0.5)

    def edit(name: str, value: Any) -> None:
        if name == "ar.output.weight":
            value[VOCABULARY.first_speech : VOCABULARY.end] *= 4
            value[VOCABULARY.end :] = 0

    documents = {"mars5": MARS5_DOCUMENTS}
    parts = RandomParts(
        given.side, mars5_configs(given.size, spec), documents, given.dtype, given.device, law=law, edit=edit
    )
    pipeline = composed(given, "mars5", parts)
    prompt = Prompt.of(audio=wave(job.prompt_frames * 320), text=SAID if job.deep else None)

    def speak() -> None:
        made = pipeline.generate(
            TEXT,
            prompt=prompt,
            timesteps=2,
            generate_max_len_override=job.max_len,
            as_written=True,
            seed=1,
        )
        assert made.codes.shape[1] == job.frames, f"{made.codes.shape[1]} frames"

    return speak


METAVOICE_TEXT = "so it goes and goes until the end of it all, and then it goes on."
MIDDLE = replace(
    METAVOICE_FIRST_STAGE,
    hidden_size=768,
    intermediate_size=2048,
    num_hidden_layers=8,
    num_attention_heads=6,
)


def metavoice_configs(size: str, spec: str) -> dict[str, Any]:
    """Size "middle" has a smaller first stage and smaller bands of diffusion."""
    full = size == "full"
    unet = PUBLISHED_UNET if full else replace(PUBLISHED_UNET, hidden=16)
    band = MbdBandConfig(unet, MbdScheduleConfig(1e-5, 2.9e-2, 7.5, 1000, 5.0, 1.0), None)
    bands = {"mbd": MbdConfig(24_000, (band,) * (4 if full else 2))} if spec.endswith("xmbd") else {}
    return {
        "metavoice": METAVOICE_FIRST_STAGE if full else MIDDLE,
        "metavoice_second_stage": METAVOICE_SECOND_STAGE,
        "metavoice_speaker_encoder": METAVOICE_SPEAKER_ENCODER,
        "vocos": VOCOS_ENCODEC_24KHZ,
        "encodec": ENCODEC_24KHZ,
    } | bands


def metavoice_job(spec: str) -> MetaVoiceJob:
    frames, batch = numbers(spec.removesuffix("xmbd"), 0, 1)
    return MetaVoiceJob(len(METAVOICE_TEXT) + 1, frames, batch, mbd=spec.endswith("xmbd"))


class MetaVoiceParts(RandomParts):
    """Parts whose first stage draws only codes. bits: of its weights in MLX; None for no quantization."""

    def __init__(self, given: Namespace, configs: dict[str, Any]):
        documents = {
            "metavoice": {"tokenizer.json": _byte_tokenizer(END_OF_AUDIO + 1)},
            "metavoice_second_stage": {"tokenizer.json": _byte_tokenizer(CODEBOOK_SIZE + 1)},
        }
        super().__init__(given.side, configs, documents, given.dtype, given.device, law=_metavoice_law)
        self.bits, self.bands = given.bits, dict[str, Any]()

    def network(self, kind: str) -> Any:
        if kind == "mbd":
            made = models.network_class(PACKAGES[self.side], kind)
            return made(self.configs[kind], lambda band: self._band(f"bands.{band}."))
        self.edit = _only_codes if kind == "metavoice" else None
        made = super().network(kind)
        if kind == "metavoice" and self.bits and self.side == "mlx":
            import mlx.core as mx
            from mlx import nn

            nn.quantize(made, 64, self.bits, class_predicate=lambda path, _: is_quantisable(f"{path}.weight"))
            mx.eval(made.parameters())
        return made

    def _band(self, prefix: str) -> dict[str, Any]:
        """Tensors of a band; drawn once, on the host, where a GPU has its own memory."""

        def drawn() -> dict[str, Any]:
            given = "mbd", self.configs["mbd"], self.dtype_name
            return dict(
                tensors(self.side, *given, device=str(self.device), law=_metavoice_law, prefix=prefix)
            )

        if self.side == "mlx" or self.device.type == "cpu":
            return drawn()
        if prefix not in self.bands:
            self.bands[prefix] = {name: tensor.cpu() for name, tensor in drawn().items()}
        return {name: tensor.to(self.device) for name, tensor in self.bands[prefix].items()}


def _byte_tokenizer(offset: int) -> str:
    ranks = {bytes([byte]): byte for byte in range(256)}
    return json.dumps(MetaVoiceTokenizer(PATTERN, ranks, {"<|endoftext|>": 256}, offset).to_dict())


def _metavoice_law(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    gain = "ln_" in name or ("norm" in name and name.endswith("weight")) or name.endswith("counts")
    return (1, 0) if gain else (0, max(1, int(np.prod(shape[1:]))) ** -0.5)


def _only_codes(name: str, value: Any) -> None:
    """Let one channel distinguish codes from all other ids."""
    if ".wte" in name:
        value[:END_OF_AUDIO, 0], value[END_OF_AUDIO:, 0] = 1, -1
    if ".wpe" in name:
        value[:, 0] = 50


def metavoice(given: Namespace, spec: str) -> Speak:
    job = metavoice_job(spec)
    parts = MetaVoiceParts(given, metavoice_configs(given.size, spec))
    pipeline = composed(given, "metavoice", parts)
    asked: dict[str, Any] = {
        "max_frames": job.frames,
        "seed": 1,
        "decoder": "mbd" if job.mbd else "vocos",
        "piece_seconds": None,
    }
    texts, prompt = [METAVOICE_TEXT] * job.batch, Prompt.of(audio=wave(30 * 24_000))

    def speak() -> GenerationResult:
        for _ in range(1 if given.backend.endswith("cpu") else 2):
            made = pipeline.generate_batch(texts, prompts=prompt, **asked)[0]
        frames = made.codes.shape[1]  # a random network does not alternate strictly between the codebooks
        assert frames > 0.75 * job.frames, f"the text ended by itself after {frames} frames"
        return made

    return speak


def qwen3_configs(size: str, spec: str) -> dict[str, Any]:
    return {"qwen3": qwen3_networks.CONFIGS[size], "qwen3_codec": QWEN3_CODEC_12HZ}


def qwen3_job(spec: str) -> Qwen3Job:
    return Qwen3Job(*numbers(spec, 0, 64, 0))


def qwen3(given: Namespace, spec: str) -> Speak:
    """Speak in slots until a seed does not end the speech early, then decode."""
    job, config = qwen3_job(spec), qwen3_networks.CONFIGS[given.size]
    slots_of = import_module(f"{PACKAGES[given.side]}.qwen3.decoder").make_slots
    built, codec = qwen3_networks.networks(given.side, config, given.dtype, given.device)

    def speak() -> None:
        random, vector, frames, recording = np.random.default_rng(0), None, None, None
        if job.recording:
            sound = random.normal(0, 0.1, 1920 * job.recording).astype(np.float32)
            frames = np.array(codec.encode(sound[None]).tolist(), np.int32)[0]
            assert config.speaker_encoder is not None
            mel = qwen3_networks.array(given.side, given.device, speaker.mel(sound, config.speaker_encoder))
            vector = np.array(built.speaker_encoder(mel[None])[0].tolist(), np.float32)
            recording = layouts.Qwen3Recording(tuple(range(10)), job.recording)
        asked: dict[str, Any] = {"language": None, "recording": recording, "streamed": False}
        before = len(layouts.build(config, [1] * 9, **asked).text)
        ids = random.integers(0, 9999, 9 + job.prompt - before).tolist()
        laid = layouts.build(config, ids, voice=layouts.SPEAKER if job.recording else layouts.NO_ID, **asked)
        made, seed = list[np.ndarray](), 0
        while len(made) < job.frames:
            slots = slots_of(built, texts=1, capacity=len(laid.text) + job.frames)
            sampling = Qwen3Sampling(Qwen3Choice(), Qwen3Choice())
            slots.join({0: Qwen3Inputs(laid, sampling, HostNoise(seed), vector, frames)})
            made, seed = [], seed + 1
            while len(made) < job.frames and not (made and made[-1][0, 0] == config.codec_eos_id):
                made.append(slots.read(slots.launch(1))[0])
        codes, memory = np.stack(made, axis=2), None
        for start, stop in codec.policy.even_cuts(job.frames):
            samples, memory = codec.decode_window(codes[:, :, start:stop], memory)
            samples.tolist()

    def without_gradients() -> None:
        with qwen3_networks.inference(given.side):
            speak()

    return without_gradients


DIA2_JOBS, QWEN3_JOBS = "60,40x4,40x1x125", "40,40x60x25"
MODELS: Mapping[str, Model] = {
    "dia": Model(
        {
            "voice": "60x50,250x600,100x200x8,100x100x1x200",
            "full": "176x200,1024x300,176x100x4,176x100x1x400",
        },
        "float32",
        dia_configs,
        dia_job,
        dia,
    ),
    "dia2": Model(dict.fromkeys(("tiny", "1b", "2b"), DIA2_JOBS), "bfloat16", dia2_configs, dia2_job, dia2),
    "mars5": Model(
        {"middle": "200x75,600x300,300x300xdeep", "full": "150x75,300x450xdeep"},
        "float32",
        mars5_configs,
        mars5_job,
        mars5,
    ),
    "metavoice": Model(
        {"middle": "200,600,150x4,60xmbd", "full": "200,900,200x4,200xmbd"},
        "float32",
        metavoice_configs,
        metavoice_job,
        metavoice,
    ),
    "qwen3": Model(
        dict.fromkeys(("tiny", "0.6b", "1.7b"), QWEN3_JOBS),
        "bfloat16",
        qwen3_configs,
        qwen3_job,
        qwen3,
    ),
}
