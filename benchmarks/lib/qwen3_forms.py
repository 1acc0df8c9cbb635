"""Build Qwen3-TTS with random weights as each program runs it, for benchmarks/qwen3_peers.py."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.lib.checkpoints import qwen3_config
from benchmarks.lib.qwen3_networks import networks
from tts_core.models import MODELS
from tts_core.nn.noise import HostNoise
from tts_core.qwen3 import layout as layouts
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.layout import Qwen3Inputs, Qwen3Sampling
from tts_core.qwen3.options import Qwen3Options
from tts_core.serving.session import Failed

PROMPT = 40
TEXT = "The quick brown fox jumps over lazy dogs"  # as many tokens, one a byte
SOUND = (
    "librosa",
    "librosa.filters",
    "soundfile",
    "torchaudio",
    "torchaudio.compliance",
    "sox",
    "onnxruntime",
)
SOUND += ("torchaudio.compliance.kaldi", "einops", "gradio", "scipy", "scipy.signal")


class Form(NamedTuple):
    """One way of a program to speak several texts together.

    what: "codes" (no codec), "sound" (codec included) or "graphs" (only the replay of captured graphs).
    speak: frames of each text → seconds to the first sound of each text; empty where there is no sound.
    shorter: divisor of the frames that a slow form is timed with.
    """

    what: str
    texts: int
    speak: Callable[[int], Sequence[float]]
    shorter: int = 1


def published(config: Qwen3Config) -> dict[str, Any]:
    """Return config.json with the rotation (rope_scaling) of every release."""
    found = qwen3_config(config)
    half = config.talker.head_dim // 2
    parts = [half - 2 * (half * 5 // 16), half * 5 // 16, half * 5 // 16]
    found["talker_config"]["rope_scaling"] = {
        "interleaved": True,
        "mrope_section": parts,
        "rope_type": "default",
    }
    return found


def leave_out() -> None:
    """Put stand-ins in place of the libraries for recordings that are not installed."""
    for name in SOUND:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = mock.MagicMock(__spec__=ModuleSpec(name, None), __path__=[])


def ids(count: int = PROMPT) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 9999, count)


def ours(side: str, config: Qwen3Config, dtype: str, texts: Sequence[int]) -> Iterator[Form]:
    """Yield codes by the slots of a side; in PyTorch also sound by a session."""
    device = "cpu"
    if side == "torch":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    network, codec = networks(side, config, dtype, device)
    make = import_module(
        "mlx_port.qwen3.decoder" if side == "mlx" else "torch_ref.cuda.qwen3.decoder"
    ).make_slots
    laid = layouts.build(config, ids().tolist(), language=None, streamed=False)
    for count in texts:
        slots = make(network, texts=count, capacity=PROMPT + 520)

        def speak(frames: int, slots: Any = slots, count: int = count) -> list[float]:
            for slot in range(count):
                slots.join({slot: Qwen3Inputs(laid, Qwen3Sampling(), HostNoise(slot))})
            launched = [slots.launch(1) for _ in range(slots.ahead)]
            for _ in range(frames):
                launched.append(slots.launch(1))
                slots.read(launched.pop(0))
            for slot in range(count):
                slots.leave(slot)
            return []

        yield Form("codes", count, speak)
        del slots
    if side == "torch":
        yield from _sessions(config, network, codec, texts)


def _sessions(config: Qwen3Config, network: Any, codec: Any, texts: Sequence[int]) -> Iterator[Form]:
    head = network.talker.codec_head
    head.weight[config.codec_eos_id] = 0  # never among the likeliest
    precision = import_module("torch_ref.limits.precision")
    codec.precision = precision.choose_precision(None, head.weight.device, head.weight.dtype)
    own = MODELS["qwen3"].speed.documents({"qwen3": config})
    forms = import_module("torch_ref.loading").Parts.fastest("qwen3", codec)
    networks = {"qwen3": network, "qwen3_codec": codec}
    pipeline = import_module("torch_ref.qwen3.pipeline").compose(networks, own, **forms)
    voice = np.random.default_rng(0).normal(0, 1, config.talker.hidden_size).astype(np.float32)
    for count in texts:
        session = pipeline.session(count)
        assert session.places == count, f"{session.places} texts fit in memory"
        session.prepare()

        def speak(frames: int, session: Any = session, count: int = count) -> list[float]:
            started, first = time.perf_counter(), dict[int, float]()
            for seed in range(count):
                options = Qwen3Options(max_frames=frames, seed=seed, as_written=True)
                session.join(pipeline.request(TEXT, options, voice))
            while session.running:
                for event in session.step():
                    assert not isinstance(event, Failed), event.error
                    if len(event.result.audio):
                        first.setdefault(event.key, time.perf_counter() - started)
            return [*first.values()]

        yield Form("sound", count, speak)
        session.close()


def original(config: Qwen3Config, dtype: str, texts: Sequence[int], folder: str | None) -> Iterator[Form]:
    """Yield codes by the code of QwenLM. It decodes sound only after the last code. folder: a checkout."""
    import torch
    import transformers  # before stand-ins, which it would find

    assert transformers.__version__ == "4.57.3", transformers.__version__
    leave_out()
    if folder is not None:
        sys.path.insert(0, folder)
    sys.modules["qwen_tts.inference.qwen3_tts_model"] = mock.MagicMock()
    sys.modules["qwen_tts.inference.qwen3_tts_tokenizer"] = mock.MagicMock()
    with contextlib.redirect_stdout(io.StringIO()):  # advice
        module = import_module("qwen_tts.core.models.modeling_qwen3_tts")
    kind = import_module("qwen_tts.core.models.configuration_qwen3_tts").Qwen3TTSConfig
    given = kind(**published(config))
    given._attn_implementation = "sdpa"
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with device:
        model = module.Qwen3TTSForConditionalGeneration(given).to(getattr(torch, dtype)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(
            parameter, *((1, 0.1) if parameter.ndim == 1 else (0, parameter[0].numel() ** -0.5))
        )
    text = torch.tensor(ids()[None], device=device)
    for count in texts:

        @torch.inference_mode()
        def speak(frames: int, count: int = count) -> list[float]:
            model.generate(  # the end of speech is an id that is never drawn
                [text] * count,
                languages=["auto"] * count,
                speakers=[None] * count,
                non_streaming_mode=True,
                max_new_tokens=frames + 1,
                eos_token_id=config.vocab_size - 1,
            )
            if device.type == "cuda":
                torch.cuda.synchronize()
            return []

        yield Form("codes", count, speak, shorter=4)


def mlx_audio(config: Qwen3Config, dtype: str) -> Iterator[Form]:
    """Yield codes of one text by mlx-audio."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    leave_out()
    config = replace(config, mode="custom_voice", speaker_encoder=None)
    module = import_module("mlx_audio.tts.models.qwen3_tts.qwen3_tts")
    kind = import_module("mlx_audio.tts.models.qwen3_tts.config").ModelConfig
    model = module.Model(kind.from_dict(published(config)))
    model.config.tts_model_type = "base"  # whose generation needs neither voice nor recording
    parameters: Any = tree_flatten(model.parameters())
    for name, value in parameters:
        wide, mean = (0.1, 1) if value.ndim == 1 else (value[0].size ** -0.5, 0)
        drawn = mx.random.normal(value.shape, getattr(mx, dtype), loc=mean, scale=wide)
        if name == "talker.codec_head.weight":
            drawn[config.codec_eos_id] = 0
        model.load_weights([(name, drawn)], strict=False)
        mx.eval(drawn)
    model.tokenizer, model.speech_tokenizer = mock.MagicMock(), mock.MagicMock()
    model.tokenizer.encode.return_value = ids().tolist()
    model.speech_tokenizer.decode = lambda codes: (mx.zeros((1, codes.shape[1])), [0])

    def speak(frames: int) -> list[float]:
        [made] = model.generate("text", max_tokens=frames)
        assert made.token_count == frames, made.token_count
        return []

    yield Form("codes", 1, speak)
