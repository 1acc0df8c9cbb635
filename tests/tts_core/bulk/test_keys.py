"""Keys: every difference counts."""

from dataclasses import replace
from pathlib import Path

from tts_core.bulk.keys import file_hash, model_hash, row_key, seeded
from tts_core.bulk.rows import TextRow


def test_every_difference_counts(tmp_path: Path) -> None:
    sounds = [tmp_path / name for name in ("a.wav", "b.wav", "c.wav")]
    for path, content in zip(sounds, (b"1", b"2", b"1"), strict=True):
        path.write_bytes(content)
    row = TextRow(3, "x", "Text.", ref_audio=str(sounds[0]), ref_text="Said.", options={"a": 1})
    run = {"model": "m", "dtype": None}
    changes = [
        {"id": "y"},
        {"text": "Text"},
        {"ref_audio": str(sounds[1])},
        {"ref_text": None},
        {"seed": 0},
        {"options": {"a": 2}},
        {"voice": "anna", "ref_audio": None},
    ]
    keys = [row_key(replace(row, **change), run) for change in changes]
    keys += [
        row_key(row, {**run, "model": "n"}),
        row_key(row, {**run, "dtype": "float32"}),
        row_key(row, run),
    ]
    assert len({*keys}) == len(keys)
    assert row_key(replace(row, number=4, ref_audio=str(sounds[2])), run) == keys[-1]


def test_a_row_without_a_seed_gets_one_of_its_key() -> None:
    one, other = (seeded(row, row_key(row, {})) for row in (TextRow(0, "a", "x"), TextRow(0, "b", "x")))
    assert one.seed != other.seed
    assert one == seeded(TextRow(0, "a", "x"), row_key(TextRow(0, "a", "x"), {}))
    assert seeded(TextRow(0, "a", "x", seed=5), "ff").seed == 5


def test_a_model_is_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    first = model_hash(tmp_path)
    (tmp_path / "b").write_bytes(b"2")
    second = model_hash(tmp_path)
    (tmp_path / "conversion.json").write_text("{}")
    third = model_hash(tmp_path)
    file_hash.cache_clear()
    (tmp_path / "conversion.json").write_text("{ }")
    assert len({first, second, third, model_hash(tmp_path), model_hash(tmp_path / "b")}) == 5
