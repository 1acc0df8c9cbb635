"""Work of `mlx-port generate`: check every flag, then load, speak and report."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from mlx_port.commands.collect import Collected, as_it_comes, collect
from mlx_port.commands.display import open_display
from mlx_port.commands.generate_flags import GenerateFlags
from mlx_port.commands.opening import (
    check_backend,
    check_options,
    choose_options,
    load_pipeline,
    on_this_machine,
    open_model,
)
from mlx_port.commands.output import choose_output
from mlx_port.commands.pace import seconds_to_compute
from mlx_port.commands.report import report
from tts_core.audio.files import read_audio_at_its_rate
from tts_core.errors import ResourceError, UsageError, not_there
from tts_core.files.record import RECORD, Record
from tts_core.files.regular import LARGEST_TEXT
from tts_core.models import MODELS, Model
from tts_core.prompt import Prompt, Reference
from tts_core.serving.voices import VoiceStore, built_in, fitted, voices_folder
from tts_core.text.captions import check_captions
from tts_core.text.checks import check_words

LONGEST_NAME = 1000  # characters of a text that may be the name of a file


def speak(flags: GenerateFlags) -> None:
    """Run one call of the command. Every flag is checked before weights are loaded."""
    output = choose_output(flags.output, flags.form, play=flags.play)
    captions = None if flags.captions is None else check_captions(flags.captions)
    if flags.play:
        from mlx_port.commands.playback import check_playback

        check_playback()
    check_backend(flags.loading.backend)
    if flags.text is None or flags.text == "-":
        text = read_stdin(flags.text)
    else:
        check_no_file(flags.text)
        text = as_utf8("text", flags.text)
    check_options(flags.model, flags.options)
    folder, loading = on_this_machine(flags.model, flags.loading)
    if flags.check:
        check_hashes(folder)
    parts = open_model(folder, loading)
    name = str(parts.model)
    model, options = MODELS[name].of(parts.configs), choose_options(name, flags.options)
    if own := choose_voice(flags, model):
        options = replace(options, voice=own)
    facts = model.code().facts(parts.configs, parts.documents)
    prompt = None if own else read_prompt(flags, model)
    request = facts.request(text, options, prompt)
    if output is not None:
        output.check_space(request.seconds)
    with open_display(request, model.stages, flags) as display:
        display.begin("loading the model")
        pipeline = load_pipeline(parts, flags.loading.backend)
        if not as_it_comes(flags, output):  # a listener would wait for the measurement
            like = partial(facts.request, options=options, prompt=prompt)
            display.foresee(partial(seconds_to_compute, pipeline, like, request.seconds))
        spoken = collect(pipeline, request, flags, output, display)
    if captions is not None:
        save_captions(spoken, captions)
    report(spoken, flags, request.notes, precision=parts.codec_precision)


def save_captions(spoken: Collected, path: Path) -> None:
    """Write the captions. Raises ResourceError, which also names the file of the speech."""
    try:
        spoken.result.captions().save(path)
    except ResourceError as error:
        if spoken.target is not None:
            error.args = (f"{error}; the speech is in {spoken.target}",)
        raise


def choose_voice(flags: GenerateFlags, model: Model) -> str | None:
    """Return the built-in voice that the flags name; None for another voice. Raises UsageError."""
    own = None
    if flags.voice is not None:
        own = built_in(flags.voice, model, VoiceStore(voices_folder()).names())
    if own and (flags.ref_audio or flags.ref_text):
        raise UsageError(f"voice: {own} is built in; leave --ref-audio and --ref-text out")
    return own


def read_prompt(flags: GenerateFlags, model: Model) -> Prompt | None:
    """Decode the references. Raises UsageError for references that the model does not take."""
    sounds, texts = flags.ref_audio, tuple(as_utf8("ref-text", said) for said in flags.ref_text)
    if flags.voice is not None:
        if sounds or texts:
            raise UsageError("voice: it brings its recording; leave --ref-audio and --ref-text out")
        return fitted(VoiceStore(voices_folder()).prompt(flags.voice), flags.voice, model)
    for sound in sounds:
        if not os.path.lexists(sound):
            raise not_there("ref-audio", sound)
    if sounds:
        model.check_takes_recording("ref-audio: ")
    if model.transcript == "unused" and texts:
        raise UsageError(f"ref-text: {model.name} takes no --ref-text; leave it out")
    for said in texts:
        check_words("ref-text", said)
    if texts and not sounds:
        raise UsageError("ref-text: --ref-audio is missing; give the recording that it transcribes")
    if sounds and not texts and model.transcript == "needed":
        raise UsageError(
            "ref-audio: --ref-text is missing; the model continues the recording and needs its transcript"
        )
    if texts and len(texts) != len(sounds):
        raise UsageError(f"ref-text: {len(texts)} given for {len(sounds)} --ref-audio; give one for each")
    if model.references is not None and len(sounds) > model.references:
        raise UsageError(f"ref-audio: {len(sounds)} given, {model.name} takes {model.references}")
    references = []
    for sound, said in zip(sounds, texts or [None] * len(sounds), strict=True):
        samples, rate = read_audio_at_its_rate(sound)
        references.append(Reference(samples, said, sample_rate=rate, name="ref-audio"))
    return Prompt(tuple(references)) if references else None


def check_no_file(given: str) -> None:
    """Raise UsageError for a text that is the name of a file."""
    if len(given) < LONGEST_NAME and " " not in given and "." in given and os.path.isfile(given):
        raise UsageError(f"text: {given} is a file; speak its text: mlx-port generate - < {given}")


def read_stdin(given: str | None) -> str:
    """Read the text from stdin. given: of the flag, '-' or None."""
    if sys.stdin is None or (given is None and sys.stdin.isatty()):
        raise UsageError("text: missing; give --text, or pipe a text to stdin")
    try:
        content = sys.stdin.buffer.read(LARGEST_TEXT + 1) or b""
        if len(content) > LARGEST_TEXT:
            raise UsageError(f"text: more than {LARGEST_TEXT} bytes from stdin; speak it in parts")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"text: stdin cannot be read ({error.strerror or error!r}); give a file") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"text: byte {error.start + 1} of stdin is not UTF-8; save the text as UTF-8"
        ) from None


def as_utf8(flag: str, given: str) -> str:
    """Decode the bytes of a flag's text that the locale could not decode. Raises UsageError."""
    try:
        return given.encode(errors="surrogateescape").decode()
    except (UnicodeEncodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{flag}: byte {error.start + 1} is not UTF-8; write the text in UTF-8") from None


def check_hashes(model: str | None) -> None:
    """Raise CheckpointError unless all files that a conversion wrote are as it wrote them."""
    folder = None if model is None else Path(model).expanduser()
    if folder is None or not os.path.lexists(folder / RECORD):
        raise UsageError(
            f"check: {model or 'the embedded voice'} has no hashes on record; give --model a folder that "
            "convert-weights wrote"
        )
    record = Record.read(folder)
    record.check([part for part in record.parts() if (folder / part).exists()])  # loading misses the others
