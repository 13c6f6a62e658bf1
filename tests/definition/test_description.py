"""A workflow as plain data: complete, JSON, and the same in every process."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from typing import Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field

from pausepoint import Artifact, Context, Retry, Scope, Workflow, guard, migrate, route, step, workflow
from pausepoint.definition import description
from pausepoint.definition.description import description_of
from pausepoint.model.descriptions import Description


class Plan(BaseModel):
    title: str = ""


class Brief(BaseModel):
    topic: str = Field(description="What the brief is about.")
    plan: Plan = Plan()
    draft: str = ""
    rounds: int = 0


editor = Scope("Editor", reads=["plan"], writes=["draft", "rounds"])


@step(writes="plan.title", was="outline", timeout=2.5)
async def sketch(topic: str, ctx: Context) -> str:
    return topic


def is_short(rounds: int) -> bool:
    return rounds < 3


@editor.step(writes=["draft", "rounds"], when=is_short, pause="step", publishes=Artifact("draft.md", carries="draft"),
             retry=Retry(attempts=4, on=(OSError, TimeoutError)))  # fmt: skip
def write(plan: Plan, rounds: int) -> dict[str, Any]:
    return {"draft": plan.title, "rounds": rounds + 1}


@step
def close(state: Brief) -> None: ...


@route(after=write)
def again(rounds: int) -> Literal["sketch", "close"] | None:
    return None


@guard(after=sketch)
def needs_title(plan: Plan) -> str | None:
    return None


@migrate(from_version=1)
def renamed(state: dict[str, Any]) -> dict[str, Any]:
    return state


brief = Workflow("brief", state=Brief, steps=[sketch, write, close], routes=[again], guards=[needs_title], version=2,
                 migrations=[renamed], events=["b.happened", "a.happened"])  # fmt: skip


def test_everything_that_a_graph_and_a_form_need_is_described() -> None:
    found = brief.to_json()
    assert found == json.loads(json.dumps(found)), "plain JSON"
    assert (found["name"], found["version"], found["guest"], found["returns"]) == ("brief", 2, False, None)
    first, second, third = found["steps"]
    assert first == {
        "name": "sketch", "agent": "sketch", "reads": ["topic"], "whole_state": False, "writes": ["plan.title"],
        "when": None, "scope": None, "timeout": 2.5, "pause": "operation", "publishes": [], "was": ["outline"],
        "retry": {"attempts": 1, "first": 1.0, "factor": 2.0, "longest": 60.0, "jitter": 0.5, "on": ["Exception"]},
    }  # fmt: skip
    assert (second["agent"], second["scope"], second["pause"]) == ("Editor", "Editor", "step")
    assert second["when"] == {"name": "is_short", "reads": ["rounds"], "whole_state": False}
    assert (second["retry"]["attempts"], second["retry"]["on"]) == (4, ["OSError", "TimeoutError"])
    assert second["publishes"] == [
        {"path": "draft.md", "field": "draft", "codec": "text", "count": None, "min_bytes": 100}
    ]
    assert (third["reads"], third["whole_state"], third["writes"]) == ([], True, [])
    (one_route,), (one_guard,) = found["routes"], found["guards"]
    assert (one_route["name"], one_route["after"], one_route["reads"]) == ("again", "write", ["rounds"])
    assert one_route["targets"] == ["sketch", "close", None]
    assert (one_guard["name"], one_guard["after"], one_guard["reads"]) == ("needs_title", "sketch", ["plan"])
    assert found["scopes"] == [{"name": "Editor", "reads": ["plan"], "writes": ["draft", "rounds"]}]
    assert (found["events"], found["migrations"]) == (["a.happened", "b.happened"], [1])
    properties = found["state"]["properties"]
    assert properties["topic"]["description"] == "What the brief is about."
    assert (found["state"]["required"], properties["rounds"]["default"]) == (["topic"], 0)


def test_a_description_that_was_stored_says_the_same() -> None:
    again = msgspec.json.decode(msgspec.json.encode(brief.description), type=Description)
    assert again == brief.description
    assert again.mermaid() == brief.mermaid()
    assert again.outline == brief.outline
    assert [again.targets(name) for name in again.outline] == [brief.targets(name) for name in brief.outline]


def test_a_description_of_a_later_version_can_be_read() -> None:
    later = brief.to_json() | {"colour": "green"}
    later["steps"][0]["weight"] = 7
    assert msgspec.convert(later, Description) == brief.description


def test_functions_and_guests_are_described() -> None:
    @workflow
    def greet(name: str, loud: bool = False) -> str:
        return name

    greet.fn.description = "of the function"  # type: ignore[attr-defined]
    assert greet.to_json()["returns"] == "result"
    assert set(greet.to_json()["state"]["properties"]) == {"name", "loud", "result"}
    visited = Workflow.guest("visited", state=Plan).to_json()
    assert (visited["guest"], visited["steps"][0]["whole_state"]) == (True, True)


@pytest.mark.filterwarnings("error")
def test_a_state_without_a_json_schema_has_the_names_of_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Plan):
        ratio: float = float("nan")
        since: Any = Field(default=...)

        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
            raise TypeError("no schema")

    expected = {"title": "Odd", "type": "object", "properties": {"title": {}, "ratio": {}, "since": {}},
                "required": ["since"]}  # fmt: skip
    assert description._schema(Odd) == expected
    monkeypatch.setattr(description, "LARGEST_SCHEMA", 10)
    assert description._schema(Plan) == {"title": "Plan", "type": "object", "properties": {"title": {}}, "required": []}


@pytest.mark.filterwarnings("error")
def test_a_default_that_is_not_json_is_left_out_quietly() -> None:
    class Holder(BaseModel):
        many: Any = frozenset([object()])

    assert "default" not in description._schema(Holder)["properties"]["many"]


PROGRAM = """
from hashlib import sha256
import msgspec
from tests.definition.test_description import brief
print(sha256(msgspec.json.encode(brief.description, order="sorted")).hexdigest())
"""


@pytest.mark.long
def test_every_process_makes_the_same_description() -> None:
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    here = sha256(msgspec.json.encode(description_of(brief), order="sorted")).hexdigest()
    assert made.stdout.strip() == here
