"""The voice of a request: a checked reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tts_core.codecs.dac import DacConfig
from tts_core.dia.config import DiaConfig
from tts_core.errors import UsageError
from tts_core.models import only_speakers
from tts_core.pipeline import PromptLike
from tts_core.prompt import Prompt, checked_codes


@dataclass(frozen=True, eq=False)
class DiaVoice:
    """A checked reference: samples (L,) float32, not yet encoded, or codes (Q, P) int32, or codes that
    follow samples.

    frames: of both.  transcript: None if the text already contains it.
    """

    frames: int
    samples: np.ndarray | None = None
    codes: np.ndarray | None = None
    transcript: str | None = None

    def encoded(self, encode: Callable[[np.ndarray], np.ndarray]) -> DiaVoice:
        """Return the voice as codes. encode: samples (L,) → codes (Q, P) int32."""
        if self.samples is None:
            return self
        codes = encode(self.samples)
        if self.codes is not None:
            codes = np.concatenate([codes, self.codes], axis=1)
        assert codes.shape[1] == self.frames, "the codec encodes a frame per started hop"
        return replace(self, samples=None, codes=codes)

    def continued(self, then: DiaVoice) -> DiaVoice:
        """Return this voice with the codes and words of another after its own."""
        assert then.codes is not None
        codes = then.codes if self.codes is None else np.concatenate([self.codes, then.codes], axis=1)
        return replace(
            self,
            frames=self.frames + then.frames,
            codes=codes,
            transcript=f"{self.transcript} {then.transcript}",
        )


def read_voice(
    config: DiaConfig, codec: DacConfig, prompt: PromptLike, where: str | None = None
) -> DiaVoice | None:
    """Check a prompt for Dia. An array is taken as codes whose transcript the text already contains. A second
    reference, as codes with a transcript, continues the first.

    where: name in messages; None uses the prompt's own. Raises UsageError for a reference Dia cannot use.
    """
    if prompt is None:
        return None
    if isinstance(prompt, Prompt) and len(prompt.references) == 2 and prompt.references[1].codes is not None:
        first, then = (
            read_voice(config, codec, Prompt((reference,)), where) for reference in prompt.references
        )
        return first and then and first.continued(then)
    if isinstance(prompt, str | bytes):
        raise UsageError(f"{where or 'prompt'}: {prompt!r:.60} is text; give Prompt.from_file(path, text)")
    given = prompt.one if isinstance(prompt, Prompt) else None
    where = where or ("prompt" if given is None else given.name)
    if given is not None and given.audio is not None and config.own_speakers:
        raise UsageError(f"{where}: {only_speakers(config.own_speakers)}; leave it out")
    if given is not None and given.text is None:
        raise UsageError(f"{where}: its transcript is missing; Dia needs the words of the reference")
    samples = None if given is None else given.samples(codec.sample_rate, where)
    if given is not None and samples is not None:
        frames = -(-len(samples) // codec.hop_length)
        if frames >= config.max_frames:
            seconds, most = len(samples) / codec.sample_rate, config.max_frames / codec.frame_rate
            raise UsageError(
                f"{where}: {seconds:.1f} s leave no room for speech; this model's limit is {most:.1f} s, "
                "reference included; give 5 to 10 s"
            )
        return DiaVoice(frames, samples=samples, transcript=given.text)
    codes = checked_codes(
        np.asarray(prompt if given is None else given.codes), where,
        books=config.decoder_config.num_channels, size=config.eos_token_id, may_be_empty=True,
    )  # fmt: skip
    return DiaVoice(codes.shape[1], codes=codes, transcript=given and given.text)
