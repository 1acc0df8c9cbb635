"""A further model is folders of its own and its name in four places, NAMED, and nothing else.

The folders are in tests/fourth_model. A copy of the packages gets them, and everything runs there, in
separate interpreters.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.converters.folders import DAC_HF, write_safetensors

pytestmark = pytest.mark.rest

ROOT, TOY = Path(__file__).parents[2], Path(__file__).parents[1] / "fourth_model"
PACKAGES = ("tts_core", "converters", "torch_ref", "mlx_port")
WORDS = "Grüß Gott\r\n"
BEAK = np.arange(96, dtype=np.float32).reshape(32, 3)
# flags of a conversion, and the largest error of a weight: a step within a group of 32;
# bfloat16 holds whole numbers to 256
CONVERSIONS = {"plain": ([], 0), "bfloat16": (["--dtype", "bfloat16"], 0)}
CONVERSIONS["quantized"] = (["-q", "--q-group-size", "32"], 93 / 15)

# where every model is named: file, what is found there, what is added before it
NAMED = (
    ("tts_core/models.py", ")\nCODECS", ', "parrot"'),
    (
        "tts_core/models.py",
        "            case _:\n",
        '            case "parrot":\n                from tts_core.parrot.model import MODEL\n',
    ),
    (
        "tts_core/options.py",
        "        case _:\n",
        '        case "parrot":\n            from tts_core.parrot.options import ParrotOptions as Found\n',
    ),
    ("converters/maps/table.py", "        qwen3,\n", "        parrot,\n"),
    ("converters/maps/table.py", ", dac, ", ", parrot"),
)

Script = Callable[..., str]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with the fourth model: links to their files, except those that name every model."""
    house = tmp_path_factory.mktemp("house")
    for package in PACKAGES:
        for source in (ROOT, TOY):
            shutil.copytree(
                source / package,
                house / package,
                copy_function=os.symlink,
                ignore=shutil.ignore_patterns("__pycache__"),
                dirs_exist_ok=True,
            )
    for place, before, line in NAMED:
        text = (house / place).read_text()
        assert text.count(before) == 1
        (house / place).unlink()  # it may be a link
        (house / place).write_text(text.replace(before, line + before))
    return house


@pytest.fixture(scope="module")
def script(house: Path) -> Script:
    """Run Python code in the copy with arguments; return its output. ends: its exit code."""

    def run(code: str, *arguments: Any, ends: int = 0) -> str:
        environment = {**os.environ, "PYTHONPATH": str(house), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=house, env=environment, capture_output=True, text=True, check=False, encoding="utf-8"
        )
        assert done.returncode == ends, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder with the DAC that it shares with Dia."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "config.json").write_text('{"feathers": 32}')
    tensors = {"bird.beak": BEAK, "bird.norm": np.linspace(0.5, 1.5, 32, dtype=np.float32)}
    write_safetensors(folder / "bird.safetensors", tensors, __metadata__={"words": WORDS})
    shutil.copytree(DAC_HF, folder / "voice")
    return folder


@pytest.fixture
def both_frameworks() -> None:
    pytest.importorskip("torch", reason="torch holds a network")
    pytest.importorskip("mlx.core", reason="MLX holds a network")


READ = """
import json, sys
import numpy as np
from converters.published import open_published
opened = open_published(sys.argv[1], offline=True)
np.save(sys.argv[2], opened.parts["parrot"].read("beak.weight"))
configs = {kind: type(part.config).__name__ for kind, part in opened.parts.items()}
print(json.dumps([opened.model, configs]))
"""
COMMAND = "import sys; from mlx_port.commands.main import run; sys.exit(run([*sys.argv[1:], '--debug']))"
MISTAKE = "import sys; from mlx_port.commands.main import run; assert run(sys.argv[1:]) == 2"


@pytest.fixture(scope="module")
def converted(
    script: Script, published: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Convert in the named way, once."""
    folder = tmp_path_factory.mktemp("converted")

    def make(name: str) -> Path:
        if not (folder / name).exists():
            if name == "quantized":
                pytest.importorskip("mlx.core", reason="MLX quantizes")
            flags = ["--hf-path", published, "--mlx-path", folder / name, *CONVERSIONS[name][0]]
            script(COMMAND, "convert", *flags)
        return folder / name

    return make


def test_it_is_recognised_and_read(script, published, tmp_path):
    model, configs = json.loads(script(READ, published, tmp_path / "beak.npy"))
    assert (model, configs) == ("parrot", {"parrot": "ParrotConfig", "dac": "DacConfig"})
    np.testing.assert_array_equal(np.load(tmp_path / "beak.npy"), BEAK.T)


@pytest.mark.parametrize("name", CONVERSIONS)
def test_the_command_converts_it_and_reads_it_back(script, converted, tmp_path, name):
    out = converted(name)
    assert (out / "words.txt").read_bytes() == WORDS.encode()
    card = (out / "README.md").read_text()
    assert "license: cc0-1.0" in card
    assert '--text "Polly"' in card
    config = json.loads((out / "config.json").read_text())
    assert (config["model_type"], config["width"]) == ("parrot", 32)
    assert config["dtype"] == ("bfloat16" if name == "bfloat16" else "float32")
    model, configs = json.loads(script(READ, out, tmp_path / "beak.npy"))
    assert (model, configs) == ("parrot", {"parrot": "ParrotConfig", "dac": "DacConfig"})
    np.testing.assert_allclose(np.load(tmp_path / "beak.npy"), BEAK.T, rtol=0, atol=CONVERSIONS[name][1])


LOAD = """
import json, sys
import mlx.core as mx
import numpy as np
import mlx_port, torch_ref
for folder in sys.argv[1:]:
    torch_side = torch_ref.load(folder, device="cpu", dtype="float32")
    mlx_side = mlx_port.load(folder, dtype="float32")
    beak = mlx_side.engine.network.beak
    weight = beak.weight
    if "scales" in beak:
        weight = mx.dequantize(weight, beak.scales, beak.biases, beak.group_size, beak.bits)
    here = torch_side.engine.network.state_dict()
    print(json.dumps({
        "words": [torch_side.engine.words, mlx_side.engine.words],
        "codecs": [type(side.engine.codec).__module__ for side in (torch_side, mlx_side)],
        "norm": [here["norm.weight"].tolist(), mlx_side.engine.network.norm.weight.tolist()],
        "beak": [here["beak.weight"].tolist(), weight.tolist()],
        "quantized": "scales" in beak,
    }))
others = ("dia", "mars5", "metavoice")
print(json.dumps([name for name in sys.modules if set(name.split(".")) & set(others)]))
"""


@pytest.mark.usefixtures("both_frameworks")
def test_both_sides_load_it_equal(script, converted):
    """Without loading anything of another model."""
    *loaded, others = map(json.loads, script(LOAD, *map(converted, CONVERSIONS)).splitlines())
    for name, found in zip(CONVERSIONS, loaded, strict=True):
        assert found["words"] == [WORDS, WORDS]
        assert found["codecs"] == ["torch_ref.codecs.dac", "mlx_port.codecs.dac"]
        assert found["quantized"] == (name == "quantized")
        assert found["norm"][0] == found["norm"][1]
        # code · scale + bias: rounded twice, or in one fused operation
        off = 4 * float(np.finfo(np.float32).eps) * 96 if found["quantized"] else 0
        np.testing.assert_allclose(*found["beak"], rtol=0, atol=off, err_msg=name)
    assert others == []


def test_help_and_doctor_name_it(script):
    code = (
        "from mlx_port.commands import doctor, main\n"
        "fault = {'fault': 'not started by this test'}\n"
        "doctor.probe = lambda sides: {side: fault for side in sides}\n"
        "assert main.run(['--help']) == 0\n"
        "print(doctor.details(doctor.examine()))"
    )
    help_text, _, page = script(code).partition("machine ")
    assert "dia, dia2, mars5, metavoice, qwen3, parrot" in " ".join(help_text.split())
    [line] = [line for line in page.splitlines() if line.startswith("models ")]
    assert "MetaVoice (metavoiceio/metavoice-1B-v0.1), " in line
    assert line.endswith(", Parrot (birds/parrot)")


@pytest.mark.usefixtures("both_frameworks")
def test_the_command_speaks_with_both_backends(script, converted, tmp_path):
    """Whole and streamed, with its own flag; the codes and the sound are those of the Python interface."""
    facts = {}
    for backend in ("mlx", "torch"):
        for mode in ([], ["--stream"]):
            out = tmp_path / f"{backend}{len(mode)}.wav"
            flags = ["--model", converted("plain"), "--backend", backend, "--text", "Polly wants", "--json"]
            flags += ["--seed", 3, "--frames-per-word", 7, "--output", out, *mode]
            facts[backend, bool(mode)] = json.loads(script(COMMAND, "generate", *flags))
            assert facts[backend, bool(mode)]["frames"] == 14
    sounds = [
        (tmp_path / f"{backend}{mode}.wav").read_bytes() for backend in ("mlx", "torch") for mode in (0, 1)
    ]
    assert sounds[0] == sounds[1]
    assert sounds[2] == sounds[3]
    assert {each["samples"] for each in facts.values()} == {facts["mlx", False]["samples"]}


def test_it_has_pauses_speed_and_captions(script, converted, tmp_path):
    """Only with the shared pacing: whole and streamed, to the sample; SSML is refused by name."""
    pytest.importorskip("mlx.core", reason="MLX holds a network")
    text = "Polly [pause:0.5] wants <break time='250ms'/> more"
    flags = ["generate", "--model", converted("plain"), "--json", "--frames-per-word", 7, "--speed", 1.25]
    found = []
    for name, mode in (("whole", []), ("stream", ["--stream"])):
        files = ["--output", tmp_path / f"{name}.wav", "--captions", tmp_path / f"{name}.srt"]
        found.append(json.loads(script(COMMAND, *flags, "--text", text, *files, *mode)))
    hop, rate = 512, 44_100
    word = round(7 * hop / 1.25)
    silences = [round(0.5 * rate), round(0.25 * rate)]
    assert [(one["frames"], one["samples"]) for one in found] == [(21, 3 * word + sum(silences))] * 2
    assert (tmp_path / "whole.wav").read_bytes() == (tmp_path / "stream.wav").read_bytes()
    captions = (tmp_path / "whole.srt").read_text()
    assert captions == (tmp_path / "stream.srt").read_text()
    assert re.findall(r"^[A-Za-z]+$", captions, re.MULTILINE) == ["Polly", "wants", "more"]
    ends = [f"0,{1000 * end / rate:03.0f}" for end in (word, word + silences[0], 2 * word + silences[0])]
    assert [time for time in ends if time not in captions] == []
    assert script(MISTAKE, *flags, "--text", "<speak>Polly</speak>") == ""


SERVE_HTTP = """
import base64, json, os, signal, socket, sys, threading
import httpx
import mlx_port
from websockets.sync.client import connect
from mlx_port.commands.main import run
from tts_core.audio.formats.raw import pcm16
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
text = "Polly wants [pause:0.35] more"
body = {"model": "tts-1", "voice": "alloy", "input": text, "response_format": "wav"}
body |= {"seed": 5, "frames_per_word": 4}
whole = mlx_port.load(sys.argv[1]).generate(text, seed=5, frames_per_word=4)

def ask():
    patient = httpx.HTTPTransport(retries=9)
    http = httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=patient, timeout=600)
    try:
        while http.get("/health").status_code != 200: pass
        heard = http.post("/v1/audio/speech", json=body)
        same = heard.content[44:] == pcm16(whole.audio).tobytes()
        sse = http.post("/v1/audio/speech", json={**body, "stream_format": "sse"}).text
        events = [json.loads(line[6:]) for line in sse.splitlines() if line]
        audio = b"".join(base64.b64decode(event["audio"]) for event in events if "audio" in event)
        words = [[event[name] for name in ("text", "start", "end")] for event in events if "text" in event]
        strange = http.post("/v1/audio/speech", json={**body, "frame_per_word": 4}).json()["error"]["message"]
        other = http.post("/v1/audio/speech", json={**body, "temperature": 1}).json()["error"]["message"]
        batch = http.post("/v1/audio/speech/batch", json={"items": [body, body]}).json()["items"]
        batch = [base64.b64decode(item["audio"]) == heard.content for item in batch]
        same = [same, audio == heard.content, *batch]
        live, early, sound = [], None, b""
        with connect(f"ws://127.0.0.1:{port}/v1/audio/speech/stream", proxy=None) as socket:
            tell = lambda kind, **more: socket.send(json.dumps({"type": kind, **more}))
            tell("start", seed=5, frames_per_word=4)
            for fragment in ("Pol", "ly wants", " [pause", ":0.35] mo"): tell("text", text=fragment)
            for frame in socket:
                if isinstance(frame, str): live.append(json.loads(frame))
                else: sound += frame
                if early is None and any(event["type"] == "word" for event in live):
                    early = [event.get("text") for event in live]
                    tell("text", text="re")
                    tell("end")
        seconds = [whole.audio_seconds, len(sound) / 48_000]
        print(json.dumps([heard.headers["x-seed"], same, words, strange, other, early, live, seconds]))
    finally:
        os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=ask).start()
assert run(["serve", "--model", sys.argv[1], "--port", str(port), "--quiet", "--strict"]) == 0
"""


def test_it_speaks_through_the_server(script, converted):
    """Under an alias, with its own options and the times of its words, and while its text arrives; no line of
    the server knows it.
    """
    pytest.importorskip("mlx.core", reason="MLX holds a network")
    for name in ("starlette", "uvicorn", "prometheus_client", "python_multipart", "websockets", "httpx"):
        pytest.importorskip(name, reason=f"{name} is not installed: extra serve")
    found = json.loads(script(SERVE_HTTP, converted("plain")))
    seed, same, words, strange, other, early, live, seconds = found
    assert (seed, same) == ("5", [True] * 4)
    assert [word[0] for word in words] == ["Polly", "wants", "more"]
    np.testing.assert_allclose([word[2] - word[1] for word in words], 4 * 512 / 44_100, rtol=1e-9)
    assert strange == "frame_per_word: no such field; did you mean frames_per_word?"
    assert other.startswith("temperature: no such field; ")
    assert early == [None, "Polly"], "a word is heard while the text arrives"
    assert live[0] == {"type": "started", "sample_rate": 24000, "seed": 5}
    assert live[-1] == {"type": "done", "finish_reason": "stop"}
    heard = [(event["text"], event["start"]) for event in live if event["type"] == "word"]
    assert [word for word, _ in heard] == ["Polly", "wants", "more"]
    np.testing.assert_allclose([start for _, start in heard], [word[1] for word in words], rtol=1e-9)
    assert [event["text"] for event in live if event["type"] == "piece"] == ["Polly", "wants", "more"]
    assert abs(seconds[0] - seconds[1]) < 0.001


@pytest.mark.usefixtures("both_frameworks")
def test_it_speaks_in_bulk(script, converted, tmp_path):
    """Rows with its options, in worker processes; the codes are those of single runs, on both sides."""
    rows = [
        {"id": f"r{number}", "text": text, "seed": number, "options": {"frames_per_word": 3 + number}}
        for number, text in enumerate(["Polly wants more", "crackers", "and [pause:0.35] nuts", "too"])
    ]
    strange = {"id": "strange", "text": "Polly", "options": {"temperature": 1}}
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in [*rows, strange]))
    found = {}
    for backend in ("mlx", "torch"):
        flags = ["--model", converted("plain"), "--backend", backend, "--dtype", "float32", "--places", 2]
        flags += ["--out", tmp_path / backend, "--captions", "srt"]
        script(COMMAND, "batch", source, *flags, ends=7)  # one row is wrong
        lines = (tmp_path / backend / "manifest.jsonl").read_text().splitlines()
        found[backend] = [json.loads(line) for line in lines]
        [error] = (tmp_path / backend / "errors.jsonl").read_text().splitlines()
        assert json.loads(error)["id"] == "strange"
    hashes = {side: [line["codes_sha256"] for line in lines] for side, lines in found.items()}
    assert (
        hashes["mlx"] == hashes["torch"] == json.loads(script(HASHES, converted("plain"), json.dumps(rows)))
    )
    assert [line["duration"] for line in found["mlx"]] == [line["duration"] for line in found["torch"]]
    assert (tmp_path / "mlx/captions/r2.srt").read_text().count("-->") == 2


HASHES = """
import json, sys
import mlx_port
from tts_core.bulk.speaking import codes_hash
model = mlx_port.load(sys.argv[1])
rows = json.loads(sys.argv[2])
made = [model.generate(row["text"], seed=row["seed"], **row["options"]) for row in rows]
print(json.dumps([codes_hash(one.codes) for one in made]))
"""


def test_its_flags_are_its_own(script, converted):
    """Its option is a flag of the command; another model's is refused with its list."""
    help_text = script(COMMAND, "generate", "--model", converted("plain"), "--help")
    assert re.search(r"--frames-per-word INTEGER\s+Codec frames for a word\.", help_text)
    assert "--frames-per-word" not in script(COMMAND, "generate", "--help")
    flags = ["--model", converted("plain"), "--text", "Polly", "--temperature", 1]
    assert script(MISTAKE, "generate", *flags) == ""


@pytest.mark.usefixtures("both_frameworks")
def test_estimate_and_verify_know_it(script, published, converted):
    found = json.loads(script(COMMAND, "estimate", "--model", converted("plain"), "--json"))
    assert (
        found["backends"]["mlx-cpu"]["weights"] - found["weights"]["bfloat16"] == 2 * 96
    )  # its norm is float32
    assert "the peak of a text of 0.1 s" in script(COMMAND, "estimate", "--model", "birds/parrot")
    report = json.loads(script(COMMAND, "verify", published, converted("plain"), "--json"))
    assert report["passed"] is True
    assert any(row["part"] == "parrot" for row in report["layers"])


def test_bench_times_it(script, converted):
    """Its published size with random weights, and a converted folder."""
    pytest.importorskip("mlx.core", reason="MLX is timed")
    flags = ["--seconds", 0.3, "--runs", 1, "--json"]
    random = json.loads(script(COMMAND, "bench", "--random", "parrot", *flags))
    assert (random["model"]["random_weights_of"], random["model"]["step"]) == ("birds/parrot", "word")
    [case] = random["cases"]
    assert case["step_ms"] > 0
    assert case["step_bytes"] == 2 * 96 + 4 * 32  # bfloat16, the norm float32
    folder = json.loads(script(COMMAND, "bench", "--model", converted("plain"), *flags))
    assert folder["cases"][0]["step_bytes"] == 4 * (96 + 32)
