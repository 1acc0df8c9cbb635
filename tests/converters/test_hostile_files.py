"""Files that are not what they seem, through the command: one line that names the file, and its exit code."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from converters import cli, tensors
from converters.convert import convert
from converters.files import readers
from converters.published import open_published
from tests.converters.folders import DAC_HF, V_0626, V_0626_HF, left_in, write_raw
from tests.tiny.published_models import AR, ENCODEC, NAR, VOCOS
from tts_core.command import runner
from tts_core.errors import CheckpointError, NotFoundError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A complete published folder, named by a short relative path as a socket's name must be short."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(V_0626_HF, "model")
    shutil.copytree(DAC_HF, "model/codec")
    return Path("model")


def refusal(capsys: pytest.CaptureFixture[str], *flags: object, code: int) -> str:
    arguments = [*map(str, flags), "--mlx-path", "out", "--offline"]
    assert runner.run(cli.convert_weights, arguments, debug=False) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ")
    assert err.strip().isprintable()
    assert not Path("out").exists()
    return err


def pipe(path: Path) -> str:
    os.mkfifo(path)
    return "a named pipe"


def bound(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as made, chdir(path.parent):  # a socket's path has 107 bytes at most
        made.bind(path.name)
    return "a socket"


def device(path: Path) -> str:
    path.symlink_to("/dev/zero")
    return "a device"


@pytest.mark.parametrize("put", [pipe, bound, device])
@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "generation_config.json",
        "codec/config.json",
        "dia.pth",
    ],
)
def test_no_file_in_place_of_a_file(folder, capsys, put: Callable[[Path], str], name):
    (folder / ("model.safetensors" if name == "dia.pth" else name)).unlink(missing_ok=True)
    kind = put(folder / name)
    assert f"{folder / name}: {kind}, not a file" in refusal(capsys, "--hf-path", folder, code=4)


@pytest.mark.parametrize("put", [pipe, bound, device])
@pytest.mark.parametrize("flag", ["--hf-path", "--codec", "--config"])
def test_no_file_in_a_flag(folder, capsys, put: Callable[[Path], str], flag):
    put(Path("odd.pth"))
    others = [] if flag == "--hf-path" else ["--hf-path", folder]
    said = refusal(capsys, *others, flag, "odd.pth", code=2)
    assert f"{flag}: odd.pth is neither a file nor a folder" in said


def double(path: Path) -> None:
    aliases = "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    path.write_text(f"{path.read_text()}a0: &a0 [x]\n{aliases}")


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (replace_by_pipe, "vocos/config.yaml: a named pipe, not a file"),
        (double, "aliases are not supported"),
    ],
)
def test_vocos_s_configuration(tmp_path, monkeypatch, capsys, damage: Callable[[Path], None], said):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(VOCOS, "vocos")
    damage(Path("vocos/config.yaml"))
    sources = [flag for path in (AR, NAR, ENCODEC, "vocos") for flag in ("--hf-path", path)]
    assert said in refusal(capsys, *sources, code=4)


def test_a_pipe_as_the_model_card_says_nothing_of_the_licence(folder, capsys):
    os.mkfifo(folder / "README.md")
    arguments = ["--hf-path", str(folder), "--mlx-path", "out", "--offline"]
    assert runner.run(cli.convert_weights, arguments, debug=False) == 0
    assert "license:" not in Path("out/README.md").read_text()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"[" * 100_000, "config.json: not readable as JSON: maximum recursion"),
        ("config.json", b'{"a":' * 100_000, "config.json: not readable as JSON: maximum recursion"),
        ("config.json", b"\xff\xfe{\x00}\x00", "config.json: not UTF-8"),
        ("config.json", b'{"rope_theta": NaN}', "config.json: not readable as JSON: NaN is not a number"),
        ("config.json", b" " * (17 << 20), "config.json: larger than 16777216 bytes"),
        (
            "config.json",
            b'{"model_type": 3, "weights_layout": "mlx", "format_version": 2}',
            "conversion.json",
        ),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "\\ud800.safetensors"}}',
            "is not the name of",
        ),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "%s.safetensors"}}' % (b"x" * 300),
            "is not the name of",
        ),
    ],
)
def test_descriptions_out_of_bounds(folder, capsys, name, content, said):
    (folder / name).write_bytes(content)
    code = 3 if said == "conversion.json" else 4
    assert said in refusal(capsys, "--hf-path", folder, code=code)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b'{"a": ' * 100_000, "recursion limit"),
        (b'{"\xff": {}}', "invalid utf-8"),
        (
            b'{"\\u202e\\u001b[2J": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
            r"invalid offset for tensor `\u202e\x1b[2J`",
        ),
    ],
)
def test_headers_out_of_bounds(folder, capsys, header, said):
    write_raw(folder / "model.safetensors", header, bytes(8))
    found = refusal(capsys, "--hf-path", folder, code=4)
    assert f"{folder / 'model.safetensors'}: corrupt safetensors header" in found
    assert said in found


def test_a_disk_that_fails_while_a_tensor_is_read(folder, capsys, monkeypatch):
    def fail(file, target, path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(readers, "read_into", fail)
    said = refusal(capsys, "--hf-path", folder, code=5)
    assert "model.safetensors: cannot be read (Input/output error); check the disk" in said
    assert left_in(Path()) == ["model"]


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="no /proc/self/mem, which reads as a failing disk"
)
def test_a_header_on_a_disk_that_fails(folder, capsys):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/proc/self/mem")
    said = refusal(capsys, "--hf-path", folder, code=5)
    assert "model.safetensors: cannot be read (Input/output error); check the disk" in said


@pytest.mark.parametrize(
    "victim", ["model.safetensors", "config.json", "generation_config.json", "codec/model.safetensors"]
)
@pytest.mark.parametrize("change", ["grown", "touched", "replaced", "gone"])
def test_a_source_that_changes_while_it_is_read(folder, victim, change):
    if not (folder / victim).is_file():
        (folder / victim).write_text("{}")
    published = open_published(folder)

    def progress(_: int) -> None:
        path = folder / victim
        if not path.exists() or path.stat().st_mtime_ns == 1:
            return
        if change == "grown":
            with open(path, "ab") as file:
                file.write(b" ")
        elif change == "replaced":
            shutil.copy(path, "copy")
            os.replace("copy", path)
        elif change == "gone":
            path.unlink()
            return
        os.utime(path, ns=(1, 1))

    with pytest.raises((CheckpointError, NotFoundError), match=f"{victim}: .*while it was read"):
        convert(published, "out", progress=progress)
    assert left_in(Path()) == ["model"]


def test_a_pickle_that_changes_while_it_is_read(tmp_path, monkeypatch):
    """Between two tensors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tensors, "MAKERS", 1)  # no thread copies while another one truncates
    shutil.copytree(V_0626, "model")
    published = open_published("model", codec=DAC_HF)
    with pytest.raises(CheckpointError, match=r"dia-v1\.pth: the file changed while it was read"):
        convert(published, "out", progress=lambda _: os.truncate("model/dia-v1.pth", 1000))
    assert left_in(Path()) == ["model"]


# names


def test_names_that_are_not_utf_8(folder):
    """On a terminal that takes ASCII only; what is written is UTF-8 all the same."""
    odd = os.fsdecode(b"mod\xff\x1bel")
    folder.rename(odd)
    arguments = ["--hf-path", odd, "--mlx-path", os.fsdecode(b"out\xfe"), "--offline"]
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from converters import cli; cli.main(sys.argv[1:])", *arguments],
        env=os.environ | {"PYTHONIOENCODING": "ascii:strict", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"from mod\xff\x1bel (model.safetensors)" in done.stdout
    assert rb"wrote out\xfe: 3.69 MB" in done.stdout
    written = Path(os.fsdecode(b"out\xfe"))
    assert r"# mod\xff\x1bel for MLX" in (written / "README.md").read_text("utf-8")
    assert (
        json.loads((written / "conversion.json").read_bytes())["parts"]["dia"]["source"] == r"mod\xff\x1bel"
    )
    assert open_published(written).model == "dia"


@pytest.mark.parametrize(("length", "code"), [(250, 0), (255, 0), (256, 2), (5000, 2)])
def test_long_names_of_the_destination(tmp_path, monkeypatch, capsys, length, code):
    monkeypatch.chdir(tmp_path)
    arguments = ["--hf-path", V_0626_HF, "--codec", DAC_HF, "--mlx-path", "x" * length]
    assert runner.run(cli.convert_weights, [str(each) for each in arguments], debug=False) == code
    err = capsys.readouterr().err
    if code:
        assert "cannot be written (File name too long); give another place" in err
        assert left_in(tmp_path) == []
    else:
        assert left_in(tmp_path) == ["x" * length]


@pytest.mark.parametrize("flag", ["--hf-path", "--codec", "--config"])
def test_long_names_of_a_source(folder, capsys, flag):
    others = [] if flag == "--hf-path" else ["--hf-path", folder]
    assert "File name too long" in refusal(capsys, *others, flag, "./" + "x" * 300, code=3)
