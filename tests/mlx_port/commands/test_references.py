"""References of `mlx-port generate`: recordings and their transcripts, with a fake pipeline."""

import numpy as np
import pytest
import soundfile

from tests.mlx_port.commands.running import SECRET, open_embedded, refused
from tests.mlx_port.commands.running import run as run_command


def run(capsys, *arguments):
    return run_command(capsys, "generate", *arguments)


@pytest.mark.parametrize(
    ("content", "message"), [(b"no sound" * 99, "ffmpeg -i voice.wav"), (b"", "cannot be decoded")]
)
def test_a_reference_that_is_no_sound(pipeline, capsys, reference, content, message):
    reference.write_bytes(content)
    refused(capsys, pipeline, 2, message, "-t", SECRET, "--ref-audio", reference, "--ref-text", "Hello.")


def test_the_longest_reference_leaves_a_frame(pipeline, capsys, reference):
    configs = open_embedded()
    longest = (configs["dia"].max_frames - 1) * configs["dac"].hop_length
    said = "Hello, everybody. " * 6
    flags = ["--ref-audio", reference, "--ref-text", said, "--piece-seconds", 0, "--quiet"]
    soundfile.write(reference, np.zeros(longest + 1, np.float32) + 0.1, 16000)
    message = f"ref-audio: {(longest + 1) / 16000:.1f} s leave no room for speech"
    refused(capsys, pipeline, 2, message, "-t", SECRET, *flags)
    soundfile.write(reference, np.zeros(longest, np.float32) + 0.1, 16000)
    assert run(capsys, "-t", SECRET, *flags) == (0, "", "")
    assert len(pipeline.asked.voice.samples) == longest


def test_a_joined_reference_is_read_whole(pipeline, capsys, reference):
    """In WAV it could not be decoded, in other formats it ended with its first sound."""
    reference.write_bytes(reference.read_bytes() * 3)
    assert (
        run(capsys, "-t", SECRET, "--ref-audio", reference, "--ref-text", "Hello, everybody.", "--quiet")[0]
        == 0
    )
    assert len(pipeline.asked.voice.samples) == 48000


def test_a_reference_text_counts_for_the_limit(pipeline, capsys, reference):
    soundfile.write(reference, np.zeros(16000 * 20, np.float32) + 0.1, 16000)
    flags = ["--ref-audio", reference, "--ref-text", "Hello. " * 72]
    message = (
        "prompt: 20.0 s and 505 bytes of text leave too little room for this text; the limits are 30.5 s"
    )
    refused(capsys, pipeline, 2, message, "-t", f"{SECRET} {SECRET}", *flags)


def test_a_missing_recording_is_named_before_its_transcript(pipeline, capsys, reference):
    refused(capsys, pipeline, 3, "ref-audio: nofile.wav is not there", "Hi.", "--ref-audio", "nofile.wav")
    flags = ["--ref-audio", reference, "--ref-audio", "voice.wv", "--ref-text", "Hello."]
    refused(capsys, pipeline, 3, "ref-audio: voice.wv is not there; did you mean voice.wav?", "Hi.", *flags)
    given = ["--ref-audio", "voice.wav"]
    refused(capsys, pipeline, 2, "ref-audio: --ref-text is missing; the model continues", "Hi.", *given)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--ref-text", "Hello."] * 2, "ref-text: 2 given for 1 --ref-audio; give one for each"),
        (
            ["--ref-audio", "voice.wav", "--ref-text", "Hi."],
            "ref-text: 1 given for 2 --ref-audio; give one for",
        ),
        (["--ref-audio", "voice.wav", *["--ref-text", "Hi."] * 2], "ref-audio: 2 given, dia takes 1"),
        (["--ref-text", "..."], "ref-text: there are no words in it"),
    ],
)
def test_references_that_do_not_go_together(pipeline, capsys, reference, flags, message):
    refused(capsys, pipeline, 2, message, "-t", SECRET, "--ref-audio", reference, *flags)


def test_a_reference_of_a_sample(pipeline, capsys, reference):
    soundfile.write(reference, np.zeros(1, np.float32) + 0.1, 44100)
    flags = ["--ref-audio", reference, "--ref-text", "Hello."]
    message = "ref-audio: 0.0 s are too short for a voice; give 5 to 10 s of speech, 1 s at least"
    refused(capsys, pipeline, 2, message, "-t", SECRET, *flags)
