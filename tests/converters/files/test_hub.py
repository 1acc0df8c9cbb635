"""Requests to the hub's client: each source's own revision, and no network access when offline."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.errors
import pytest

from converters import cli
from converters.files import hub
from converters.published import open_published
from tests.converters.folders import DAC_HF, V_V01
from tests.tiny.mbd import published_content, write_published
from tests.tiny.metavoice_pipeline import bands_for
from tests.tiny.networks import tiny
from tests.tiny.published_models import ENCODEC, FIRST, SOURCES, VOCOS
from tts_core.command import runner
from tts_core.errors import NotFoundError

SAFETENSORS, PICKLES = "*.safetensors *.safetensors.index.json", "*.pth *.pt *.bin *.th"
PICKLED_DIA = [V_V01 / "config.json", V_V01 / "dia-v0_1.pth"]
OLD, NEW, ABSENT = "0" * 40, "1" * 40, "2" * 40


class Asked(NamedTuple):
    """A call of the download. tensors: patterns of weights files."""

    repository: str
    revision: str | None
    offline: bool
    tensors: str


@pytest.fixture
def asked(monkeypatch, tmp_path) -> Callable[..., list[Asked]]:
    """Put files into repositories of a hub; return the list of later requests."""

    def publish(held: dict[str, list[Path]]) -> list[Asked]:
        calls: list[Asked] = []

        def snapshot_download(
            repository, *, revision, allow_patterns, local_files_only=False, dry_run=False, **_
        ):
            if dry_run:
                raise huggingface_hub.errors.DryRunError("the hub is out of reach")
            tensors = [each for each in allow_patterns if each not in hub.patterns(())]
            calls.append(Asked(repository, revision, local_files_only, " ".join(tensors)))
            folder = tmp_path / repository / "snapshots/c0ffee"
            folder.mkdir(parents=True, exist_ok=True)
            for file in held[repository]:
                if any(fnmatch(file.name, pattern) for pattern in allow_patterns):
                    shutil.copyfile(file, folder / file.name)
            return str(folder)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        return calls

    return publish


def dry_run(*arguments: object) -> int:
    flags = ["--mlx-path", "/nowhere/at/all", "--dry-run"]
    return runner.run(cli.convert_weights, [*map(str, arguments), *flags], debug=False)


@pytest.mark.parametrize("flags", [[], ["--offline"]], ids=["online", "offline"])
def test_revision_and_offline_reach_the_download_of_dia_and_of_its_codec(asked, flags):
    """The revision is that of the ids in --hf-path; the codec's repository does not have it."""
    offline = flags == ["--offline"]
    calls = asked({"our/dia": PICKLED_DIA, "our/dac": [*DAC_HF.iterdir()]})
    assert dry_run("--hf-path", "our/dia", "--codec", "our/dac", "--revision", "v9", *flags) == 0
    assert calls == [
        Asked("our/dia", "v9", offline, SAFETENSORS),
        Asked("our/dia", "v9", offline, PICKLES),
        Asked("our/dac", None, offline, SAFETENSORS),
    ]


@pytest.mark.skipif(not FIRST.is_file(), reason=f"{FIRST} is missing")
@pytest.mark.parametrize("flags", [[], ["--offline"]], ids=["online", "offline"])
def test_revision_and_offline_reach_the_download_of_every_source(asked, flags, tmp_path):
    """Each id in --hf-path, and the codecs that complete the model."""
    offline = flags == ["--offline"]
    bands = bands_for(open_published(ENCODEC, parts=["encodec"]).parts["encodec"].config.hidden_size)
    mbd = write_published(tmp_path / "mbd_comp_8.pt", published_content(bands, tiny(bands).tensors))
    first, *others = [file for kind, file in SOURCES["metavoice"].items() if kind not in ("encodec", "vocos")]
    calls = asked(
        {
            "our/first": [first],
            "our/others": others,
            "facebook/encodec_24khz": [ENCODEC],
            "charactr/vocos-encodec-24khz": [*VOCOS.iterdir()],
            "facebook/multiband-diffusion": [mbd],
        }
    )
    ids = ["--hf-path", "our/first", "--hf-path", "our/others"]
    assert dry_run(*ids, "--revision", "v9", "--include-mbd", *flags) == 0
    assert {call.offline for call in calls} == {offline}
    assert [call[:2] + call[3:] for call in calls] == [
        ("our/first", "v9", SAFETENSORS),
        ("our/first", "v9", PICKLES),
        ("our/others", "v9", SAFETENSORS),
        ("our/others", "v9", PICKLES),
        ("facebook/encodec_24khz", None, SAFETENSORS),
        ("facebook/encodec_24khz", None, PICKLES),
        ("charactr/vocos-encodec-24khz", None, SAFETENSORS),
        ("charactr/vocos-encodec-24khz", None, PICKLES),
        ("facebook/multiband-diffusion", None, SAFETENSORS),
        ("facebook/multiband-diffusion", None, "mbd_comp_8.pt"),
    ]


@pytest.fixture
def cached(monkeypatch, tmp_path) -> Path:
    """The hub's own cache with two commits of a repository; main is the newer one."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--our--dia"
    for commit in (OLD, NEW):
        (repository / "snapshots" / commit).mkdir(parents=True)
        for file in PICKLED_DIA:
            shutil.copyfile(file, repository / "snapshots" / commit / file.name)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(NEW)
    (repository / "refs/first").write_text(OLD)
    return repository / "snapshots"


@pytest.mark.parametrize("options", [{}, {"offline": True}], ids=["online", "offline"])
@pytest.mark.parametrize(
    ("revision", "commit"), [(None, NEW), ("main", NEW), ("first", OLD), (OLD, OLD), (NEW, NEW)]
)
def test_a_pinned_commit_is_the_one_that_is_read(cached, revision, commit, options):
    """With the real client; the file is a pickle, so both of our calls must name the commit."""
    dia = open_published("our/dia", codec=DAC_HF, revision=revision, **options).parts["dia"]
    assert dia.files[0].parent == cached / commit
    assert (dia.origin.repository, dia.origin.commit) == ("our/dia", commit)


@pytest.mark.parametrize("options", [{}, {"offline": True}], ids=["online", "offline"])
@pytest.mark.parametrize("revision", [ABSENT, "v9"])
def test_a_pinned_commit_is_never_replaced_by_main(cached, revision, options):
    with pytest.raises(NotFoundError, match=f"--hf-path: our/dia at {revision} is not in the hub's cache"):
        open_published("our/dia", codec=DAC_HF, revision=revision, **options)


@pytest.mark.parametrize("error", ["RevisionNotFoundError", "LocalEntryNotFoundError", "HfHubHTTPError"])
def test_a_revision_that_cannot_be_had_is_asked_for_once(monkeypatch, error):
    class Raised(getattr(huggingface_hub.errors, error)):
        def __init__(self):
            Exception.__init__(self, "not to be had")

    calls = []

    def snapshot_download(repository, *, revision, **_):
        calls.append((repository, revision))
        raise Raised

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(NotFoundError, match=f"our/dia at {OLD}"):
        open_published("our/dia", codec=DAC_HF, revision=OLD)
    assert calls == [("our/dia", OLD)]


def test_the_commit_that_was_read_is_written_down(cached, tmp_path):
    out = tmp_path / "out"
    flags = ["--revision", OLD, "--codec", DAC_HF, "--mlx-path", out, "--offline"]
    assert runner.run(cli.convert_weights, ["--hf-path", "our/dia", *map(str, flags)], debug=False) == 0
    assert json.loads((out / "conversion.json").read_text())["parts"]["dia"]["commit"] == OLD
