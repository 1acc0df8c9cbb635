"""Memory and disk on simulated systems."""

from types import SimpleNamespace

import psutil
import pytest

from tts_core.memory import computer

AVAILABLE, TOTAL = 4_096_000, 8_192_000


@pytest.fixture
def linux(monkeypatch, tmp_path):
    """An empty /proc and control-group tree of a Linux, and its memory."""
    monkeypatch.setattr(computer, "PROC", tmp_path / "proc")
    monkeypatch.setattr(computer, "CGROUPS", tmp_path / "cgroup")
    memory = SimpleNamespace(total=TOTAL, available=AVAILABLE, free=100)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def group(folder, limit, used, cached=0):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")


def test_available_memory_is_free_not_only_the_untouched(linux):
    assert (computer.free_bytes(), computer.total_bytes()) == (AVAILABLE, TOTAL)


@pytest.mark.parametrize(
    ("own", "parent", "free"),
    [
        (("max", 5), None, 4_096_000),
        ((1_000_000, 400_000, 100_000), None, 700_000),
        ((1_000_000, 1_200_000), None, 0),
        (("max", 5), (900_000, 100_000), 800_000),
        ((700_000, 100_000), (900_000, 100_000), 600_000),
        ((9_000_000, 0), None, 4_096_000),
    ],
)
def test_a_container_has_what_its_groups_leave(linux, own, parent, free):
    (linux / "proc/self/cgroup").write_text("0::/outer/inner\n")
    group(linux / "cgroup/outer/inner", *own)
    if parent:
        group(linux / "cgroup/outer", *parent)
    assert computer.free_bytes() == free


def test_nothing_is_known_where_nothing_is_told(linux, monkeypatch):
    def fail() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/proc/meminfo")

    monkeypatch.setattr(psutil, "virtual_memory", fail)
    assert computer.free_bytes() is None
    assert computer.total_bytes() is None


def test_free_disk_where_a_folder_would_be(tmp_path):
    assert computer.free_disk_bytes(tmp_path / "a/b/c") == pytest.approx(
        computer.free_disk_bytes(tmp_path), rel=0.01
    )


def test_this_machine():
    total, free = computer.total_bytes(), computer.free_bytes()
    assert total is not None
    assert free is not None
    assert 0 < free <= total
    assert computer.processor()
    assert computer.system()
