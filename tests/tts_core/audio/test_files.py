import os
import resource
import socket
import stat
import subprocess
import sys
import wave
from contextlib import chdir

import numpy as np
import pytest
import soundfile

from tests.tts_core.growth import peak_bytes
from tts_core.audio import files as audio
from tts_core.audio.formats.names import FORMATS
from tts_core.audio.formats.writer import SoundWriter
from tts_core.errors import NotFoundError, ResourceError, UsageError

RATES = [1, 999, 1_000_001, 2**31 - 1]  # that no sound has


def tone(length, rate, frequency=220.0):
    return (0.5 * np.sin(2 * np.pi * frequency * np.arange(length) / rate)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".WAV"])
@pytest.mark.parametrize("rate", [8000, 11111, 16000, 44100])
@pytest.mark.parametrize("length", [1, 2, 997])
def test_lossless_round_trip_is_within_half_a_step(tmp_path, suffix, rate, length):
    path, samples = tmp_path / f"a{suffix}", tone(length, rate)
    audio.write_audio(path, samples, rate)
    back = audio.read_audio(path, rate)
    assert back.dtype == np.float32
    assert back.shape == (length,)
    # written x 32767, read / 32768
    np.testing.assert_allclose(back * (32768 / 32767), samples, atol=0.5 / 32767 + 1e-7)


def test_mp3_of_one_sample(tmp_path):
    audio.write_audio(tmp_path / "a.mp3", np.zeros(1, np.float32), 16000)
    assert audio.read_audio(tmp_path / "a.mp3", 16000).shape == (1,)


@pytest.mark.parametrize(("suffix", "rate"), [(".mp3", 12000), (".opus", 48000)])
def test_a_rate_that_the_format_lacks_is_resampled(tmp_path, suffix, rate):
    audio.write_audio(tmp_path / f"a{suffix}", tone(11111, 11111), 11111)
    back, found = audio.read_audio_at_its_rate(tmp_path / f"a{suffix}")
    assert (found, len(back)) == (rate, rate)
    inner = slice(2000, -2000)
    assert np.abs(back - tone(rate, rate))[inner].max() < 0.05


def test_ogg_is_read(tmp_path):
    soundfile.write(tmp_path / "a.ogg", tone(8000, 16000), 16000)
    assert audio.read_audio(tmp_path / "a.ogg", 16000).shape == (8000,)


def test_channels_are_averaged(tmp_path):
    left, right = tone(500, 16000), tone(500, 16000, 333.0)
    soundfile.write(tmp_path / "a.wav", np.stack([left, right, left], axis=1), 16000, subtype="FLOAT")
    expected = (2 * left + right) / 3
    np.testing.assert_allclose(audio.read_audio(tmp_path / "a.wav", 16000), expected, atol=1e-7)


def test_channels_in_opposite_phase(tmp_path):
    """Their mean is silent, or nearly; the louder one counts, in all blocks."""
    left, right = tone(16000, 16000), tone(16000, 16000, 333.0)
    for other in (-left, -left * 0.9 + 1e-4 * right):
        soundfile.write(tmp_path / "a.wav", np.stack([left, other], axis=1), 16000, subtype="FLOAT")
        np.testing.assert_array_equal(audio.read_audio(tmp_path / "a.wav", 16000), left)
    for other in (0 * left, left, right, -0.2 * left):
        both = np.stack([left, other], axis=1)
        soundfile.write(tmp_path / "a.wav", both, 16000, subtype="FLOAT")
        np.testing.assert_array_equal(audio.read_audio(tmp_path / "a.wav", 16000), both.mean(axis=1))


def test_samples_of_the_scale_of_integers(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.array([0, 13760, -5.0]), 8000, subtype="FLOAT")
    with pytest.raises(UsageError, match=r"a\.wav: its peak is 13760 at a full scale of 1; divide by 32768"):
        audio.read_audio(tmp_path / "a.wav", 8000)
    soundfile.write(tmp_path / "a.wav", np.array([0, 8, -8.0]), 8000, subtype="FLOAT")
    assert abs(audio.read_audio(tmp_path / "a.wav", 8000)).max() == 8


@pytest.mark.parametrize(
    ("length", "rate", "new_rate", "resampled"),
    [
        (12839, 44100, 24000, 6988),
        (44100, 44100, 24000, 24001),
        (1, 44100, 48000, 2),
        (9999, 8000, 16000, 19998),
    ],
)
def test_resampled_lengths_are_librosas(length, rate, new_rate, resampled):
    """librosa 0.11: int(np.ceil(length * (new_rate / rate))), which rounds 24000.000000000004 up."""
    found = audio.resample(tone(length, rate), rate, new_rate, quality="HQ")
    assert found.shape == (resampled,)
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("rate", "new_rate"), [(44100, 16000), (11111, 16000), (8000, 44100), (48000, 44100)]
)
def test_resampling_keeps_a_tone(tmp_path, rate, new_rate):
    soundfile.write(tmp_path / "a.wav", tone(rate, rate), rate, subtype="FLOAT")
    back = audio.read_audio(tmp_path / "a.wav", new_rate)
    assert abs(len(back) - new_rate) <= 1
    middle = slice(new_rate // 4, new_rate // 2)
    np.testing.assert_allclose(back[middle], tone(new_rate, new_rate)[middle], atol=2e-3)


def test_a_missing_file_is_named_with_its_neighbour(tmp_path):
    soundfile.write(tmp_path / "speaker.wav", tone(10, 8000), 8000)
    with pytest.raises(NotFoundError, match=r"speeker\.wav is not there; did you mean .*speaker\.wav\?"):
        audio.read_audio(tmp_path / "speeker.wav", 8000)
    with pytest.raises(NotFoundError, match="neither is the folder"):
        audio.read_audio(tmp_path / "no" / "such.wav", 8000)


def test_what_is_not_sound_is_refused_with_a_remedy(tmp_path):
    (tmp_path / "bad.m4a").write_bytes(b"not audio at all" * 100)
    with pytest.raises(UsageError, match=r"bad\.m4a cannot be decoded; .* ffmpeg -i bad\.m4a bad\.wav"):
        audio.read_audio(tmp_path / "bad.m4a", 8000)
    (tmp_path / "empty.wav").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot be decoded"):
        audio.read_audio(tmp_path / "empty.wav", 8000)
    with pytest.raises(UsageError, match="a folder, not a file; give a sound file"):
        audio.read_audio(tmp_path, 8000)


def odd_files(folder):
    """Paths that are not files, and the message for each."""
    os.mkfifo(folder / "pipe.wav")
    with socket.socket(socket.AF_UNIX) as server, chdir(folder):  # a socket's path has 107 bytes at most
        server.bind("socket.wav")
    for name, target in {
        "zero": "/dev/zero",
        "loop": "loop.wav",
        "far": "nowhere",
        "eio": "/proc/self/mem",
    }.items():
        (folder / f"{name}.wav").symlink_to(target)
    return {
        "pipe.wav": (UsageError, "a named pipe, not a file; give a sound file"),
        "socket.wav": (UsageError, "a socket, not a file; give a sound file"),
        "zero.wav": (UsageError, "a device, not a file; give a sound file"),
        "loop.wav": (UsageError, "Too many levels of symbolic links"),
        "far.wav": (NotFoundError, r"far\.wav is not there"),
        "eio.wav": (ResourceError, r"Input/output error\); check the disk, or copy the file"),
        "x" * 300 + ".wav": (UsageError, "File name too long"),
        f"{'y' * 246}.wav": (NotFoundError, "is not there"),
    }


@pytest.mark.skipif(
    not os.path.exists("/proc/self/mem"), reason="no /proc/self/mem, which reads as a failing disk"
)
def test_what_is_no_file_is_refused_without_waiting_for_it(tmp_path):
    for name, (kind, message) in odd_files(tmp_path).items():
        with pytest.raises(kind, match=message) as caught:
            audio.read_audio(tmp_path / name, 8000)
        assert name[:80] in str(caught.value)
    for name in ("pipe.wav", "socket.wav", "zero.wav", "loop.wav", "x" * 300 + ".wav"):
        with pytest.raises(UsageError, match=r"^output: .*; give the name of a file$"):
            audio.check_output(tmp_path / name)


@pytest.mark.parametrize(
    "name", ["z" * 251 + ".wav", "z" * 250 + ".flac", os.fsdecode(b"caf\xe9.wav"), "a b'c\n.wav"]
)
def test_names_that_file_systems_allow(tmp_path, name):
    audio.write_audio(tmp_path / name, tone(100, 8000), 8000)
    assert audio.read_audio(tmp_path / name, 8000).shape == (100,)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_small_file_of_endless_silence_takes_little_memory(tmp_path):
    """Two hours in 0.2 MB took 230 MB and were read to their end."""
    silence = np.zeros(8000 * 60, np.int16)
    with soundfile.SoundFile(tmp_path / "a.flac", "w", 8000, 1) as file:
        for _ in range(120):
            file.write(silence)
    assert (tmp_path / "a.flac").stat().st_size < 250_000

    def read():
        with pytest.raises(UsageError, match=r"a\.flac is longer than 1800 s; give a part of it"):
            audio.read_audio(tmp_path / "a.flac", 8000)

    assert peak_bytes(read) < 2**27


def test_a_header_that_promises_more_than_there_is(tmp_path):
    soundfile.write(tmp_path / "a.flac", tone(5000, 8000), 8000)
    content = bytearray((tmp_path / "a.flac").read_bytes())
    assert content[4] & 0x7F == 0  # STREAMINFO comes first
    content[21] |= 0x0F  # the highest bits of the number of samples, 36 in all
    (tmp_path / "a.flac").write_bytes(content)

    def read():
        with pytest.raises(UsageError, match="cannot be decoded"):
            audio.read_audio(tmp_path / "a.flac", 8000)

    assert peak_bytes(read) < 2**24  # not the 200 GB that the header promises


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        *(
            ([0.0] * 100, rate, rf"has {rate} samples a second; give one of 1000 to 1000000")
            for rate in RATES
        ),
        ([], 8000, "is empty"),
        ([0.0], 44100, "only 1 sample long"),
        ([0.1, np.nan, 0.1], 8000, "NaN or infinite samples"),
    ],
)
def test_sound_that_cannot_be_used(tmp_path, samples, rate, message):
    """A second at 1 Hz would become 8000 samples for each of its own."""
    soundfile.write(tmp_path / "a.wav", np.array(samples), rate, subtype="FLOAT")
    with pytest.raises(UsageError, match=message):
        audio.read_audio(tmp_path / "a.wav", 8000)


@pytest.mark.parametrize("name", ["a.xyz", "a", "a.m4a", "wav"])
def test_an_unknown_suffix_is_refused_before_any_work(tmp_path, name):
    with pytest.raises(UsageError, match=r"use \.wav, \.flac, \.mp3, \.opus, \.aac, \.pcm$"):
        audio.check_output(tmp_path / name)


def test_check_output_on_folders(tmp_path, monkeypatch):
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(UsageError, match=r"folder\.wav: a folder; give the name of a file"):
        audio.check_output(tmp_path / "folder.wav")
    with pytest.raises(NotFoundError, match="does not exist; create it first"):
        audio.check_output(tmp_path / "none" / "a.wav")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written to"):
        audio.check_output(tmp_path / "file" / "a.wav")
    audio.check_output(tmp_path / "a.wav")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.wav"]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match="cannot be written to"):
        audio.check_output(tmp_path / "a.wav")


@pytest.mark.parametrize("suffix", [".wav", ".mp3", ".flac", ".opus"])
def test_a_failed_write_keeps_the_old_file(tmp_path, suffix):
    """A file size limit fails as a full disk does, also inside the encoders."""
    path = tmp_path / f"a{suffix}"
    audio.write_audio(path, tone(10, 8000), 8000)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(ResourceError, match=r"could not be written \(File too large\); is the disk full"):
            audio.write_audio(path, tone(80_000, 8000), 8000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_written_file_has_ordinary_permissions(tmp_path):
    (tmp_path / "before").write_text("")
    audio.write_audio(tmp_path / "a.wav", tone(10, 8000), 8000)
    (tmp_path / "after").write_text("")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("before", "a.wav", "after")}
    assert len(modes) == 1


def test_a_growing_wav_is_valid_after_each_piece_and_equals_the_whole(tmp_path):
    samples = tone(1000, 8000)
    with (
        open(tmp_path / "grown.wav", "wb", buffering=0) as file,
        SoundWriter(file, FORMATS["wav"], 8000, seekable=True) as sound,
    ):
        for start in range(0, 1000, 300):
            sound.write(samples[start : start + 300])
            with wave.open(str(tmp_path / "grown.wav")) as so_far:
                assert so_far.getnframes() == min(start + 300, 1000)
    audio.write_audio(tmp_path / "whole.wav", samples, 8000)
    assert (tmp_path / "grown.wav").read_bytes() == (tmp_path / "whole.wav").read_bytes()


def test_no_sound_library_is_imported_before_it_is_used():
    code = (
        "import sys, tts_core.audio.files, tts_core.audio.formats; "
        "sys.exit(bool({'soundfile', 'soxr', 'av'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_with_nul(tmp_path):
    """Python's own error would be a ValueError without the argument's name."""
    with pytest.raises(UsageError, match=r"output: .* has the character NUL in its name"):
        audio.write_audio(tmp_path / "a\0.wav", np.zeros(9), 8000)
    with pytest.raises(UsageError, match=r"audio: .* has the character NUL in its name"):
        audio.read_audio(tmp_path / "a\0.wav", 8000)


@pytest.mark.parametrize("rate", [0, -1, 999, 1_000_001, float("nan")])
def test_a_rate_that_nothing_is_read_at(tmp_path, rate):
    soundfile.write(tmp_path / "a.wav", np.zeros(9), 8000)
    with pytest.raises(UsageError, match=r"sample_rate: .* is not a rate of 1000 to 1000000 Hz"):
        audio.read_audio(tmp_path / "a.wav", rate)
