"""The inferred types of the decorators. mypy reads this file; nothing runs it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Annotated, Any, Literal, assert_type

from pydantic import BaseModel

from pausepoint.definition.fields import Append, At, Merge, Replace, Shape
from pausepoint.definition.retry import Retry
from pausepoint.definition.steps import Migration, migrate
from pausepoint.definition.workflow import BoundStep, Guard, Route, Scope, Step, Workflow, guard, route, step


class Plan(BaseModel):
    title: str = ""


class Brief(BaseModel):
    topic: str
    facts: Annotated[list[str], Append] = []
    votes: Annotated[dict[str, int], Merge] = {}
    plan: Plan = Plan()


@step
def plain(topic: str) -> None: ...


@step(writes="facts", retry=3)
async def research(topic: str, limit: int = 3) -> list[str]:
    return [topic] * limit


@step(writes=["facts", "votes"], name="both", retry=Retry(attempts=2), timeout=1.5, when=lambda topic: bool(topic))
def many(topic: str) -> dict[str, object]:
    return {}


@step(writes="facts")
def replaced(title: Annotated[str, At("plan.title")]) -> Replace[list[str]]:
    return Replace([title])


@migrate(from_version=1)
def up(state: dict[str, Any]) -> dict[str, Any]:
    return state


@step(was=["former", "oldest"])
def renamed(topic: str) -> None: ...


scope = Scope("Agent", reads=["topic"], writes=["facts"])


@scope.step
def owned(topic: str) -> None: ...


@scope.step(writes="facts")
def owned_too(topic: str) -> list[str]:
    return [topic]


@route(after="research")
def choose(topic: str) -> Literal["research", "both"] | None:
    return None


@guard(after=research)
def enough(facts: list[str]) -> str | None:
    return None


assert_type(plain("a"), None)
assert_type(up({}), dict[str, Any])
_up: Migration[..., Any] = up
assert_type(renamed("a"), None)
_ = assert_type(research("a"), Coroutine[Any, Any, list[str]])
_ = assert_type(research("a", limit=1), Coroutine[Any, Any, list[str]])
assert_type(many("a"), dict[str, object])
assert_type(replaced("a"), Replace[list[str]])
assert_type(replaced("a").value, list[str])
assert_type(owned("a"), None)
assert_type(owned_too(topic="a"), list[str])
assert_type(choose("a"), Literal["research", "both"] | None)
assert_type(enough([]), str | None)

# Parameters are kept: a wrong call is an error (and an ignore that is not needed is one, too).
plain(1)  # type: ignore[arg-type]
_ = research()  # type: ignore[call-arg]
owned_too(topci="a")  # type: ignore[call-arg]
enough("a")  # type: ignore[arg-type]
step(writes=3)  # type: ignore[call-overload]
step(wirtes="a")  # type: ignore[call-overload]
step(plain.fn, retry="often")  # type: ignore[call-overload]

some: Step[[str], None] = plain
one_route: Route[[str], Literal["research", "both"] | None] = choose
one_guard: Guard[[list[str]], str | None] = enough


@guard(after="research")  # type: ignore[arg-type]
def no_reason(topic: str) -> bool:
    return True


@route(after="research")  # type: ignore[type-var]
def no_target(topic: str) -> int:
    return 1


brief = Workflow("brief", state=Brief, steps=[plain, research, many], routes=[choose], guards=[enough])
assert_type(brief, Workflow[Brief])
assert_type(brief.model, type[Brief])
assert_type(brief.shape, Shape)
assert_type(brief.step("plain"), BoundStep)
assert_type(brief.targets("plain"), tuple[str | None, ...])

Workflow("wrong", state=Brief, steps=[plain], routes=[enough])  # type: ignore[list-item]
Workflow("wrong", state=Brief, steps=[plain.fn])  # type: ignore[list-item]
Workflow("wrong", state=int, steps=[plain])  # type: ignore[type-var]
