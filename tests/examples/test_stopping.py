"""Training: a stopped stage continues, a seed fixes the result, several processes learn as one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.multiprocessing.spawn import start_processes

from examples.finetune_dia import training
from examples.train_voice import codec, encoding, language_model, polish, synthesis
from examples.train_voice.codebooks import find
from examples.train_voice.parallel import Processes, save
from examples.train_voice.parameters import HOP
from examples.train_voice.settings import read_settings
from examples.train_voice.speech import Shard, read_shard, shard_names, write_shard
from tests.examples.counted import Counted, Killed, Mortal
from tests.examples.random_speech import random_features, write_codes
from tests.examples.ranks import train_as
from tests.tiny.dia import write_published
from tests.tiny.networks import dia_config, published_dac_config, tiny
from tts_core.audio.files import write_audio

pytestmark = pytest.mark.rest

FULL = read_settings()
NARROW = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 8}
HIDDEN = 6 * 2 ** len(FULL.codec.downsampling_ratios)
SETTINGS = replace(
    FULL,
    utterances=400,
    codec=replace(FULL.codec, encoder_hidden_size=6, hidden_size=HIDDEN, decoder_hidden_size=64),
    codec_training=replace(FULL.codec_training, frames=6, batch=2, shards=1, own_from=0.0),
    polish=replace(FULL.polish, frames=6, batch=2),
    dia=replace(
        FULL.dia,
        encoder_config=replace(FULL.dia.encoder_config, **NARROW),
        decoder_config=replace(FULL.dia.decoder_config, **NARROW, cross_hidden_size=32, cross_head_dim=8),
    ),
    language_training=replace(FULL.language_training, rows=600, longest=120, shards=1),
)
NAMES = ["codec", pytest.param("polish", marks=pytest.mark.slow), "language_model"]
Job = Callable[[Processes], None]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """speech/, codebooks.pt and codes/ of random features and codes, and start.pt, a codec to polish."""
    folder, rng = tmp_path_factory.mktemp("work"), np.random.default_rng(0)
    for name in ("speech", "codes"):
        (folder / name).mkdir()
    heard = random_features(rng)
    spoken = {
        "samples": rng.integers(-9000, 9000, (600, HOP)).astype(np.int16),
        "features": heard.astype(np.float16),
        "places": np.zeros(600, np.float16),
        "phones": np.zeros(600, np.uint8),
    }
    write_shard(folder / "speech", "00000", Shard(["a", "b"], [0, 1], [200, 400], spoken))
    save(folder / "codebooks.pt", find(torch.from_numpy(heard).half(), SETTINGS, 0).state())
    write_codes(folder / "codes", SETTINGS, rng, longest=30)
    torch.manual_seed(0)
    save(folder / "start.pt", {"dac": codec.Dac(SETTINGS.codec).state_dict()})
    return folder


def stages(work: Path, out: Path, steps: int, seed: int = SETTINGS.seed) -> dict[str, Job]:
    """Every stage that trains, with a checkpoint of its name."""
    settings, books = replace(SETTINGS, seed=seed), work / "codebooks.pt"
    return {
        "codec": partial(codec.train, settings, work / "speech", books, out / "codec.pt", steps),
        "polish": partial(
            polish.train, settings, work / "speech", books, work / "start.pt", out / "polish.pt", steps
        ),
        "language_model": partial(
            language_model.train, settings, work / "codes", out / "language_model.pt", steps, 0
        ),
    }


def run(name: str, work: Path, out: Path, steps: int, seed: int = SETTINGS.seed) -> dict:
    """Checkpoint of the stage after a total number of steps."""
    out.mkdir(exist_ok=True)
    stages(work, out, steps, seed)[name](Processes(seed))
    return torch.load(out / f"{name}.pt")


def moments(state: dict) -> set[float]:
    """Numbers of steps in the optimizers' states."""
    optimizers = state["steps"].values() if "steps" in state else [state["optimizer"]]
    return {float(one["step"]) for optimizer in optimizers for one in optimizer["state"].values()}


def same(one: dict, other: dict) -> bool:
    """Compare the weights of two checkpoints."""
    kind = "dia" if "dia" in one else "dac"
    return all(torch.equal(other[kind][name], weight) for name, weight in one[kind].items())


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_stage_goes_on(
    name: str,
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = {"codec": codec, "polish": polish, "language_model": language_model}[name]
    monkeypatch.setattr(module, "Clock", Mortal)
    with pytest.raises(Killed):
        run(name, work, tmp_path, 5)
    left = torch.load(tmp_path / f"{name}.pt")
    assert left["step"] == Mortal.DEATH
    assert left["spent"] > 0
    monkeypatch.setattr(module, "Clock", Counted)
    begun = []

    def rate(peak: float, warmup: int, step: int, progress: float) -> float:
        begun.append(step)
        return peak

    monkeypatch.setattr(module, "learning_rate", rate)
    state = run(name, work, tmp_path, 5)
    assert sorted(set(begun)) == [3, 4], "no step is done again"
    assert state["step"] == 5
    assert moments(state) == {5.0}, "the optimizer goes on too"
    assert not same(left, state)
    assert f"{name.replace('_', ' ')}: 5 steps" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides(name: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"codec": codec, "polish": polish, "language_model": language_model}[name]
    monkeypatch.setattr(module, "Clock", Counted)
    one, again = run(name, work, tmp_path / "a", 2), run(name, work, tmp_path / "b", 2)
    other = run(name, work, tmp_path / "c", 2, seed=8)
    assert same(one, again)
    assert not same(one, other)


def test_a_checkpoint_is_complete_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.pt", {"step": 1})

    def broken(state: dict, path: Path) -> None:
        path.write_bytes(b"half")
        raise Killed

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(Killed):
        save(tmp_path / "a.pt", {"step": 2})
    assert torch.load(tmp_path / "a.pt") == {"step": 1}


class Here:
    """A pool whose only worker is this process."""

    def __init__(self, workers: int):
        self.imap_unordered = map

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_synthesis_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text("\n".join(f"sentence {n}" for n in range(500)))
    made = []

    def shard(texts: list[str], *_: object) -> Shard:
        if len(made) == 2:
            raise Killed
        made.append(texts)
        return Shard(texts, [0] * len(texts), [1] * len(texts), {"samples": np.zeros((len(texts), HOP))})

    monkeypatch.setattr(synthesis, "shard", shard)
    monkeypatch.setattr(synthesis, "get_context", lambda kind: type("Context", (), {"Pool": Here}))
    given = ["synthesis", "--text", str(tmp_path / "text.txt"), "--out", str(tmp_path / "speech")]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(Killed):
        synthesis.main()
    assert shard_names(tmp_path / "speech") == ["00000", "00001"]
    first = made[:]
    made.clear()
    synthesis.main()
    assert [len(texts) for texts in first] == [200, 200]
    assert [texts[0] for texts in made] == ["sentence 400"], "only what was missing"
    assert shard_names(tmp_path / "speech") == ["00000", "00001", "00002"]


def test_encoding_keeps_what_is_there(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speech, codes = tmp_path / "speech", tmp_path / "codes"
    speech.mkdir()
    monkeypatch.setattr(encoding, "read_settings", lambda _: SETTINGS)  # two shards
    monkeypatch.setattr(encoding, "PATIENCE", 0.1)
    given = ["--speech", str(speech), "--codebooks", str(work / "codebooks.pt"), "--out", str(codes)]
    monkeypatch.setattr("sys.argv", ["encoding", *given])
    made = read_shard(work / "speech", "00000")
    write_shard(speech, "00000", made)
    encoding.main()
    assert shard_names(codes) == ["00000"]
    before = (codes / "00000-codes.npy").stat().st_mtime_ns
    write_shard(speech, "00001", made)
    encoding.main()
    assert shard_names(codes) == ["00000", "00001"]
    assert (codes / "00000-codes.npy").stat().st_mtime_ns == before
    np.testing.assert_array_equal(*(np.load(codes / f"{name}-codes.npy") for name in ("00000", "00001")))


def tune(folder: Path, processes: Processes) -> None:
    """Fine-tuning as a job; it creates its own Processes, which ranks.py replaces."""
    settings = training.Settings(None, 3, 2, 1e-2, 0)
    training.finetune(folder / "tiny", folder / "tiny/codec", folder / "data", folder / "out", settings)


@pytest.mark.parametrize(
    "names",
    [["language_model", "finetune"], pytest.param(["codec", "polish"], marks=pytest.mark.slow)],
    ids=", ".join,
)
def test_several_processes_learn_as_one(names: list[str], work: Path, tmp_path: Path) -> None:
    """Each has its own batches; gradients are averaged, and all weights stay equal."""
    weights = tiny(dia_config(positions=200)), tiny(published_dac_config())
    write_published(tmp_path / "tiny", *weights)
    (tmp_path / "data").mkdir()
    for n in range(9):
        noise = np.random.default_rng(n).normal(0, 0.1, 900)
        write_audio(tmp_path / f"data/{n}.wav", noise.astype(np.float32), 1000)
        (tmp_path / f"data/{n}.txt").write_text(f"number {n}")
    known = stages(work, tmp_path, 3) | {"finetune": partial(tune, tmp_path)}
    jobs = {name: known[name] for name in names}
    multiprocessing.set_forkserver_preload(["tests.examples.ranks"])  # imported once, by the server of forks
    start_processes(train_as, (2, tmp_path, jobs), nprocs=2, start_method="forkserver")
    for name in jobs:
        one, other = (torch.load(tmp_path / f"{name}-{rank}.pt") for rank in (0, 1))
        assert torch.equal(one["weights"], other["weights"]), name
        (own, mean), (others, again) = one["gradients"], other["gradients"]
        assert torch.equal(mean, again), name
        assert not torch.equal(own, others), name
        torch.testing.assert_close(mean, (own + others) / 2)
