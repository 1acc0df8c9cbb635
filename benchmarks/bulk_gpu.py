"""Measure `mlx-port batch` with Dia at full size on NVIDIA GPUs, beside transformers in the same run.

    python benchmarks/bulk_gpu.py [--devices 1] [--rows 384] [--places 64] [--frames 1290] [--together]
        [--peer] [--folder DIR]

Dia-1.6B and DAC at 44.1 kHz with random weights, in bfloat16, written to a published folder first; every row
has --frames frames (1290: 15 s of speech). --devices 1,2 measures one GPU and then two, with as many rows for
each GPU.

    whole     hours of speech per hour of the command, from its start: loading, FLAC and files included
    steady    the same between the first and the last row that was written, the first batch left out
    together  with --together: `generate_batch` of as many texts as there are places, in this process, after a
              short run; steady is given by it
    peer      with --peer: DiaForConditionalGeneration.generate of 8 texts and as many frames, then DacModel's
              decode, after a short run; loading is not counted
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch_ref
from benchmarks.lib.bulk_run import Run, run
from benchmarks.lib.dia_networks import FULL, SPECIAL, full_network, transformers_rows
from benchmarks.lib.timing import arguments, batch_rate
from tts_core.codecs.dac import DAC_44KHZ

PEER_BATCH = 8
TEXT = "[S1] Dia is an open weights model. [S2] You get full control over scripts and voices."  # one piece


def write_model(folder: Path) -> None:
    """Write random weights in transformers' layout."""
    import torch
    import transformers
    from safetensors.torch import save_file

    sizes: dict[str, Any] = FULL.to_dict() | {"delay_pattern": list(FULL.delay_pattern)}
    sizes = {name: value for name, value in sizes.items() if name not in ("cross_rope", "sampling")}
    config = transformers.DiaConfig(**sizes)
    with torch.device("meta"):
        wanted = list(transformers.DiaForConditionalGeneration(config).state_dict())
    given = full_network("bfloat16").state_dict()
    state = {name: given[name if name in given else name.removeprefix("model.")] for name in wanted}
    config.architectures = ["DiaForConditionalGeneration"]
    config.save_pretrained(folder)
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors")
    torch.manual_seed(0)
    codec = transformers.DacModel(transformers.DacConfig(sampling_rate=DAC_44KHZ.sample_rate))
    codec.save_pretrained(folder / "codec")


def report(name: str, done: Run, places: int, devices: int) -> dict[str, float]:
    """Print a run's figures."""
    seconds = {wave.rows: wave.seconds for wave in reversed(done.samples)}
    first = min(rows for rows in seconds if rows >= places * devices)
    last = max(seconds)
    steady = (last - first) / len(done.lines) * done.speech / (seconds[last] - seconds[first])
    found = {
        "rows": len(done.lines),
        "speech": done.speech,
        "whole": done.speech / done.seconds,
        "steady": steady,
        "seconds": done.seconds,
    }
    print(name, json.dumps({key: round(value, 2) for key, value in found.items()}), flush=True)
    return found


def peer(folder: Path, frames: int) -> float:
    """Seconds of speech per second of transformers."""
    import torch
    import transformers

    model: Any = transformers.DiaForConditionalGeneration.from_pretrained(folder, dtype=torch.bfloat16)
    model.generation_config.update(**SPECIAL)
    codec: Any = transformers.DacModel.from_pretrained(folder / "codec")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, codec = model.to(device).eval(), codec.to(device).eval()

    def speak(count: int) -> None:
        rows = transformers_rows(model, TEXT, PEER_BATCH, count)
        codes = rows[:, 1:].transpose(1, 2).clamp(max=DAC_44KHZ.codebook_size - 1)
        with torch.inference_mode():
            for text_codes in codes:
                codec.decode(audio_codes=text_codes[None]).audio_values.cpu()

    speak(40)
    started = time.perf_counter()
    speak(frames)
    seconds = PEER_BATCH * frames * DAC_44KHZ.hop_length / DAC_44KHZ.sample_rate
    return seconds / (time.perf_counter() - started)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--devices", default="1")
    parser.add_argument("--rows", type=int, default=384, help="for each GPU")
    parser.add_argument("--places", type=int, default=64)
    parser.add_argument("--frames", type=int, default=1290)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    counts = [int(device) for device in given.devices.split(",")]
    with tempfile.TemporaryDirectory(dir=given.folder) as work:
        folder = Path(work)
        (folder / "dia").mkdir()
        write_model(folder / "dia")
        print("weights are written", flush=True)
        found = {}
        for count in counts:
            source = folder / f"rows{count}.jsonl"
            lines = [
                {"text": TEXT, "seed": seed, "options": {"max_frames": given.frames}}
                for seed in range(count * given.rows)
            ]
            source.write_text("".join(json.dumps(line) + "\n" for line in lines))
            names = ",".join(map(str, range(count)))
            flags = ["--backend", "torch", "--dtype", "bfloat16", "--places", str(given.places)]
            flags += ["--model", str(folder / "dia")]
            done = run(source, folder / f"out{count}", flags, environment={"CUDA_VISIBLE_DEVICES": names})
            found[count] = report(f"{count} GPU(s), hours an hour:", done, given.places, count)
        for count in counts[1:]:
            for name in ("whole", "steady"):
                ratio = found[count][name] / found[counts[0]][name]
                print(f"{count} GPUs by {counts[0]}, {name}: {ratio:.2f}")
        if given.together:
            model = torch_ref.load(folder / "dia", model="dia", dtype="bfloat16")
            other = batch_rate(model, TEXT, given.places, given.frames)
            ratio = found[counts[0]]["steady"] / other
            print(f"generate_batch of {given.places}: {other:.2f} hours an hour; steady by it {ratio:.3f}")
        if given.peer:
            other = peer(folder / "dia", given.frames)
            ratio = found[counts[0]]["steady"] / other
            print(f"transformers, batch of {PEER_BATCH}: {other:.2f} hours an hour; ratio {ratio:.1f}")


if __name__ == "__main__":
    main()
