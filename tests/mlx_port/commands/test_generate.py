"""`mlx-port generate` around a fake pipeline: flags, checks, exit codes, files, reports."""

import io
import json
import sys
import types
import warnings

import numpy as np
import pytest

from mlx_port.commands import main as cli
from mlx_port.commands import report
from mlx_port.stored_voice import converted_voice
from tests.mlx_port.commands.fake import FakePipeline, Speaker
from tests.mlx_port.commands.running import SECRET, open_embedded, refused
from tests.mlx_port.commands.running import run as run_command
from tts_core.audio.files import read_audio
from tts_core.audio.formats.writer import SoundWriter
from tts_core.dia.options import DiaOptions, DiaSampling
from tts_core.errors import GenerationError
from tts_core.text.captions import Captions, Cue
from tts_core.text.duration import longest_frames
from tts_core.voice.embedded import DIA


def run(capsys, *arguments):
    return run_command(capsys, "generate", *arguments)


def test_a_sentence_is_written_and_reported(pipeline, capsys):
    code, out, err = run(capsys, "--text", f"[S1] {SECRET}.")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "speech.wav: 1.50 s of speech, seed 7",
        "2.4 times faster than real time (RTF 0.42)",
        "peak memory 0.12 GB",
    ]
    assert read_audio("speech.wav", 16000).shape == (24000,)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (0.42, "2.4 times faster than real time (RTF 0.42)"),
        (3.14, "3.1 times slower than real time (RTF 3.14)"),
        (0.95, "about real time (RTF 0.95)"),
        (1.09, "about real time (RTF 1.09)"),
        (float("inf"), "of unknown speed"),
    ],
)
def test_real_time_factors_cannot_be_misread(factor, words):
    assert report.speed(factor) == words


def test_captions_are_written_and_reported(pipeline, capsys, tmp_path):
    cues = (Cue("[S1] One.", 0, 0.5), Cue("[S1] Two & three.", 0.7, 1.5))
    pipeline.cues = cues
    code, out, err = run(capsys, "-t", SECRET, "--captions", "a.srt")
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == "a.srt: 2 captions"
    assert (tmp_path / "a.srt").read_text() == Captions(cues).srt()
    assert run(capsys, "-t", SECRET, "--captions", "a.vtt", "--stream", "--quiet") == (0, "", "")
    assert (tmp_path / "a.vtt").read_text() == Captions(cues).vtt()
    assert json.loads(run(capsys, "-t", SECRET, "--captions", "a.vtt", "--json")[1])["captions"] == "a.vtt"


@pytest.mark.parametrize(
    ("code", "message", "name"),
    [
        (2, "captions: a.txt ends in '.txt'; use .srt, .vtt", "a.txt"),
        (3, "captions: the folder none does not", "none/a.srt"),
    ],
)
def test_captions_are_checked_before_weights_are_loaded(pipeline, capsys, code, message, name):
    refused(capsys, pipeline, code, message, "-t", "a", "--captions", name)


def test_pauses_cut_a_text_and_speed_reaches_the_pipeline(pipeline, capsys):
    text = f"[S1] {SECRET}. [pause:1.5] {SECRET}! <break time='2s'/>"
    code, _, err = run(capsys, "-t", text, "--speed", "0.8")
    assert (code, err) == (
        0,
        "2 pieces, about 6 s of speech\nabout 2 s to compute, by the first 1.0 s of it\n",
    )
    assert pipeline.texts == [f"[S1] {SECRET}.", f"[S1] {SECRET}!"]
    assert pipeline.asked.pacing.silences == (None, 1.5, 2.0)
    assert pipeline.asked.pacing.speed == 0.8


def test_unset_flags_are_left_to_the_model(pipeline, capsys):
    assert run(capsys, "-t", SECRET)[0] == 0
    asked = pipeline.asked
    assert (pipeline.options, asked.voice) == (DiaOptions(), None)
    assert asked.sampling == open_embedded()["dia"].sampling
    seconds = len(f"_ {SECRET}.") / 15  # a tag counts as a character
    assert asked.limits == (longest_frames(seconds, 16000 / 480),)


def test_flags_reach_the_pipeline(pipeline, capsys, reference):
    flags = "--cfg-scale 2.5 --temp 0.7 --top-p 0.9 --top-k 20 --seed 11 --max-seconds 1.01 --quiet"
    reference_flags = ["--ref-audio", reference, "--ref-text", "[S2] Hello."]
    assert run(capsys, "-t", SECRET, *flags.split(), *reference_flags) == (0, "", "")
    asked = pipeline.asked
    assert asked.voice.transcript == "[S2] Hello."
    assert asked.voice.samples.shape == (16000,)
    assert pipeline.texts == [f"[S2] Hello. {SECRET}."]
    assert asked.sampling == DiaSampling(cfg_scale=2.5, temperature=0.7, top_p=0.9, top_k=20)
    assert (asked.seeds, asked.limits) == ([11], (34,))  # 33.3 frames per second, rounded up


def test_snake_case_flags_of_other_tools_work(pipeline, capsys, reference):
    flags = ["--ref_text", "Hello.", "--cfg_scale", "2", "--top_k", "9", "--max_seconds", "1"]
    assert run(capsys, "--text", SECRET, "--ref_audio", reference, *flags)[0] == 0
    assert pipeline.asked.sampling.top_k == 9


@pytest.mark.parametrize("flags", [[], ["--text", "-"]])
def test_text_comes_from_stdin(pipeline, capsys, monkeypatch, flags):
    given = io.TextIOWrapper(io.BytesIO(f"\ufeff[S1] {SECRET} for 2.\n".encode()))
    monkeypatch.setattr(sys, "stdin", given)
    assert run(capsys, *flags)[0] == 0
    assert pipeline.texts == [f"[S1] {SECRET} for two."]


def test_no_text_on_a_terminal(pipeline, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(isatty=lambda: True))
    refused(capsys, pipeline, 2, "text: missing; give --text, or pipe a text to stdin")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are no words in it"),
        ("[S1] ... [pause:1]", "there are no words in it"),
        (f"{SECRET} <emphasis>{SECRET}</emphasis>", "text: <emphasis> is SSML, from character 12 on"),
        (f"{SECRET} [pause:{SECRET}]", "text: [pause] at character 12 has no length in seconds"),
        (f"[S1] [pause:0.5 {SECRET}", "[pause:0.5 at character 6 is not closed; write [pause:0.5]"),
        (f"[S3] {SECRET}", "[S3] is not a speaker"),
        (f"{SECRET}\0", "is U+0000, a control character"),
        (f"{SECRET} \udcff", "byte 12 is not UTF-8; write the text in UTF-8"),
        (f"[S1] {SECRET} and more. " * 4000 + "[S1] [S2] No.", "turn 4001 of 4002, [S1], has no words"),
    ],
)
def test_texts_that_cannot_be_spoken(pipeline, capsys, text, message):
    refused(capsys, pipeline, 2, message, "--text", text)


@pytest.mark.parametrize("times", [20, 1500])
def test_a_long_text_is_announced(pipeline, capsys, times):
    """Texts of any length, without printing their words."""
    text = f"[S1] {SECRET} and more. " * times
    code, out, err = run(capsys, "-t", text)
    assert code == 0
    pieces, seconds = int(err.split()[0]), int(err.split()[3])
    assert err.startswith(f"{pieces} pieces, about {seconds} s of speech\nabout ")
    assert err.endswith(" to compute, by a short measurement\n")
    assert 3 * pieces <= seconds <= 7.7 * pieces, "a quarter of the window at most"
    assert "pieces" not in out
    assert len(pipeline.texts) == pieces
    assert " ".join(pipeline.texts) == text.rstrip()
    assert pipeline.options.piece_seconds == "auto"
    assert run(capsys, "-t", text, "--quiet") == (0, "", "")


def test_piece_seconds(pipeline, capsys):
    text = f"[S1] {SECRET} and more. " * 20
    assert int(run(capsys, "-t", text, "--piece-seconds", 3)[2].split()[0]) >= 9
    assert pipeline.options.piece_seconds == 3
    assert len(pipeline.texts) >= 9
    assert run(capsys, "-t", text, "--piece-seconds", 0)[::2] == (0, "")
    assert pipeline.options.piece_seconds is None
    assert len(pipeline.texts) == 1
    pipeline.loaded.clear()
    message = "bytes, the model takes 512; split it after character"
    refused(capsys, pipeline, 2, message, "-t", text * 2, "--piece-seconds", 0)
    message = "--piece-seconds: 0.5 is outside [1, 86400]"
    refused(capsys, pipeline, 2, message, "-t", text, "--piece-seconds", 0.5)


def test_a_long_text_may_have_more_seconds_than_the_window(pipeline, capsys):
    text = f"[S1] {SECRET} and more. " * 200
    assert run(capsys, "-t", text, "--max-seconds", 100, "--quiet")[0] == 0
    assert pipeline.asked.max_frames == 3334


def test_a_text_without_an_end_is_told(pipeline, capsys):
    pipeline.ends = ["stop", "length", "length"]
    told = run(capsys, "-t", SECRET)[1]
    assert told.startswith("speech.wav: 1.50 s of speech, 2 of 3 pieces cut at their limits, seed 7\n")
    assert "pieces" not in run(capsys, "-t", SECRET, "--max-seconds", 1)[1], "the limit was asked for"
    pipeline.ends, pipeline.end = [], "length"
    assert "speech-3.wav: 1.50 s of speech, cut at the limit, seed 7\n" in run(capsys, "-t", SECRET)[1]


def test_a_text_as_it_is_written(pipeline, capsys):
    assert run(capsys, "--text", f"{SECRET} für 2", "--as-written")[0] == 0
    assert pipeline.texts == [f"[S1] {SECRET} für 2"]


def test_characters_outside_the_alphabet(pipeline, capsys, caplog):
    """Refused in the words of the command line, or left out with a warning."""
    text = f"[S1] {SECRET}: größer 東."
    message = "text: the model has not learned 東; write them in its alphabet, or leave them out with "
    message += "--skip-unknown"
    refused(capsys, pipeline, 2, message, "--text", text)
    refused(
        capsys, pipeline, 2, "--skip-unknown: as_written reads", "-t", text, "--as-written", "--skip-unknown"
    )
    code, out, _ = run(capsys, "--text", text, "--skip-unknown")
    assert (code, out.count("read without accents: ö as o, ß as ss")) == (0, 1)
    assert pipeline.texts == [f"[S1] {SECRET}, grosser."]
    assert "left out 東" in caplog.text


def test_a_missing_tag_is_noted_where_there_are_others(pipeline, capsys):
    note = "text: no speaker's tag at its start, [S1] speaks it\n"
    assert run(capsys, "--text", f"{SECRET} [S2] No.")[1].endswith(note)
    assert run(capsys, "--text", f"{SECRET} [S2] No.", "--quiet")[1] == ""
    for plain in (SECRET, f"[s1] {SECRET}"):
        assert "tag" not in run(capsys, "--text", plain)[1]
    assert json.loads(run(capsys, "--text", f"{SECRET} [S2] No.", "--json")[1])["notes"] == [note.strip()]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--temperature", "nan"], "temperature: nan"),
        (["--temperature", "warm"], "--temperature: 'warm' cannot be used; give a number"),
        (["--top-k", "-1"], "--top-k: -1 is outside [0, 1000000]"),
        (["--seed", str(2**64)], f"--seed: {2**64} is outside [0, 2**64 - 1]"),
        (["--max-seconds", "9999"], "--max-seconds: 9999 is more than this model's limit, 30.5"),
        (["--backend", "jax"], "--backend: 'jax' cannot be used; choose from mlx, torch"),
        (["--codec-precision", "tf32"], "codec-precision: MLX has no such switch; omit it, or add --backend"),
        pytest.param(
            ["--backend", "torch", "--codec-precision", "tf32"],
            "--codec-precision: tf32 is for CUDA; cpu",
            marks=pytest.mark.torch,
        ),
        (["--output", "a.xyz"], "output: a.xyz ends in '.xyz'; use .wav, .flac, .mp3, .opus, .aac, .pcm"),
        (["--output", "a"], "output: a has no suffix; use .wav, .flac"),
        (["--output", "."], "output: .: a folder; give the name of a file"),
        (["--output", ""], "output: empty; give a name, or leave --output out"),
        (["--model", ""], "model: empty; give a name, or leave --model out"),
        (["--ref-text", "\udcff"], "ref-text: byte 1 is not UTF-8; write the text in UTF-8"),
        (["--format", "mp3", "--output", "a.mp3"], "format: a file has the format of its suffix; leave"),
        (["--format", "mp3"], "format: a file has the format of its suffix; leave --format out"),
        (["--format", "mp33", "--output", "-"], "format: 'mp33' is not one of wav, flac, mp3, opus"),
        (["--ref-text", "Hello."], "ref-text: dia takes no --ref-text; leave it out"),
        (["--no-such-flag"], "--no-such-flag: no such flag"),
        (["more", SECRET], "text: 2 words besides --text; put the whole text in quotes"),
    ],
)
def test_flags_that_cannot_be_used(pipeline, capsys, flags, message):
    refused(capsys, pipeline, 2, message, "--text", SECRET, *flags)


def test_a_file_in_place_of_a_text(pipeline, capsys, tmp_path):
    """Its name is not spoken; a word that happens to be a file's name is, and so is a sentence."""
    for name in ("scene.txt", "Hello"):
        (tmp_path / name).write_text(SECRET)
    message = "text: scene.txt is a file; speak its text: mlx-port generate - < scene.txt"
    refused(capsys, pipeline, 2, message, "scene.txt")
    for text in ("Hello", "Read scene.txt now.", "other.txt"):
        assert run(capsys, text)[0] == 0


def test_a_given_flag_is_named_as_a_flag(pipeline, capsys):
    """A text without a flag is not."""
    for name, flags in (
        ("--text", ["-t", "[S3] x."]),
        ("text", ["[S3] x."]),
        ("--voice", ["--voice", "no", "x"]),
    ):
        code, _, err = run(capsys, *flags)
        assert code in (2, 3)
        assert err.startswith(f"error: {name}: ")


def test_one_argument_is_the_text(pipeline, capsys, monkeypatch):
    assert run(capsys, "Hi.")[0] == 0
    assert pipeline.texts == ["[S1] Hi."]
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(b"Ho.")))
    assert run(capsys, "-")[0] == 0
    assert pipeline.texts == ["[S1] Ho."]
    with_rest = 'text: 2 words; put the whole text in quotes: mlx-port generate "..."'
    refused(capsys, FakePipeline(), 2, with_rest, "Hello", SECRET)


@pytest.mark.parametrize(
    ("code", "message", "flags"),
    [
        (2, "model: file is a file; give the folder that convert-weights wrote", ["--model", "file"]),
        (3, "mars5 is a model's name; give a folder, or a hub id: CAMB-AI/MARS5-TTS", ["--model", "mars5"]),
        (3, "is not there; did you mean voices?", ["--model", "voicse"]),
        (3, "neither is the folder no/such; correct the path", ["--model", "./no/such/dir"]),
        (3, "--model: nosuch is not there; give a folder that convert-weights wrote", ["--model", "nosuch"]),
        (3, "model: nari/Dia is not in the hub's cache", ["--model", "nari/Dia"]),
        (3, "did you mean nari-labs/Dia-1.6B", ["--model", "nari-lab/Dia-1.6B"]),
        (3, "a folder without config.json", ["--model", "voices"]),
        (4, "not readable as JSON", ["--model", "broken"]),
        (4, "run: convert-weights --hf-path", ["--model", DIA]),
        (3, "the folder none does not exist", ["-o", "none/a.wav"]),
        (3, "audio: nofile.wav is not there", ["--ref-text", "Hello.", "--ref-audio", "nofile.wav"]),
    ],
)
def test_what_is_not_there(pipeline, capsys, tmp_path, code, message, flags):
    for name in ("voices", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken/config.json").write_text("{")
    (tmp_path / "file").write_bytes(b"")
    refused(capsys, pipeline, code, message, "-t", SECRET, *flags)


@pytest.mark.parametrize("backend", ["mlx", "torch"])
def test_a_backend_that_is_not_installed(pipeline, capsys, monkeypatch, backend):
    monkeypatch.setitem(sys.modules, "mlx.core" if backend == "mlx" else "torch", None)
    refused(capsys, pipeline, 3, f"backend {backend}: ", "-t", SECRET, "--backend", backend)


def test_json(pipeline, capsys):
    code, out, err = run(capsys, "-t", SECRET, "--json", "--seed", 5)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == {
        "output": "speech.wav",
        "captions": None,
        "model": None,
        "backend": "mlx",
        "arithmetic": "float32",
        "codec_precision": "float32",
        "seed": 5,
        "audio_seconds": 1.5,
        "sample_rate": 16000,
        "samples": 24000,
        "frames": 75,
        "token_count": 90,
        "finish_reason": "stop",
        "real_time_factor": pytest.approx(0.42),
        "time_to_first_audio": 0.1,
        "processing_time_seconds": pytest.approx(0.63),
        "stage_seconds": {},
        "peak_memory_usage": 123_000_000,
        "notes": [],
    }


def test_json_names_how_the_codec_decodes(pipeline, capsys, monkeypatch):
    """By default in TF32 beside a network in half precision on CUDA, whose own products are exact."""
    monkeypatch.setattr("torch_ref.loading.choose_precision", lambda wanted, *_: wanted or "tf32")
    for flags, found in (([], "tf32"), (["--codec-precision", "float32"], "float32")):
        code, out, _ = run(capsys, "-t", SECRET, "--json", "--backend", "torch", *flags)
        assert code == 0
        facts = json.loads(out)
        assert (facts["arithmetic"], facts["codec_precision"]) == ("float32", found)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (GenerationError("generation: it stopped"), 6, "error: generation: it stopped\n"),
        (MemoryError("9 GB"), 5, "error: memory: not enough (9 GB); use a smaller"),
        (RuntimeError("[metal::malloc] Attempting to allocate 9 bytes"), 5, "error: memory: not enough"),
        (OSError(28, "No space left on device"), 5, "error: disk: No space left on device"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (
            ZeroDivisionError("oops\noops"),
            6,
            "error: internal: ZeroDivisionError: oops oops; run again with --debug",
        ),
    ],
)
def test_failures_on_the_way(pipeline, capsys, tmp_path, error, code, message):
    pipeline.error = error
    found, out, err = run(capsys, "-t", SECRET)
    assert (found, out) == (code, "")
    assert err.lstrip("\n").startswith(message)
    assert err.strip().count("\n") == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [(KeyboardInterrupt(), 130, "interrupted"), (GenerationError("generation: no"), 6, "generation: no")],
)
def test_a_stream_that_breaks_off_names_what_it_keeps(pipeline, capsys, error, code, message):
    pipeline.error = error
    found, _, err = run(capsys, "-t", SECRET, "--stream", "-o", "a.wav")
    assert (found, err) == (code, f"error: {message}; a.wav keeps 0.50 s of speech\n")
    assert read_audio("a.wav", 16000).shape == (8000,)


def test_what_stdout_has_taken_is_not_kept(pipeline, capsysbinary):
    pipeline.error = GenerationError("generation: no")
    assert cli.run(["generate", "-t", SECRET, "-o", "-"]) == 6
    assert capsysbinary.readouterr().err == b"error: generation: no\n"


def test_silence_is_a_failure(pipeline, capsys, tmp_path):
    pipeline.seconds = 0
    assert run(capsys, "-t", SECRET)[::2] == (
        6,
        "error: generation: the model ended before any sound, with seed 7; try another --seed\n",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", ["", "-o a.mp3", "--stream", "--play", "--play --stream"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite(pipeline, capsys, tmp_path, monkeypatch, bad, flags):
    """One is an error, and nothing of its piece is written. NumPy's warnings do not occur."""
    speaker = Speaker()
    monkeypatch.setitem(sys.modules, "sounddevice", speaker)
    pipeline.bad = bad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, err = run(capsys, "-t", SECRET, *flags.split())
    kept = "; speech.wav keeps 0.50 s of speech" if flags == "--stream" else ""
    message = "generation: the samples contain NaN or infinity; check the model with: mlx-port verify"
    assert (code, out, err) == (6, "", f"error: {message}{kept}\n")
    written = list(tmp_path.iterdir())
    assert len(written) == (flags == "--stream")
    for file in written:
        assert len(read_audio(file, 16000)) == 8000
    assert all(np.isfinite(heard).all() for heard in speaker.heard)


def test_debug_shows_the_traceback(pipeline, capsys):
    pipeline.error = GenerationError("generation: it stopped")
    assert cli.run(["generate", "-t", SECRET, "--debug"]) == 6
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("error: generation: it stopped\n")


def test_a_full_disk_at_the_end(pipeline, capsys, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SoundWriter, "write", full)
    code, _, err = run(capsys, "-t", SECRET)
    assert code == 5
    assert "No space left on device" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.torch
@pytest.mark.parametrize("backend", ["mlx", "torch"])
def test_dtype_and_backend_reach_the_loader(pipeline, capsys, backend):
    """`load_pipeline` is replaced; its arguments show what would be loaded."""
    half = ["--dtype", "bfloat16"]
    for flags in (half, [], ["--model", converted_voice(), *half]):
        code, _, err = run(capsys, "--text", f"[S1] {SECRET}.", "--backend", backend, *flags)
        assert (code, err) == (0, "")
        parts, found = pipeline.loaded[-1]
        assert found == backend
        dtype = "bfloat16" if flags else "float32"
        found = parts.dtype_of("dia") if backend == "mlx" else str(parts.dtype)
        assert found.removeprefix("torch.") == dtype


@pytest.mark.parametrize(
    "flags", [["--deep"], ["--shallow"], ["--decoder", "mbd"], ["--timesteps", "9"], ["--trim-db", "20"]]
)
def test_flags_of_other_models(pipeline, capsys, flags):
    """Refused with the list of the model's own."""
    name = "deep" if flags == ["--shallow"] else flags[0].removeprefix("--")
    own = "--seed, --max-seconds, --speed, --cfg-scale, --temperature, --top-p, --top-k, --piece-seconds, "
    own += "--as-written, --skip-unknown\n"
    message = f"error: --{name}: dia takes no --{name}; it takes {own}"
    refused(capsys, pipeline, 2, message, "--text", f"[S1] {SECRET}.", *flags)


def test_stages_are_told(pipeline, capsys):
    pipeline.stages = {"AR": 1.25, "NAR": 0.5}
    code, out, _ = run(capsys, "--text", f"[S1] {SECRET}.")
    assert code == 0
    assert "AR 1.25 s, NAR 0.50 s\n" in out
