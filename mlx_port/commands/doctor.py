"""`mlx-port doctor`: report the machine, its limits, and whether it can generate speech."""

from __future__ import annotations

import platform
import sys
from typing import Any

import click

from tts_core import models
from tts_core.extras import EXTRAS, install
from tts_core.printable import json_text, lines, one_line

PACKAGES = ("mlx-port", "numpy", "huggingface_hub", "soundfile", "soxr", "sounddevice")
DOCTORS = {"mlx": "mlx_port.doctor", "torch": "torch_ref.doctor"}
INSTALL = {
    "mlx": f"on Linux {install('cpu')} (also cuda12, cuda13); on a Mac it comes with mlx-port",
    "torch": install("torch"),
}
BACKENDS = ("cpu", "cuda12", "cuda13")  # extras for MLX
SECONDS = 120  # limit for a framework to start


@click.command()
@click.option("--verbose", is_flag=True, help="Also print packages, models, devices and their limits.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def doctor(context: click.Context, verbose: bool, as_json: bool) -> None:
    """Report this machine, its limits, and whether it can generate speech.

    Exits with 1 if it cannot.
    """
    found = examine()
    click.echo(json_text(found) if as_json else lines((details if verbose else text)(found)))
    if not found["generation"]["possible"]:
        context.exit(1)


def examine() -> dict[str, Any]:
    """Collect all facts of the report as JSON-serializable values; sizes in bytes."""
    from tts_core.memory import computer
    from tts_core.voice.embedded import cache_folder

    sides = probe(DOCTORS)
    found: dict[str, Any] = {
        "machine": {
            "system": computer.system(),
            "processor": computer.processor(),
            "python": platform.python_version(),
            "memory_total": computer.total_bytes(),
            "memory_free": computer.free_bytes(),
        },
        "packages": {name: version(name) for name in PACKAGES},
        "models": {
            name: {"title": spec.title, "published": list(spec.sizes)}
            for name, spec in ((name, models.MODELS[name]) for name in models.NAMES)
        },
        "cache": {
            "folder": str(cache_folder()),
            "free": computer.free_disk_bytes(cache_folder()),
            "voice": sides["mlx"].get("voice"),
        },
        "extras": {
            name: {"purpose": extra.purpose, "installed": extra.installed, "install": install(name)}
            for name, extra in EXTRAS.items()
        },
        **sides,
    }
    return found | {"generation": verdict(found)}


def version(package: str) -> str | None:
    """Version of an installed package; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def probe(modules: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Call `facts()` of each module. Returns its result, or {"fault": message}, by name.

    Each runs in a process of its own: a broken driver can abort a process, which `try` does not catch.
    """
    import subprocess

    code = "import json; from {} import facts; print(json.dumps(facts()))"
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", code.format(module)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",  # of a driver's message
        )
        for name, module in modules.items()
    }
    return {name: _answer(name, process) for name, process in running.items()}


def _answer(name: str, process: Any) -> dict[str, Any]:
    import json
    import subprocess

    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"fault": f"no answer within {SECONDS} s"}
    if process.returncode == 0 and out.strip():
        return json.loads(out.splitlines()[-1])
    last = (err.strip().splitlines() or ["no message"])[-1]
    if last.startswith(f"ModuleNotFoundError: No module named '{name}"):
        return {"fault": f"not installed; {INSTALL[name]}"}
    ended = f"signal {-process.returncode}" if process.returncode < 0 else f"code {process.returncode}"
    return {"fault": f"{last} ({ended})"}


def verdict(found: dict[str, Any]) -> dict[str, Any]:
    """Decide whether the embedded voice can run here; "why" names the backend or the obstacle."""
    mlx, torch = found["mlx"], found["torch"]
    if mlx["fault"] is None:
        backend, free = f"mlx-{mlx['backend']}", mlx["memory_free"]
        why = f"MLX runs on {mlx['backend']}"
    elif torch["fault"] is None:
        device = torch["devices"][0]
        backend, free = f"torch-{device['device'].partition(':')[0]}", device["memory_free"]
        why = "PyTorch works, MLX does not; use --backend torch"
    else:
        return {"possible": False, "why": "neither MLX nor PyTorch works"}
    needed = needed_bytes(backend)
    if free is not None and free < needed:
        why = f"{size(free)} of memory are free, the embedded voice may take {size(needed)}"
    return {"possible": free is None or free >= needed, "why": why}


def needed_bytes(backend: str) -> int:
    """Estimated peak of the embedded voice at its longest text."""
    from mlx_port.commands.estimate import read_model
    from tts_core import models
    from tts_core.memory.machine import Machine

    voice = read_model(None, None)
    plan = models.MODELS[voice.name].code().plan
    job = plan.job(voice.configs, None, None, 1)
    return plan.footprint(voice.configs, job, Machine(voice.dtype, backend)).total


def text(found: dict[str, Any]) -> str:
    """Format what matters most as text for a terminal, about a dozen lines."""
    host, mlx, torch = found["machine"], found["mlx"], found["torch"]
    lines = [
        _verdict(found),
        f"machine     {host['system']}, {host['processor']}, Python {host['python']}",
        f"memory      {size(host['memory_free'])} free of {size(host['memory_total'])}",
        f"voice       {found['cache']['voice'] or 'not converted yet; the first generation converts it'}",
        f"MLX         {_state(mlx, mlx.get('backend', ''))}",
        f"PyTorch     {_state(torch, torch.get('default', {}).get('device', ''))}",
        *_extras(found["extras"]),
        "more        mlx-port doctor --verbose",
    ]
    return "\n".join(map(one_line, lines))


def _verdict(found: dict[str, Any]) -> str:
    generation = found["generation"]
    return f"speech      {'possible' if generation['possible'] else 'not possible'}: {generation['why']}"


def _state(facts: dict[str, Any], device: str) -> str:
    """Say whether a framework works, and on which device."""
    if "version" not in facts:
        return facts["fault"]
    return f"{facts['version']} on {device}: {'works' if facts['fault'] is None else facts['fault']}"


def _extras(extras: dict[str, dict[str, Any]]) -> list[str]:
    """A line of those that are installed, and one for each other. A machine needs one of MLX's backends."""
    there = [name for name, extra in extras.items() if extra["installed"]]
    absent = {name: extra for name, extra in extras.items() if name not in there}
    if not {*there}.isdisjoint(BACKENDS):
        absent = {name: extra for name, extra in absent.items() if name not in BACKENDS}
    lines = [f"extras      {', '.join(there) or 'none'} installed"]
    return lines + [
        f"            {name}, for {extra['purpose']}: {extra['install']}" for name, extra in absent.items()
    ]


def details(found: dict[str, Any]) -> str:
    """Format all facts as text for a terminal."""
    host, cache = found["machine"], found["cache"]
    packages = [f"{name} {number or 'not installed'}" for name, number in found["packages"].items()]
    models = [f"{model['title']} ({', '.join(model['published'])})" for model in found["models"].values()]
    voice = cache["voice"] or "not converted yet; the first generation converts it"
    lines = [
        f"machine     {host['system']}, {host['processor']}, Python {host['python']}",
        f"memory      {size(host['memory_free'])} free of {size(host['memory_total'])}",
        f"packages    {', '.join(packages)}",
        f"models      {', '.join(models)}",
        f"cache       {cache['folder']}, {size(cache['free'])} free on its disk",
        f"voice       {voice}",
        *_mlx(found["mlx"]),
        *_torch(found["torch"]),
        *_extras(found["extras"]),
        _verdict(found),
    ]
    return "\n".join(map(one_line, lines))


def _mlx(facts: dict[str, Any]) -> list[str]:
    if "version" not in facts:
        return [f"MLX         {facts['fault']}"]
    state = "works" if facts["fault"] is None else facts["fault"]
    lines = [
        f"MLX         {facts['version']}, {facts['backend']}, {facts['device']}: {state}",
        f"            {size(facts['memory_free'])} free; TF32: {facts['tf32']}",
    ]
    if facts["backend"] == "cpu":
        lines.append(f"            BLAS: {facts['blas']['why']}")
    alike: dict[tuple[str, str], list[str]] = {}
    for dtype, row in facts["rows"].items():
        alike.setdefault((row["path"], row["why"]), []).append(dtype)
    return lines + [
        f"            two rows in {', '.join(dtypes)}: {path}, {why}" for (path, why), dtypes in alike.items()
    ]


def _torch(facts: dict[str, Any]) -> list[str]:
    if "version" not in facts:
        return [f"torch       {facts['fault']}; without it the limits of its backends are unknown"]
    default, state = facts["default"], "works" if facts["fault"] is None else facts["fault"]
    lines = [
        f"torch       {facts['version']}: {state}; TF32: {facts['tf32']}",
        f"            takes {default['device']} in {default['dtype']} ({default['why']})",
    ]
    for device in facts["devices"]:
        count = len(device["rules"])
        limits = (
            f"{count} limit{'' if count == 1 else 's'}, respected by the layers" if count else "no limits"
        )
        lines.append(
            f"            {device['device']}: {device['name']}, {size(device['memory_free'])} free, {limits}"
        )
        lines += [
            f"              {rule['id']} ({rule['effect']}): {rule['condition']}. {rule['remedy']}"
            for rule in device["rules"]
        ]
    return lines


def size(count: int | None) -> str:
    """Format bytes, if they are known."""
    return "unknown" if count is None else f"{count / 1e9:.1f} GB"
