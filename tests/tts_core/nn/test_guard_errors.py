"""Errors for logits that are not finite."""

import pickle

from tts_core.nn.guard import NotFiniteError


def test_an_error_names_its_text_and_crosses_processes() -> None:
    error = NotFiniteError("head", "float32", text=1, row=7)
    assert str(error).startswith("generation: head gives NaN or infinity in float32 (text 1, row 7); ")
    assert str(error.of(3)) == str(error).replace("text 1", "text 3")
    assert str(pickle.loads(pickle.dumps(error.of(3)))) == str(error.of(3))
