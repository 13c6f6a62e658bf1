"""Requests that schemathesis makes from the description of the API, against a real server.

    python -m tests.server.generated --seconds 600 --seed 1

Valid and invalid ones, to sessions that exist and to others. Every answer must have a status, a content type and a
document that ``GET /openapi.json`` describes for it, and none may be an error of the server.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from requests import RequestException, Session
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi import checks

from tests.faults.tally import Tally, main
from tests.server.kit import API, Served, served
from tests.support.folders import fast_folder

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]

ENDLESS = "/stream"
"""The route whose answer does not end; tests of its own read it."""

LONGEST = 60_000
"""Requests with a longer address are sent, but their answers are not the application's."""

WRONG_HOST = 421

ALWAYS: list[CheckFunction] = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


class Requests:
    """Sends the requests to one server, and collects what is wrong with the answers.

    ``change`` changes the description that the answers are compared with.
    """

    def __init__(self, server: Served, change: Callable[[dict[str, Any]], None] = lambda document: None) -> None:
        self.server = server
        self.wrong: list[str] = []
        self.statuses = Counter[int]()
        self._sessions = 0
        self._session = Session()
        self._session.trust_env = False
        self._headers = {"Authorization": f"Bearer {server.tokens.own}", "X-Pausepoint": "1"}
        with server.admin() as client:
            document = _without_sign_in(client.get("/openapi.json").json())
        change(document)
        described = schemathesis.openapi.from_dict(document)
        found = [each.ok() for each in described.get_all_operations() if isinstance(each, Ok)]
        self.operations: list[Operation] = [each for each in found if each.path != ENDLESS]

    def close(self) -> None:
        self._session.close()

    def send(self, operation: Operation, count: int, number: int) -> None:
        """Send so many requests of each kind to one operation. ``number`` decides which ones."""
        for mode in GenerationMode:
            if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
                continue  # any text is a valid id
            for names in ({}, self._real_names()):
                fitting = {each.name: names[each.name] for each in operation.path_parameters if each.name in names}
                if fitting or not names:
                    self._send(operation, mode, fitting, count, number)

    def _real_names(self) -> dict[str, str]:
        self._sessions += 1
        self.server.run(self.server.engine.lift_pause(by="test"))
        session_id = f"generated-{self._sessions}"
        question = self.server.asked(session_id)
        return {"session_id": session_id, "question_id": question, "step": "write", "field": "topic", "name": "brief"}

    def _send(
        self, operation: Operation, mode: GenerationMode, names: dict[str, str], count: int,
        number: int,
    ) -> None:  # fmt: skip
        # Hypothesis must not shrink: the server has changed when a request is sent again.
        @seed(number)
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode, path_parameters=names or None))
        def one(case: Case[Any]) -> None:
            self._check(case, mode)

        with suppress(Unsatisfiable):  # there may be no invalid request of this kind
            one()

    def _check(self, case: Case[Any], mode: GenerationMode) -> None:
        is_too_long = len(case.as_curl_command()) > LONGEST
        try:
            answer = case.call(f"{self.server.base}{API}", self._session, self._headers)
        except RequestException:
            if is_too_long:
                return  # uvicorn closes the connection while the request still arrives
            raise
        self.statuses[answer.status_code] += 1
        if is_too_long:
            return  # uvicorn refuses the request line itself, before the application sees it
        # A generated header can be a wrong Host: that is refused before the request is read.
        is_to_refuse = mode is GenerationMode.NEGATIVE and answer.status_code != WRONG_HOST
        refuses = [checks.negative_data_rejection] if is_to_refuse else []
        try:
            case.validate_response(answer, checks=[*ALWAYS, *refuses])
        except BaseExceptionGroup as found:
            self.wrong += [f"{each}\n{case.as_curl_command()[:500]}\n{answer.text[:500]}" for each in found.exceptions]
        except AssertionError as found:
            self.wrong.append(f"{found}\n{case.as_curl_command()[:500]}\n{answer.text[:500]}")


def _without_sign_in(document: dict[str, Any]) -> dict[str, Any]:
    """The description without tokens: they are not generated, because nearly all requests would be refused."""
    parts = {name: part for name, part in document["components"].items() if name != "securitySchemes"}
    paths = {
        path: {
            method: {key: value for key, value in each.items() if key != "security"} for method, each in some.items()
        }
        for path, some in document["paths"].items()
    }
    return document | {"paths": paths, "components": parts}


@contextmanager
def requests(folder: Path) -> Iterator[Requests]:
    """Serve a store in this folder, and send requests to it."""
    with served(folder) as server:
        found = Requests(server)
        try:
            yield found
        finally:
            found.close()


def run(tally: Tally) -> None:
    """Send requests until the time is up."""
    while tally.has_time():
        with tempfile.TemporaryDirectory(dir=fast_folder()) as folder, requests(Path(folder)) as sent:
            for operation in tally.draw.sample(sent.operations, len(sent.operations)):
                if tally.has_time():
                    sent.send(operation, 5, tally.draw.randrange(10**9))
                    tally.done["operations"] += 1
            for status, count in sent.statuses.items():
                tally.done[f"answers with status {status}"] += count
            for each in sent.wrong:
                tally.fail(each)


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
