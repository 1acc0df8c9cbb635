"""The embedded voice's whole loop on fifty texts: equal codes on both sides, or differences that rounding
explains; these are printed, and the loop goes on row by row with the same ids.

MLX_PORT_VOICE names the folder of another voice, with dia/ and codec/.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import mlx_port
import torch_ref
from converters.convert import convert
from converters.published import open_published
from tests.parity.dia.near_ties import nearest
from tests.sides import ORACLE, PORT, YARDSTICK, Side
from tests.tolerance import bound
from tests.tts_core.dia import sampling_rules as rules
from tts_core.dia.grid import apply_delay
from tts_core.dia.options import DiaSampling
from tts_core.dia.text import tokenize
from tts_core.judges.sentences import sentences as read_sentences
from tts_core.nn.noise import HostNoise
from tts_core.voice.embedded import FOLDER

pytestmark = pytest.mark.rest

VOICE = Path(os.environ.get("MLX_PORT_VOICE", FOLDER))
EVALUATION = Path(__file__).parents[3] / "examples/train_voice/evaluation"
FRAMES = 300


def texts() -> list[str]:
    """Twenty sentences in each voice and ten dialogues."""
    sentences = read_sentences()
    dialogues = (EVALUATION / "dialogues.txt").read_text().splitlines()
    single = [f"[S{1 + (place >= 20)}] {words}" for place, words in enumerate(sentences[:40])]
    return [*single, *dialogues[:10]]


TEXTS = texts()


@cache
def pipeline(side: Side) -> Any:
    if side is not PORT:
        dtype = "float64" if side is ORACLE else "float32"
        return torch_ref.load(VOICE / "dia", codec=VOICE / "codec", dtype=dtype, device="cpu")
    with TemporaryDirectory() as folder:
        convert(open_published([VOICE / "dia"], codec=VOICE / "codec"), Path(folder) / "v", dtype="float32")
        return mlx_port.load(Path(folder) / "v")


@cache
def spoken(side: Side) -> list[np.ndarray]:
    """Text i with seed i, all in one batch, with the model's own settings."""
    return pipeline(side).generate_codes(TEXTS, seed=list(range(len(TEXTS))), max_frames=FRAMES)


def grid(codes: np.ndarray) -> np.ndarray:
    """Rows of codes (C, T): BOS, then the delayed codes, each channel followed by EOS. (R, C) int32."""
    config = pipeline(YARDSTICK).config
    bos, eos, pad = config.bos_token_id, config.eos_token_id, config.pad_token_id
    ended = np.concatenate([codes, np.full((len(codes), 1), eos, np.int32)], axis=1)
    delayed = apply_delay(ended, config.delay_pattern, bos, pad)
    return np.concatenate([np.full((len(codes), 1), bos, np.int32), delayed], axis=1).T


def forced(side: Side, text: str, rows: np.ndarray) -> np.ndarray:
    """Logits after every row but the last, with the text and without. → (2, R - 1, C, V)."""
    network = pipeline(side).engine.network
    source = network.read([side.array(tokenize(text))], network.encode_empty())
    both = np.stack([rows[:-1], rows[:-1]])
    return side.numpy(network(side.array(both), network.new_cache(), source))


def drawn(logits: np.ndarray, uniform: np.ndarray, sampling: DiaSampling, eos: int) -> np.ndarray:
    return rules.draw(rules.candidates_0626(logits[0], logits[1], sampling, eos), uniform)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(TEXTS)))
def test_codes_are_equal_or_part_at_a_near_tie(place: int) -> None:
    ours, theirs = spoken(PORT)[place], spoken(YARDSTICK)[place]
    assert theirs.shape[1] > 10
    if np.array_equal(ours, theirs):
        return
    config, text = pipeline(YARDSTICK).config, TEXTS[place]
    assert config.sampling.temperature > 0
    rows = grid(theirs)
    logits = {side: forced(side, text, rows) for side in (ORACLE, YARDSTICK, PORT)}
    steps, shape = len(rows) - 1, logits[PORT].shape[2:]
    uniform = np.stack([HostNoise(place).uniform(step, shape) for step in range(steps)])
    chosen = {
        side: drawn(values, uniform, config.sampling, config.eos_token_id) for side, values in logits.items()
    }
    frame = np.arange(steps)[:, None] - np.asarray(config.delay_pattern)
    free = (frame >= 0) & (frame < theirs.shape[1] + (np.arange(rows.shape[1]) == 0))
    # first differences of the free runs, and rows whose forced draws differ
    other = grid(ours)[: len(rows)]
    parts = np.argwhere((other != rows[: len(other)]) & (other >= 0))
    first = (int(parts[0][0]) - 1, int(parts[0][1]))
    assert free[first]
    pairs = {first: (int(other[first[0] + 1, first[1]]), int(rows[first[0] + 1, first[1]]))}
    for step, channel in np.argwhere((chosen[PORT] != chosen[YARDSTICK]) & free):
        ids = int(chosen[PORT][step, channel]), int(chosen[YARDSTICK][step, channel])
        pairs[int(step), int(channel)] = ids
    for (step, channel), ids in pairs.items():
        truth = logits[ORACLE][:, step]
        tie = nearest(
            truth[0],
            truth[1],
            uniform[step],
            channel,
            ids,
            config.sampling,
            config.eos_token_id,
            bound(logits[YARDSTICK][:, step], truth),
        )
        where = f"text {place}, row {step + 1} of {len(rows)}, channel {channel}: {ids[0]} for {ids[1]}"
        print(f"{where}: {tie.decision} by {tie.distance:.1e}, margin {tie.margin:.1e}")
        assert tie.explained, f"{where}: {tie} is more than rounding explains"


@pytest.mark.slow
def test_most_texts_are_equal_and_end() -> None:
    equal = sum(map(np.array_equal, spoken(PORT), spoken(YARDSTICK)))
    ended = sum(codes.shape[1] < FRAMES for codes in spoken(YARDSTICK))
    print(f"{equal} of {len(TEXTS)} texts have equal codes; {ended} end by themselves")
    assert equal >= 0.9 * len(TEXTS)
    assert ended >= 0.9 * len(TEXTS)
