"""The recipe of the embedded voice: its training data, and a forward pass equal to the network's."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from examples.train_voice import text, vocabulary
from examples.train_voice.checkpoints import grown, requantized
from examples.train_voice.codebooks import Codebooks, fewer, find
from examples.train_voice.codec import Hearing, Pieces, Reconstruction
from examples.train_voice.dialogues import Batch, Batches, Corpus, Recipe, Shape, collate, example, shapes
from examples.train_voice.discriminators import Judges
from examples.train_voice.export import dac_config, dia_config, generation_config, write
from examples.train_voice.flite import PHONES, Sound, Spoken
from examples.train_voice.language_model import Steps
from examples.train_voice.parameters import FEATURES, HOP, PITCH, SPECTRUM, framed, phases, positions_of
from examples.train_voice.polish import Contest
from examples.train_voice.settings import Settings, read_settings
from examples.train_voice.spectral import MelDistance, mel_filters
from examples.train_voice.spelling import letters_of
from examples.train_voice.teacher import Teacher, delayed
from tests.examples.random_speech import random_features, write_codes
from torch_ref.codecs.dac import Dac
from torch_ref.dia.dia import Dia
from torch_ref.dia.pipeline import DiaPipeline
from tts_core.dia.grid import apply_delay
from tts_core.judges.sentences import sentences as read_sentences

pytestmark = pytest.mark.rest

SETTINGS = read_settings()
SOUNDS = [
    ("pau", 0.1, 0),
    ("m", 0.2, 3),
    ("ay", 0.3, 3),
    ("s", 0.4, 8),
    ("ih", 0.5, 8),
    ("k", 0.55, 8),
    ("s", 0.6, 8),
    ("th", 0.8, 8),
    ("pau", 1.0, 0),
]
RECIPE = Recipe(longest=120, swapped=0.5, single=False, max_text_bytes=200)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Four hundred sentences of random codes."""
    folder = tmp_path_factory.mktemp("codes")
    write_codes(folder, SETTINGS, np.random.default_rng(1), longest=40)
    return Corpus(folder)


def batch_of(corpus: Corpus, count: int, recipe: Recipe = RECIPE) -> Batch:
    examples = [example(corpus, corpus.training, random.Random(n), recipe) for n in range(count)]
    return collate(examples, SETTINGS.dia, Shape(count, 128, 208), recipe, np.random.default_rng(0))


def utterance(seconds: float = 1.0) -> Spoken:
    """A tone of a pitch that falls, between two silences."""
    rows = int(seconds * 200)
    pitch = np.where((np.arange(rows) > 20) & (np.arange(rows) < rows - 40), np.linspace(180, 90, rows), 0)
    samples = (3000 * np.sin(np.arange((rows - 1) * 80) / 9) * np.repeat(pitch[1:] > 0, 80)).astype(np.int16)
    rng = np.random.default_rng(0)
    sounds = [Sound(PHONES.index(name), end, word_end) for name, end, word_end in SOUNDS]
    return Spoken("My sixth", samples, pitch, rng.normal(size=(rows, 25)), rng.random((rows, 5)), sounds)


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


def sha256(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize(
    ("level", "count", "digest"),
    [
        ("level10", 3932, "47cd91a501d9b4a13a43877c93bc19c6df16a53e44e43dbe9b6cd0b80d368767"),
        ("level20", 6734, "2c48f426ea2d4c55faf7acadcbadbcaa939d98ca6766f12c7aefd2631bffb971"),
        ("level35", 27131, "84bdcb59409d0d7f4589a6226a264ec70ee5e9c74168917db70dddbbecf2c6f9"),
    ],
)
def test_levels_are_those_of_the_published_voice(level: str, count: int, digest: str) -> None:
    """The lists that the embedded voice's training text was drawn from."""
    words = vocabulary.level(level)
    assert (len(words), sha256(words)) == (count, digest)


def test_sentences_are_those_of_the_published_voice() -> None:
    rng = random.Random(30)
    drawn = sha256([text.sentence(rng) for _ in range(2000)])
    assert drawn == "b25747c437faf8c6d2f61f36445b76cd733966ca4c7102038ab60dee0b72e736"


def test_evaluation_texts_are_what_the_issue_asks() -> None:
    sentences = read_sentences()
    dialogues = (text.EVALUATION / "dialogues.txt").read_text().splitlines()
    assert len(sentences) == 100
    assert all(4 <= len(line.split()) <= 14 for line in sentences)
    assert len(dialogues) == 40
    assert all(2 <= line.count("[S") <= 4 for line in dialogues)


def test_phases_are_the_vocoders() -> None:
    pitch = np.array([0, 0, 100, 110, 95, 0, 0, 200, 205, 180.0, 0])
    expected, since, period = [], 0.0, 0.0
    for later in np.where(pitch > 0, 16000 / np.maximum(pitch, 1), 0)[1:]:  # sample by sample
        if period == 0 or later == 0:
            since, period = later, 0.0
        step = (later - period) / 80
        for _ in range(80):
            since += 1 if period else 0
            since -= period if period and since >= period else 0
            expected.append(since / period if period else np.nan)
            period += step if period else 0
        period = later
    made = phases(pitch, np.arange(len(expected)))
    assert (np.isnan(made) == np.isnan(expected)).all()
    off = (made - expected)[~np.isnan(made)]
    assert np.abs(off - np.round(off)).max() < 0.02


def test_frames_hold_whole_ticks_and_what_is_said() -> None:
    spoken = utterance()
    samples, features, where, said = framed(spoken, np.random.default_rng(0))
    assert samples.shape == (len(features) * HOP,)
    assert features.shape == (len(where), FEATURES)
    first = int(np.flatnonzero(np.abs(spoken.samples) > 100)[0]) // 80 - 8
    np.testing.assert_array_equal(samples[:4800], spoken.samples[80 * first : 80 * first + 4800])
    between = (spoken.cepstra[first + 5] + spoken.cepstra[first + 6]) / 2
    np.testing.assert_allclose(features[0, 5 * 30 + 1 : 5 * 30 + 25], between[1:])
    angles = features[:, SPECTRUM + PITCH :].reshape(-1, 2)
    np.testing.assert_allclose((angles**2).sum(1), 1)
    assert (np.diff(where) >= 0).all()
    assert [PHONES[phone] for phone in said[[0, 3, -1]]] == ["pau", "m", "pau"]


def test_phones_stand_at_their_letters() -> None:
    assert positions_of(utterance()) == [
        0,
        0,
        1,
        3,
        4,
        5,
        5,
        6,
        7,
    ]  # silent at first; x twice; th; silent again
    knight = tuple(PHONES.index(name) for name in ("n", "ay", "t"))
    assert letters_of("knight", knight) == (1, 2, 5)
    assert letters_of("a", knight) == (0, 0, 0)


def test_every_mel_band_hears_something() -> None:
    for n_fft, bands in ((32, 5), (2048, 200)):
        assert (mel_filters(n_fft, bands, 16000).sum(0) > 0).all()
    samples = torch.randn(2, 4096)
    distance = MelDistance(16000)
    # a BLAS may sum rows at the edge of a product in another order: one rounding of a logarithm near 1
    assert distance(samples, samples) <= torch.finfo(torch.float32).eps
    assert distance(samples, 0.5 * samples) == pytest.approx(np.log10(2), rel=1e-3)


@pytest.fixture(scope="module")
def books() -> Codebooks:
    """Of random features."""
    return find(torch.from_numpy(random_features(np.random.default_rng(0))).half(), SETTINGS, 0)


def test_cosine_search_finds_the_nearest_entry(books: Codebooks) -> None:
    rng = np.random.default_rng(1)
    latents = torch.from_numpy(rng.normal(size=(50, SETTINGS.codec.hidden_size))).float()
    rest = latents
    for one in books.quantizer.quantizers:
        codes = one.encode(rest.T[None])[0]  # pyright: ignore
        projection = one.in_proj.weight[:, :, 0]  # pyright: ignore
        own = projection.abs().sum(1) > 0
        entries, points = one.codebook.weight[:, own], rest @ projection[own].T  # pyright: ignore
        distances = torch.cdist(points.double(), entries.double())
        chosen = distances.gather(1, codes[:, None].long())[:, 0]
        rounding = 4 * entries.square().sum(1).max() * 2**-11  # of |c|² in float16
        assert (chosen**2 - distances.min(1).values ** 2).max() < rounding
        assert (distances.mean(1) ** 2 - distances.min(1).values ** 2).min() > rounding
        rest = rest - one.decode(codes[None])[0].T  # pyright: ignore


def smaller(settings: Settings) -> Settings:
    """Without the last codebook."""
    count = settings.codec.n_codebooks - 1
    codec = replace(settings.codec, n_codebooks=count, codebook_dim=settings.codec.codebook_dim[:count])
    return replace(settings, codebook_roles=settings.codebook_roles[:count], codec=codec)


def test_grown_codebooks_keep_the_known_ones() -> None:
    rng = np.random.default_rng(2)
    features = torch.from_numpy(rng.normal(size=(600, FEATURES)))
    known = find(features, smaller(SETTINGS), 0)
    assert fewer(SETTINGS.codec, known.quantizer.state_dict()) == smaller(SETTINGS).codec
    more = find(features, SETTINGS, 0, known)
    codes = more.codes(features)
    assert torch.equal(codes[:, :-1], known.codes(features))
    assert len(codes[:, -1].unique()) > 100
    state = more.quantizer.state_dict()
    codec = {f"quantizer.{name}": value for name, value in known.quantizer.state_dict().items()}
    assert requantized({**codec, "decoder.bias": torch.ones(1)}, state).keys() == {
        "decoder.bias",
        *(f"quantizer.{name}" for name in state),
    }
    codec["quantizer.quantizers.0.codebook.weight"] = torch.zeros(256, 32)
    with pytest.raises(SystemExit, match="not grown from this codec's"):
        requantized(codec, state)


def test_a_grown_language_model_says_what_it_said() -> None:
    torch.manual_seed(0)
    config = SETTINGS.dia
    count = config.decoder_config.num_channels
    channels = replace(config.decoder_config, num_channels=count + 1)
    before = Dia(config)
    after = Dia(replace(config, decoder_config=channels, delay_pattern=(*config.delay_pattern, count)))
    after.load_state_dict(grown(before.state_dict(), count, count + 1))
    rows, ids = torch.randint(0, 256, (1, 5, count + 1)), [torch.arange(1, 9)]
    with torch.no_grad():
        old = before(rows[..., :count], before.new_cache(), before.read(ids))
        new = after(rows, after.new_cache(), after.read(ids))
    torch.testing.assert_close(new[:, :, :count], old)
    assert (new[:, :, count] == 0).all()


def test_codec_losses_reach_both_halves(books: Codebooks) -> None:
    torch.manual_seed(0)
    dac = Dac(SETTINGS.codec)
    dac.quantizer.load_state_dict(books.quantizer.state_dict())
    pieces = Pieces(0.1 * torch.randn(2, 6 * HOP), torch.randn(2, SETTINGS.codec.hidden_size, 6))
    model = Reconstruction(dac, SETTINGS.codec_training)
    losses = model(pieces, torch.ones(()))
    assert losses.agreed.shape == (SETTINGS.codec.n_codebooks,)
    losses.total.backward()
    assert float(dac.encoder.conv1.weight.grad.abs().sum()) > 0  # pyright: ignore
    assert float(dac.decoder.conv1.weight.grad.abs().sum()) > 0  # pyright: ignore
    own = Reconstruction(dac, SETTINGS.codec_training)(pieces, torch.zeros(()))
    assert own.total.item() != pytest.approx(losses.total.item())


def test_polish_teaches_all_but_the_codes(books: Codebooks) -> None:
    torch.manual_seed(0)
    dac, judges = Dac(SETTINGS.codec), Judges()
    dac.quantizer.load_state_dict(books.quantizer.state_dict())
    dac.quantizer.requires_grad_(False)
    pieces = Pieces(0.1 * torch.randn(2, 6 * HOP), torch.randn(2, SETTINGS.codec.hidden_size, 6))
    contest = Contest(dac, judges, SETTINGS)
    parts = contest(pieces)
    assert torch.isfinite(parts).all()
    assert all(p.grad is not None for p in [*dac.encoder.parameters(), *dac.decoder.parameters()])
    assert all(p.grad is not None for p in judges.parameters())
    assert all(p.grad is None for p in dac.quantizer.parameters())
    errors = Hearing(dac)(dac.encoder(pieces.samples[:, None]), pieces.latents)[1]
    torch.testing.assert_close(parts[4:], errors)


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


def test_batches_have_few_shapes_and_fill_them(corpus: Corpus) -> None:
    wanted = {(shape.examples, shape.text, shape.frames + 1) for shape in shapes(SETTINGS.dia, RECIPE, 600)}
    stream = iter(Batches(corpus, SETTINGS.dia, RECIPE, 600, seed=1))
    for _ in range(20):
        batch = next(stream)
        assert (*batch.ids.shape, batch.codes.shape[1]) in wanted
        assert int(batch.frames.max()) < batch.codes.shape[1]


def test_noise_and_dropped_texts(corpus: Corpus) -> None:
    noisy = Recipe(120, 0.0, True, 200, text_dropout=0.5, code_noise=0.4)
    batch = batch_of(corpus, 40, noisy)
    real = torch.arange(batch.codes.shape[1]) < batch.frames[:, None]
    wrong = (batch.codes != batch.heard)[real].float().mean().item()
    assert 0.05 < wrong < 0.15
    assert torch.equal(batch.codes[~real], batch.heard[~real])
    assert 5 < int(batch.with_text.sum()) < 35
    assert (batch.ids.sum(1) > 0).tolist() == batch.with_text.tolist()
    assert ((batch.sounds >= 0).sum(1) > 0).tolist() == batch.with_text.tolist()
    assert torch.equal(batch.said >= 0, real)


def test_rows_are_delayed_as_in_generation(corpus: Corpus) -> None:
    batch = batch_of(corpus, 3)
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
    teacher = Teacher(network)
    batch = batch_of(corpus, 3)
    mask = (torch.arange(batch.ids.shape[1]) < batch.texts[:, None])[:, None, None]
    rows, _ = delayed(
        batch.codes, batch.frames, config.delay_pattern, config.bos_token_id, config.pad_token_id
    )
    with torch.no_grad():
        made, *_ = teacher.logits(rows, teacher.encode(batch.ids, mask), mask)
        source = network.read([ids[:length] for ids, length in zip(batch.ids, batch.texts, strict=True)])
        torch.testing.assert_close(made, network(rows, network.new_cache(), source), rtol=1e-4, atol=1e-4)


def test_prompts_are_not_learned(corpus: Corpus) -> None:
    torch.manual_seed(0)
    teacher = Teacher(Dia(SETTINGS.dia))
    batch = batch_of(corpus, 2)
    with torch.no_grad():
        whole = teacher(batch._replace(prompts=torch.zeros_like(batch.prompts)), 0.0)
        late = teacher(batch._replace(prompts=batch.frames), 0.0)
    assert (whole.channels > 0).all()
    assert late.channels[0] > 0  # the end of speech is still learned
    assert (late.channels[1:] == 0).all()


def test_steps_fill_clipped_gradients(corpus: Corpus) -> None:
    torch.manual_seed(0)
    network = Dia(SETTINGS.dia)
    losses = Steps(Teacher(network), 1.0, captured=False)(batch_of(corpus, 2))
    assert (losses.phones > 0).all()
    gradients = [p.grad for p in network.parameters()]
    assert all(gradient is not None for gradient in gradients)
    norm = torch.stack([g.norm() for g in gradients if g is not None]).norm().item()
    assert norm <= 1.0 + 1e-4
    assert 0 < float(losses.guide) < 1


def test_export_is_read_back(tmp_path) -> None:
    torch.manual_seed(0)
    dia, dac = Dia(SETTINGS.dia), Dac(SETTINGS.codec)
    write(
        tmp_path / "dia",
        dia.state_dict(),
        {"config.json": dia_config(SETTINGS.dia), "generation_config.json": generation_config(SETTINGS.dia)},
    )
    write(tmp_path / "codec", dac.state_dict(), {"config.json": dac_config(SETTINGS.codec)})
    pipeline = DiaPipeline.load(tmp_path / "dia", codec=tmp_path / "codec", device="cpu")
    assert pipeline.config == SETTINGS.dia
    assert pipeline.codec_config == SETTINGS.codec
    assert pipeline.generate("[S1] Hello.", max_frames=4, seed=1).codes.shape == (
        SETTINGS.codec.n_codebooks,
        4,
    )
