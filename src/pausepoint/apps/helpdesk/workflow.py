"""The chat: one session that loops. It receives a message, serves it, hands over to a person if needed, and replies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime

from pausepoint import Context, Workflow, route, step
from pausepoint.apps.helpdesk import words
from pausepoint.apps.helpdesk.errands import PATIENCE, errand
from pausepoint.apps.helpdesk.intents import Meaning, is_cancel, language_of, meaning
from pausepoint.apps.helpdesk.model_reading import read_message
from pausepoint.apps.helpdesk.models import Call, Chat, Desk, Errand, Language, Message, Result
from pausepoint.apps.helpdesk.parameters import found_in, is_correction
from pausepoint.apps.helpdesk.shop import Shop
from pausepoint.definition import At

WINDOW = 20
"""How many messages of the chat are passed along with a request or a ticket."""

CORRECTABLE = ("order_status", "change_address")
"""The tools that a correction can run again. A second refund or appointment would not undo the first one."""

REPLIED = "replied"
"""The event that carries a reply."""

UNDERSTOOD = ["messages", "said", "language", "now", "calls", "unclear", "small_talk", "results", "ticket", "follow_up"]


@step(writes=UNDERSTOOD, retry=PATIENCE)
async def intent(desk: Desk, language: Language, last: Call | None, follow_up: str, ctx: Context) -> dict[str, object]:
    """Wait for a message and find out what it asks for."""
    said = follow_up or await ctx.receive()
    now = await ctx.do(_now) if desk.now is None else desk.now
    spoken = desk.language or language_of(said, language)
    found = _correction(said, last, desk.local(now)) or await read_message(ctx, said) or meaning(said)
    return {
        "messages": [Message(role="user", text=said)], "said": said, "language": spoken, "now": now,
        "calls": found.calls, "unclear": found.unclear, "small_talk": found.talk, "results": [], "ticket": None,
        "follow_up": "",
    }  # fmt: skip


def _now() -> datetime:
    return datetime.now(UTC)


def _correction(said: str, last: Call | None, now: datetime) -> Meaning | None:
    """Return the last call with another value if the message corrects it, as in "no, the street is …"."""
    if (
        last is None
        or last.tool not in CORRECTABLE
        or not is_correction(said)
        or is_cancel(said)
        or meaning(said).calls
    ):
        return None
    found = found_in(last.tool, said, now.date())
    return Meaning([Call(tool=last.tool, text=said, given=last.given)], "", []) if found else None


def for_tools(calls: list[Call]) -> bool:
    """Return whether the message asks for a tool."""
    return any(call.tool != "hand_over" for call in calls)


@step(writes=["messages", "results", "entities", "customer", "last", "follow_up"], when=for_tools)
async def serve(
    desk: Desk, language: Language, now: AwareDatetime | None, said: str, calls: list[Call], customer: str | None,
    last: Call | None, recent: Annotated[list[Message], At(f"messages[-{WINDOW}:]")], ctx: Context,
) -> dict[str, object]:  # fmt: skip
    """Let the sub-chain serve the request."""
    assert now is not None
    wanted = [call for call in calls if call.tool != "hand_over"]
    done = await ctx.call(errand, Errand(
        desk=desk, language=language, now=now, request=said, calls=wanted, customer=customer, messages=recent,
    ))  # fmt: skip
    finished = [each for each in done.results if each.outcome == "done"]
    return {
        "messages": done.messages[len(recent) :], "results": done.results, "entities": done.entities,
        "customer": next((each.facts["customer"] for each in finished if "customer" in each.facts), customer),
        "last": Call(tool=finished[-1].tool, given=finished[-1].parameters) if finished else last,
        "follow_up": done.follow_up,
    }  # fmt: skip


def needs_person(calls: list[Call], results: list[Result]) -> bool:
    """Return whether a person must take over, because the customer asks for one or the helpdesk gave up."""
    given_up = any(each.outcome in ("handed_over", "passed_on") for each in results)
    return given_up or any(call.tool == "hand_over" for call in calls)


@step(writes=["ticket", "tickets"], when=needs_person)
async def hand_over(
    desk: Desk, said: str, now: AwareDatetime | None, language: Language, customer: str | None,
    entities: dict[str, Any], results: list[Result], last: Call | None,
    recent: Annotated[list[Message], At(f"messages[-{WINDOW}:]")], ctx: Context,
) -> dict[str, object]:  # fmt: skip
    """Open a ticket with all known details."""
    assert now is not None
    about = {
        "session": ctx.session_id, "language": language, "customer": customer, "request": said, "values": entities,
        "results": [each.model_dump(mode="json") for each in results],
        "last": None if last is None else last.model_dump(mode="json"),
        "conversation": [each.model_dump() for each in recent],
    }  # fmt: skip
    number = await ctx.do(Shop(desk.shop, desk.local(now)).open_ticket, about)
    return {"ticket": number, "tickets": [number]}


@step(writes="messages")
async def reply(
    desk: Desk, language: Language, unclear: list[str], small_talk: str, results: list[Result], ticket: int | None,
    follow_up: str, ctx: Context,
) -> list[Message]:  # fmt: skip
    """Reply with the results."""
    said = [words.say(language, small_talk)] if small_talk in ("hello", "cancel") else []
    said += [words.outcome(language, each, desk.rounds) for each in results]
    if ticket is not None:
        said.append(words.say(language, "ticket", ticket=ticket))
    if unclear:
        said.append(words.say(language, "unclear", parts=" / ".join(unclear)))
    if small_talk in ("thanks", "bye") and not (unclear and small_talk == "thanks"):
        said.append(words.say(language, small_talk))
    if not said or (unclear and not results):
        said.append(words.say(language, "offer"))
    text = "\n".join(said)
    ctx.emit(REPLIED, text)
    return [Message(role="assistant", text=text)]


@route(after=reply)
def again(small_talk: str, follow_up: str) -> Literal["intent", None]:
    """Wait for the next message, until the customer says goodbye."""
    return None if small_talk == "bye" and not follow_up else "intent"


helpdesk = Workflow("helpdesk", state=Chat, steps=[intent, serve, hand_over, reply], routes=[again], events=[REPLIED])
