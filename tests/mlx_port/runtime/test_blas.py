"""The BLAS of MLX on Linux: the choice, the renamed copy, faults, and MLX in a process of its own."""

import base64
import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlx_port.runtime import blas
from tts_core.files import private
from tts_core.files.private import make_folder
from tts_core.voice import embedded

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: other systems have a fast BLAS")
installed = pytest.mark.skipif(
    importlib.util.find_spec("scipy_openblas32") is None, reason="needs scipy-openblas32, of the cpu extra"
)

CHECK = """
import os, sys
import numpy as np
from mlx_port.runtime.blas import load_blas
print(load_blas().library)
print(os.environ.get("OPENBLAS_NUM_THREADS"))
import mlx.core as mx
a, b = (np.random.default_rng(seed).normal(size=(65, 65)).astype(np.float32) for seed in (0, 1))
product = np.array(mx.matmul(mx.array(a), mx.array(b), stream=mx.cpu))
print(np.abs(product - a.astype(np.float64) @ b).max())
"""


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A Linux process without MLX and without a BLAS, with a packaged library, patchelf and two caches."""
    original = tmp_path / "site" / blas.PACKAGE / "lib" / "libscipy_openblas.so"
    original.parent.mkdir(parents=True)
    original.write_bytes(b"library")
    program = tmp_path / "patchelf"
    program.write_text('#!/bin/sh\nfor last; do :; done\ncp "$last" "$6"; cat "$4" >> "$6"\n')
    program.chmod(0o755)
    loaded = []

    class Library(dict):
        """A loaded library, and the number of threads at its start."""

        def __init__(self, path, mode):
            super().__init__({name: None for name in blas.FUNCTIONS})
            loaded.append((Path(path), mode, os.environ.get(blas.THREADS)))

    monkeypatch.delenv("MLX_PORT_BLAS", raising=False)
    monkeypatch.delenv(blas.THREADS, raising=False)
    monkeypatch.setattr(blas, "sys", SimpleNamespace(platform="linux", modules={}))
    monkeypatch.setattr(blas, "global_library", lambda function: None)
    monkeypatch.setattr(blas, "packaged_library", lambda: original)
    monkeypatch.setattr(blas, "patchelf", lambda: program)
    monkeypatch.setattr(blas.ctypes, "CDLL", Library)
    caches = [tmp_path.resolve() / name / "mlx-port" for name in ("one", "two")]
    monkeypatch.setattr(embedded, "cache_folders", lambda: caches)
    monkeypatch.setenv("HOME", str(tmp_path))
    return SimpleNamespace(original=original, program=program, caches=caches, loaded=loaded)


def load() -> blas.Blas:
    """Load as a new process does."""
    return blas.load_blas.__wrapped__()


def test_a_renamed_copy_is_loaded_for_every_library(fresh):
    found = load()
    names = "".join(f"scipy_cblas_{kind}gemm cblas_{kind}gemm\n" for kind in "sdc")
    digest = hashlib.sha256(b"library").hexdigest()[:16]
    copy = fresh.caches[0] / f"blas-{digest}-{len('library' + names)}.so"
    assert found == blas.Blas(str(copy), f"OpenBLAS of scipy-openblas32, {copy}")
    assert fresh.loaded == [(copy, blas.ctypes.RTLD_GLOBAL, "1")]
    assert blas.THREADS not in os.environ
    assert copy.read_text() == "library" + names
    assert list(copy.parent.iterdir()) == [copy]
    assert copy.parent.stat().st_mode & 0o777 == copy.parents[1].stat().st_mode & 0o777 == 0o700
    assert copy.stat().st_mode & 0o7777 == 0o644


def test_the_number_of_threads_is_the_users(fresh, monkeypatch):
    monkeypatch.setenv(blas.THREADS, "3")
    load()
    assert fresh.loaded[0][2] == os.environ[blas.THREADS] == "3"


def test_other_systems_are_left_as_they_are(fresh, monkeypatch):
    monkeypatch.setattr(blas, "sys", SimpleNamespace(platform="darwin", modules={}))
    assert load() == blas.Blas(None, "the one that MLX is built with")
    assert fresh.loaded == []


def test_a_preloaded_blas_stays(fresh, monkeypatch):
    monkeypatch.setattr(blas, "global_library", {"cblas_sgemm": "/lib/libblas.so"}.get)
    assert load() == blas.Blas("/lib/libblas.so", "/lib/libblas.so, preloaded")
    assert fresh.loaded == []


def test_off(fresh, monkeypatch):
    monkeypatch.setenv("MLX_PORT_BLAS", "off")
    assert load() == blas.Blas(None, f"{blas.OWN}: MLX_PORT_BLAS=off")
    assert fresh.loaded == []


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("OFF", ["MLX_PORT_BLAS: 'OFF' is unknown and has no effect; use off, or leave it out"]),
        ("", []),
    ],
)
def test_an_unknown_choice_is_reported_and_the_library_loaded(fresh, monkeypatch, caplog, value, messages):
    monkeypatch.setenv("MLX_PORT_BLAS", value)
    assert load().library is not None
    assert caplog.messages == messages


def test_without_the_package_the_remedy_is_named(fresh, monkeypatch):
    monkeypatch.setattr(blas, "packaged_library", lambda: None)
    found = load()
    assert (found.library, "pip install 'mlx-port[cpu]'" in found.why) == (None, True)
    assert fresh.loaded == []


def test_mlx_first_is_too_late(fresh, monkeypatch, caplog):
    monkeypatch.setattr(blas, "sys", SimpleNamespace(platform="linux", modules={"mlx.core": None}))
    assert load() == blas.Blas(None, f"{blas.OWN}: mlx.core was imported before mlx_port")
    assert [record.message for record in caplog.records] == [
        "MLX uses its own slow BLAS: import mlx_port before mlx.core to use OpenBLAS"
    ]
    assert fresh.loaded == []


def test_an_unusable_cache_gives_way_to_the_next(fresh):
    fresh.caches[0].parent.write_text("a file")
    assert load().library == str(next(fresh.caches[1].iterdir()))


def test_a_folder_that_others_can_change_is_passed_over(fresh):
    make_folder(fresh.caches[0])
    fresh.caches[0].chmod(0o770)
    assert load().library == str(next(fresh.caches[1].iterdir()))
    fresh.caches[1].parent.chmod(0o702)
    found = load()
    assert (found.library, found.why.count("another user can change it")) == (None, 2)
    fresh.caches[1].parent.chmod(0o1777)  # sticky, as /tmp
    assert load().library is not None


def test_a_linked_cache_is_checked_where_it_is(fresh, tmp_path):
    make_folder(tmp_path / "shared" / "real")
    (tmp_path / "shared").chmod(0o777)
    make_folder(fresh.caches[0].parent)
    fresh.caches[0].symlink_to(tmp_path / "shared" / "real")
    assert Path(str(load().library)).parent == fresh.caches[1]
    (tmp_path / "shared").chmod(0o755)
    assert Path(str(load().library)).parent == tmp_path.resolve() / "shared" / "real"


def test_a_copy_that_others_can_write_is_made_anew(fresh):
    copy = Path(str(load().library))
    copy.write_bytes(copy.read_bytes()[::-1])
    copy.chmod(0o620)
    assert load().library == str(copy)
    assert copy.read_bytes().startswith(b"library")
    assert copy.stat().st_mode & 0o7777 == 0o644


def test_a_new_copy_of_another_user_is_not_loaded(fresh, monkeypatch):
    """Some file systems give every file to one user."""
    monkeypatch.setattr(
        private, "_status", lambda path: SimpleNamespace(st_mode=os.lstat(path).st_mode, st_uid=owner(path))
    )

    def owner(path: Path) -> int:
        return os.getuid() + 1 if path.suffix == ".so" else os.lstat(path).st_uid

    assert load().library is None
    assert fresh.loaded == []


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data[:-1], lambda data: data + b"x"])
def test_a_copy_that_is_cut_short_is_made_anew(fresh, change):
    copy = Path(str(load().library))
    whole = copy.read_bytes()
    copy.write_bytes(change(whole))
    assert load().library == str(copy)
    assert copy.read_bytes() == whole


@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_copy_that_is_damaged_at_equal_size_is_made_anew(fresh, place):
    """It is not read for that: a write changes its date."""
    copy = Path(str(load().library))
    whole = copy.read_bytes()
    with copy.open("r+b") as file:
        file.seek(place, os.SEEK_SET if place >= 0 else os.SEEK_END)
        file.write(b"\0")
    assert (copy.stat().st_size, copy.read_bytes() == whole) == (len(whole), False)
    assert load().library == str(copy)
    assert copy.read_bytes() == whole


def test_a_whole_copy_is_neither_read_nor_written_again(fresh, monkeypatch):
    copy = Path(str(load().library))
    before = copy.stat()
    monkeypatch.setattr(blas, "_rename", None)
    assert load().library == str(copy)
    after = copy.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_link_and_an_earlier_copy_without_a_size_are_replaced(fresh):
    copy = Path(str(load().library))
    whole = copy.read_bytes()
    copy.rename(copy.with_name("other"))
    copy.symlink_to(copy.with_name("other"))
    copy.with_name(copy.name.rpartition("-")[0] + ".so").write_bytes(whole)
    assert load().library == str(copy)
    assert not copy.is_symlink()
    assert sorted(path.name for path in copy.parent.iterdir()) == [copy.name, "other"]


def test_permissions_do_not_depend_on_the_umask(fresh):
    before = os.umask(0)
    try:
        first = load()
    finally:
        os.umask(before)
    fresh.program.unlink()
    assert first.library is not None
    assert load() == first


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo not an ELF file >&2; exit 1", "patchelf: not an ELF file"),
        ("exit 3", "patchelf: exit code 3"),
        ("exit 0", "No such file"),
    ],
)
def test_a_failing_patchelf_leaves_nothing(fresh, body, why):
    fresh.program.write_text(f"#!/bin/sh\n{body}\n")
    found = load()
    assert found.library is None
    assert found.why.startswith(f"{blas.OWN}: OSError: ")
    assert why in found.why
    assert [list(folder.iterdir()) for folder in fresh.caches] == [[], []]


@pytest.mark.parametrize("fault", [OSError("bad"), KeyError("bad"), RuntimeError("bad"), ImportError("bad")])
def test_no_fault_reaches_the_import(fresh, monkeypatch, fault):
    def fail():
        raise fault

    monkeypatch.setattr(blas, "packaged_library", fail)
    found = load()
    assert found.library is None
    assert type(fault).__name__ in found.why


def test_a_library_without_the_functions_is_a_fault(fresh, monkeypatch):
    monkeypatch.setattr(blas, "FUNCTIONS", ("cblas_sgemm", "missing"))
    monkeypatch.setattr(blas.ctypes, "CDLL", lambda path, mode: {"cblas_sgemm": None})
    assert load() == blas.Blas(None, f"{blas.OWN}: KeyError: 'missing'")


def test_the_hash_is_the_wheels_record(fresh):
    digest = hashlib.sha256(b"another").digest()
    folder = fresh.original.parents[2] / f"{blas.PACKAGE}-1.dist-info"
    folder.mkdir()
    name = fresh.original.relative_to(folder.parent)
    coded = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    (folder / "RECORD").write_text(
        f"{name}.txt,sha256=AAAA,1\n{name},sha256={coded},7\n{folder.name}/RECORD,,\n"
    )
    assert blas.content_hash(fresh.original) == digest.hex()[:16]


@linux
def test_the_global_scope_is_searched():
    assert blas.global_library("malloc")  # of the C library, or of a Python that is linked with it
    assert blas.global_library("no_such_function") is None


def process(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code without a preloaded BLAS and with a cache of its own."""
    kept = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", blas.THREADS)}
    env = kept | {"XDG_CACHE_HOME": str(folder), "HOME": str(folder)} | variables
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)


@linux
@installed
def test_mlx_binds_to_the_loaded_library(tmp_path):
    """The dynamic linker's own log, and a product against float64."""
    done = process(CHECK, tmp_path, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(tmp_path / "log"))
    library, threads, error = done.stdout.splitlines()
    assert library.startswith(str(tmp_path / "mlx-port" / "blas-"))
    assert threads == "None"
    assert float(error) < 1e-4
    logs = [path.read_text() for path in tmp_path.glob("log.*")]
    bound = [line for log in logs for line in log.splitlines() if "libmlx.so" in line.split(" to ")[0]]
    for function in blas.FUNCTIONS:
        (line,) = [line for line in bound if f"`{function}'" in line]
        assert f" to {library} " in line


@linux
@installed
def test_mlx_first_still_works(tmp_path):
    done = process("import mlx.core\n" + CHECK, tmp_path)
    library, _, error = done.stdout.splitlines()
    assert (library, float(error) < 1e-4) == ("None", True)
    assert done.stderr.count("import mlx_port before mlx.core") == 1
    assert list(tmp_path.iterdir()) == []


BEFORE = """
import sys
import mlx_port
from mlx_port.runtime import blas
blas.load_blas = lambda: print("loaded", "mlx.core" in sys.modules)
import mlx_port.commands.main
{imports}
print("end")
"""


@pytest.mark.parametrize(
    ("imports", "printed"),
    [
        ("import mlx_port.runtime.blas, tts_core.models, mlx", ["end"]),
        ("import mlx.core", ["loaded False", "end"]),
        ("from mlx import core", ["loaded False", "end"]),
        ("from mlx_port.layers import conv", ["loaded False", "end"]),
        ("mlx_port.load; mlx_port.generate; import mlx.core", ["loaded False", "end"]),
    ],
)
def test_it_is_loaded_once_and_just_before_mlx(tmp_path, imports, printed):
    pytest.importorskip("mlx")
    assert process(BEFORE.format(imports=imports), tmp_path).stdout.splitlines() == printed


def test_the_version_loads_no_blas_and_not_even_its_module(tmp_path):
    """Nor does a help, which imports what tests/mlx_port/commands/test_help.py lists."""
    code = (
        "import sys; from mlx_port.commands.main import run; code = run(sys.argv[1:]); "
        "assert not {'mlx_port.runtime.blas', 'mlx.core'} & set(sys.modules); "
        "assert 'scipy_openblas' not in open('/proc/self/maps').read() if sys.platform == 'linux' else True; "
        "sys.exit(code)"
    )
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code, "--version"], env=env, capture_output=True, check=True)
    assert list(tmp_path.iterdir()) == []
