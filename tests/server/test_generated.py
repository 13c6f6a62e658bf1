"""A sample of the requests that schemathesis makes from the description of the API. `make campaign` sends more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pausepoint.server.calls import Route
from pausepoint.server.routes import ROUTES
from tests.server.generated import ENDLESS, Requests, requests
from tests.server.kit import named


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Requests]:
    with requests(tmp_path_factory.mktemp("generated")) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("route", [each for each in ROUTES if each.path != ENDLESS], ids=named)
def test_every_answer_is_described(sent: Requests, route: Route) -> None:
    path = route.path.replace(":path}", "}")
    (operation,) = [each for each in sent.operations if (each.method.upper(), each.path) == (route.method, path)]
    sent.wrong.clear()
    sent.send(operation, count=2, number=1)
    assert sent.wrong == []


def lies(document: dict[str, Any]) -> None:
    """Describe what is not true: another status, another type, another document."""
    paths = document["paths"]
    del paths["/sessions/{session_id}"]["get"]["responses"]["404"]
    answer = paths["/me"]["get"]["responses"]["200"]
    answer["content"] = {"text/plain": answer["content"]["application/json"]}
    document["components"]["schemas"]["http_workflows"]["required"] = ["nonsense"]


@pytest.mark.long
def test_answers_that_are_not_described_are_noticed(sent: Requests) -> None:
    other = Requests(sent.server, lies)
    for path in ("/sessions/{session_id}", "/me", "/workflows"):
        other.wrong.clear()
        for operation in other.operations:
            if (operation.method, operation.path) == ("get", path):
                other.send(operation, count=2, number=1)
        assert other.wrong, path
    other.close()
