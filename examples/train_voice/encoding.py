"""Stage 4, encoding: all speech as codes, with the trained codec.

    python -m examples.train_voice.encoding --speech work/speech --codec work/codec.pt --out work/codes
    torchrun --nproc-per-node=gpu -m examples.train_voice.encoding ...   # the shards are dealt out

Shards that are there already are kept; delete the folder when the codec has changed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from examples.train_voice.parallel import Processes, restore
from examples.train_voice.settings import DEFAULT, read_settings
from examples.train_voice.speech import Shard, read_shard, shard_names, write_shard
from torch_ref.codecs.dac import Dac

AT_ONCE = 2**21  # samples


@torch.inference_mode()
def encode(dac: Dac, pieces: list[np.ndarray], device: torch.device) -> list[np.ndarray]:
    """Utterances (L,) int16 → their codes (T, Q) uint8, batched by length."""
    codes: list[np.ndarray] = [np.zeros(0)] * len(pieces)
    order = np.argsort([len(piece) for piece in pieces])
    hop, begin = dac.hop_length, 0
    while begin < len(order):
        end = begin + 1
        while end < len(order) and len(pieces[order[end]]) * (end + 1 - begin) <= AT_ONCE:
            end += 1
        chosen, begin = order[begin:end], end
        longest = -(-len(pieces[chosen[-1]]) // hop) * hop
        batch = np.zeros((len(chosen), longest), np.float32)
        for row, place in enumerate(chosen):
            batch[row, : len(pieces[place])] = pieces[place] / 32768
        latents = dac.encoder(torch.from_numpy(batch).to(device)[:, None])
        made = dac.quantizer.encode(latents).transpose(1, 2).to(torch.uint8).cpu().numpy()
        for row, place in enumerate(chosen):
            codes[place] = made[row, : -(-len(pieces[place]) // hop)]
    return codes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--codec", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes = Processes(settings.seed)
    dac = Dac(settings.codec).to(processes.device).eval()
    state = restore(given.codec, processes.device)
    if state is None:
        raise SystemExit(f"encoding: there is no codec at {given.codec}; train it first")
    dac.load_state_dict(state["dac"])
    torch.backends.cudnn.benchmark = False  # every batch has another length
    given.out.mkdir(parents=True, exist_ok=True)
    done, begun, frames = set(shard_names(given.out)), time.monotonic(), 0
    for name in shard_names(given.speech)[processes.rank :: processes.size]:
        if name in done:
            continue
        speech = read_shard(given.speech, name)
        codes = encode(dac, speech.pieces(), processes.device)
        lengths = [len(code) for code in codes]
        write_shard(given.out, name, Shard(speech.texts, speech.voices, lengths, np.concatenate(codes)))
        frames += sum(lengths)
    hours = frames * dac.hop_length / dac.sample_rate / 3600
    processes.say(f"encoding: {hours:.1f} h by each process in {time.monotonic() - begun:.0f} s")
    processes.close()


if __name__ == "__main__":
    main()
