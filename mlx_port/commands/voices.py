"""`mlx-port voices`: recordings kept by name, in the folder that `generate` and `serve` use."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tts_core.errors import UsageError, not_there
from tts_core.printable import counted, json_text, one_line

if TYPE_CHECKING:
    from tts_core.serving.voices import VoiceStore

CONSENT = "Not stated; added with mlx-port voices."


@click.group(invoke_without_command=True)
@click.pass_context
def voices(context: click.Context) -> None:
    """Keep voices by name; without a command, list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_voices)


@voices.command()
@click.argument("name", metavar="NAME")
@click.argument("samples", metavar="SAMPLE...", nargs=-1, required=True)
@click.option(
    "-t", "--text", "texts", multiple=True, help="Transcript of each SAMPLE, in the same order; Dia needs it."
)
@click.option("--consent", help="true, yes, agreed or 'i agree': the speaker agrees; kept with the voice.")
@click.option("--consent-note", metavar="TEXT", help="Who agreed and when; kept in place of the word.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def add(
    name: str,
    samples: tuple[str, ...],
    texts: tuple[str, ...],
    consent: str | None,
    consent_note: str | None,
) -> None:
    """Keep recordings under a name: `generate --voice NAME` speaks with them.

    SAMPLE: a sound file of one speaker, 5 to 10 s long; for Dia's second speaker, another one.
    """
    from tts_core.audio.files import read_audio_at_its_rate
    from tts_core.serving.voices import check_consent

    if consent is not None:
        check_consent(consent)
    elif consent_note is not None:
        raise UsageError("consent-note: it explains --consent; give --consent, too")
    for sample in samples:
        if not os.path.lexists(sample):
            raise not_there("audio", sample)
    if texts and len(texts) != len(samples):
        raise UsageError(
            f"text: {len(texts)} given for {counted(len(samples), 'recording')}; give one for each"
        )
    recordings = [read_audio_at_its_rate(sample) for sample in samples]
    voice = _store().add(name, recordings, texts or [None] * len(samples), consent_note or consent or CONSENT)
    click.echo(one_line(f"{voice.name}: added, {sum(voice.seconds):.1f} s"))
    if not texts:
        from tts_core.models import MODELS

        needing = [model.title for model in MODELS.values() if model.transcript == "needed"]
        click.echo(one_line(f"no transcript, which {' and '.join(needing)} need: give --text"), err=True)
    _remark()


@voices.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def list_voices(as_json: bool = False) -> None:
    """List the voices, with the lengths and transcripts of their recordings."""
    found = list(_store())
    if as_json:
        click.echo(json_text([asdict(voice) for voice in found]))
        return
    for voice in found:
        for seconds, transcript in zip(voice.seconds, voice.transcripts, strict=True):
            click.echo(one_line(f"{voice.name}: {seconds:.1f} s, {transcript or 'no transcript'}"))
    if found:
        _remark()
    else:
        click.echo("none; add one: mlx-port voices add NAME sample.wav --text ...", err=True)


@voices.command()
@click.argument("name", metavar="NAME")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def remove(name: str) -> None:
    """Remove a voice and its recordings."""
    _store().remove(name)
    click.echo(one_line(f"{name}: removed"))


def _remark() -> None:
    """Say that the model of commands without --model takes none of them."""
    from tts_core.files.json_object import read_json
    from tts_core.models import only_speakers
    from tts_core.voice.embedded import DIA

    why = only_speakers(read_json(DIA / "config.json", 1 << 20)["own_speakers"])
    click.echo(one_line(f"the embedded voice takes no recording, give --model: {why}"), err=True)


def _store() -> VoiceStore:
    from tts_core.serving.voices import VoiceStore, voices_folder

    return VoiceStore(voices_folder())
