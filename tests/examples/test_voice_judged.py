"""benchmarks/voice_judged.py: its choices, forms and messages, without a recognizer or flite."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import voice_judged
from benchmarks.lib import recognizer
from benchmarks.lib.recognizer import missing
from benchmarks.voice_judged import Item, chosen, forms, spoken
from examples.train_voice.settings import read_settings
from tests.tiny.dia import write_published
from tests.tiny.networks import dia_config, published_dac_config, tiny

pytestmark = pytest.mark.rest


def test_other_sentences_for_each_voice() -> None:
    said = chosen(16, read_settings().synthesis.voices)
    groups = [item.group for item in said]
    assert [groups.count(group) for group in ("slt", "rms")] == [8, 8]
    assert len({item.text.split("]", 1)[1] for item in said}) == 16, "no sentence twice"
    assert all(item.text.startswith("[S2]") for item in said if item.group == "rms")


def test_what_is_missing_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = recognizer.find_spec
    without: dict[str, object] = {"pocketsphinx": None}
    monkeypatch.setattr(recognizer, "find_spec", lambda name: without.get(name, find(name)))
    assert "pocketsphinx is not installed" in (missing() or "")
    without["pocketsphinx"] = find("json")  # as if it was real
    failure = FileNotFoundError("flite: libflite is not installed; install flite")
    monkeypatch.setattr(recognizer, "speak", lambda *_: (_ for _ in ()).throw(failure))
    assert missing() == str(failure)
    monkeypatch.setattr(sys, "argv", ["voice_judged.py"])
    voice_judged.main()
    assert capsys.readouterr().out == f"voice_judged: nothing measured: {failure}\n"
    monkeypatch.setattr(recognizer, "speak", lambda *_: None)
    assert missing() is None


@pytest.mark.torch
def test_every_form_of_a_small_model(tmp_path: Path) -> None:
    """Each form is converted, loaded and speaks."""
    config = dia_config(positions=200, text_positions=120)
    wide = replace(config.decoder_config, intermediate_size=256)  # whole groups, so that it can be quantised
    config = replace(config, decoder_config=wide)
    dia, dac = tiny(config, eos=0.0), tiny(published_dac_config())
    folder = write_published(tmp_path / "tiny", dia, dac)
    said, names = [Item("slt", "[S1] Yes."), Item("rms", "[S2] No.")], []
    for form in forms(tmp_path, folder, folder / "codec"):
        names.append(form.name)
        results = spoken(form.load(), said, [0.105, 0.305])
        assert [result.codes.shape[1] for result in results] == [10, 30], "three times the source's"
        assert all(result.finish_reason == "length" for result in results)
    plain = ["torch float32", "torch bfloat16", "mlx float32", "mlx bfloat16"]
    assert names == [*plain, "mlx 8-bit", "mlx 6-bit", "mlx 4-bit"]
    assert size(tmp_path / "bfloat16") < size(tmp_path / "float32")
    by_bits = [size(tmp_path / name) for name in ("4-bit", "6-bit", "8-bit", "float32")]
    assert by_bits == sorted(set(by_bits)), "fewer bits, smaller files"


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
