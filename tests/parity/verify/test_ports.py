"""`mlx-port verify --with`: a faulty copy of a network is found at the layer of its fault, and only there."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
import torch
from mlx import nn

from mlx_port.commands import main as cli
from mlx_port.commands.verify import ports
from mlx_port.commands.verify.watch import Outputs, watched
from mlx_port.watch import framework as mlx_in
from tests.tiny.ports import mlx_qwen3
from torch_ref.watch import framework as torch_in
from tts_core.errors import UsageError
from tts_core.nn.probe import Probe

TOY = Path(__file__).with_name("toy_port.py")
CODES = {"no_such_package is not installed": 3, "the port cannot load": 4}
LOADED = "\n_load = load\ndef load(folder, codec):\n    model = _load(folder, codec)\n"


@pytest.fixture
def verify_with(tmp_path, capsys, verify_here) -> Callable[..., SimpleNamespace]:
    """Verify the toy port, with lines that are added to its adapter."""
    folder = mlx_qwen3("base_bf16", tmp_path / "model")

    def run(*changes: str, flags: tuple[str, ...] = ()) -> SimpleNamespace:
        adapter = tmp_path / "adapter.py"
        adapter.write_text("\n".join((TOY.read_text(), *changes)))
        code = cli.run(["verify", "--with", str(adapter), str(folder), "--rows", "4", *flags])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


def beyond(done: SimpleNamespace) -> list[tuple[str, str]]:
    return [(row["part"], row["layer"]) for row in json.loads(done.out)["rows"] if not row["passed"]]


def fault(line: str) -> str:
    return f"{LOADED}    {line}\n    return model"


def test_a_faithful_port_passes(verify_with):
    done = verify_with(flags=("--verbose",))
    assert (done.code, beyond_count(done.out), done.err) == (0, 0, "")
    assert done.out.endswith("\nPASS\n")
    assert ": toy-port compared with torch_ref in float64\nTF32 off, mlx " in done.out
    for row in ("speaker | speaker_encoder.blocks.2 |", "codec decoder | decoder.pre_transformer.layers.1 |"):
        assert f"| {row} " in done.out
    assert "talker" not in done.out  # it has no call


def beyond_count(out: str) -> int:
    return out.count("| differs |")


@pytest.mark.parametrize(
    ("line", "part", "layers"),
    [
        (
            "p = model.network.speaker_encoder.blocks[2].tdnn1.conv; p.weight = p.weight * 1.001",
            "speaker",
            ["speaker_encoder.blocks.2", "whole network, vector"],
        ),
        (
            "for one in model.codec.decoder.pre_transformer.layers: one.self_attn.window = 10**6",
            "codec decoder",
            [
                *(f"decoder.pre_transformer.layers.{i}.self_attn" for i in (0, 1)),
                "whole network, samples",
                "whole network, samples after the port's trim",
            ],
        ),
        (
            "p = model.codec.decoder.decoder[0].conv; p.bias = p.bias[::-1]",
            "codec decoder",
            ["decoder.decoder.0", "whole network, samples", "whole network, samples after the port's trim"],
        ),
    ],
    ids=["weight", "window", "order"],
)
def test_a_fault_is_found_at_its_layer(verify_with, line, part, layers):
    done = verify_with(fault(line), flags=("--json",))
    assert done.code == 1
    assert sorted(beyond(done)) == sorted((part, layer) for layer in layers)


def test_a_table_has_only_what_differs(verify_with):
    done = verify_with(
        fault("p = model.network.speaker_encoder.mfa.conv; p.weight = p.weight * 1.001"),
    )
    assert done.code == 1
    assert beyond_count(done.out) == 2
    assert "| ok |" not in done.out
    assert "\nspeaker: 8 rows, 2 beyond the bound\n" in done.out


def test_another_length_is_named(verify_with):
    cut = "_decode = decode\ncalls['codec decoder'] = lambda model, given: {\n"
    cut += "    name: samples[:, : -32 if 'trim' in name else None]\n"
    cut += "    for name, samples in _decode(model, given).items()}"
    done = verify_with(cut, flags=("--json",))
    found = "samples after the port's trim: [1, 2528] instead of [1, 2560]"
    assert beyond(done) == [("codec decoder", found), ("codec decoder", f"whole network, {found}")]
    assert json.loads(done.out)["rows"][-1]["error"] is None


def test_what_a_port_prints_is_no_part_of_the_report(verify_with):
    done = verify_with(fault("print('loaded')"), flags=("--json",))
    assert json.loads(done.out)["passed"]
    assert "loaded" in done.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("del calls", "calls missing; see mlx_port/commands/verify/ports.py"),
        ("import no_such_package", "no_such_package is not installed"),
        (
            r"names['speaker'][r'speaker_encoder\.blocks\.(\d+)'] = r'network.speaker_encoder.parts.\1'",
            "network.speaker_encoder.parts.0: the port has no such module",
        ),
        (
            r"names['speaker'][r'speaker_encoder\.block\.\d+'] = ''",
            "speaker: no module of ours runs as speaker_en",
        ),
    ],
)
def test_a_faulty_adapter_gets_one_line(verify_with, change, said):
    done = verify_with(change)
    assert (done.code, done.out, done.err.count("\n")) == (CODES.get(said, 2), "", 1)
    assert said in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--with", "mlx-audio", "A", "B"], "--with: takes one FOLDER"),
        (["--with", "nobody", "{folder}"], "nobody: no adapter for qwen3; give the path of its file"),
        (["--with", str(TOY), "{folder}", "--rows", "65000"], "--rows: 65000 is outside 2 .."),
        (["--with", "mlx-audio", "some/id"], "FOLDER: some/id is not a folder here"),
        (["B"], "SRC...: missing; see mlx-port verify --help"),
    ],
)
def test_wrong_words_get_one_line(tmp_path, capsys, verify_here, words, said):
    folder = mlx_qwen3("base_bf16", tmp_path / "model")
    assert cli.run(["verify", *(word.format(folder=folder) for word in words)]) in (2, 3)
    assert said in capsys.readouterr().err


class Doubler(nn.Module):
    def __call__(self, x: mx.array) -> tuple[mx.array, str]:
        return 2 * x, "kept"


def test_a_watched_module_hands_on_the_truth_and_is_itself_again():
    module, truth = Doubler(), np.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    heard = Outputs(mlx_in("float32"), {"one": [truth]}, ["one"])
    with watched({"one": module}, heard):
        first = module(mx.ones((1, 2, 3)))
        second = module(mx.ones((1, 2, 3)))
    np.testing.assert_array_equal(np.array(first[0]), truth.swapaxes(1, 2))
    assert (first[1], type(module)) == ("kept", Doubler)
    np.testing.assert_array_equal(np.array(second[0]), 2)  # beyond the calls of the truth
    assert [one.shape for one in heard.by_module["one"]] == [(1, 3, 2)] * 2


def test_a_module_is_itself_again_after_an_error():
    module = torch.nn.Linear(2, 2)
    with pytest.raises(RuntimeError), watched({"one": module}, Outputs(torch_in("float32"))):
        module(torch.ones(3))
    assert type(module) is torch.nn.Linear


def test_one_module_may_have_two_names():
    module = Doubler()
    heard = Outputs(mlx_in("float32"))
    with watched({"one": module, "two": module}, heard):
        module(mx.ones(1))
    assert (sorted(heard.by_module), type(module)) == (["one", "two"], Doubler)


def test_a_missing_call_of_a_module_differs():
    both = [torch.nn.Sequential(torch.nn.Identity()).to(dtype) for dtype in (torch.float64, torch.float32)]
    x = np.ones((1, 2), np.float32)
    probe = Probe("one", "toy", {}, lambda network, framework: {"y": network(framework.array(x))})
    port = SimpleNamespace(
        names={"one": {"0": "part"}}, turned=(), calls={"one": lambda model, given: {"y": mx.array(x)}}
    )
    rows = ports.compare(probe, port, SimpleNamespace(part=Doubler()), *both)  # pyright: ignore
    assert [row.layer for row in rows if not row.passed] == ["0: none instead of [1, 2]"]
    port.names = {"one": {"1": "part"}}
    with pytest.raises(UsageError, match="no module of ours runs as 1"):
        ports.compare(probe, port, SimpleNamespace(part=Doubler()), *both)  # pyright: ignore
