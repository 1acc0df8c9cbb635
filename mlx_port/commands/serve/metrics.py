"""Figures of a server for Prometheus."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tts_core.serving.statistics import Ended, Statistics

_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60)
_FACTORS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 5)


class Metrics:
    """Counters and histograms of one server, and the engine's gauges at the moment of a scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = self._counter("http_responses", "Answers.", ["route", "status"])
        self.errors = self._counter(
            "errors", "Errors by their code, before and after the first byte.", ["code"]
        )
        self._ended = self._counter("requests", "Speeches that ended.", ["model", "outcome"])
        self._first = self._histogram(
            "first_audio_seconds", "From the request's place in the queue to its first sound.", _SECONDS
        )
        self._waited = self._histogram("queue_seconds", "Time in the queue.", _SECONDS)
        self._factor = self._histogram(
            "real_time_factor",
            "Seconds of processing by seconds of speech; below 1 is faster than real time.",
            _FACTORS,
        )
        self.live = LiveFigures(self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"mlx_port_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"mlx_port_{name}", text, ["model"], buckets=buckets, registry=self.registry)

    def computes(self, arithmetic: Callable[[], str], precisions: Callable[[], Mapping[str, str]]) -> None:
        """Report how float32 products are computed, and each model's codec decodes, at every scrape."""
        self.registry.register(_Arithmetic(arithmetic, precisions))

    def watch(self, statistics: Callable[[], Statistics]) -> None:
        """Report an engine's figures."""
        self.registry.register(_Engine(statistics))

    def ended(self, ended: Ended) -> None:
        """Count a speech that ended."""
        self._ended.labels(ended.model, ended.outcome).inc()
        if ended.started is not None:
            self._waited.labels(ended.model).observe(ended.started)
        if ended.first_audio is not None:
            self._first.labels(ended.model).observe(ended.first_audio)
        if ended.real_time_factor is not None:
            self._factor.labels(ended.model).observe(ended.real_time_factor)

    def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)


@dataclass
class Visit:
    """A connection. number: of those of its kind that are open.  outcome: how it ended, for the counter."""

    number: int
    outcome: str = "failed"


class LiveFigures:
    """Connections over which text arrives while it is spoken."""

    def __init__(self, registry: CollectorRegistry):
        self._numbers: Counts[str] = Counts()
        self._open = Gauge("mlx_port_live_connections", "Open now.", ["kind"], registry=registry)
        self._ended = Counter(
            "mlx_port_live", "Connections that ended.", ["kind", "outcome"], registry=registry
        )

    @contextmanager
    def open(self, kind: str) -> Iterator[Visit]:
        """Count a connection while it lasts. For one thread. kind: websocket or wyoming."""
        self._numbers[kind] += 1
        self._open.labels(kind).set(self._numbers[kind])
        visit = Visit(self._numbers[kind])
        try:
            yield visit
        finally:
            self._numbers[kind] -= 1
            self._open.labels(kind).set(self._numbers[kind])
            self._ended.labels(kind, visit.outcome).inc()


class _Arithmetic(Collector):
    def __init__(self, arithmetic: Callable[[], str], precisions: Callable[[], Mapping[str, str]]):
        self._arithmetic, self._precisions = arithmetic, precisions

    def collect(self) -> Iterator[Metric]:
        """Yield 1 with the arithmetic's name as a label, and 1 a model with its codec's precision."""
        text = "How float32 products are computed: float32 (exact), tf32, or unknown."
        found = GaugeMetricFamily("mlx_port_arithmetic", text, labels=["arithmetic"])
        found.add_metric([self._arithmetic()], 1)
        yield found
        text = "In what a codec decodes: float32 (exact), tf32, bfloat16, or unknown."
        found = GaugeMetricFamily("mlx_port_codec_precision", text, labels=["model", "precision"])
        for model, precision in self._precisions().items():
            found.add_metric([model, precision], 1)
        yield found


class _Engine(Collector):
    def __init__(self, statistics: Callable[[], Statistics]):
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """Yield the engine's figures."""
        now = self._statistics()
        gauges = {
            "queued": ("Requests that wait.", now.queued),
            "running": ("Requests that are spoken.", now.running),
            "places": ("Requests that could be spoken at once.", now.places),
            "loaded_models": ("Models in memory.", len(now.loaded)),
            "resident_memory_bytes": ("Memory of the process.", psutil.Process().memory_info().rss),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"mlx_port_{name}", text, value)
        counters = {
            "steps": ("Steps of all batches.", now.steps),
            "ids": ("Decoder rows of requests that ended.", now.ids),
            "audio_seconds": ("Seconds of speech.", now.audio_seconds),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"mlx_port_{name}", text, value)
