"""Sessions in which every text that a stranger can set is an attack on the page.

Each text begins with the name of its place, so that a test can tell whether it was shown.
"""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import Artifact, Context, Engine, Retry, Status, Workflow, guard, step
from pausepoint.orchestrator import Orchestrator, Task, TaskAgent
from tests.page.exhibit import until

VECTORS = (
    "<img src=x onerror=\"pwned('img')\">",
    "<script>pwned('script')</script>",
    "\"'><svg onload=pwned('svg')>",
    "</title></textarea></style></pre><script>pwned('closed')</script>",
    "' onfocus=pwned('focus') autofocus tabindex=0 x='",
    "<a href=\"javascript:pwned('link')\">link</a>",
    "<iframe srcdoc=\"<script>parent.pwned('frame')</script>\"></iframe>",
    "<details open ontoggle=pwned('toggle')>",
    "<style>@import'//127.0.0.1:9/x'</style><b style=background:url(//127.0.0.1:9/y)>",
    "<form action=javascript:pwned('form')><button autofocus>",
    "<math><mtext><table><mglyph><style><!--</style><img src=x onerror=pwned('math')>",
    "${pwned('template')}{{pwned('mustache')}}<!--?lit$0$--><?lit$0$>",
    "javascript:pwned('address')",
)
ATTACK = " ".join(VECTORS)
SHORT = "<img src=x onerror=pwned('name')>"
"""For names of files, which contain no slash."""

PROOF = "<img src=x onerror="
"""The beginning of both. If it is in the text that a page shows, the page has drawn it as text."""


def text(place: str) -> str:
    return f"{place}-{ATTACK}"


def name(place: str) -> str:
    return f"{place}-{SHORT}"


SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": text("schematitle"),
    "description": text("schemadescription"),
    "properties": {
        name("property"): {"type": "string", "title": text("title"), "description": text("description")},
        "choice": {"enum": [text("choice"), "b"], "title": text("choicetitle")},
        "many": {"enum": [text("option"), *"bcdefgh"]},
        "filled": {"type": "string", "default": text("default"), "maxLength": 5000},
        "either": {"anyOf": [{"type": "string", "title": text("variant")}, {"type": "integer", "title": "b"}]},
        "list": {"type": "array", "items": {"type": "string"}, "title": text("listtitle"), "default": [text("item")]},
        "number": {"type": "integer", "maximum": 3, "description": text("bound")},
    },
    "required": ["number"],
}


class State(BaseModel):
    value: Any = None
    answer: Any = None
    chosen: Any = None
    paths: dict[str, str] = {}


@step(writes="value")
async def tell_all(ctx: Context) -> Any:
    ctx.emit("hostile.event", text("eventsummary"), **{name("datakey"): text("data")})
    ctx.stream(text("stream"))
    with suppress(RuntimeError):
        await ctx.do(refuse, retry=Retry(attempts=2, first=0.01, jitter=0))
    return {name("statekey"): text("statevalue"), "list": [text("listvalue")]}


async def refuse() -> None:
    raise RuntimeError(text("operationerror"))


@step(writes="paths", publishes=Artifact("*.md"))
def publish(value: Any) -> dict[str, str]:
    return {name("artifact"): text("artifacttext") + "\nsecond line\n"}


@guard(after=publish)
def guarded(answer: Any) -> str | None:
    return text("guard") if answer == "guard" else None


@step(writes="chosen")
async def choose(ctx: Context) -> Any:
    return await ctx.ask(
        text("closedquestion"), choices=[text("answer"), "b"], payload={name("payloadkey"): text("payload")}
    )


@step(writes="answer")
async def ask_them(ctx: Context, chosen: Any) -> Any:
    return await ctx.ask(text("question"), schema=SCHEMA, payload={name("payloadkey"): text("payload")})


async def danger(command: str) -> str:
    return command


@step(writes="answer")
async def confirm_it(ctx: Context, answer: Any) -> Any:
    await ctx.confirm(
        text("confirm"), act=danger, payload={"tool": text("tool"), name("argumentkey"): text("argument")}
    )
    return None


@step(writes="answer")
async def fail_it(answer: Any) -> Any:
    raise type(name("errortype"), (RuntimeError,), {})(text("failure"))


def made(flow: str, *steps: Any, **more: Any) -> Workflow[Any]:
    return Workflow(flow, state=State, steps=[tell_all, publish, *steps], events=["hostile.event"], **more)


asks = made("hostile_asks", choose, ask_them)
confirms = made("hostile_confirms", confirm_it)
fails = made("hostile_fails", fail_it)
guards = made("hostile_guards", ask_them, guards=[guarded])


async def work(agent: TaskAgent) -> str:
    if agent.task.id == "b":
        raise RuntimeError(text("taskerror"))
    await agent.confirm(text("restricted"), payload={"command": text("command")})
    return "done"


HOSTILE = [asks, confirms, fails, guards]
IDS = ("javascript:pwned.1", "hostile-confirms", "hostile-fails", "hostile-guards", "hostile-removed")
ASKS, CONFIRMS, FAILS, GUARDS, REMOVED = IDS


async def attack(engine: Engine, folder: Path) -> None:
    """Start the sessions, and bring each to its place."""
    given: dict[str, Any] = {"owner": text("owner"), "tags": [text("tag"), "b"]}
    session = await engine.start(asks, session_id=ASKS, folder=folder / "asks", **given)
    await session.outcome()
    (question,) = await session.questions()
    await engine.answer(question.id, text("answer"), by=text("answeredby"))
    await session.outcome()
    (question,) = await session.questions()
    await session.send({"number": 1, "choice": text("complaint")}, by=text("refusedby"))
    await session.outcome()
    await session.files.add(io.BytesIO(b"x"), name("file") + ".html", content_type="text/html")
    for path in (folder / "asks").glob("*.md"):
        path.write_text(text("edited") + "\nsecond line\n")
    await engine.start(confirms, session_id=CONFIRMS, folder=folder / "confirms", **given)
    await engine.start(fails, session_id=FAILS, folder=folder / "fails", **given)
    await engine.start(guards, session_id=GUARDS, folder=folder / "guards", answer="guard", **given)
    for session_id, status in [(CONFIRMS, Status.WAITING), (FAILS, Status.FAILED), (GUARDS, Status.PAUSED)]:
        await until(engine, session_id, status)
    await engine.session(CONFIRMS).pause(reason=text("reason"), by=text("by"))
    await engine.start(confirms, session_id=REMOVED, paused=True, folder=folder / "removed", **given)
    await engine.session(REMOVED).remove(reason=text("removedreason"), by=text("removedby"))
    run = Orchestrator(engine, "hostile-run", work, agents=2)
    await run.start([Task(id="a", data=text("taskdata")), Task(id="b")], owner=text("owner"))
