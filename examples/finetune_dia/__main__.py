r"""Fine-tune a Dia on recordings with transcripts.

    python -m examples.finetune_dia --model tts_core/voice/dia --codec tts_core/voice/codec \
        --data recordings --out tuned --lora 16 --minutes 10

The model is any checkpoint that `torch_ref.load` takes. OUT/dia gets the result, LoRA merged, in the layout
in which transformers publishes Dia. The same command continues an interrupted run. On several GPUs:
`torchrun --nproc-per-node=gpu -m examples.finetune_dia ...`
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tts_core.errors import explain


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.finetune_dia",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, help="folder, file or hub id")
    parser.add_argument("--codec", help="codec, if the model does not contain it")
    parser.add_argument("--data", type=Path, required=True, help="folder of NAME.wav and NAME.txt")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to, and to continue from")
    parser.add_argument(
        "--lora",
        type=int,
        metavar="RANK",
        help="rank of a low-rank product added to each layer [train all weights]",
    )
    parser.add_argument("--minutes", type=float, required=True, help="minutes of training in total")
    parser.add_argument("--batch", type=int, default=8, help="recordings per step and process [8]")
    parser.add_argument(
        "--learning-rate", type=float, help="peak learning rate [2e-3 with --lora, else 3e-4]"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    given = parser.parse_args()
    try:
        from examples.finetune_dia.training import Settings, finetune

        settings = Settings(given.lora, given.minutes, given.batch, given.learning_rate, given.seed)
        finetune(given.model, given.codec, given.data, given.out, settings)
    except Exception as error:
        if given.debug:
            raise
        code, message = explain(error)
        print("error:", " ".join(message.split()), file=sys.stderr)
        sys.exit(code)


if __name__ == "__main__":
    main()
