"""What leads into a store and out of it over HTTP: comparisons, answer links, and imports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.kit import Served, check_problem, fits, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("doors")) as one:
        one.questions["anns"] = one.asked("anns", topic="octopus", owner="ann")
        one.questions["bobs"] = one.asked("bobs", topic="squid", owner="bob")
        yield one


# compare


def test_two_sessions_are_compared_now_and_at_checkpoints(server: Served) -> None:
    with server.admin() as client:
        answer = client.get("/sessions/anns/diff", params={"other": "bobs"})
        assert answer.status_code == 200, answer.text
        document = answer.json()
        fits(document, "diff")
        assert (document["session_id"], document["other_id"]) == ("anns", "bobs")
        assert [(each["path"], each["before"], each["after"]) for each in document["changes"]] == [
            ("topic", "octopus", "squid"), ("notes", "notes on octopus", "notes on squid"),
        ]  # fmt: skip
        earlier = client.get("/sessions/anns/diff", params={"a": "1", "other": "bobs", "b": "research#1"}).json()
        assert [each["path"] for each in earlier["changes"]] == ["topic", "notes"]
        assert (earlier["a"], earlier["changes"][1]["before"]) == (1, "")


def test_a_comparison_needs_something_to_compare_with_and_sees_no_session_of_another_owner(server: Served) -> None:
    with server.admin() as client, server.client(server.token("viewer", "ann")) as anns:
        problem = check_problem(client.get("/sessions/anns/diff"), 400)
        assert "'a'" in problem["detail"]
        assert "'other'" in problem["detail"]
        check_problem(client.get("/sessions/anns/diff", params={"other": "nobody"}), 404)
        check_problem(client.get("/sessions/anns/diff", params={"other": "bobs", "b": "write#7"}), 404)
        refused, unknown = (anns.get("/sessions/anns/diff", params={"other": other}) for other in ("bobs", "none"))
        assert check_problem(refused, 404)["detail"].replace("bobs", "none") == check_problem(unknown, 404)["detail"]
