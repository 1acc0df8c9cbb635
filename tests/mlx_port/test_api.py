"""The embedded voice's converted copy: made once in the cache, in a temporary folder where that fails."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlx_port import api, generate, load
from tts_core.embedded_voice import fingerprint
from tts_core.errors import ResourceError


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where copies were made; in place of the work a config.json appears."""
    made: list[Path] = []

    def convert(folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        made.append(folder)

    monkeypatch.setattr(api, "_convert_voice", convert)
    return made


def test_first_use_converts_and_the_second_does_not(
    conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new" / "cache"))
    first = api.converted_voice()
    assert first.is_relative_to(tmp_path / "new/cache/mlx-port")
    assert fingerprint() in first.name
    assert conversions == [first]
    assert api.converted_voice() == first
    assert conversions == [first]


def test_another_voice_or_format_is_another_folder(
    conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = api.converted_voice()
    monkeypatch.setattr(api, "fingerprint", lambda: "0" * 16)
    second = api.converted_voice()
    monkeypatch.setattr(api, "FORMAT_VERSION", 2)  # an older version's copy must not be loaded
    assert len({first, second, api.converted_voice()}) == 3
    assert len(conversions) == 3


def test_without_the_variable_the_home_folder_is_used(
    conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert api.converted_voice().is_relative_to(tmp_path / ".cache/mlx-port")


def a_file(place: Path, _: pytest.MonkeyPatch) -> None:
    place.write_text("")


def no_access(place: Path, patch: pytest.MonkeyPatch) -> None:
    place.mkdir()  # root may write anywhere, so the answer is patched
    patch.setattr(api.os, "access", lambda path, mode: not Path(path).is_relative_to(place))


@pytest.mark.parametrize("spoil", [a_file, no_access])
def test_a_cache_that_cannot_be_written(
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
    conversions: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(tmp_path / "cache", monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert api.converted_voice().is_relative_to(tmp_path / "tmp")
    assert len(conversions) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "cache"))
    with pytest.raises(ResourceError, match="set XDG_CACHE_HOME to one that can be written"):
        api.converted_voice()


def test_the_copy_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real conversion, then a voice that speaks from it; the loaded one is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    api.embedded_voice.cache_clear()
    result = generate("[S1] Hi.", seed=3, max_frames=6)
    [folder] = (tmp_path / "mlx-port").iterdir()
    assert {"README.md", "codec", "config.json", "conversion.json"} <= {
        path.name for path in folder.iterdir()
    }
    again = load(folder).generate("[S1] Hi.", seed=3, max_frames=6)
    np.testing.assert_array_equal(again.codes, result.codes)
    np.testing.assert_array_equal(again.audio, result.audio)
    by_path = generate("[S1] Hi.", folder, seed=3, max_frames=6)
    np.testing.assert_array_equal(by_path.codes, result.codes)
    assert api.embedded_voice() is api.embedded_voice()
