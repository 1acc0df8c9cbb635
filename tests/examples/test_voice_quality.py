"""benchmarks/voice_quality.py: its choices, counts and output, without a recognizer or flite."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import voice_quality
from benchmarks.voice_quality import Item, forms, missing, parameters, row, some, speed, spoken, table
from examples.train_voice.evaluation import items
from examples.train_voice.listening import TurnScore
from tests.tiny.dia import dac_weights, dia_config, dia_weights, published_dac_config, write_published

pytestmark = pytest.mark.rest


def test_twenty_texts_by_default() -> None:
    chosen = some(items(["slt", "rms"], None))
    groups = [item.group for item in chosen]
    assert [groups.count(group) for group in ("slt", "rms", "dialogues")] == [8, 8, 4]
    said = [item.text.split("]", 1)[1] for item in chosen]
    assert len(set(said)) == 20, "no sentence twice"
    assert all(item.text.startswith("[S2]") for item in chosen if item.group == "rms")


def test_what_is_missing_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    find = voice_quality.importlib.util.find_spec
    without: dict[str, object] = {"pocketsphinx": None}
    monkeypatch.setattr(voice_quality.importlib.util, "find_spec", lambda name: without.get(name, find(name)))
    assert "pocketsphinx is not installed" in (missing() or "")
    without["pocketsphinx"] = find("json")  # as if it was real
    failure = FileNotFoundError("flite: libflite is not installed; install flite")
    monkeypatch.setattr(voice_quality, "speak", lambda *_: (_ for _ in ()).throw(failure))
    assert missing() == str(failure)
    monkeypatch.setattr(sys, "argv", ["voice_quality.py"])
    voice_quality.main()
    assert capsys.readouterr().out == f"voice_quality: nothing measured: {failure}\n"
    monkeypatch.setattr(voice_quality, "speak", lambda *_: None)
    assert missing() is None


def test_rates_and_table() -> None:
    chosen = [Item("slt", "[S1] a b"), Item("rms", "[S2] c d"), Item("dialogues", "[S1] e f [S2] g h")]
    scores = [
        [TurnScore(2, 1, 180.0)],
        [TurnScore(2, 0, 110.0)],
        [TurnScore(2, 0, 0.0), TurnScore(2, 2, 0.0)],
    ]
    whole = row("mlx", "8-bit", chosen, scores, unfinished=1, real_time_factor=0.5, model_bytes=8_450_000)
    assert whole.word_error_rate == pytest.approx(37.5)
    assert whole.by_group == {"slt": 50.0, "rms": 0.0, "dialogues": 50.0}
    assert whole.low < whole.word_error_rate < whole.high
    lines = table([row("flite", "itself", chosen, scores), whole])
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| flite itself | 37.5 % (")
    assert lines[2].endswith("|  |  |  |  |")
    assert "| 50.0 % | 0.0 % | 50.0 % | 1 | 0.50 | 8.4 |" in lines[3].replace("8.5", "8.4")


@pytest.mark.torch
def test_every_form_of_a_small_model(tmp_path: Path) -> None:
    """Each form is converted, loaded and speaks; sizes are those of the files and fall with the bits."""
    config = dia_config(positions=200, text_positions=120)
    wide = replace(config.decoder_config, intermediate_size=256)  # whole groups, so that it can be quantised
    config = replace(config, decoder_config=wide)
    dia, dac = dia_weights(config, eos=0.0), dac_weights(published_dac_config())
    folder = write_published(tmp_path / "tiny", dia, dac)
    assert parameters(folder) == sum(tensor.size for tensor in dia.tensors.values())
    chosen = [Item("slt", "[S1] Yes."), Item("rms", "[S2] No.")]
    sizes = {}
    for form in forms(tmp_path, folder, folder / "codec"):
        sizes[form.side, form.name] = form.model_bytes
        assert form.codec_bytes > 4 * sum(tensor.size for tensor in dac.tensors.values())
        pipeline = form.load()
        results = spoken(pipeline, chosen, [0.105, 0.305])
        assert [result.codes.shape[1] for result in results] == [10, 30], "three times the source's"
        assert all(result.finish_reason == "length" for result in results)
    assert list(sizes) == [
        ("torch", "float32"),
        ("torch", "bfloat16"),
        *(("mlx", name) for name in ("float32", "bfloat16", "8-bit", "6-bit", "4-bit")),
    ]
    assert sizes["torch", "bfloat16"] * 2 == sizes["torch", "float32"]
    assert sizes["mlx", "bfloat16"] < sizes["mlx", "float32"]
    assert sizes["mlx", "4-bit"] < sizes["mlx", "6-bit"] < sizes["mlx", "8-bit"] < sizes["mlx", "float32"]


def test_speed_leaves_the_first_text_out() -> None:
    factors = iter([9.0, 0.3, 0.1, 0.2])
    asked = []

    def generate(text: str, seed: int) -> SimpleNamespace:
        asked.append((text, seed))
        return SimpleNamespace(real_time_factor=next(factors))

    chosen = [Item("slt", f"[S1] {n}") for n in range(6)]
    assert speed(SimpleNamespace(generate=generate), chosen) == pytest.approx(0.2)
    assert asked == [(f"[S1] {n}", 1 + n) for n in range(4)]
