"""What is built and installed: public names, versions of Python, locked dependencies, pinned actions."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import mlx_port
import torch_ref
from tts_core.exports import homes
from tts_core.models import NAMES

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = ROOT / ".github/workflows"
WORKFLOW = (WORKFLOWS / "ci.yml").read_text()
HASH = re.compile(r" +--hash=sha256:[0-9a-f]{64}")
MAKE = (
    "uv pip compile pyproject.toml {} --no-annotate --no-header --generate-hashes --universal"
    " -c constraints.txt -o locks/{}.txt"
)

LOCKS = {"run": ["cpu"], "serve": ["cpu", "serve"], "dev": ["cpu", "test", "dev"]}


def versions(text: str) -> dict[str, str]:
    """Pinned versions by normalized name."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def named(requirements: list[str]) -> set[str]:
    found = (re.match(r"[A-Za-z0-9._-]+", each) for each in requirements)
    return {re.sub(r"[-_.]+", "-", one[0]).lower() for one in found if one}


def lock(name: str) -> str:
    return (ROOT / f"locks/{name}.txt").read_text()


PUBLIC = """
CancelledError Captions CheckpointError Cue Dia2Options Dia2Pipeline DiaOptions DiaPipeline GenerationError
GenerationResult Mars5Options Mars5Pipeline MetaVoiceOptions MetaVoicePipeline NotFoundError Pipeline Progress
Prompt Qwen3Options Qwen3Pipeline Reference ResourceError SpeechError UsageError Word generate load read_audio
stream
"""


@pytest.mark.parametrize("side", [mlx_port, torch_ref], ids=lambda side: side.__name__)
def test_public_names(side):
    """Every one is there, and type checkers see the same ones, from the same modules."""
    assert side.__all__ == PUBLIC.split() == dir(side)
    assert len([name for name in side.__all__ if name.endswith("Options")]) == len(NAMES)
    assert all(getattr(side, name).__doc__ for name in side.__all__)
    tree = ast.parse(Path(side.__file__).read_text())
    [typed] = [node for node in tree.body if isinstance(node, ast.If)]
    assert {
        name.name: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    } == homes(side.__name__)
    with pytest.raises(AttributeError, match=rf"^module '{side.__name__}' has no attribute 'generates'"):
        side.generates  # noqa: B018


@pytest.mark.parametrize("name", ["generate", "stream"])
def test_help_names_every_model(name):
    documented = f"{mlx_port.generate.__doc__} {getattr(mlx_port, name).__doc__}"
    assert [one for one in PUBLIC.split() if one.endswith("Options") and one not in documented] == []
    assert getattr(mlx_port, name).__doc__ == getattr(torch_ref, name).__doc__


@pytest.mark.parametrize(("name", "extras"), LOCKS.items())
def test_locks_hold_every_dependency_in_the_tested_version(name, extras):
    """If this fails: run the command that CONTRIBUTING.md gives for the lock."""
    locked, tested = versions(lock(name)), versions((ROOT / "constraints.txt").read_text())
    wanted = PROJECT["project"]["dependencies"] + [
        one for extra in extras for one in PROJECT["project"]["optional-dependencies"][extra]
    ]
    assert named(wanted) - locked.keys() == set()
    assert {name: version for name, version in locked.items() if tested.get(name, version) != version} == {}


def test_the_workflow_builds_the_wheel_with_locked_tools():
    """uv, and the build backend with all that it needs, by hash."""
    steps = [step.get("run", "") for step in yaml.safe_load(WORKFLOW)["jobs"]["wheel"]["steps"]]
    assert "python -m pip install --require-hashes --requirement locks/build.txt" in steps
    [built] = [step for step in steps if "uv build" in step]
    assert built.startswith("uv build --build-constraint locks/build.txt --require-hashes ")
    assert {"uv"} | named(PROJECT["build-system"]["requires"]) <= versions(lock("build")).keys()
    tested = versions((ROOT / "constraints.txt").read_text())
    assert versions(lock("build"))["uv"] == tested["uv"]
    assert "pip install uv" not in WORKFLOW


@pytest.mark.parametrize("name", [*LOCKS, "build"])
def test_every_locked_package_has_hashes(name):
    for package in re.split(r"^(?=[A-Za-z])", lock(name), flags=re.MULTILINE)[1:]:
        first, *rest = package.rstrip().split("\n")
        assert rest, first
        assert all(HASH.fullmatch(line.rstrip(" \\")) for line in rest), first


def test_the_development_lock_contains_the_others():
    for name in ("run", "serve"):
        assert versions(lock(name)).items() <= versions(lock("dev")).items()


def test_contributing_says_how_locks_are_made():
    pages = (ROOT / "CONTRIBUTING.md").read_text()
    for name, extras in LOCKS.items():
        assert MAKE.format(" ".join(f"--extra {extra}" for extra in extras), name) in pages


def test_classifiers_are_the_tested_versions():
    """3.14 is tried by the workflow only, so it is not claimed."""
    matrix = yaml.safe_load(WORKFLOW)["jobs"]["ubuntu-cpu"]["strategy"]["matrix"]["python"]
    claimed = [
        one.rsplit(" ", 1)[1] for one in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", one)
    ]
    assert matrix == [*claimed, "3.14"]
    assert PROJECT["project"]["requires-python"] == f">={claimed[0]}"
    for page in ("README.md", "docs/use/install.md", "docs/use/questions.md"):
        assert re.findall(r"Python (3\.\d+) to (3\.\d+)", (ROOT / page).read_text()) == [
            (claimed[0], claimed[-1])
        ], page


def test_make_anywhere_runs_the_versions_of_the_workflow():
    """Those that a machine lacks are listed as not run."""
    matrix = yaml.safe_load(WORKFLOW)["jobs"]["ubuntu-cpu"]["strategy"]["matrix"]["python"]
    [named] = re.findall(r"^PYTHONS = \((.*)\)$", (ROOT / "noxfile.py").read_text(), re.MULTILINE)
    assert re.findall(r"3\.\d+", named) == matrix


def test_actions_are_pinned_by_commit():
    written = "\n".join(each.read_text() for each in WORKFLOWS.iterdir())
    used = re.findall(r"uses: (\S+)( # v[\d.]+)?$", written, re.MULTILINE)
    assert used
    assert [name for name, version in used if not re.search(r"@[0-9a-f]{40}$", name) or not version] == []


def test_the_source_archive_carries_no_tests():
    """Their vectors would double it, and without them most would fail."""
    held = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    assert set(held) >= set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert not {"tests", "Makefile"} & set(held)


def test_the_wheel_carries_the_page_of_the_server():
    """Its files are no modules, and hatch leaves out what git ignores."""
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling builds the package")
    held = {each.distribution_path for each in wheel.WheelBuilder(str(ROOT)).recurse_included_files()}
    folder = ROOT / "mlx_port/commands/serve/web"
    assert {str(path.relative_to(ROOT)) for path in folder.iterdir()} <= held


def test_urls_come_from_the_repository_that_builds(monkeypatch):
    hook = pytest.importorskip("hatchling.metadata.plugin.interface", reason="hatchling builds the package")
    assert hook
    import importlib.util

    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for repository, urls in ((None, []), ("o/r", ["Repository", "Issues", "Changelog"])):
        monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
        if repository:
            monkeypatch.setenv("GITHUB_REPOSITORY", repository)
        metadata: dict = {}
        module.RepositoryUrls(str(ROOT), {}).update(metadata)
        assert list(metadata["urls"]) == urls


def test_the_release_workflow_runs_the_tests_and_publishes_without_a_password():
    """Its actions are pinned by test_actions_are_pinned_by_commit."""
    jobs = yaml.safe_load((WORKFLOWS / "release.yml").read_text())["jobs"]
    assert ".ci/run" in [step.get("run") for step in jobs["test"]["steps"]]
    assert jobs["publish"]["needs"] == "test"
    assert jobs["publish"]["permissions"] == {"contents": "write", "id-token": "write"}
    steps = "\n".join(step.get("run", "") for step in jobs["publish"]["steps"])
    assert "uv publish --trusted-publishing always" in steps
    assert "secrets." not in (WORKFLOWS / "release.yml").read_text()


def test_the_formula_is_filled_in_whole():
    """Every word between @ signs is replaced by the release workflow."""
    formula = (ROOT / "packaging/homebrew/mlx-port.rb.in").read_text()
    replaced = re.findall(r"s\|(@[A-Z0-9]+@)\|", (WORKFLOWS / "release.yml").read_text())
    assert set(re.findall(r"@[A-Z0-9]+@", formula)) == set(replaced)


def test_the_container_copies_what_the_package_is_built_from():
    written = (ROOT / "packaging/Containerfile").read_text()
    copied = set(re.findall(r"^COPY (.*) /source", written, re.MULTILINE)[0].split())
    copied |= set(re.findall(r"^COPY (\w+) /source/\1$", written, re.MULTILINE))
    build = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {*build, "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "NOTICE"} <= copied
    assert all((ROOT / name).exists() for name in copied)
    [extras] = re.findall(r"'/source\[(.*)\]'", written)
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()
