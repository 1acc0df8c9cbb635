"""Fine-tuning: accepted and refused data, learning, and the files that it writes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.finetune_dia import __main__ as command
from examples.finetune_dia import training
from examples.finetune_dia.batches import collate, loss, order
from examples.finetune_dia.data import (
    Recording,
    divided,
    encode,
    fingerprint,
    save,
    saved,
    transcripts,
)
from examples.finetune_dia.lora import LowRank, adapt, merge
from examples.finetune_dia.training import Settings, finetune
from mlx_port.commands import main as cli
from tests.examples.counted import Counted, Killed, Mortal
from tests.sides import YARDSTICK
from tests.tiny.dia import write_published
from tests.tiny.networks import dia_config, published_dac_config, tiny
from torch_ref.dia.dia import Dia
from torch_ref.dia.pipeline import DiaPipeline
from tts_core.audio.files import read_audio, write_audio
from tts_core.dia.grid import apply_delay
from tts_core.errors import NotFoundError, SpeechError, UsageError

pytestmark = pytest.mark.rest

CONFIG = dia_config(positions=200)
CPU = torch.device("cpu")


def recordings(count: int = 5, seed: int = 0) -> list[Recording]:
    rng = np.random.default_rng(seed)
    return [
        Recording(rng.integers(32, 127, 4 + n), rng.integers(0, 60, (6 + 3 * n, 4))) for n in range(count)
    ]


def network(*, cross_rope: bool = False) -> Dia:
    return YARDSTICK.network("dia", tiny(dia_config(cross_rope=cross_rope, positions=200)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six recordings of two words and a second."""
    made, rng = tmp_path / "data", np.random.default_rng(3)
    made.mkdir()
    for n in range(6):
        write_audio(made / f"{n}.wav", rng.normal(0, 0.1, 900 + 60 * n).astype(np.float32), 1000)
        (made / f"{n}.txt").write_text(f"number {n}")
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weights = tiny(CONFIG), tiny(published_dac_config())
    return write_published(tmp_path_factory.mktemp("models") / "tiny", *weights)


def test_transcripts_are_read_as_generation_reads_them(folder: Path) -> None:
    (folder / "3.txt").write_text("[S2] Three,\r\n[S1] four.\n")
    said = list(transcripts(folder, CONFIG).values())
    assert said[0] == "[S1] number 0"
    assert said[3] == "[S2] Three,\n[S1] four."


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / "2.txt").unlink(), r"2\.txt is missing; write the transcript of 2\.wav"),
        (lambda folder: (folder / "2.txt").write_text(" \n"), r"2\.txt: .*no words"),
        (lambda folder: (folder / "2.txt").write_bytes(b"caf\xe9"), r"2\.txt is not UTF-8"),
        (lambda folder: (folder / "2.txt").write_text("long " * 40), r"2\.txt: .*the model takes 90"),
        (lambda folder: (folder / "2.txt").write_text("[S3] Who?"), r"2\.txt: .*\[S3\] is not a speaker"),
        (lambda folder: [path.unlink() for path in folder.glob("[1-5].wav")], "contains 1 WAV files"),
        (lambda folder: [path.unlink() for path in folder.iterdir()] + [folder.rmdir()], "no folder"),
    ],
    ids=["no text", "empty", "latin-1", "long", "tag", "one", "none"],
)
def test_wrong_data_are_told_before_any_sound_is_read(folder: Path, harm, message: str) -> None:
    harm(folder)
    with pytest.raises(SpeechError, match=message):
        transcripts(folder, CONFIG)


def test_a_recording_longer_than_the_model(folder: Path) -> None:
    codec = YARDSTICK.network("dac", tiny(published_dac_config()))
    write_audio(folder / "4.wav", np.zeros(30 * 250, np.float32), 1000)
    with pytest.raises(UsageError, match=r"4\.wav is 7\.5 s long, the model's limit is 5\.9 s; cut it"):
        list(encode(transcripts(folder, CONFIG), codec, CONFIG))


def test_recordings_come_back(folder: Path, tmp_path: Path) -> None:
    codec, said = YARDSTICK.network("dac", tiny(published_dac_config())), transcripts(folder, CONFIG)
    with torch.inference_mode():
        made = list(encode(said, codec, CONFIG))
    assert bytes(made[2].tokens.astype(np.uint8)) == b"\x01 number 2"
    assert made[0].codes.shape == (30, 4)
    save(tmp_path / "codes.npz", made)
    for one, two in zip(saved(tmp_path / "codes.npz"), made, strict=True):
        np.testing.assert_array_equal(one.tokens, two.tokens)
        np.testing.assert_array_equal(one.codes, two.codes)


def test_fingerprint_of_the_data(folder: Path) -> None:
    before = fingerprint(transcripts(folder, CONFIG))
    assert before == fingerprint(transcripts(folder, CONFIG))
    (folder / "5.txt").write_text("number 6")
    assert before != fingerprint(transcripts(folder, CONFIG))


def test_some_recordings_are_held_out() -> None:
    given = recordings(60)
    learned, unseen = divided(given)
    assert (len(learned), len(unseen)) == (57, 3)
    assert {id(one) for one in [*learned, *unseen]} == {id(one) for one in given}
    assert [id(one) for one in divided(given)[1]] == [id(one) for one in unseen]
    assert len(divided(given[:2])[1]) == 1


def test_a_pass_takes_every_recording_once() -> None:
    lengths = np.random.default_rng(0).integers(5, 500, 203).tolist()
    batches = order(lengths, 4, np.random.default_rng(1))
    assert sorted(place for batch in batches for place in batch) == list(range(203))
    assert max(map(len, batches)) == 4
    padding = [max(lengths[n] for n in batch) - min(lengths[n] for n in batch) for batch in batches]
    assert np.mean(padding) < 60, "recordings of a batch are of about the same length"
    assert batches != order(lengths, 4, np.random.default_rng(2))


def test_noise_and_dropped_texts() -> None:
    given, rng = recordings(40), np.random.default_rng(0)
    batch = collate(given, CONFIG, rng, CPU, text_dropout=0.5, code_noise=0.6)
    plain = collate(given, CONFIG, rng, CPU, text_dropout=0.0, code_noise=0.0)
    dropped = sum(len(text) == 1 and int(text) == 0 for text in batch.texts)
    assert 8 < dropped < 32
    codes = plain.waves < CONFIG.eos_token_id
    wrong = batch.waves != plain.waves
    assert 0.08 < wrong[codes].float().mean() < 0.22
    assert 10 < int((wrong.sum((1, 2)) == 0).sum()) < 30, "half of them hear all right"
    assert torch.equal(batch.waves[~codes], plain.waves[~codes])
    assert torch.equal(batch.wanted, plain.wanted)


@pytest.mark.parametrize("cross_rope", [False, True], ids=["0626", "v0.1"])
def test_the_loss_of_a_recording(cross_rope: bool) -> None:
    """In the layout of generation: frame f of channel c in row 1 + f + delay, then channel 0's EOS."""
    dia, one = network(cross_rope=cross_rope), recordings()[3]
    frames, bos, eos, pad = len(one.codes), CONFIG.bos_token_id, CONFIG.eos_token_id, CONFIG.pad_token_id
    ended = np.concatenate([one.codes.T, np.full((4, 1), eos)], axis=1).astype(np.int32)
    delayed = apply_delay(ended, CONFIG.delay_pattern, bos, pad)
    rows = torch.from_numpy(np.concatenate([np.full((4, 1), bos), delayed], axis=1).T)
    with torch.no_grad():
        source = dia.read([torch.from_numpy(one.tokens)])
        log_p = dia(rows[None, :-1], dia.new_cache(), source)[0].log_softmax(-1)  # (R, C, V)
    channels = [
        -np.mean([float(log_p[f + delay, c, one.codes[f, c]]) for f in range(frames)])
        for c, delay in enumerate(CONFIG.delay_pattern)
    ]
    channels[0] = (channels[0] * frames - float(log_p[frames, 0, eos])) / (frames + 1)
    weights = 1 / (1 + np.arange(4) / 4)
    made = loss(dia, collate([one], dia.config, np.random.default_rng(0), CPU, text_dropout=0, code_noise=0))
    assert float(made.detach()) == pytest.approx(float(np.dot(channels, weights) / weights.sum()), rel=1e-5)


@pytest.mark.parametrize("cross_rope", [False, True], ids=["0626", "v0.1"])
def test_neighbours_do_not_matter(cross_rope: bool) -> None:
    """The loss of a batch is that of its recordings, weighted by their lengths."""
    dia, given = network(cross_rope=cross_rope), recordings(3)

    def loss_of(some: list[Recording]) -> float:
        rng = np.random.default_rng(0)
        return float(loss(dia, collate(some, dia.config, rng, CPU, text_dropout=0, code_noise=0)).detach())

    together = loss_of(given[:1] * 2)
    assert together == pytest.approx(loss_of(given[:1]), rel=1e-5)
    low, high = sorted((loss_of(given[:1]), loss_of(given[2:])))
    assert low < loss_of([given[0], given[2]]) < high


def test_low_rank_begins_as_nothing_and_merges_into_the_layers() -> None:
    torch.manual_seed(0)
    dia, given = network(), recordings(2)
    names = set(dia.state_dict())
    batch = collate(given, CONFIG, np.random.default_rng(0), CPU)
    with torch.no_grad():
        before = loss(dia, batch)
        adapt(dia, 3)
        assert torch.equal(loss(dia, batch), before)
        learned = [name for name, p in dia.named_parameters() if p.requires_grad]
        assert learned
        assert all(name.endswith((".a", ".b")) for name in learned)
        for module in dia.modules():
            if isinstance(module, LowRank):
                module.b.normal_(std=0.2)
        changed = loss(dia, batch)
        merge(dia)
        assert set(dia.state_dict()) == names
        assert float((changed - before).abs()) > 1e-2
        torch.testing.assert_close(loss(dia, batch), changed, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [None, 4], ids=["full", "LoRA"])
def test_from_recordings_to_a_model(
    model: Path,
    folder: Path,
    tmp_path: Path,
    rank: int | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It learns and continues where it stopped; its folder loads and is converted like a published model.

    The commands of the README: MLX with the converted copy speaks as PyTorch with the folder.
    """
    monkeypatch.setattr(training, "Clock", Counted)
    monkeypatch.setattr(training, "SHOWN", 1)
    out, codec, copy, wav = tmp_path / "out", model / "codec", tmp_path / "copy", tmp_path / "out.wav"
    settings = Settings(rank, 16, 4, 1e-2, 0)
    finetune(model, codec, folder, out, settings)
    said = capsys.readouterr().out
    losses = [float(found) for found in re.findall(r"training ([\d.]+)", said)]
    assert "from step 0" in said
    assert len(losses) == 16
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.2
    text, first = "[S1] My voice.", DiaPipeline.load(out / "dia", codec=codec, device="cpu")
    assert first.config == DiaPipeline.load(model, codec=codec, device="cpu").config
    given = ["--hf-path", out / "dia", "--codec", codec, "--mlx-path", copy, "--dtype", "float32"]
    assert cli.run(["convert", *map(str, given)]) == 0
    capsys.readouterr()
    given = ["--model", copy, "--text", text, "--seed", "3", "--max-seconds", "0.5", "--output", wav]
    assert cli.run(["generate", *map(str, given), "--json"]) == 0
    spoken = first.generate(text, seed=3, max_frames=17)
    assert json.loads(capsys.readouterr().out)["frames"] == spoken.codes.shape[1]
    np.testing.assert_allclose(read_audio(wav, 1000), spoken.audio, atol=2e-3)
    finetune(model, codec, folder, out, Settings(rank, 18, 4, 1e-2, 0))
    again = capsys.readouterr().out
    assert "from step 16\n" in again
    assert "18 steps" in again
    moved = DiaPipeline.load(out / "dia", codec=codec, device="cpu").engine.network.logits_dense.weight
    assert not torch.equal(first.engine.network.logits_dense.weight, moved)
    (folder / "0.txt").write_text("something else")
    with pytest.raises(UsageError, match="contains a run with another data; give another folder"):
        finetune(model, codec, folder, out, settings)


@pytest.mark.parametrize("rank", [None, 4], ids=["full", "LoRA"])
def test_killed_and_begun_again_it_learns_the_same(
    model: Path, folder: Path, tmp_path: Path, rank: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed and restarted ends with the weights of an undisturbed run, bit for bit.

    Those of another seed differ.
    """

    def learned(out: Path, seed: int = 0) -> dict[str, torch.Tensor]:
        finetune(model, model / "codec", folder, out, Settings(rank, 5, 4, 1e-2, seed))
        return torch.load(out / "checkpoint.pt")["learned"]

    monkeypatch.setattr(training, "Clock", Counted)
    whole, other = learned(tmp_path / "whole"), learned(tmp_path / "other", seed=1)
    monkeypatch.setattr(training, "Clock", Mortal)
    with pytest.raises(Killed):
        learned(tmp_path / "killed")
    assert torch.load(tmp_path / "killed/checkpoint.pt")["step"] == Mortal.DEATH
    assert not (tmp_path / "killed/dia").exists()
    monkeypatch.setattr(training, "Clock", Counted)
    again = learned(tmp_path / "killed")
    assert list(again) == list(whole)
    assert all(torch.equal(again[name], weight) for name, weight in whole.items())
    assert not all(torch.equal(other[name], weight) for name, weight in whole.items())


def test_errors_are_one_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--model", str(model), "--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]
    for more, code, message in (
        (["--minutes", "1"], NotFoundError.exit_code, "data: no folder"),
        (["--minutes", "0"], UsageError.exit_code, "--minutes: 0.0 must be above 0"),
        (["--minutes", "1", "--lora", "-3"], UsageError.exit_code, "--lora: -3 must be above 0"),
    ):
        monkeypatch.setattr(sys, "argv", ["finetune_dia", *given, *more])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        assert stopped.value.code == code
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert message in err
        assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
