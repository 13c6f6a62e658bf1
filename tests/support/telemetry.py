"""OpenTelemetry's real SDK, installed for one test and removed afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal as meters
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once


class Telemetry:
    """The exported spans and metrics."""

    def __init__(self, *processors: SpanProcessor) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        for processor in (*processors, SimpleSpanProcessor(self.exporter)):
            self.tracers.add_span_processor(processor)
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.tracer = self.tracers.get_tracer("test")

    @property
    def spans(self) -> list[ReadableSpan]:
        """Return the finished spans in the order in which they began."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def points(self) -> dict[str, list[Any]]:
        """Return the data points of every metric, by name."""
        data = self.reader.get_metrics_data()
        found: dict[str, list[Any]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found[metric.name] = list(metric.data.data_points)
        return found

    def everything(self) -> str:
        """Return everything that was exported, as text."""
        data = self.reader.get_metrics_data()
        return json.dumps([span.to_json() for span in self.spans]) + (data.to_json() if data is not None else "")


@contextmanager
def no_providers() -> Iterator[None]:
    """Start without providers, and discard those that the test installs.

    A process can install providers only once. Tests share a process, so this resets the API's private state.
    """
    before = (vars(trace)["_TRACER_PROVIDER"], vars(meters)["_METER_PROVIDER"])
    _set(None, None)
    try:
        yield
    finally:
        _set(*before)


def _set(tracers: object, meter: object) -> None:
    vars(trace).update(_TRACER_PROVIDER=tracers, _TRACER_PROVIDER_SET_ONCE=Once())
    vars(meters).update(_METER_PROVIDER=meter, _METER_PROVIDER_SET_ONCE=Once())


@contextmanager
def telemetry(*processors: SpanProcessor) -> Iterator[Telemetry]:
    """Install the SDK as a program would, with exporters that write to memory."""
    with no_providers():
        seen = Telemetry(*processors)
        trace.set_tracer_provider(seen.tracers)
        metrics.set_meter_provider(seen.meters)
        try:
            yield seen
        finally:
            seen.tracers.shutdown()
            seen.meters.shutdown()
