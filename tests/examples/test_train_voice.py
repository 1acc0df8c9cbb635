"""The recipe of the embedded voice: what it trains on, and that its forward pass is the network's."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from examples.train_voice import text
from examples.train_voice.dialogues import Corpus, Recipe, collate, example
from examples.train_voice.export import dac_config, dia_config, generation_config, write
from examples.train_voice.quantizing import Entries, settle, straight_through
from examples.train_voice.settings import read_settings
from examples.train_voice.spectral import MelDistance, mel_filters
from examples.train_voice.speech import Shard, read_shard, shard_names, write_shard
from examples.train_voice.teacher import Teacher, delayed
from torch_ref.codecs.dac import Dac
from torch_ref.dia.dia import Dia
from torch_ref.loading import load
from tts_core.delay import apply_delay

SETTINGS = read_settings()
RECIPE = Recipe(longest=120, swapped=0.5, alone=False, max_text_bytes=200)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Four hundred sentences of random codes."""
    folder, rng = tmp_path_factory.mktemp("codes"), np.random.default_rng(1)
    lengths = [int(n) for n in rng.integers(5, 40, 400)]
    codes = rng.integers(0, 256, (sum(lengths), SETTINGS.codec.n_codebooks)).astype(np.uint8)
    said = [text.sentence(random.Random(n)) for n in range(400)]
    write_shard(folder, "00000", Shard(said, [n % 2 for n in range(400)], lengths, codes))
    return Corpus(folder)


def test_settings_fit_the_package() -> None:
    with torch.device("meta"):
        networks = Dia(SETTINGS.dia), Dac(SETTINGS.codec)
    assert 2 * sum(p.numel() for network in networks for p in network.parameters()) < 23_900_000


def test_no_evaluation_text_is_trained_on(tmp_path) -> None:
    kept_out = text.evaluation_fingerprints()
    assert text.fingerprint("[S1] my BROTHER left, his keys on the kitchen counter!") in kept_out
    text.write(tmp_path / "text.txt", 3000, seed=3)
    lines = (tmp_path / "text.txt").read_text().splitlines()
    assert len(lines) == 3000
    assert not kept_out & {text.fingerprint(line) for line in lines}
    assert max(map(len, lines)) <= text.LONGEST


def test_text_is_seeded() -> None:
    assert text.sentence(random.Random(5)) == text.sentence(random.Random(5))


def test_evaluation_texts_are_what_the_issue_asks() -> None:
    sentences = (text.EVALUATION / "sentences.txt").read_text().splitlines()
    dialogues = (text.EVALUATION / "dialogues.txt").read_text().splitlines()
    assert len(sentences) == 100
    assert all(4 <= len(line.split()) <= 14 for line in sentences)
    assert len(dialogues) == 40
    assert all(2 <= line.count("[S") <= 4 for line in dialogues)


def test_shards_come_back(tmp_path) -> None:
    write_shard(tmp_path, "00003", Shard(["a", "b"], [0, 1], [2, 3], np.arange(5, dtype=np.int16)))
    assert shard_names(tmp_path) == ["00003"]
    assert [piece.tolist() for piece in read_shard(tmp_path, "00003").pieces()] == [[0, 1], [2, 3, 4]]


def test_every_mel_band_hears_something() -> None:
    for n_fft, bands in ((32, 5), (2048, 200)):
        assert (mel_filters(n_fft, bands, 16000).sum(0) > 0).all()
    samples = torch.randn(2, 4096)
    distance = MelDistance(16000)
    assert distance(samples, samples) == 0
    assert distance(samples, 0.5 * samples) == pytest.approx(np.log10(2), rel=1e-3)


def test_straight_through_gives_the_codecs_own_latents() -> None:
    torch.manual_seed(0)
    dac = Dac(SETTINGS.codec)
    samples = 0.1 * torch.randn(2, 8 * dac.hop_length)
    latents = dac.encoder(samples[:, None])
    quantized = straight_through(dac.quantizer, latents)
    expected = dac.quantizer.decode(dac.quantizer.encode(latents))
    torch.testing.assert_close(quantized.latents, expected, rtol=1e-4, atol=1e-5)
    quantized.latents.sum().backward()
    assert dac.encoder.conv1.weight.grad is not None


def test_first_entries_leave_the_codecs_latents_what_they_were() -> None:
    torch.manual_seed(0)
    dac = Dac(SETTINGS.codec)
    samples = 0.1 * torch.randn(16, 20 * dac.hop_length)
    latents = dac.encoder(samples[:, None])
    one = dac.quantizer.quantizers[0]
    alone = one.out_proj(one.in_proj(latents))  # pyright: ignore
    settle(dac, samples)
    torch.testing.assert_close(one.out_proj(one.in_proj(latents)), alone, rtol=1e-3, atol=1e-4)  # pyright: ignore
    encodings = one.in_proj(latents)  # pyright: ignore
    assert encodings.std().item() == pytest.approx(1, rel=1e-3)


def test_unused_entries_are_restarted_and_averages_follow() -> None:
    torch.manual_seed(0)
    dac = Dac(SETTINGS.codec)
    entries = Entries(dac.quantizer, 0.5)
    quantized = straight_through(dac.quantizer, dac.encoder(0.1 * torch.randn(2, 1, 8 * dac.hop_length)))
    for _ in range(20):
        entries.follow(quantized.tallies)
    used = entries.restart(quantized.encodings)
    assert used.shape == (dac.n_codebooks,)
    assert (used < dac.config.codebook_size).all()
    distances = torch.cdist(quantized.encodings[0], dac.quantizer.quantizers[0].codebook.weight)  # pyright: ignore
    assert int((distances.min(0).values < 1e-4).sum()) > 0


def test_examples_have_a_turn_for_every_tag(corpus: Corpus) -> None:
    rng = random.Random(2)
    for _ in range(200):
        one = example(corpus, corpus.training, rng, RECIPE)
        assert one.tokens[0] in (1, 2)
        assert len(one.tokens) <= RECIPE.max_text_bytes
        assert 0 < len(one.codes) <= RECIPE.longest
        assert len(one.where) == len(one.codes)
        assert one.prompt < len(one.codes) or one.prompt == len(one.codes)
        assert one.where.max() <= len(one.tokens)


def test_rows_are_delayed_as_in_generation(corpus: Corpus) -> None:
    batch = collate(
        [example(corpus, corpus.training, random.Random(n), RECIPE) for n in range(3)], SETTINGS.dia
    )
    config = SETTINGS.dia
    rows, drawn = delayed(
        batch.codes, batch.frames, config.delay_pattern, config.bos_token_id, config.pad_token_id
    )
    for row, mask, codes, frames in zip(rows, drawn, batch.codes, batch.frames.tolist(), strict=True):
        wanted = apply_delay(codes[:frames].T.numpy(), config.delay_pattern, config.bos_token_id, -1)
        made = row[1 : 1 + wanted.shape[1]].T.numpy()
        np.testing.assert_array_equal(made[wanted >= 0], wanted[wanted >= 0])
        assert (row[0] == config.bos_token_id).all()
        for channel, delay in enumerate(config.delay_pattern):
            assert row[1 + delay + frames, channel] == config.eos_token_id
        assert mask.sum() == frames * len(config.delay_pattern) + 1  # and channel 0's EOS


def test_teacher_is_the_network(corpus: Corpus) -> None:
    torch.manual_seed(0)
    network, config = Dia(SETTINGS.dia), SETTINGS.dia
    teacher = Teacher(network, 0.0).eval()
    batch = collate([example(corpus, corpus.training, random.Random(n), RECIPE) for n in range(3)], config)
    mask = (torch.arange(batch.ids.shape[1]) < batch.texts[:, None])[:, None, None]
    rows, _ = delayed(
        batch.codes, batch.frames, config.delay_pattern, config.bos_token_id, config.pad_token_id
    )
    with torch.no_grad():
        made, _ = teacher.logits(rows, teacher.encode(batch.ids, mask), mask)
        source = network.read([ids[:length] for ids, length in zip(batch.ids, batch.texts, strict=True)])
        torch.testing.assert_close(made, network(rows, network.new_cache(), source), rtol=1e-4, atol=1e-4)


def test_prompts_are_not_learned(corpus: Corpus) -> None:
    torch.manual_seed(0)
    teacher = Teacher(Dia(SETTINGS.dia), 0.0).eval()
    batch = collate(
        [example(corpus, corpus.training, random.Random(n), RECIPE) for n in range(2)], SETTINGS.dia
    )
    with torch.no_grad():
        whole = teacher(batch._replace(prompts=torch.zeros_like(batch.prompts)), 0.0)
        late = teacher(batch._replace(prompts=batch.frames), 0.0)
    assert (whole.channels > 0).all()
    assert late.channels[0] > 0  # the end of speech is still learned
    assert (late.channels[1:] == 0).all()


def test_export_is_read_back(tmp_path) -> None:
    torch.manual_seed(0)
    dia, dac = Dia(SETTINGS.dia), Dac(SETTINGS.codec)
    write(
        tmp_path / "dia",
        dia.state_dict(),
        {"config.json": dia_config(SETTINGS.dia), "generation_config.json": generation_config(SETTINGS.dia)},
    )
    write(tmp_path / "codec", dac.state_dict(), {"config.json": dac_config(SETTINGS.codec)})
    pipeline = load(tmp_path / "dia", codec=tmp_path / "codec", device="cpu")
    assert pipeline.config == SETTINGS.dia
    assert pipeline.codec.config == SETTINGS.codec
    assert pipeline.generate("[S1] Hello.", max_frames=4, seed=1).codes.shape == (9, 4)
