"""Dia's generation: text and prompts in, codes and speech out.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
Differs from upstream: a text is independent of its neighbours in a batch; an EOS predicted inside a prompt is
ignored; a long text goes in pieces that have the same voices.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tts_core.audio.joining import Joiner
from tts_core.audio.joining import join as join_waves
from tts_core.codecs.dac import check_fits, decode_lookahead
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import DelayGrid
from tts_core.dia.long_text import SIDE_BY_SIDE, Script, ask
from tts_core.dia.memory import Job
from tts_core.dia.meter import Meter
from tts_core.dia.pieces import PieceSeconds
from tts_core.dia.request import PromptLike, Request, joined, make_request, prepared
from tts_core.dia.room import check_running, fitting_batch, job_of
from tts_core.nn.host import Host
from tts_core.noise import Noise
from tts_core.results import GenerationResult, Prompt, join


class Loop(Protocol):
    """A side's `dia/loop.py`."""

    def rows(self, request: Request) -> Iterator[DelayGrid]:
        """The grid of a request, filled row by row, after each."""
        ...


class DiaPipeline:
    """A Dia network, of either side, with its codec. Made by `load`."""

    def __init__(self, network: Any, codec: Any, *, loop: Loop, host: Host):
        self.network, self.codec, self.loop, self.host = network, codec, loop, host
        self.config: DiaConfig = network.config
        check_fits(codec.config, self.config.decoder_config.num_channels, self.config.eos_token_id)
        self.sample_rate = codec.sample_rate

    def generate(
        self,
        text: str,
        *,
        prompt: Prompt | None = None,
        temperature: float | None = None,
        cfg_scale: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        piece_seconds: PieceSeconds = "auto",
        max_frames: int | None = None,
        seed: int | None = None,
        noise: Noise | Sequence[Noise] | None = None,
        last_channel_free: bool = False,
    ) -> GenerationResult:
        """Speak one text: the parts of `stream` as one result, with the same arguments and errors; the pieces
        of a long text side by side, as many as there is memory for.
        """
        started = time.perf_counter()
        asked = ask(
            self.config,
            self.codec.config,
            self._encode,
            text,
            prompt=prompt,
            piece_seconds=piece_seconds,
            temperature=temperature,
            cfg_scale=cfg_scale,
            top_k=top_k,
            top_p=top_p,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
            last_channel_free=last_channel_free,
        )
        if isinstance(asked, Script):
            return self._side_by_side(asked, started)
        self._check_room(job_of(asked))
        return join(list(self._parts(asked, started)))

    def stream(
        self,
        text: str,
        *,
        prompt: Prompt | None = None,
        temperature: float | None = None,
        cfg_scale: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        piece_seconds: PieceSeconds = "auto",
        max_frames: int | None = None,
        seed: int | None = None,
        noise: Noise | Sequence[Noise] | None = None,
        last_channel_free: bool = False,
    ) -> Iterator[GenerationResult]:
        """Speak one text part by part, each as soon as the frames that its samples depend on are known.

        A value of None is the model's default; a seed of None is drawn, and told in the results. prompt: a
        voice to continue. max_frames counts codec frames made, the prompt's excluded. noise replaces the
        seed's numbers (tts_core.noise).
        piece_seconds: about how long a piece of a long text may be at most; a text up to a third longer is
        spoken at once. "auto" is a quarter of the model's window, None speaks any text at once. All pieces
        have the same voices: the prompt's, else those of the first one (tts_core.dia.pieces). Their seeds are
        derived from the first's, max_frames is of all together, noise may be one source a piece.
        last_channel_free: see DelayGrid.
        Raises UsageError, at the call, for a text or value that cannot be used, ResourceError for
        what would not fit into memory.
        """
        started = time.perf_counter()
        asked = ask(
            self.config,
            self.codec.config,
            self._encode,
            text,
            prompt=prompt,
            piece_seconds=piece_seconds,
            temperature=temperature,
            cfg_scale=cfg_scale,
            top_k=top_k,
            top_p=top_p,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
            last_channel_free=last_channel_free,
        )
        if isinstance(asked, Script):
            self._check_room(asked.job(1))
            return self._pieces(asked, started)
        self._check_room(job_of(asked))
        return self._parts(asked, started)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: Sequence[PromptLike] | None = None,
        temperature: float | None = None,
        cfg_scale: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        max_frames: int | Sequence[int] | None = None,
        seed: int | Sequence[int] | None = None,
        noise: Noise | Sequence[Noise] | None = None,
        last_channel_free: bool = False,
    ) -> list[GenerationResult]:
        """Speak several texts in one run of the decoder; each gives what it gives alone.

        max_frames, seed and noise: one for all, or one per text. The times in the results are the batch's.
        Raises UsageError, naming the text's place, and ResourceError for what would not fit into memory.
        """
        started = time.perf_counter()
        request = make_request(
            self.config,
            prepared(texts, prompts, self.config.max_text_bytes),
            prompts,
            self._encode,
            temperature=temperature,
            cfg_scale=cfg_scale,
            top_k=top_k,
            top_p=top_p,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
            last_channel_free=last_channel_free,
        )
        self._check_room(job_of(request))
        self.host.reset_peak()
        grid = self._run(request)
        codes = [grid.codes(item) for item in range(len(texts))]
        audio, meter = [], Meter(started, self.sample_rate)
        for item in codes:
            audio.append(self._decode(item))
            meter.add(len(audio[-1]))
        return [
            meter.result(request, grid, item, audio[item], codes[item], peak_bytes=self.host.peak_bytes())
            for item in range(len(texts))
        ]

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: Sequence[PromptLike] | None = None,
        *,
        temperature: float | None = None,
        cfg_scale: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        max_frames: int | Sequence[int] | None = None,
        seed: int | Sequence[int] | None = None,
        noise: Noise | Sequence[Noise] | None = None,
        last_channel_free: bool = False,
    ) -> list[np.ndarray]:
        """Codec codes of several texts, (Q, T) int32 each, the prompts' frames excluded; no waveform.

        Texts are read exactly as given. Arguments and errors as for `generate_batch`.
        """
        request = make_request(
            self.config,
            joined(texts, prompts),
            prompts,
            self._encode,
            temperature=temperature,
            cfg_scale=cfg_scale,
            top_k=top_k,
            top_p=top_p,
            max_frames=max_frames,
            seed=seed,
            noise=noise,
            last_channel_free=last_channel_free,
        )
        self._check_room(job_of(request))
        grid = self._run(request)
        return [grid.codes(item) for item in range(len(texts))]

    def _check_room(self, job: Job) -> None:
        check_running(
            self.config,
            self.codec.config,
            job,
            dtype=self.host.dtype,
            backend=self.host.backend,
            free=self.host.free_bytes(),
            policy=self.codec.policy,
        )

    def _parts(self, request: Request, started: float) -> Iterator[GenerationResult]:
        """One text's speech, window by window."""
        self.host.reset_peak()
        meter = Meter(started, self.sample_rate)
        for segment, (grid, start, stop, audio) in enumerate(self._windows(request)):
            meter.add(len(audio))
            yield meter.result(
                request,
                grid,
                0,
                audio,
                grid.codes(0)[:, start:stop],
                peak_bytes=self.host.peak_bytes(),
                segment_idx=segment,
                is_final_chunk=grid.done and stop == grid.frames(0),
            )

    def _pieces(self, script: Script, started: float) -> Iterator[GenerationResult]:
        """A long text's speech, piece by piece, each window by window."""
        self.host.reset_peak()
        meter, joiner, segment = Meter(started, self.sample_rate), Joiner(self.sample_rate), 0
        for [place] in script.groups(1):
            request, heard = script.request([place]), []
            for grid, start, stop, audio in self._windows(request):
                heard.append(audio)
                codes = grid.codes(0)
                ended = grid.done and stop == codes.shape[1]
                if ended:
                    script.say(place, request, grid, 0, np.concatenate(heard))
                sound = joiner.add(audio, last_of_piece=ended and not script.done)
                if script.done:
                    sound = np.concatenate([sound, joiner.finish()])
                meter.add(len(sound))
                part = meter.result(
                    request,
                    grid,
                    0,
                    sound,
                    codes[:, start:stop],
                    peak_bytes=self.host.peak_bytes(),
                    segment_idx=segment,
                    is_final_chunk=script.done,
                )
                yield script.told(part, ended=[place] if ended else [], rows=0 if ended else grid.filled)
                segment += 1

    def _side_by_side(self, script: Script, started: float) -> GenerationResult:
        """A long text's speech as one result: pieces that do not wait for each other run as a batch."""
        together = fitting_batch(
            self.config,
            self.codec.config,
            script.job(SIDE_BY_SIDE),
            dtype=self.host.dtype,
            backend=self.host.backend,
            free=self.host.free_bytes(),
            policy=self.codec.policy,
        )
        self._check_room(script.job(together))
        self.host.reset_peak()
        meter = Meter(started, self.sample_rate)
        for places in script.groups(together):
            request = script.request(places)
            grid = self._run(request)
            for item, place in enumerate(places):
                script.say(place, request, grid, item, self._decode(grid.codes(item)))
        audio = join_waves(script.waves(), self.sample_rate)
        meter.add(len(audio))
        whole = meter.result(request, grid, 0, audio, script.codes(), peak_bytes=self.host.peak_bytes())
        return script.told(whole, ended=sorted(script.said))

    def _windows(self, request: Request) -> Iterator[tuple[DelayGrid, int, int, np.ndarray]]:
        """Cut one text's speech on the codec's absolute grid, so that the windows join to the whole exactly:
        the grid, which of its frames, and their samples (L,).
        """
        lookahead, made = decode_lookahead(self.codec.config), 0
        for grid in self.loop.rows(request):
            known = grid.frames(0)
            ready = known if grid.done else known - lookahead
            cuts = [cut for cut in self.codec.policy.decode_cuts(known) if made < cut[1] <= ready]
            if grid.done and not cuts:  # nothing is left, or nothing was said
                cuts = [(known, known)]
            codes = grid.codes(0)
            for start, stop in cuts:
                yield grid, start, stop, self._decode_frames(codes, start, stop)
                made = stop

    def _run(self, request: Request) -> DelayGrid:
        for grid in self.loop.rows(request):
            if grid.done:
                return grid
        raise AssertionError("a grid ends at max_frames at the latest")

    def _encode(self, samples: np.ndarray) -> np.ndarray:
        return self.host.to_host(self.codec.encode(samples[None]))[0]

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        return self.host.to_host(self.codec.decode(codes[None]))[0].astype(np.float32)

    def _decode_frames(self, codes: np.ndarray, start: int, stop: int) -> np.ndarray:
        if start == stop:
            return np.zeros(0, np.float32)
        audio = self.codec.decode_frames(self.host.to_device(codes[None]), start, stop)
        return self.host.to_host(audio)[0].astype(np.float32)
