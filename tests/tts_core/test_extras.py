"""Extras: those of pyproject.toml, and one exit code for a missing one."""

import tomllib
from inspect import signature
from pathlib import Path

import pytest

from tts_core.extras import EXTRAS, install

FOR_DEVELOPERS = {"test", "dev"}
BASES = {"mlx[cpu]": "mlx-cpu", "mlx[cuda12]": "mlx-cuda-12", "mlx[cuda13]": "mlx-cuda-13"}


def test_they_are_those_of_the_project():
    found = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extras = found["project"]["optional-dependencies"]
    assert extras.keys() - FOR_DEVELOPERS == EXTRAS.keys()
    for name, extra in EXTRAS.items():
        needs = [line.partition(">=")[0] for line in extras[name]]
        needs = [
            BASES.get(one, one.partition("[")[0]) for one in needs if not one.startswith(("scipy", "patch"))
        ]
        assert {*extra.needs} - {"mlx"} == {*needs}, name


def test_one_that_lacks_a_library_is_not_installed(monkeypatch):
    from importlib import metadata

    def version(name):
        if name == "onnxruntime":
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(metadata, "version", version)
    assert [name for name, extra in EXTRAS.items() if not extra.installed] == ["judge"]
    expected = "pip install 'mlx-port[judge,ray]', or in a clone: pip install '.[judge,ray]'"
    assert install("judge", "ray") == expected


@pytest.mark.parametrize(
    ("module", "check"),
    [
        ("sounddevice", "mlx_port.commands.playback:check_playback"),
        ("mlx.core", "converters.tensors:import_mlx"),
        ("ray.data", "mlx_port.commands.batch.on_ray:check_ray"),
        ("onnxruntime", "tts_core.judges.onnx:session"),
        ("pocketsphinx", "tts_core.judges.words:_decoder"),
        ("mlx.core", "mlx_port.commands.verify.command:_frameworks"),
    ],
)
def test_a_missing_one_has_one_exit_code(monkeypatch, module, check):
    import sys
    from importlib import import_module

    from tts_core.errors import NotFoundError

    place, _, name = check.partition(":")
    function = getattr(import_module(place), name)
    monkeypatch.setitem(sys.modules, module, None)
    clone = r"pip install 'mlx-port(\[\w+\])', or in a clone: pip install '\.\1'"
    with pytest.raises(NotFoundError, match=clone) as caught:
        function(*(b"" for _ in signature(function).parameters))
    assert caught.value.exit_code == 3
