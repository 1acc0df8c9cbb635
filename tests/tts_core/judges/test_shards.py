"""Recordings inside tar shards."""

from pathlib import Path

import numpy as np
import pytest

from tts_core.audio.files import read_audio, write_audio
from tts_core.bulk.tar import TarShard
from tts_core.errors import SpeechError
from tts_core.judges.judging import on_disk


def test_an_entry_is_read_as_the_file_was(tmp_path: Path) -> None:
    sound = tmp_path / "a.wav"
    write_audio(sound, np.linspace(-0.5, 0.5, 1600, dtype=np.float32), 16000)
    shard = TarShard(tmp_path / "shard-000000.tar", [])
    shard.add("00000000.json", b"{}")
    shard.add("00000001.wav", sound.read_bytes())
    with on_disk(tmp_path / "shard-000000.tar/00000001.wav") as path:
        assert np.array_equal(read_audio(path, 16000), read_audio(sound, 16000))
    assert not path.exists()
    with on_disk(sound) as path:
        assert path == sound


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "is not there"), (b"no shard at all", "cannot be read"), (b"", "cannot be read")],
)
def test_shards_that_cannot_be_read(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "s.tar").write_bytes(content)
    with pytest.raises(SpeechError, match=reason), on_disk(tmp_path / "s.tar/00000000.wav"):
        pass


def test_a_missing_entry_is_named(tmp_path: Path) -> None:
    TarShard(tmp_path / "s.tar", []).add("00000000.wav", b"x")
    with pytest.raises(SpeechError, match=r"s\.tar has no entry 1\.wav"), on_disk(tmp_path / "s.tar/1.wav"):
        pass
