"""Names without effect that the config.json of any of transformers' models may have."""

from __future__ import annotations

HARMLESS = (
    "architectures",
    "model_type",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
    "initializer_range",
    "return_dict",
    "output_hidden_states",
    "output_attentions",
)
