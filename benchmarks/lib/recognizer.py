"""Requirements of the commands that count wrong words: a recognizer and flite."""

from importlib.util import find_spec

from examples.train_voice.flite import speak


def missing() -> str | None:
    """Describe a missing requirement in one line; None if nothing is missing."""
    if find_spec("pocketsphinx") is None:
        return "pocketsphinx is not installed: pip install pocketsphinx"
    try:
        speak("a", "slt")
    except (OSError, ValueError) as error:
        return f"{error}"
    return None
