r"""Stage 5, encoding: compute the codes of all speech from its features.

    python -m examples.train_voice.encoding --speech work/speech --codebooks work/codebooks.pt \
        --out work/codes

It may run while stage 2 still writes, and continues until all shards are encoded. Encoded shards are kept;
delete the folder after changing the codebooks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from examples.train_voice.codebooks import Codebooks, codes_of
from examples.train_voice.parallel import Processes, restore
from examples.train_voice.settings import DEFAULT, read_settings
from examples.train_voice.speech import Shard, read_shard, shard_names, write_shard

PATIENCE = 60  # seconds without a new shard until it stops


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--codebooks", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes = Processes(settings.seed)
    state = restore(given.codebooks, processes.device)
    if state is None:
        raise SystemExit(f"encoding: no codebooks at {given.codebooks}; run stage 3 first")
    books = Codebooks.restored(state, settings.codec, processes.device)
    given.out.mkdir(parents=True, exist_ok=True)
    done, frames, begun = set(shard_names(given.out)), 0, time.monotonic()
    expected = -(-settings.utterances // settings.synthesis.utterances_per_shard)
    latest = begun
    while len(done) < expected and time.monotonic() - latest < PATIENCE:
        new = [name for name in shard_names(given.speech) if name not in done]
        for name in new:
            speech = read_shard(given.speech, name)
            codes = codes_of(books, speech.arrays["features"], processes.device)
            arrays = {"codes": codes, **{kind: speech.arrays[kind] for kind in ("places", "phones")}}
            write_shard(given.out, name, Shard(speech.texts, speech.voices, speech.lengths, arrays))
            done.add(name)
            frames += len(codes)
            latest = time.monotonic()
        if not new:
            time.sleep(1)
    hours = frames / settings.codec.frame_rate / 3600
    print(f"encoding: {hours:.1f} h in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
