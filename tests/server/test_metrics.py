"""The figures for Prometheus: the format, the values, and who may read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from pausepoint.server.metrics import BOUNDS, Timings, gauge, metric
from tests.server.kit import Served, check_problem, served
from tests.support.waits import until

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,{LABEL})*)\}})? (\S+)")


class Family(NamedTuple):
    kind: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> dict[str, Family]:
    """Return the metrics of a text. It refuses everything that the format does not allow."""
    assert text.endswith("\n")
    assert "\r" not in text
    families: dict[str, Family] = {}
    helped = name = ""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            assert re.fullmatch(NAME, helped)
            assert line.split(" ", 3)[3]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == helped, "the help comes first"
            assert name not in families, "all lines of a metric are together"
            assert kind in ("gauge", "counter", "histogram", "summary", "untyped")
            families[name] = Family(kind, {})
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            suffixes = ("_bucket", "_sum", "_count") if families[name].kind == "histogram" else ("",)
            assert found[1] in [name + suffix for suffix in suffixes], line
            labels = re.findall(LABEL, found[2] or "")
            assert len({key for key, _ in labels}) == len(labels), "no label comes twice"
            key = found[1], frozenset((key, unescaped(value)) for key, value in labels)
            assert key not in families[name].samples, "no sample comes twice"
            families[name].samples[key] = float(found[found.re.groups])
    for name, family in families.items():
        if family.kind == "histogram":
            check_histogram(name, family)
    return families


def unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value)


def check_histogram(name: str, family: Family) -> None:
    counts = {labels: value for (each, labels), value in family.samples.items() if each == f"{name}_count"}
    assert len(counts) == sum(each == f"{name}_sum" for each, _ in family.samples)
    for labels, count in counts.items():
        buckets = {
            float(dict(found)["le"]): value
            for (each, found), value in family.samples.items()
            if each == f"{name}_bucket" and found >= labels
        }
        values = [buckets[bound] for bound in sorted(buckets)]
        assert values == sorted(values)
        assert buckets[float("inf")] == count
        assert len(buckets) == len(BOUNDS) + 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("metrics")) as found:
        yield found


def value(families: dict[str, Family], name: str, **labels: str) -> float:
    return families[f"pausepoint_{name}"].samples[f"pausepoint_{name}", frozenset(labels.items())]


def test_the_figures_are_those_of_the_store(server: Served) -> None:
    server.asked("asks")
    server.finished("done")
    with server.client(server.token("viewer")) as client:
        assert client.put("/standing-pause", json={"reason": ""}).status_code == 403
        check_problem(client.get("/sessions/none"), 404)

        def found() -> dict[str, Family]:
            answer = client.get("/metrics")
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            return parsed(answer.text)

        until(lambda: len(found()["pausepoint_sessions"].samples) == 2)
        families = found()
    assert value(families, "sessions", workflow="brief", status="waiting") == 1
    assert value(families, "sessions", workflow="brief", status="completed") == 1
    assert value(families, "open_questions") == 1
    assert 0 < value(families, "oldest_question_seconds") < 600
    assert value(families, "standing_pause") == value(families, "standing_pause_unstopped") == 0
    assert value(families, "spent_usd", workflow="brief") == 0
    assert value(families, "engines") == 1
    assert value(families, "stream_clients") == 0
    assert value(families, "hub_lag_seconds") >= 0
    times = families["pausepoint_http_request_seconds"].samples
    counted = {tuple(sorted(dict(labels).items())): n for (name, labels), n in times.items() if name.endswith("_count")}
    assert counted[("method", "PUT"), ("route", "/standing-pause"), ("status", "403")] == 1
    assert counted[("method", "GET"), ("route", "/sessions/{session_id}"), ("status", "404")] == 1
    assert counted[("method", "GET"), ("route", "/metrics"), ("status", "200")] >= 1


def test_the_figures_are_for_people_who_see_everything(server: Served) -> None:
    with server.client(server.token("operator", "ann")) as client:
        check_problem(client.get("/metrics"), 403)
    with server.client(server.token("answerer")) as client:
        check_problem(client.get("/metrics"), 403)


def test_labels_are_escaped() -> None:
    strange = 'a "b" \\ c\nd {e="f"} \u2028'
    text = "".join(gauge("sessions", "Sessions.", [({"workflow": strange}, 2), ({"workflow": "a\\nb"}, 0.5)]))
    found = parsed(text)["pausepoint_sessions"].samples
    assert found == {
        ("pausepoint_sessions", frozenset({("workflow", strange)})): 2,
        ("pausepoint_sessions", frozenset({("workflow", "a\\nb")})): 0.5,
    }


@pytest.mark.parametrize("text", [
    "pausepoint_a 1\n", "# HELP a b\n# TYPE a gauge\na{b=c} 1\n", "# HELP a b\n# TYPE a gauge\na{b=\"c\nd\"} 1\n",
    "# HELP a b\n# TYPE a gauge\na 1\na 1\n", "# HELP a b\n# TYPE a gauge\na one\n", "# HELP a b\n# TYPE a gauge\na 1",
])  # fmt: skip
def test_the_parser_of_this_test_is_strict(text: str) -> None:
    with pytest.raises((AssertionError, KeyError, ValueError)):
        parsed(text)


def test_request_times_are_counted_in_buckets() -> None:
    timings = Timings()
    for seconds in (0.001, 0.0011, 3.0, 99.0):
        timings.add("GET", "/now", 200, seconds)
    text = "".join(metric("seconds", "Times.", "histogram", timings.samples()))
    samples = parsed(text)["pausepoint_seconds"].samples
    labels = frozenset({("method", "GET"), ("route", "/now"), ("status", "200")})
    assert samples["pausepoint_seconds_bucket", labels | {("le", "0.001")}] == 1, "a bound is in its bucket"
    assert samples["pausepoint_seconds_bucket", labels | {("le", "0.0025")}] == 2
    assert samples["pausepoint_seconds_bucket", labels | {("le", "10.0")}] == 3
    assert samples["pausepoint_seconds_sum", labels] == pytest.approx(102.0021)
