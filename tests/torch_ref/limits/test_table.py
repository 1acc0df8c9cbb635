"""The table of limits; each rule's probe breaks it, and its near miss does not."""

import contextlib
import tomllib
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from benchmarks.limits.workloads import pairs
from tests.torch_ref.limits.probes import PROBES, meta, real
from torch_ref.limits import (
    RULES,
    Backend,
    LimitError,
    active,
    backend_of,
    enforce,
    longest_convolution,
    minimum_macos,
    observe,
)
from torch_ref.limits.backend import NEWEST, NEWEST_MACOS, OLDEST, parse
from torch_ref.limits.rule import Rule, Where

pytestmark = pytest.mark.rest

BY_ID = {rule.id: rule for rule in RULES}
FAILURES = (RuntimeError, ValueError, TypeError, NotImplementedError)  # a CPU may also refuse the call


def test_every_rule_has_its_own_name_and_probe():
    assert len(BY_ID) == len(RULES)
    assert set(PROBES) == set(BY_ID)


# Supported versions


def supported() -> list[Backend]:
    """Every pair of a release and a macOS on a side of a rule's bound, of those that run together."""
    bounds = [
        bound for rule in RULES for where in rule.where for bound in (*where.torch, *where.macos) if bound
    ]
    releases = {OLDEST, NEWEST, *(b for b in bounds if b.startswith("2."))}
    systems = {"14.0", NEWEST_MACOS, *(b for b in bounds if not b.startswith("2."))}
    releases |= {before for b in releases if parse(before := just_before(b)) >= parse(OLDEST)}
    systems |= {before for b in systems if parse(before := just_before(b)) >= parse("14.0")}
    pairs = [(release, macos) for release in releases for macos in systems]
    return [Backend("mps", *pair) for pair in pairs if parse(pair[1]) >= parse(minimum_macos(pair[0]))]


def test_the_oldest_torch_is_the_one_that_the_project_requires():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert project["project"]["optional-dependencies"]["torch"] == [f"torch>={OLDEST}"]


@pytest.mark.parametrize("name", BY_ID)
def test_every_part_of_a_rule_is_reached_by_a_supported_pair(name):
    """And none of its bounds only excludes what is older than that."""
    rule = BY_ID[name]
    cuda = [Backend("cuda", release) for release in (OLDEST, NEWEST)]
    for where in rule.where:
        assert any(where.covers(backend) for backend in (cuda if rule.device == "cuda" else supported()))
        assert where.torch[0] is None or parse(where.torch[0]) > parse(OLDEST)
        assert where.macos[0] is None or parse(where.macos[0]) >= parse("14.0")


@pytest.mark.parametrize("name", PROBES)
def test_probes_run_on_supported_pairs(name):
    """So each rule fires on one."""
    for backend in (PROBES[name].backend, PROBES[name].elsewhere or PROBES[name].backend):
        assert parse(OLDEST) <= parse(backend.torch) < (*parse(NEWEST), 99)
        if backend.device == "mps":
            assert backend.macos
            assert parse(backend.macos) >= parse(minimum_macos(backend.torch))


def test_tables_are_of_supported_pairs():
    backends = {(backend.torch, backend.macos) for backend in pairs()}
    assert all(parse(macos) >= parse(minimum_macos(release)) for release, macos in backends if macos)
    assert {release.rpartition(".")[0] for release, _ in backends} == {
        f"2.{minor}" for minor in range(11, 16)
    }
    assert {macos.partition(".")[0] for _, macos in backends if macos} == {"14", "15", "26", "27"}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", PROBES)
def test_the_probe_breaks_its_rule(name):
    probe = PROBES[name]
    with contextlib.suppress(*FAILURES), observe(probe.backend) as watch:
        probe.breaks()
    assert name in watch.broken
    with pytest.raises(LimitError), enforce(probe.backend):
        probe.breaks()


@pytest.mark.parametrize("name", PROBES)
def test_a_near_miss_passes(name):
    probe = PROBES[name]
    with enforce(probe.elsewhere or probe.backend):
        probe.passes()


def edges(rule: Rule):
    """Versions on both sides of every bound, and whether that bound applies the rule there."""
    for where in rule.where:
        for kind, (first, before) in (("torch", where.torch), ("macos", where.macos)):
            for bound, holds in ((first, True), (before, False)):
                if bound is not None:
                    yield where, kind, bound, holds, just_before(bound)


def just_before(version: str) -> str:
    *head, last = parse(version)
    if last:
        return ".".join(map(str, [*head, last - 1, 99]))
    return ".".join(map(str, [*head[:-1], head[-1] - 1, 99]))


def inside(where: Where, rule: Rule) -> dict[str, str]:
    """A backend to which a part of a rule applies."""
    torch_first, torch_before = where.torch
    macos_first, macos_before = where.macos
    release = torch_first or (just_before(torch_before) if torch_before else "2.12.0")
    macos = macos_first or (just_before(macos_before) if macos_before else "15.2")
    chip = where.chips[0] if where.chips else "8.0" if rule.device == "cuda" else "M4"
    return {"torch": release, "macos": macos, "chip": chip}


@pytest.mark.parametrize("name", BY_ID)
def test_rules_hold_exactly_between_their_bounds(name):
    rule = BY_ID[name]
    for where in rule.where:
        assert where.covers(Backend(rule.device, **inside(where, rule)))
    for where, kind, bound, holds, before in edges(rule):
        at = Backend(rule.device, **{**inside(where, rule), kind: bound})
        below = Backend(rule.device, **{**inside(where, rule), kind: before})
        assert (where.covers(at), where.covers(below)) == (holds, not holds)
    for where in rule.where:
        if where.chips:
            assert not where.covers(Backend(rule.device, **{**inside(where, rule), "chip": "Apple M4"}))


def test_the_checked_size_of_convolutions_by_version():
    for release in ("2.11.0", "2.15.0"):
        held = [
            BY_ID["conv-65536"].active(Backend("mps", release, macos)) for macos in ("14.5", "15.0", "15.1")
        ]
        assert held == [True, True, False]


# Backends


def test_what_is_not_known_is_assumed_to_be_the_worst():
    known, unknown = (Backend("mps", "2.12.0", *rest) for rest in (("15.2", "M4"), (None, None)))
    more = {rule.id for rule in active(unknown)} - {rule.id for rule in active(known)}
    assert {"conv-65536", "mm-long-sum", "argmax-macos-27", "linear-half-unstable"} <= more


@pytest.mark.parametrize(
    ("text", "numbers"), [("2.13.0+cpu", (2, 13, 0)), ("2.6.0a0+git1", (2, 6, 0)), ("15.2", (15, 2))]
)
def test_versions(text, numbers):
    assert parse(text) == numbers


@pytest.mark.parametrize("values", [{"torch": "nightly"}, {"macos": "Sonoma"}, {"device": "xpu"}])
def test_nonsense_is_refused(values):
    with pytest.raises(ValueError, match=next(iter(values.values()))):
        Backend(**values)


@pytest.mark.parametrize(
    ("release", "macos"), [("2.11.0", "14.0"), ("2.14.1", "14.0"), ("2.15.0", "15.0"), ("2.16.0", "15.0")]
)
def test_minimum_macos(release, macos):
    assert minimum_macos(release) == macos


def test_a_cpu_has_no_rules():
    assert backend_of(torch.device("cpu")) is None
    assert active(Backend("cpu")) == ()
    assert longest_convolution(torch.device("cpu")) is None


# Enforcing


def test_the_message_is_the_backends_and_names_the_rule():
    text = "Output channels > 65536 not supported at the MPS device"
    with pytest.raises(LimitError, match=text) as error, enforce(Backend("mps", "2.11.0", "15.0")):
        F.conv1d(meta(1, 1, 65537), meta(1, 1, 1))
    assert error.value.rule == "conv-65536"
    assert "conv-65536; mps, torch 2.11.0, macOS 15.0" in str(error.value)


def test_layers_learn_of_the_backend_and_forget_it():
    backend, cpu = Backend("mps", "2.11.0", "14.5"), torch.device("cpu")
    with enforce(backend):
        assert backend_of(cpu) is backend
        assert longest_convolution(cpu) == 65536
    assert backend_of(cpu) is None
    x = real(2)
    with pytest.raises(LimitError), enforce(backend):
        x.double()
    assert backend_of(cpu) is None


@pytest.mark.parametrize("transform", [torch.fft.fftn, torch.fft.rfftn, torch.fft.irfftn])
def test_every_kind_of_fourier_transform_has_four_axes_at_most(transform):
    with observe(Backend("mps", "2.15.0", "26.0")) as watch:
        transform(meta(2, 2, 2, 2))
        assert watch.broken == {}
        transform(meta(2, 2, 2, 2, 2))
    assert set(watch.broken) == {"fft-over-4d"}


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_calls_are_seen_in_every_mode(mode):
    layer = torch.nn.Conv1d(1, 1, 1)
    x = real(1, 1, 65537)
    with mode(), pytest.raises(LimitError), enforce(Backend("mps", "2.11.0", "14.5")):
        layer(x)


def test_backward_is_seen():
    weight, x = real(1, 1, 3).requires_grad_(), real(1, 1, 65540)
    with observe(Backend("mps", "2.11.0", "14.5")) as watch:
        F.conv1d(x[..., :65538], weight).sum().backward()
        assert watch.broken == {}
        F.conv1d(x, weight).sum().backward()
    assert set(watch.broken) == {"conv-65536", "conv-weight-grad-65536"}


def test_what_is_made_on_the_host_is_free_until_it_moves():
    x = real(4)
    with observe(Backend("mps", "2.11.0", "14.5")) as watch:
        table = torch.arange(4, dtype=torch.float64).cos()
        torch.multinomial(x.cpu().double(), 1)
        torch.multinomial(x.to("cpu"), 1)
        _ = x * table.float().to(x.device)
    assert watch.broken == {}


@pytest.mark.parametrize(
    "move",
    [
        lambda x: torch.arange(4, dtype=torch.float64).to(x.device),
        lambda x: torch.arange(4).to(device=x.device, dtype=torch.float64),
        lambda x: x * torch.arange(4, dtype=torch.float64),
        lambda x: torch.arange(4, dtype=torch.float64, device=x.device),
        lambda x: torch.zeros_like(x, dtype=torch.float64),
        lambda x: x.new_zeros(4, dtype=torch.float64),
    ],
)
def test_float64_is_seen_where_it_reaches_the_device(move):
    x = real(4)
    with observe(Backend("mps", "2.11.0", "14.5")) as watch:
        move(x)
    assert set(watch.broken) == {"float64"}


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x.to(device="cpu", dtype=torch.float32),
        lambda x: x.to(torch.zeros(1, device="cpu")),
    ],
)
def test_what_has_a_copy_on_the_host_is_still_watched(move):
    """On a CPU torch returns the tensor itself: watching must not move it to the host with the copy."""
    x = real(4)
    with observe(Backend("mps", "2.11.0", "14.5")) as watch:
        host = move(x)
        host.double()
        assert watch.broken == {}
        x.double()
    assert set(watch.broken) == {"float64"}


def test_what_goes_back_to_the_device_is_watched_and_the_host_s_is_not():
    x = real(4)
    with observe(Backend("mps", "2.11.0", "14.5")) as watch:
        host = x.cpu()
        back = host.to(x.device)
        beside = host.to(x)
        host.double()
        assert watch.broken == {}
        for there in (back, beside):
            there.double()
    assert watch.counts["float64"] == 2


def test_the_device_wins_over_the_host_and_the_host_over_what_is_open():
    x = real(1, 1, 65537)
    with observe(Backend("mps", "2.11.0", "14.5")) as watch:
        host = x.cpu()
        F.conv1d(host + torch.zeros(1), torch.zeros(1, 1, 1))  # tensors created without a device go along
        assert watch.broken == {}
        F.conv1d(x * host.sum(), torch.zeros(1, 1, 1))
    assert set(watch.broken) == {"conv-65536"}


def test_operators_on_tensors_made_inside_are_seen():
    with pytest.raises(LimitError), enforce(Backend("mps", "2.11.0", "14.5")):
        F.conv1d(torch.zeros(1, 1, 65537), torch.zeros(1, 1, 1))


def test_every_rule_of_a_call_is_noted():
    with observe(Backend("mps", "2.12.0", "15.2")) as watch:
        x = meta(1, 4, 16, 64, dtype=torch.float16)
        F.scaled_dot_product_attention(x, x, x)
        F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=1.0)
        F.scaled_dot_product_attention(x, x, x, scale=1.0)
    assert list(watch.broken) == ["sdpa-half-causal", "sdpa-scale-cached"]
