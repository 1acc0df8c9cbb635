"""Both sides against transformers' DiaForConditionalGeneration: random weights, saved by it, converted by us.

The result of transformers in float32 replaces a golden vector (tests/tolerance.py).
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden.bench import Bench
from tests.golden.dia_bench import DiaSide, dia_bench
from tests.golden.dia_checks import assert_same_codes, frames_of, processor_grid, whole_grid
from tests.sides import SIDES
from tts_core.dia.grid import revert_delay
from tts_core.dia.text import tokenize

pytestmark = pytest.mark.rest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("mlx.core")

TEXTS = ["[S1] Hello there.", "[S2] A longer text, naïve café, (laughs) and a second turn. [S1] Yes!"]
MAX_NEW_TOKENS = 40
SETTINGS = {"do_sample": False, "guidance_scale": 3.0, "top_k": 45}


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> tuple[Any, Path]:
    """The oracle, and the folder in which it is saved. Heads, kv heads and widths all differ."""
    from tests.oracles.weights import randomise

    shared = {"num_hidden_layers": 2, "max_position_embeddings": 128, "intermediate_size": 384}
    config = transformers.DiaConfig(
        encoder_config=transformers.DiaEncoderConfig(
            hidden_size=256,
            num_attention_heads=6,
            num_key_value_heads=6,
            head_dim=32,
            vocab_size=256,
            **shared,
        ),
        decoder_config=transformers.DiaDecoderConfig(
            hidden_size=288,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=40,
            cross_hidden_size=256,
            cross_num_attention_heads=6,
            cross_num_key_value_heads=3,
            cross_head_dim=24,
            **shared,
        ),
    )
    network = transformers.DiaForConditionalGeneration(config).eval()
    randomise(network, seed=3)
    with torch.no_grad():
        network.logits_dense.weight[1024] *= 2.5  # texts end at an EOS
    folder = tmp_path_factory.mktemp("dia")
    network.save_pretrained(folder)
    return network, folder


@pytest.fixture(params=SIDES)
def bench(request, published) -> Bench[DiaSide]:
    return dia_bench(request.param, published[1] / "model.safetensors", published[1] / "config.json")


@torch.inference_mode()
def test_encoder(published, bench):
    for text in TEXTS:
        ids = tokenize(text)
        encoded = (
            published[0].model.encoder(input_ids=torch.from_numpy(ids)[None]).last_hidden_state[0].numpy()
        )
        bench.compare("encoder", encoded, lambda side, ids=ids: side.encode_text(ids))


@torch.inference_mode()
def test_teacher_forced_logits(published, bench):
    """A prefill and single steps against one pass over all rows, with and without the text."""
    rows = _grid(np.random.default_rng(0).integers(0, 1024, (9, 20)), bench)
    ids = tokenize(TEXTS[1])
    texts = torch.from_numpy(np.stack([np.zeros_like(ids), ids]))
    decoder_ids = torch.from_numpy(np.stack([rows, rows])).long().contiguous()
    logits = published[0](
        input_ids=texts, attention_mask=torch.ones_like(texts), decoder_input_ids=decoder_ids, use_cache=False
    ).logits
    golden = logits.unflatten(0, (2, 9)).transpose(1, 2).numpy()  # (2, T, C, V)
    for prefill in (1, 7, len(rows)):
        bench.compare(
            f"logits, {prefill} rows at once",
            golden,
            lambda side, prefill=prefill: side.teacher_forced(ids, rows, prefill)[0],
        )


def _grid(codes: np.ndarray, bench: Bench[DiaSide]) -> np.ndarray:
    return whole_grid(bench.side.config, None, codes.astype(np.int32))


PROMPTS = {
    "no prompt": (TEXTS[1:], [None]),
    "prompt": (TEXTS[1:], [11]),
    "two texts": (TEXTS, [None, None]),
    "two prompts": (TEXTS, [11, 4]),
    "a prompt and none": (TEXTS, [None, 6]),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_greedy_generation(name, published, bench):
    """transformers pads texts at the right and prompts at the left; ours run one by one, with equal codes."""
    texts, lengths = PROMPTS[name]
    config, rng = bench.side.config, np.random.default_rng(3)
    prompts = [None if n is None else rng.integers(0, 1024, (9, n)).astype(np.int32) for n in lengths]
    sequences = _generate(published[0], config, texts, prompts)
    own = bench.side.pipeline.generate_codes(
        texts,
        prompts,
        temperature=0.0,
        cfg_scale=SETTINGS["guidance_scale"],
        top_k=SETTINGS["top_k"],
        max_frames=MAX_NEW_TOKENS - config.longest_delay - 1,
    )
    longest = max(map(frames_of, prompts))
    for item, (codes, prompt) in enumerate(zip(own, prompts, strict=True)):
        left = longest - frames_of(prompt)
        ends = np.flatnonzero(sequences[item][:, 0] == config.eos_token_id)
        speech = sequences[item][1 + longest : ends[0] + config.longest_delay]
        assert_same_codes(f"{name}, text {item}", codes, revert_delay(speech.T, config.delay_pattern))
        rows = whole_grid(config, prompt, codes, rows=sequences.shape[1], left=left)
        np.testing.assert_array_equal(sequences[item], rows)


_SEQUENCES: dict[tuple, np.ndarray] = {}


def _generate(network, config, texts, prompts) -> np.ndarray:
    """transformers' grid, (B, T, C); generated once for both sides."""
    key = (*texts, *map(frames_of, prompts))
    if key not in _SEQUENCES:
        ids = [torch.from_numpy(tokenize(text)) for text in texts]
        pad = torch.nn.utils.rnn.pad_sequence
        rows, mask = processor_grid(config, prompts)
        _SEQUENCES[key] = network.generate(
            input_ids=pad(ids, batch_first=True),
            attention_mask=pad([torch.ones_like(one) for one in ids], batch_first=True),
            decoder_input_ids=torch.from_numpy(rows).long(),
            decoder_attention_mask=torch.from_numpy(mask).long(),
            max_new_tokens=MAX_NEW_TOKENS,
            **SETTINGS,
        ).numpy()
    return _SEQUENCES[key]


def test_runs_end_both_ways(published, bench):
    """The runs above end both by EOS and by the limit."""
    config = bench.side.config
    limit = MAX_NEW_TOKENS - config.longest_delay - 1
    frames = []
    for texts, _ in (PROMPTS["no prompt"], PROMPTS["two texts"]):
        for rows in _generate(published[0], config, texts, [None] * len(texts)):
            frames.append(int(np.flatnonzero(rows[:, 0] == config.eos_token_id)[0]) - 1)
    assert min(frames) < limit
    assert max(frames) == limit
