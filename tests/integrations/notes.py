"""Small graphs of LangGraph whose nodes add notes and count their runs."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from pausepoint import Engine


class Notes(TypedDict):
    """The state of the graphs."""

    notes: Annotated[list[str], operator.add]


class Counted:
    """Makes nodes that count their runs."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()

    def node(self, name: str) -> Callable[[Notes], dict[str, list[str]]]:
        def run(state: Notes) -> dict[str, list[str]]:
            self.runs[name] += 1
            return {"notes": [name]}

        return run

    def asking(self, name: str) -> Callable[[Notes], dict[str, list[str]]]:
        def run(state: Notes) -> dict[str, list[str]]:
            answer = interrupt(f"{name}?")
            self.runs[name] += 1
            return {"notes": [f"{name} {answer}"]}

        return run


def chain(*nodes: tuple[str, Any]) -> Any:
    return StateGraph(Notes).add_sequence(list(nodes)).add_edge(START, nodes[0][0])


async def answered(engine: Engine, **answers: Any) -> None:
    """Answer the open questions of session one, by the first word of their text, and wait until it stops."""
    asked = {each.next_question.rstrip("?").split()[0]: each for each in await engine.session("one").questions()}
    assert asked.keys() == answers.keys()
    for word, value in answers.items():
        await engine.answer(asked[word].id, value)
    await engine.session("one").outcome()
