"""A folder as Qwen3-TTS's fine-tuning script writes it: a copy of a Base, as a CustomVoice of one speaker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from tests.tiny.published_models import edit
from tests.tiny.qwen3 import write_published


def write_finetuned(
    folder: Path, name: str = "Anna", *, with_encoder: bool = False, size: str = "0b6"
) -> Path:
    """with_encoder: leave the speaker encoder's tensors, which the script drops."""
    write_published(folder, "base", size=size, eos=0.2)

    def change(config: dict[str, Any]) -> None:
        config["tts_model_type"] = "custom_voice"
        config["talker_config"]["spk_id"] = {name: 1050}
        config["talker_config"]["spk_is_dialect"] = {name: False}

    edit(folder / "config.json", change)
    tensors = load_file(folder / "model.safetensors")
    if not with_encoder:
        tensors = {name: each for name, each in tensors.items() if not name.startswith("speaker_encoder.")}
    save_file(tensors, folder / "model.safetensors")
    return folder
