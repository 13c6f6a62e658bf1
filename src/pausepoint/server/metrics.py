"""The figures for Prometheus, in its text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pausepoint.model.views import LimitInfo
from pausepoint.name import NAME
from pausepoint.server.board import Facts
from pausepoint.server.calls import Call, Send, start
from pausepoint.server.hub import Hub

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""The upper bounds of the buckets of request times, in seconds."""

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]


class Timings:
    """How long requests took, by method, route and status. Addresses that no route has are not counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[list[int], list[float]]] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = method, route, str(status)
        buckets, total = self._found.setdefault(key, ([0] * (len(BOUNDS) + 1), [0.0]))
        buckets[bisect_left(BOUNDS, seconds)] += 1
        total[0] += seconds

    def samples(self) -> Iterator[Sample]:
        """Yield the samples of a histogram."""
        for (method, route, status), (buckets, (total,)) in sorted(self._found.items()):
            labels = {"method": method, "route": route, "status": status}
            count = 0
            for bound, found in zip((*map(repr, BOUNDS), "+Inf"), buckets, strict=True):
                count += found
                yield "_bucket", labels | {"le": bound}, count
            yield "_sum", labels, total
            yield "_count", labels, count


class Figures(NamedTuple):
    """The reply: text in the format of Prometheus."""

    text: str

    async def send(self, send: Send, head: bool = False) -> None:
        """Send the text."""
        data = self.text.encode()
        await start(send, 200, {"content-type": CONTENT_TYPE, "content-length": str(len(data))})
        await send({"type": "http.response.body", "body": b"" if head else data})


async def show(call: Call) -> Figures:
    """Return figures about sessions, questions, spending, streams and requests, in the text format of Prometheus."""
    call.access.check_sees_all()
    hub = call.desk.hub
    await hub.use()
    facts = (await hub.board(None)).facts
    assert facts is not None
    limits = _of_limits(await call.engine.limits.list())
    now = call.engine.clock.now() / 1e6
    return Figures("".join([*_of_sessions(facts, now), *limits, *_of_hub(hub), *_of_requests(call)]))


def _of_sessions(facts: Facts, now: float) -> Iterator[str]:
    counts = [
        ({"workflow": workflow, "status": status}, count)
        for workflow, found in sorted(facts.counts.items())
        for status, count in sorted(found.items())
    ]
    yield from gauge("sessions", "Sessions by workflow and status.", counts)
    yield from gauge("failed_sessions", "Sessions that have failed, even if they are paused.", _by(facts.failures))
    yield from gauge("open_questions", "Questions that wait for an answer.", [({}, facts.questions)])
    age = 0.0 if facts.oldest is None else max(now - facts.oldest.timestamp(), 0.0)
    yield from gauge("oldest_question_seconds", "The age of the oldest open question.", [({}, age)])
    yield from gauge("spent_usd", "Dollars that the sessions in the store have spent.", _by(facts.spent))


def _of_limits(found: Iterable[LimitInfo]) -> Iterator[str]:
    known = [(_limit_labels(each), each) for each in found if each.counts]
    yield from gauge("limit_most", "How many sessions a limit allows.", [(at, each.most or 0) for at, each in known])
    busy = [(at, each.at_work) for at, each in known if each.per is None]
    yield from gauge("limit_at_work", "Sessions at work in the queue, workflow or lane of a limit.", busy)


def _limit_labels(each: LimitInfo) -> Labels:
    per = "" if each.per is None else f"{each.per.total_seconds():g}"
    return {"scope": each.scope, "name": each.name, "by": each.by or "", "per_seconds": per}


def _of_hub(hub: Hub) -> Iterator[str]:
    pause = hub.standing
    yield from gauge("standing_pause", "Whether everything is paused.", [({}, int(pause is not None))])
    late = 0 if pause is None else pause.asked - pause.stopped
    yield from gauge("standing_pause_unstopped", "Sessions that still finish something under it.", [({}, late)])
    yield from gauge("engines", "Engines that have the store open.", [({}, len(hub.engines))])
    yield from gauge("hub_lag_seconds", "From the last change until the streams were told.", [({}, hub.lag)])
    yield from gauge("stream_clients", "Open streams.", [({}, len(hub.clients))])


def _of_requests(call: Call) -> Iterator[str]:
    text = "Request times. Of a stream, the time until it begins."
    yield from metric("http_request_seconds", text, "histogram", call.desk.timings.samples())


def _by(found: Mapping[str, float]) -> list[tuple[Labels, float]]:
    return [({"workflow": workflow}, value) for workflow, value in sorted(found.items())]


def gauge(name: str, text: str, values: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    """Yield the lines of a metric that goes up and down."""
    return metric(name, text, "gauge", (("", labels, value) for labels, value in values))


def metric(name: str, text: str, kind: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of a metric.

    >>> print(*metric("size", "How large.", "gauge", [("", {"of": 'a "b"'}, 3)]), sep="", end="")
    # HELP pausepoint_size How large.
    # TYPE pausepoint_size gauge
    pausepoint_size{of="a \\"b\\""} 3
    """
    whole = f"{NAME}_{name}"
    yield f"# HELP {whole} {text}\n"
    yield f"# TYPE {whole} {kind}\n"
    for suffix, labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
        yield f"{whole}{suffix}{{{shown}}} {value!r}\n" if shown else f"{whole}{suffix} {value!r}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
