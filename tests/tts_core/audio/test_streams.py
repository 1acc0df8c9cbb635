"""Files of which libsndfile would read a part: all of the sound is read, or the file is refused."""

import io
import struct
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from tests.tts_core.growth import lines_run
from tts_core.audio import streams
from tts_core.audio.files import read_audio_at_its_rate
from tts_core.errors import UsageError

RATE = 16000
DELAY = 529  # samples of the decoder, which a header of LAME's would state


def speechlike(seconds: float, rate: int = RATE, seed: int = 0) -> np.ndarray:
    """Sweeps and silences, whose MP3 of variable bit rate changes it often."""
    time = np.arange(round(seconds * rate)) / rate
    loud = (np.sin(2 * np.pi * (1.5 + seed) * time) > 0) * np.random.default_rng(seed).normal(size=time.size)
    return (0.2 * loud + 0.2 * np.sin(2 * np.pi * 300 * time * (1 + time))).clip(-1, 1).astype(np.float32)


def encoded(samples: np.ndarray, form: str, rate: int = RATE, subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


def mp3(samples: np.ndarray, rate: int = RATE, mode: str = "VARIABLE") -> bytes:
    file = io.BytesIO()
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    with soundfile.SoundFile(file, "w", rate, channels, format="MP3", bitrate_mode=mode) as sound:
        sound.write(samples)
    return file.getvalue()


def frames_of(content: bytes) -> list[bytes]:
    """Frames as FFmpeg's parser finds them, the one that states their number first."""
    with av.open(io.BytesIO(content), "r") as file:
        packets = [bytes(packet) for packet in file.demux(audio=0) if packet.size]
    return [content[: content.index(packets[0])], *packets]


def read(content: bytes, path: Path) -> np.ndarray:
    path.write_bytes(content)
    return read_audio_at_its_rate(path)[0]


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100])
@pytest.mark.parametrize("channels", [1, 2])
def test_mp3_without_the_header_that_states_its_frames(tmp_path: Path, rate: int, channels: int) -> None:
    """libsndfile divides the file's length by the first frame's bit rate: it read a quarter to all of it."""
    sound = speechlike(3, rate)
    sound[: rate // 2] = 0  # a first frame that is larger or smaller than the others
    content = mp3(np.stack([sound] * channels, axis=1), rate)
    header, *frames = frames_of(content)
    assert b"Xing" in header
    bare = read(b"".join(frames), tmp_path / "a.mp3")
    per_frame = 1152 if rate > 24000 else 576
    assert len(bare) == len(frames) * per_frame - DELAY
    whole = read(content, tmp_path / "b.mp3")
    lag = len(bare) - len(whole)
    assert 0 <= lag < 3 * per_frame
    shifts = [
        abs(bare[shift : shift + len(whole)] - whole)[per_frame * 4 :].max() for shift in range(lag + 1)
    ]
    assert min(shifts) < 1e-4


@pytest.mark.parametrize("mode", ["VARIABLE", "CONSTANT"])
def test_joined_mp3(tmp_path: Path, mode: str) -> None:
    one, two = mp3(speechlike(3), mode=mode), mp3(speechlike(2, seed=1), mode=mode)
    art = b"ID3\4\0\0" + bytes([0, 0, 8, 0]) + b"\xff\xfb\x90\x64" * 256  # bytes that look like frames
    last = b"TAG".ljust(128, b"x")
    joined = read(art + one + last + art + two + last, tmp_path / "a.mp3")
    count = len(frames_of(one)) - 1 + len(frames_of(two))  # one header's frame is silent
    assert len(joined) == count * 576 - DELAY
    alone = read(two, tmp_path / "b.mp3")
    tails = [abs(joined[-len(alone) - lag :][: len(alone)] - alone)[2000:].max() for lag in range(1, 1800)]
    assert min(tails) < 1e-4


def test_a_whole_mp3_is_read_as_ever(tmp_path: Path) -> None:
    """Without the encoder's delay, also with a tag after it."""
    content = mp3(speechlike(3))
    for tag in (b"", b"TAG".ljust(128, b"x")):
        (tmp_path / "a.mp3").write_bytes(content + tag)
        expected = soundfile.read(tmp_path / "a.mp3", dtype="float32")[0]
        assert len(expected) == 3 * RATE
        with io.FileIO(tmp_path / "a.mp3") as file:
            assert list(streams.streams(file)) == [None]
        np.testing.assert_allclose(read(content + tag, tmp_path / "a.mp3"), expected, atol=1e-6)


def test_joined_mp3_of_two_kinds_is_refused(tmp_path: Path) -> None:
    one, other, both = speechlike(2), speechlike(2, 44100), np.stack([speechlike(2)] * 2, axis=1)
    for second in (mp3(other, 44100), mp3(both)):
        with pytest.raises(UsageError, match=r"differ in rate or channels; .*: ffmpeg -i a\.mp3 a\.wav$"):
            read(mp3(one) + second, tmp_path / "a.mp3")


FORMS: dict[str, Callable[[np.ndarray], bytes]] = {
    "flac": lambda samples: encoded(samples, "FLAC"),
    "ogg": lambda samples: encoded(samples, "OGG", subtype="VORBIS"),
    "opus": lambda samples: encoded(samples, "OGG", subtype="OPUS"),
    "wav": lambda samples: encoded(samples, "WAV"),
    "aiff": lambda samples: encoded(samples, "AIFF"),
    "au": lambda samples: encoded(samples, "AU"),
    "caf": lambda samples: encoded(samples, "CAF"),
}


@pytest.mark.parametrize("form", FORMS)
def test_joined_files(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever heads are in the pieces that are searched."""
    parts = [FORMS[form](speechlike(seconds, seed=place)) for place, seconds in enumerate((2, 1, 1.5))]
    expected = np.concatenate([read(part, tmp_path / f"part.{form}") for part in parts])
    assert len(expected) == 4.5 * RATE
    np.testing.assert_array_equal(read(b"".join(parts), tmp_path / f"a.{form}"), expected)
    start = len(parts[0])
    for cut in (start, start + 1, start + 5, start + 11):
        monkeypatch.setattr(streams, "_PIECE", cut)
        np.testing.assert_array_equal(read(b"".join(parts), tmp_path / f"a.{form}"), expected)


def test_joined_files_of_two_rates_are_refused(tmp_path: Path) -> None:
    two = encoded(speechlike(1), "FLAC") + encoded(speechlike(1, 8000), "FLAC", 8000)
    with pytest.raises(UsageError, match=r"its parts differ in rate; .*: ffmpeg -i a\.flac a\.wav$"):
        read(two, tmp_path / "a.flac")


def test_joined_files_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = encoded(speechlike(2), "FLAC")
    (tmp_path / "a.flac").write_bytes(one + one)
    with pytest.raises(UsageError, match=r"longer than 3 s"):
        read_audio_at_its_rate(tmp_path / "a.flac", most_seconds=3)
    assert len(read_audio_at_its_rate(tmp_path / "a.flac", most_seconds=4)[0]) == 4 * RATE
    monkeypatch.setattr(streams, "MOST_SOUNDS", 2)
    with pytest.raises(UsageError, match=r"joined of more than 2 sounds; convert"):
        read(one * 3, tmp_path / "b.flac")


@pytest.mark.parametrize("extra", [b"", b"LIST" + struct.pack("<I", 5) + b"hello\0"])
def test_wav_whose_writer_could_not_go_back(tmp_path: Path, extra: bytes) -> None:
    content = encoded(speechlike(2), "WAV")
    place = content.index(b"data")
    for riff in (content[:4] + bytes(4) + content[8:12], content[:12]):
        unfinished = riff + content[12:place] + extra + b"data" + bytes(4) + content[place + 8 :]
        np.testing.assert_array_equal(
            read(unfinished, tmp_path / "a.wav"), soundfile.read(io.BytesIO(content), dtype="float32")[0]
        )
    with pytest.raises(UsageError, match="is empty"):
        read(content[:place] + b"data" + bytes(4), tmp_path / "a.wav")


def test_frames_of_an_mp3_are_found_in_linear_time() -> None:
    def work(size: int) -> Callable[[], object]:
        content = b"\xff\xfb\x90\x64" * size
        return lambda: list(streams._frames(content))

    assert lines_run(work(8000)) < 9 * lines_run(work(1000))
