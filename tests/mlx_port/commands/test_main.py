"""Output of the commands: names from hostile files are escaped, and each message is one bounded line."""

import ast
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unicodedata import category

import numpy as np
import pytest
import soundfile
from safetensors.numpy import load_file, save_file

from converters import cli as converter
from converters.convert import convert as make
from converters.published import open_published
from mlx_port.commands import main as cli
from mlx_port.commands.speak import check_hashes
from tests.converters.files.records import record
from tests.tiny.published_models import SOURCES, edit, sources
from tests.tiny.record import record_again
from tts_core.command import runner
from tts_core.errors import CheckpointError
from tts_core.printable import LONGEST

ROOT = Path(__file__).parents[3]
NASTY = "\x1b]0;title\x07\x9b2J\u202etxt.exe\u2028\n\u200berror: all is well"
SHOWN = r"\x1b]0;title\x07\x9b2J\u202etxt.exe\u2028\n\u200berror: all is well"
MADE = ("one_line", "lines", "json_text", "json.dumps")  # the last for another process of ours
Edit = Callable[[Path], object]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command; return its output after checking that it is safe for a terminal."""

    def run(codes: tuple[int, ...], command: Callable[..., int], *arguments: object) -> str:
        capsys.readouterr()
        code = command([str(argument) for argument in arguments])
        assert code in codes
        out, err = capsys.readouterr()
        for text in (out, err):
            assert not [c for c in text if category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"]
            assert max(map(len, text.split("\n"))) <= LONGEST + len("error: ")
        assert err.count("\n") == (code > 1)
        return out + err

    return run


def convert(arguments: list[str]) -> int:
    return runner.run(converter.convert_weights, arguments, debug=False)


def rename(name: str, new: str) -> Edit:
    """Rename one tensor of model.safetensors."""

    def harm(folder: Path) -> None:
        held = load_file(folder / "model.safetensors")
        held[new] = held.pop(name)
        save_file(held, folder / "model.safetensors", {"format": "mlx"})
        if (folder / "conversion.json").exists():
            record_again(folder)

    return harm


def change(**entries: object) -> Edit:
    return lambda folder: edit(folder / "config.json", lambda config: config.update(entries))


HEAD = "logits_dense.weight"
EDITS = {
    "a tensor's name": rename(HEAD, NASTY),
    "a config's key": change(**{NASTY: 1}),
    "a config's value": change(delay_pattern=NASTY),
    "half of a surrogate pair": change(**{"\ud800": 1}),
    "a name without end": change(**{"x" * 100_000: 1}),
    "a model's name": change(model_type=NASTY),
    "a format": change(format_version=NASTY),
    "how it is quantised": change(quantization={"mode": NASTY, "bits": 4, "group_size": 64}),
    "a number in place of how it is quantised": change(quantization=5),
    "a number in place of the model's name": change(model_type=5),
    "a list in place of a dtype": change(dtype=[]),
    "a number that no float holds": change(norm_eps=10**400, pad_token_id=10**400),
}


@pytest.mark.torch
@pytest.mark.usefixtures("verify_here")
@pytest.mark.parametrize("name", EDITS)
def test_a_converted_folder(
    name: str, converted: Path, published: Path, tmp_path: Path, said: Callable[..., str]
) -> None:
    folder = Path(shutil.copytree(converted, tmp_path / "copy"))
    EDITS[name](folder)
    for command in (
        ["generate", "--model", folder, "--text", "[S1] Hi.", "--output", tmp_path / "a.wav"],
        ["generate", "--model", folder, "--backend", "torch", "--text", "Hi.", "-o", tmp_path / "a.wav"],
        ["verify", published, folder, "--offline"],
        ["estimate", "--model", folder],
    ):
        assert str(folder) in said((3, 4), cli.run, *command)


@pytest.mark.parametrize("name", ["a tensor's name", "a config's key", "half of a surrogate pair"])
def test_a_published_folder(name: str, published: Path, tmp_path: Path, said: Callable[..., str]) -> None:
    folder = Path(shutil.copytree(published, tmp_path / "copy"))
    EDITS[name](folder)
    text = said((4,), convert, "--hf-path", folder, "--mlx-path", tmp_path / "out", "--offline")
    assert "surrogate" in name or SHOWN in text


@pytest.fixture
def littered(tmp_path: Path) -> dict[str, Path]:
    """MetaVoice's sources, with an unused entry and a file that belongs to no model."""
    import torch

    folder = tmp_path / "published"
    folder.mkdir()
    files = {
        kind: Path(shutil.copy(path, folder)) for kind, path in SOURCES["metavoice"].items() if path.is_file()
    }
    held: dict[str, Any] = torch.load(files["metavoice"], weights_only=True)
    torch.save(held | {NASTY: 1}, files["metavoice"])
    save_file({NASTY: np.zeros(2, np.float32)}, folder / f"{NASTY}.safetensors".replace("\u200b", ""))
    return files | {"vocos": SOURCES["metavoice"]["vocos"]}


def test_what_a_conversion_drops_and_ignores(
    littered: dict[str, Path], tmp_path: Path, said: Callable[..., str]
) -> None:
    where = [
        word for path in (littered["metavoice"].parent, littered["vocos"]) for word in ("--hf-path", path)
    ]
    text = said((0,), convert, *where, "--mlx-path", tmp_path / "out", "--offline")
    assert f"dropped {SHOWN}" in text
    assert "not used: \\x1b]0;title" in text
    report = said((0,), convert, *where, "--mlx-path", tmp_path / "again", "--offline", "--json")
    assert NASTY in json.loads(report)["parts"]["metavoice"]["dropped"]


class Hangs(BaseException):
    """Of a command that waits; no `except Exception` catches it."""


def hang(*_: object) -> NoReturn:
    raise Hangs


@contextmanager
def patience() -> Iterator[None]:
    """Of 20 seconds."""
    old = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, 20)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def socket_at(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.relpath(path))  # a socket's name has at most 107 bytes
    server.close()


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


ODD: dict[str, Edit] = {
    "a pipe": os.mkfifo,
    "a socket": socket_at,
    "a folder": Path.mkdir,
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a failing disk": lambda path: path.symlink_to("/proc/self/mem"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a dead link": lambda path: path.symlink_to("nowhere"),
    "a terabyte": endless,
    "nothing in it": Path.touch,
    "zeros": lambda path: path.write_bytes(bytes(100)),
    "nested arrays": lambda path: path.write_bytes(b"[" * 200_000),
    "nested objects": lambda path: path.write_bytes(b'{"a":' * 200_000),
    "not UTF-8": lambda path: path.write_bytes(b'{"a": "\xff"}'),
    "a number without end": lambda path: path.write_bytes(b'{"a": %s}' % (b"9" * 5000)),
    "no number": lambda path: path.write_bytes(b'{"hidden_size": NaN}'),
}
PLACES = {
    "mars5": (
        "config.json",
        "conversion.json",
        "nar/config.json",
        "codec/model.safetensors",
        "texttok.model",
    ),
    "metavoice": ("second_stage/tokenizer.json",),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {model: tmp_path_factory.mktemp("converted") / model for model in PLACES}
    for model, folder in made.items():
        make(open_published(sources(model)), folder, dtype="float32")
    soundfile.write(made["mars5"].parent / "voice.wav", 0.2 * np.sin(np.arange(8 * 16000) / 20), 16000)
    return made


@pytest.mark.torch
@pytest.mark.skipif(
    not os.path.exists("/proc/self/mem"), reason="no /proc/self/mem, which reads as a failing disk"
)
@pytest.mark.usefixtures("verify_here")
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(("model", "name"), [(model, name) for model in PLACES for name in PLACES[model]])
def test_files_of_a_converted_folder_that_are_none(
    model: str,
    name: str,
    odd: str,
    models: dict[str, Path],
    tmp_path: Path,
    said: Callable[..., str],
    monkeypatch,
) -> None:
    """Each command names the file in one line, at once; estimate reads neither tokenizers nor weights."""
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(models[model], tmp_path / "copy"))
    (folder / name).unlink()
    ODD[odd](folder / name)
    voice = models["mars5"].parent / "voice.wav"
    spoken = ("generate", "--model", folder, "--text", "Hi.", "-o", "a.wav", "--ref-audio", voice)
    reads_all = "config" in name or "conversion" in name
    commands = [spoken, (*spoken, "--backend", "torch"), ("verify", *sources(model), folder, "--offline")]
    commands += [("estimate", "--model", folder)] if reads_all and "nar" not in name else []
    with patience():
        for command in commands:
            text = said((3, 4, 5), cli.run, *command)
            assert "internal" not in text
            assert str(folder) in text
            assert Path(name).name in text or (folder / name).parent.name in text


@pytest.mark.parametrize("backend", ["mlx", pytest.param("torch", marks=pytest.mark.torch)])
def test_a_reference_that_is_no_file(
    backend: str, models: dict[str, Path], tmp_path: Path, said: Callable[..., str]
) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    spoken = ("generate", "--model", models["mars5"], "--text", "Hi.", "--backend", backend)
    text = said((2,), cli.run, *spoken, "--ref-audio", tmp_path / "pipe.wav")
    assert f"{tmp_path}/pipe.wav: a named pipe, not a file; give a sound file" in text


@pytest.mark.usefixtures("verify_here")
def test_a_page_that_is_no_file(
    converted: Path, published: Path, tmp_path: Path, said: Callable[..., str]
) -> None:
    os.mkfifo(tmp_path / "a.html")
    with patience():
        text = said((2,), cli.run, "verify", published, converted, "--html", tmp_path / "a.html", "--offline")
    assert f"--html: {tmp_path}/a.html: a named pipe; give the name of a file" in text


def test_doctor(said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of folders, devices and faults."""
    monkeypatch.setenv("XDG_CACHE_HOME", f"/nowhere/{NASTY}")
    faults = {"mlx": {"fault": NASTY}, "torch": {"fault": NASTY}}
    monkeypatch.setattr("mlx_port.commands.doctor.probe", lambda modules: faults)
    lines = said((0, 1), cli.run, "doctor").split("\n")
    assert [line.split()[0] for line in lines if SHOWN in line] == ["MLX", "PyTorch"]
    said((0, 1), cli.run, "doctor", "--json")


@pytest.mark.torch
def test_generate_checks_hashes_when_asked(
    converted: Path, tmp_path: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(converted, tmp_path / "copy"))
    spoken = ("generate", "--text", "[S1] Hi.", "--max-seconds", 0.02, "--seed", 1, "--quiet")
    for backend in ("mlx", "torch"):
        said((0,), cli.run, *spoken, "--model", folder, "--check", "--backend", backend)
    file = folder / "codec/model.safetensors"
    content = bytearray(file.read_bytes())
    content[-4] ^= 1
    file.write_bytes(content)
    for backend in ("mlx", "torch"):
        said((0,), cli.run, *spoken, "--model", folder, "--backend", backend)
        text = said((4,), cli.run, *spoken, "--model", folder, "--check", "--backend", backend)
        assert "codec/model.safetensors: changed since the conversion (sha256 in conversion.json)" in text
    assert "check: the embedded voice has no hashes on record" in said((2,), cli.run, *spoken, "--check")


def test_a_part_that_was_removed_has_no_hashes_to_check(tmp_path: Path) -> None:
    """Such as the other decoder of MetaVoice."""
    record(tmp_path, "config.json", "codec/config.json", "mbd/config.json")
    shutil.rmtree(tmp_path / "mbd")
    check_hashes(str(tmp_path))
    (tmp_path / "codec/config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"codec/config\.json: changed since the conversion"):
        check_hashes(str(tmp_path))


@pytest.fixture
def program() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run `mlx-port` as a program with this environment."""

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
        code = "import sys; from mlx_port.commands.main import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, *map(os.fsencode, map(str, arguments))],
            capture_output=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            check=False,
        )

    return run


@pytest.mark.parametrize("encoding", ["iso8859-5:strict", "utf-8:strict"])
def test_names_that_the_terminal_cannot_show(
    encoding: str, converted: Path, tmp_path: Path, program: Callable[..., subprocess.CompletedProcess[bytes]]
) -> None:
    """On stdout and on stderr."""
    name = os.fsdecode(b"caf\xe9 \xc3\xbc")
    folder = Path(shutil.copytree(converted, tmp_path / name))
    done = program("estimate", "--model", folder, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    output = tmp_path / f"{name}.wav"
    spoken = ("generate", "--model", folder, "--text", "[S1] Hi.", "--max-seconds", 0.02, "--seed", 1)
    done = program(*spoken, "--output", output, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = b"\\xfc" if "iso" in encoding else b"\xc3\xbc"
    assert b"caf\\xe9 " + shown + b".wav: 0." in done.stdout
    assert output.is_file()
    done = program("generate", "--model", tmp_path / name / "no", "--text", "Hi", PYTHONIOENCODING=encoding)
    assert done.returncode == 3
    assert b"caf\\xe9 " + shown in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("stdin", ["closed", "without end", "not UTF-8"])
def test_scripts_that_cannot_be_read(stdin: str, tmp_path: Path) -> None:
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (6 << 30,) * 2); "
    code += "from mlx_port.commands.main import main; main()"
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    places = {
        "closed": None,
        "without end": "/dev/zero",
        "not UTF-8": tmp_path / "latin.txt",
    }
    command = [sys.executable, "-c", code, "generate", "-o", str(tmp_path / "a.wav")]
    given = None if places[stdin] is None else os.open(str(places[stdin]), os.O_RDONLY)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command] if given is None else command,
        stdin=given,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
        check=False,
    )
    if given is not None:
        os.close(given)
    said = {
        "closed": "text: missing; give --text, or pipe a text to stdin",
        "without end": "text: more than 16777216 bytes from stdin; speak it in parts",
        "not UTF-8": "text: byte 4 of stdin is not UTF-8; save the text as UTF-8",
    }
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {said[stdin]}\n")


def test_logs_and_warnings(
    program: Callable[..., subprocess.CompletedProcess[bytes]], tmp_path: Path
) -> None:
    """Of any module."""
    code = f"""
import logging, sys, warnings
from tts_core.command import runner
import click
@click.command()
def command():
    logging.getLogger("tts_core").warning("name %s", {NASTY!r})
    warnings.warn({NASTY!r})
    raise RuntimeError({NASTY!r})
runner.leave(command, ["--debug"] if sys.argv[1:] else [])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    log, warning, error, end = done.stderr.split("\n")
    assert (done.returncode, end) == (6, "")
    assert log == f"name {SHOWN}"
    assert warning == f"warning: UserWarning: {SHOWN}"
    folded = SHOWN.replace(r"\n", " ")  # the layout of frameworks' messages
    assert error == f"error: internal: RuntimeError: {folded}; run again with --debug and report it"


def test_nothing_is_printed_unseen() -> None:
    """Every `click.echo` takes a constant or the result of a function of tts_core.printable."""
    found = list(_echoes())
    assert len(found) > 10
    assert [where for where, ok in found if not ok] == []


def _echoes() -> Iterator[tuple[str, bool]]:
    for path in [*ROOT.glob("converters/**/*.py"), *ROOT.glob("mlx_port/**/*.py")]:
        tree = ast.parse(path.read_text())
        safe = {  # names of results of such a function
            node.targets[0].id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_made(node.value)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "click.echo",
                "print",
                "click.secho",
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", _is_safe(node.args[0], safe)


def _is_made(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and ast.unparse(node.func) in MADE
    return called or ast.unparse(node).startswith("'\\n'.join(map(one_line, ")


def _is_safe(node: ast.AST, safe: set[str]) -> bool:
    if isinstance(node, ast.JoinedStr):
        return all(_is_safe(value, safe) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return _is_safe(node.value, safe)
    if isinstance(node, ast.IfExp):
        return _is_safe(node.body, safe) and _is_safe(node.orelse, safe)
    return (
        isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in safe) or _is_made(node)
    )
