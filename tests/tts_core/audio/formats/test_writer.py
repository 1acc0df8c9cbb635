"""Every format, streamed and whole: the same sound, soon, in one container."""

from __future__ import annotations

import builtins
import io
import re
import threading
import wave
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from tts_core.audio.formats import names
from tts_core.audio.formats.names import FORMATS, SUFFIXES, Format
from tts_core.audio.formats.writer import SoundWriter, StreamEncoder
from tts_core.errors import NotFoundError
from tts_core.extras import install

RATES = [16000, 24000, 44100]  # of the models
# samples that a decoder gives before the sound: LAME's 1105, and the empty frame that would hold the length
MP3_DELAY = {16000: 1105 + 576, 24000: 1105 + 576, 44100: 1105 + 1152}


def chirp(rate: int, seconds: float = 3.0, seed: int = 0) -> np.ndarray:
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(seed).normal(size=len(time))
    return (0.3 * np.sin(2 * np.pi * (220 * time + 40 * time**2)) + 0.05 * noise).astype(np.float32)


def streamed(form: Format, rate: int, samples: np.ndarray, seed: int = 0, to: int | None = None) -> bytes:
    """Encode in random pieces, some empty."""
    encoder, draw = StreamEncoder(form, rate, rate=to), np.random.default_rng(seed)
    out, start = [], 0
    while start < len(samples):
        size = int(draw.choice([0, 1, 7, 480, 4000, 20000]))
        out.append(encoder.add(samples[start : start + size]))
        start += size
    return b"".join([*out, encoder.finish()])


def whole(form: Format, rate: int, samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    with SoundWriter(file, form, rate, seekable=True) as sound:
        sound.write(samples)
    assert not file.closed
    return file.getvalue()


def decoded(data: bytes) -> np.ndarray:
    """Decode with FFmpeg's libraries, as most players do."""
    av = pytest.importorskip("av", reason="PyAV is not installed: decodes every format")
    with av.open(io.BytesIO(data)) as container:
        frames = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
    sound = np.concatenate(frames)
    return sound / 32768 if sound.dtype == np.int16 else sound


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "opus", "aac"])
def test_the_stream_is_the_whole(name: str, rate: int) -> None:
    """Sample by sample, after the delay of the codec; nothing is missing at the end."""
    form, samples = FORMATS[name], chirp(rate)
    stream, file = decoded(streamed(form, rate, samples)), decoded(whole(form, rate, samples))
    delay = MP3_DELAY[rate] if name == "mp3" else 0
    np.testing.assert_array_equal(stream[delay : delay + len(file)], file)
    assert 0 <= len(stream) - delay - len(file) < 2 * 1152
    length = round(len(file) * rate / form.rate(rate))
    assert length >= len(samples)
    assert length == len(samples) or name == "aac"
    if name in ("wav", "flac"):
        assert np.abs(file - samples).max() < 1e-4


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", FORMATS)
def test_the_pieces_do_not_matter(name: str, rate: int) -> None:
    """But for the random serial number of an Ogg stream, and the checksums that it changes."""
    one, other = (streamed(FORMATS[name], rate, chirp(rate, 1.3), seed) for seed in (1, 2))
    if name == "opus":
        assert len(one) == len(other)
        np.testing.assert_array_equal(decoded(one), decoded(other))
    else:
        assert one == other


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["mp3", "aac", "opus", "wav", "pcm"])
def test_there_is_sound_after_0_3_seconds(name: str, rate: int) -> None:
    """Opus only with PyAV."""
    encoder, samples = StreamEncoder(FORMATS[name], rate), chirp(rate)
    early = b"".join(
        encoder.add(samples[start : start + rate // 20]) for start in range(0, 3 * rate // 10, rate // 20)
    )
    if name == "pcm":
        assert len(early) == 2 * 3 * rate // 10
    else:
        assert np.abs(decoded(early)).max() > 0.1


def test_flac_is_held_back_and_has_its_length() -> None:
    """Equal to the whole file, so that soundfile reads it."""
    samples = chirp(16000)
    encoder = StreamEncoder(FORMATS["flac"], 16000)
    assert encoder.add(samples[:30000]) + encoder.add(samples[30000:]) == b""
    found = encoder.finish()
    assert found == whole(FORMATS["flac"], 16000, samples)
    back, _ = soundfile.read(io.BytesIO(found))
    assert len(back) == len(samples)


def test_flac_beyond_its_bound_is_a_stream() -> None:
    """All that was held comes at once, then each piece; the sound is the same, the length unknown."""
    samples, form = chirp(16000), replace(FORMATS["flac"], held_seconds=1.0)
    encoder = StreamEncoder(form, 16000)
    assert encoder.add(samples[:16000]) == b""
    parts = [encoder.add(samples[start : start + 4096]) for start in range(16000, 48000, 4096)]
    assert all(map(len, parts))
    found = b"".join([*parts, encoder.finish()])
    np.testing.assert_array_equal(decoded(found), decoded(whole(FORMATS["flac"], 16000, samples)))
    assert int.from_bytes(found[21:26], "big") & ((1 << 36) - 1) == 0  # samples, in STREAMINFO
    assert FORMATS["flac"].held_seconds == 300


def test_opus_of_libsndfile_has_pages_of_a_second(without_pyav: None) -> None:
    encoder, samples = StreamEncoder(FORMATS["opus"], 16000), chirp(16000)
    encoder.add(samples[:4800])
    assert len(encoder.add(samples[4800:20000])) > 1000
    sound = streamed(FORMATS["opus"], 16000, samples)
    back, rate = soundfile.read(io.BytesIO(sound))
    assert (rate, len(back)) == (48000, 3 * 48000)


@pytest.fixture
def without_pyav(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "find_spec", lambda name: None)
    ordinary = builtins.__import__

    def refuse(name: str, *given: object, **named: object) -> object:
        assert name != "av"
        return ordinary(name, *given, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_aac_needs_an_extra(without_pyav: None) -> None:
    with pytest.raises(
        NotFoundError, match=rf"^aac: PyAV is not installed; {re.escape(install('formats'))}$"
    ):
        FORMATS["aac"].check()
    with pytest.raises(NotFoundError, match="aac: PyAV"):
        StreamEncoder(FORMATS["aac"], 16000)
    for form in FORMATS.values():
        if form.name != "aac":
            form.check()


def test_pcm_at_another_rate() -> None:
    """The convention of 24 kHz: resampled in pieces as at once, and the media type gives the rate."""
    samples = chirp(44100)
    encoder = StreamEncoder(FORMATS["pcm"], 44100, rate=24000)
    assert (encoder.media_type, encoder.rate) == ("audio/pcm;rate=24000;channels=1", 24000)
    one = encoder.add(samples) + encoder.finish()
    pieces = streamed(FORMATS["pcm"], 44100, samples, to=24000)
    assert len(one) == 2 * 3 * 24000
    difference = np.frombuffer(one, "<i2").astype(int) - np.frombuffer(pieces, "<i2")
    assert np.abs(difference).max() <= 1  # float32 sums in blocks of another size


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("wav", 11111, 11111),
        ("mp3", 11111, 12000),
        ("mp3", 44100, 44100),
        ("mp3", 96000, 48000),
        ("opus", 16000, 48000),
        ("opus", 44100, 48000),
        ("aac", 7000, 8000),
    ],
)
def test_rates(name: str, given: int, expected: int) -> None:
    assert FORMATS[name].rate(given) == expected
    assert StreamEncoder(FORMATS[name], given).rate == expected


def test_a_wav_stream_says_that_its_length_is_unknown() -> None:
    data = streamed(FORMATS["wav"], 16000, chirp(16000, 1))
    assert data[4:8] == data[40:44] == b"\xff\xff\xff\xff"
    assert len(data) == 44 + 2 * 16000
    assert data.count(b"RIFF") == 1
    with wave.open(io.BytesIO(whole(FORMATS["wav"], 16000, chirp(16000, 1)))) as file:
        assert (file.getnframes(), file.getframerate(), file.getsampwidth()) == (16000, 16000, 2)


def test_a_wav_beyond_4_gigabytes_is_as_long_as_it_says_it_can_be() -> None:
    class Far(io.BytesIO):
        """Forgets all but the start."""

        def write(self, data: bytes, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().write(data) if self.tell() < 100 else len(data)

    file = Far()
    sound = SoundWriter(file, FORMATS["wav"], 48000, seekable=True)
    sound._encoder._bytes = 2**32 - 10  # pyright: ignore[reportAttributeAccessIssue]
    sound.write(np.zeros(10, np.float32))
    sound.close()
    assert file.getvalue()[4:8] == file.getvalue()[40:44] == b"\xff\xff\xff\xff"


def test_loud_samples_are_clipped() -> None:
    sound = np.frombuffer(streamed(FORMATS["pcm"], 16000, 3 * chirp(16000, 0.5)), "<i2")
    assert (sound.min(), sound.max()) == (-32767, 32767)
    flat = decoded(streamed(FORMATS["opus"], 16000, 3 * chirp(16000, 0.5)))
    assert np.abs(flat).max() < 1.5


@pytest.mark.parametrize("name", FORMATS)
def test_an_error_of_the_output_comes_out(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Through C code, which would print it; the encoder can still be closed."""

    class Full(io.BytesIO):
        def write(self, data: bytes, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise OSError(28, "No space left on device")

    def write_all() -> None:
        with SoundWriter(Full(), FORMATS[name], 16000, seekable=True) as sound:
            for _ in range(40):
                sound.write(chirp(16000))

    with pytest.raises(OSError, match="No space left"):
        write_all()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["mp3", "flac", "opus"])
def test_an_error_of_the_last_bytes_comes_out(name: str) -> None:
    class Filling(io.BytesIO):
        full = False

        def write(self, data: bytes, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(data)

    output = Filling()
    sound = SoundWriter(output, FORMATS[name], 16000, seekable=False)
    sound.write(chirp(16000)[:1000])
    output.full = True
    with pytest.raises(OSError, match="No space left"):
        sound.close()


def test_an_interrupt_inside_the_encoder_is_not_lost() -> None:
    class Stopped(io.BytesIO):
        def write(self, data: bytes, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise KeyboardInterrupt

    sound = SoundWriter(Stopped(), FORMATS["mp3"], 16000, seekable=False)
    with pytest.raises(KeyboardInterrupt):
        sound.write(chirp(16000))


def test_streams_at_the_same_time() -> None:
    """In threads, as the server encodes: the same bytes as alone."""
    jobs = [(name, rate, seed) for seed, name in enumerate(["mp3", "flac", "wav"] * 4) for rate in RATES]
    alone = [streamed(FORMATS[name], rate, chirp(rate, 1, seed)) for name, rate, seed in jobs]
    found: dict[int, bytes] = {}

    def run(place: int) -> None:
        name, rate, seed = jobs[place]
        found[place] = streamed(FORMATS[name], rate, chirp(rate, 1, seed), seed)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[place] for place in range(len(jobs))] == alone


def test_suffixes_are_names() -> None:
    assert set(SUFFIXES) == {".wav", ".flac", ".mp3", ".opus", ".aac", ".pcm"}
