"""A pipeline that hums instead of a model, and a loudspeaker that records."""

import math
from typing import Any

import numpy as np

from mlx_port.commands import speak as cli_speak
from tts_core.pipeline import Progress
from tts_core.results import GenerationResult, SpokenPiece


class FakePipeline:
    """Three pieces of a tone at the embedded voice's rate.

    asked: the last request.  all_asked: every request, in order.  options: those of the flags.
    """

    sample_rate = 16000

    def __init__(self, pieces=3, seconds=0.5, level=0.5, error=None):
        self.pieces, self.seconds, self.level, self.error = pieces, seconds, level, error
        self.asked: Any = None
        self.all_asked: list[Any] = []
        self.options: Any = None
        self.loaded, self.stages = [], {}
        self.end: Any = "stop"
        self.ends = []  # of the pieces of a long text
        self.cues = ()  # of the whole speech
        self.bad = None  # a sample of the second piece

    def speak(self, request, *, progress=lambda now: None):
        self.asked = request
        self.all_asked.append(request)
        self.tell = progress
        return self._pieces()

    @property
    def texts(self):
        """Texts of the request's pieces."""
        return [piece.text for piece in self.asked.pieces]

    def _pieces(self):
        for place in range(self.pieces):
            self.tell(Progress("speech", place * self.seconds, self.asked.seconds))
            if self.error is not None and place == 1:
                raise self.error
            length = int(self.seconds * 16000)
            audio = (self.level * np.sin(np.arange(length) / 20)).astype(np.float32)
            if self.bad is not None and place == 1:
                audio[length // 2] = self.bad
            made = (place + 1) * self.seconds
            yield GenerationResult(
                audio=audio,
                sample_rate=16000,
                codes=np.zeros((6, 25), np.int32),
                seed=self.asked.seeds[0] if hasattr(self.asked, "seeds") else self.asked.seed,
                finish_reason=self.end if place + 1 == self.pieces else None,
                token_count=30 * (place + 1),
                real_time_factor=0.42 if made else math.inf,
                time_to_first_audio=0.1,
                processing_time_seconds=0.42 * made,
                peak_memory_usage=123_000_000,
                segment_idx=place,
                is_final_chunk=place + 1 == self.pieces,
                stage_seconds=self.stages,
                pieces=tuple(self._piece(end) for end in self.ends[place : place + 1]),
                cues=self.cues if place + 1 == self.pieces else (),
            )

    def _piece(self, end):
        nothing = np.zeros((6, 0), np.int32)
        return SpokenPiece("[S1] Hm.", None, 7, 1, nothing, np.zeros(0, np.float32), end)


def install(monkeypatch, pipeline):
    """Let the command load `pipeline`, whose `loaded` gets an entry each time; fresh seeds are 7."""

    def choose_options(*given, choose=cli_speak.choose_options):
        pipeline.options = choose(*given)
        return pipeline.options

    monkeypatch.setattr("secrets.randbits", lambda bits: 7)
    monkeypatch.setattr(cli_speak, "choose_options", choose_options)
    monkeypatch.setattr(cli_speak, "load_pipeline", lambda *args: pipeline.loaded.append(args) or pipeline)
    return pipeline


class Speaker:
    """sounddevice with one device that records."""

    class PortAudioError(Exception):
        pass

    def __init__(self, devices=1):
        self.devices, self.heard, self.rate = devices, [], None
        self.OutputStream = lambda **how: self._open(**how)

    def query_devices(self, kind):
        if not self.devices:
            raise self.PortAudioError("Error querying device -1")

    def _open(self, samplerate, channels, dtype):
        self.rate = samplerate
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def write(self, samples):
        assert samples.dtype == np.float32
        assert samples.shape[1] == 1
        self.heard.append(samples[:, 0])
