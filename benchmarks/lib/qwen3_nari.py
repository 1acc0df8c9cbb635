"""Run nari-labs/nari-qwen3-tts from a checkout with random weights, for benchmarks/qwen3_peers.py.

The engine is built and started as by its server, with the profile `ttfa`. Its one size is 1.7B with built-in
voices, for an H100. It needs CUDA, Triton and FlashInfer; FlashInfer compiles kernels at the first start.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from benchmarks.lib.checkpoints import write_qwen3_texts, write_random
from benchmarks.lib.qwen3_forms import PROMPT, Form, leave_out
from benchmarks.lib.random_networks import tensors
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.model import qwen3

PROFILE = "ttfa"
FEW = {  # captures of the measured numbers of texts only: it then starts in one minute, not in several
    "talker_prefill": {
        "batch_sizes": [1, 8],
        "token_buckets": [64, 128, 384, 640],
        "exact_batch_sizes": [1],
    },
    "talker_decode": {"batch_sizes": [1, 2, 4, 8, 16, 32]},
    "code_predictor": {"batch_sizes": [1, 2, 4, 8, 16, 32]},
    "codec": {
        "batches": {
            "whole_sequence_first_frame": [1, 8, 32],
            "whole_sequence_followup": [1, 8],
            "cold": [1, 8],
            "warm_partial": [1, 8],
        }
    },
}
FEATURES = {"feature_extractor_type": "EncodecFeatureExtractor", "feature_size": 1, "sampling_rate": 24000}
MINUTES = 600.0
TEMPLATE = 8  # tokens of the template around a text: three before it and five after it


class Nari:
    """The peer's engine.

    quantized: two thirds of the talker's feed-forward weights have 8 bits, its default; else bfloat16.
    every_capture: capture all shapes of its profile, not only FEW.
    """

    def __init__(self, checkout: Path, *, quantized: bool, every_capture: bool, device: str = "cuda:0"):
        import transformers  # noqa: F401  before stand-ins, which it would find

        leave_out()
        sys.path.insert(0, str(checkout / "src"))
        self.config = qwen3("1b7", "custom_voice")
        with TemporaryDirectory() as folder:
            self.model, assets = load(self.config, Path(folder), device)
        if not quantized:
            gated = import_module("nari_qwen3_tts.model.layers").GatedMLP
            gated.initialize_fp8_gate_up_weight = lambda _: True
        profiles = import_module("nari_qwen3_tts.profile").ProfileLoader()
        profile = profiles.load_mapping({} if every_capture else FEW, base=PROFILE)
        build = import_module("nari_qwen3_tts.factory").build_qwen3_tts_engine
        settings = import_module("nari_qwen3_tts.config").EngineConfig()
        self._request = import_module("nari_qwen3_tts.contract.request").SynthesisRequest
        self.text = self._text()
        self.first_sounds = dict[int, float]()  # moments of first sound, by the stream's id
        self._listen()
        self.engine = build(self.model, assets, config=profile, engine_config=settings)
        try:
            self.engine.start(self.request(4, 0), timeout_s=MINUTES)
        except Exception as fault:
            raise self.engine._failure or fault from None
        import_module("nari_qwen3_tts.serve")._freeze_serving_heap()

    def request(self, frames: int, seed: int) -> Any:
        return self._request(
            self.text, voice="aiden", random_seed=seed, max_new_tokens=frames, ignore_eos=True
        )

    def speak(self, frames: int, texts: int) -> list[float]:
        """Speak texts together. → seconds to the first sound of each."""
        self.first_sounds.clear()
        started = time.perf_counter()
        with ThreadPoolExecutor(texts) as callers:
            asked = [self.request(frames, seed) for seed in range(texts)]
            streams = [*callers.map(lambda request: self.engine.submit(uuid.uuid4().hex, request), asked)]
        while self.engine._failure is None and not self.engine.wait_idle(timeout_s=1.0):
            pass
        if self.engine._failure is not None:
            raise self.engine._failure
        made = [sum(map(len, stream.iter_bytes(timeout_s=1))) for stream in streams]
        hop = 2 * QWEN3_CODEC_12HZ.hop_length
        assert min(made) >= (frames - 2) * hop, f"{[sound / hop for sound in made]} of {frames} frames"
        return [self.first_sounds[id(stream)] - started for stream in streams]

    def replay(self, frames: int, texts: int) -> list[float]:
        """Replay only the graphs of talker and predictor, once for each frame of a text."""
        import torch

        stage, executor = import_module("nari_qwen3_tts.contract.stage"), self.engine.executor
        talker = executor.talker._decode[stage.TalkerDecodeCaptureKey(texts)][0]
        predictor = executor.code_predictor._slots[stage.CodePredictorCaptureKey(texts)]
        with torch.inference_mode():
            talker.context.plan(talker.context.metadata)
            for _ in range(frames):
                talker.call.replay()
                predictor.fused_call.replay()
            torch.cuda.synchronize()
        return []

    def _text(self) -> str:
        """Build a text of PROMPT tokens. Each byte is a token, those of the template included."""
        template = len(self.model.prepare(self._request("a")).text_token_ids) - 1
        return "a" * (PROMPT + TEMPLATE - template)

    def _listen(self) -> None:
        form = import_module("nari_qwen3_tts.contract.stream").PCMStream
        publish = form.publish

        def timed(stream: Any, value: bytes) -> None:
            if value:
                self.first_sounds.setdefault(id(stream), time.perf_counter())
            publish(stream, value)

        form.publish = timed


def load(config: Qwen3Config, folder: Path, device: str) -> tuple[Any, Any]:
    """Load random weights by its loader: the model's are drawn on the device, the codec's are in a file."""
    write_qwen3_texts(folder, config, QWEN3_CODEC_12HZ)
    found = json.loads((folder / "config.json").read_text())
    found["talker_config"]["code_predictor_config"]["max_position_embeddings"] = config.max_positions
    (folder / "config.json").write_text(json.dumps(found))
    (folder / "model.safetensors").touch()  # empty: `drawn` below replaces the reading of its tensors
    (folder / "speech_tokenizer/preprocessor_config.json").write_text(json.dumps(FEATURES))
    write_random(folder / "speech_tokenizer/model.safetensors", "qwen3_codec")
    assets = import_module("nari_qwen3_tts.config").ModelAssetConfig(
        model_id=str(folder), device=device, require_h100=False, local_files_only=True
    )
    model = import_module("nari_qwen3_tts.model.public").Qwen3TTSModel(assets)

    def drawn(_folder: Path, *, device: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in tensors("torch", "qwen3", config, "bfloat16", device=str(device), prefix=prefix):
            yield prefix + name, value

    checkpoint = import_module("nari_qwen3_tts.model.checkpoint")
    with mock.patch.object(checkpoint, "iter_safetensors_shards", drawn):
        return model, model.load_assets()


def forms(
    checkout: Path, texts: Sequence[int], *, quantized: bool, every_capture: bool
) -> Iterator[Form]:  # fmt: skip
    """Yield sound by the engine, and the replay of its two graphs after it has stopped."""
    started = time.perf_counter()
    nari = Nari(checkout, quantized=quantized, every_capture=every_capture)
    print(f"nari started in {time.perf_counter() - started:.0f} s", flush=True)
    for count in texts:
        yield Form("sound", count, lambda frames, count=count: nari.speak(frames, count))
    nari.engine.stop(timeout_s=30.0)
    for count in texts:
        yield Form("graphs", count, lambda frames, count=count: nari.replay(frames, count))
