"""The chat: one session that loops. It receives a message, serves it, hands over to a person if needed, and replies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime

from pausepoint import Context, Workflow, route, step
from pausepoint.apps.helpdesk import words
from pausepoint.apps.helpdesk.agent import MODEL_FAILED
from pausepoint.apps.helpdesk.conversation import REPLIED
from pausepoint.apps.helpdesk.decisions import is_cancel, yes_or_no
from pausepoint.apps.helpdesk.errands import PATIENCE, errand
from pausepoint.apps.helpdesk.intents import Meaning, language_of, meaning
from pausepoint.apps.helpdesk.models import Call, Chat, Desk, Errand, Language, Message, Notice, Result, SmallTalk
from pausepoint.apps.helpdesk.parameters import answered, is_correction
from pausepoint.apps.helpdesk.readings import read_message
from pausepoint.apps.helpdesk.shop import Shop
from pausepoint.definition import At

WINDOW = 60
"""How many messages of the chat are passed along with a request or a ticket."""

CORRECTABLE = ("order_status", "change_address")
"""The tools that a correction can run again. A second refund or appointment would not undo the first one."""

UNDERSTOOD = ["messages", "said", "language", "now", "calls", "unclear", "small_talk", "results", "ticket", "follow_up",
              "operator", "attended", "quiet", "told", "lapsed", "puzzled", "answer"]  # fmt: skip
SERVED = ["messages", "results", "entities", "customer", "last", "follow_up", "told", "lapsed", "language",
          "small_talk"]  # fmt: skip
NOTHING: dict[str, Any] = {
    "messages": [], "calls": [], "unclear": [], "small_talk": "", "results": [], "ticket": None, "follow_up": "",
    "quiet": False, "told": 0, "lapsed": [], "answer": "",
}  # fmt: skip
"""A message that asks for nothing."""


@step(writes=UNDERSTOOD, retry=PATIENCE)
async def intent(
    desk: Desk, language: Language, last: Call | None, follow_up: str, operator: str | None, lapsed: list[Call],
    puzzled: int, messages: list[Message], ctx: Context,
) -> dict[str, object]:  # fmt: skip
    """Wait for a message and find out what it asks for."""
    said = follow_up or await ctx.receive()
    now = await ctx.do(_now) if desk.now is None else desk.now
    if (notice := Notice.read(said)) is not None:
        return {"now": now} | _noticed(notice, operator, lapsed, messages, ctx)
    if operator is not None:
        return NOTHING | {"messages": [Message(role="user", text=said)], "said": said, "quiet": True}
    spoken = desk.language or language_of(said, language)
    shop = Shop(desk.shop, desk.local(now), desk.customer)
    found = _correction(said, last, shop.now) or await read_message(ctx, said, messages, shop)
    lost = bool(found.unclear) and not found.calls
    if puzzled and not found.calls and (lost or yes_or_no(said)):
        # The helpdesk has asked what the customer needs, or whether a person shall help. It does not ask twice.
        found, lost = Meaning(calls=[Call(tool="hand_over", text=said)]), False
    return NOTHING | {
        "messages": [Message(role="user", text=said)], "said": said, "language": spoken, "now": now,
        "calls": found.calls, "unclear": found.unclear, "small_talk": found.talk, "puzzled": puzzled + 1 if lost else 0,
        "answer": found.reply,
    }  # fmt: skip


def _noticed(
    notice: Notice, operator: str | None, lapsed: list[Call], messages: list[Message], ctx: Context
) -> dict[str, object]:  # fmt: skip
    """Handle a message that the customer did not write. The bot does not reply to it."""
    found: dict[str, object] = NOTHING | {"quiet": True}
    count, seen = len(messages), notice.seen
    said = [each.role for each in messages[seen or 0 :] if each.role != "operator"]
    if said[-1:] != ["user"]:
        seen = None  # there is nothing that neither the operator nor the bot has dealt with
    match notice.kind:
        case "take_over":
            dealt = {} if notice.seen is None else {"attended": count if seen is None else seen}
            return found | {"operator": notice.by} | dealt
        case "hand_back" if seen is not None:  # the bot would not answer what the customer has written meanwhile
            return found | {"operator": operator or notice.by, "attended": seen}
        case "hand_back":
            return found | {"operator": None, "attended": count}
        case "say":
            ctx.emit(REPLIED, notice.text, author="operator", by=notice.by)
            reply = Message(role="operator", text=notice.text, by=notice.by)
            return found | {
                "operator": operator or notice.by,
                "messages": [reply],
                "attended": count + 1 if seen is None else seen,
            }
        case "returned":
            return found | {"calls": lapsed, "quiet": not lapsed}


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
    found = answered(last.tool, said, [], now.date())
    return Meaning(calls=[Call(tool=last.tool, given=last.given | found)]) if found else None


def for_tools(calls: list[Call]) -> bool:
    """Return whether the message asks for a tool."""
    return any(call.tool != "hand_over" for call in calls)


@step(writes=SERVED, when=for_tools)
async def serve(
    desk: Desk, language: Language, now: AwareDatetime | None, said: str, calls: list[Call], customer: str | None,
    last: Call | None, small_talk: SmallTalk, recent: Annotated[list[Message], At(f"messages[-{WINDOW}:]")],
    ctx: Context,
) -> dict[str, object]:  # fmt: skip
    """Let the sub-chain serve the request."""
    assert now is not None
    wanted = [call for call in calls if call.tool != "hand_over"]
    done = await ctx.call(errand, Errand(
        desk=desk, language=language, now=now, request=said, calls=wanted, customer=customer, messages=recent,
        known=len(recent),
    ))  # fmt: skip
    finished = [each for each in done.results if each.outcome == "done"]
    return {
        "messages": done.messages[len(recent) :], "results": done.results, "entities": done.entities,
        "customer": next((each.facts["customer"] for each in finished if "customer" in each.facts), customer),
        "last": Call(tool=finished[-1].tool, given=finished[-1].parameters) if finished else last,
        "follow_up": done.follow_up, "told": done.told, "lapsed": done.lapsed, "language": done.language,
        "small_talk": "bye" if done.leaves else small_talk,
    }  # fmt: skip


def needs_person(calls: list[Call], results: list[Result], follow_up: str) -> bool:
    """Return whether a person must take over, because the customer asks for one or the helpdesk gave up."""
    if Notice.read(follow_up) is not None:
        return False  # an operator has just taken over
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
    number = await ctx.do(Shop(desk.shop, desk.local(now), desk.customer).open_ticket, about)
    return {"ticket": number, "tickets": [number]}


def speaks(quiet: bool, follow_up: str) -> bool:
    """Return whether the bot replies: not while an operator has the chat."""
    return not quiet and Notice.read(follow_up) is None


@step(writes="messages", when=speaks)
async def reply(
    desk: Desk, language: Language, unclear: list[str], small_talk: str, results: list[Result], told: int,
    ticket: int | None, answer: str, ctx: Context,
) -> list[Message]:  # fmt: skip
    """Reply with the results."""
    said = [answer] if answer else []
    said += [words.say(language, small_talk)] if small_talk in ("hello", "cancel", "unwanted") else []
    said += [text for each in results[told:] if (text := words.outcome(language, each, desk.rounds))]
    if ticket is not None:
        said.append(words.say(language, "ticket", ticket=ticket))
    if unclear:
        said.append(words.say(language, "unclear", parts=" / ".join(unclear)))
    if small_talk in ("thanks", "bye") and not answer and not (unclear and small_talk == "thanks"):
        said.append(words.say(language, small_talk))
    if not said or (unclear and not results):
        said += [words.say(language, "offer"), *([words.say(language, "which")] if unclear else [])]
    text = "\n".join(said)
    ctx.emit(REPLIED, text, author="bot")
    return [Message(role="assistant", text=text, ticket=ticket)]


@route(after=reply)
def again(desk: Desk, small_talk: str, follow_up: str) -> Literal["intent", None]:
    """Wait for the next message, until the customer says goodbye. A customer who is signed in keeps the same chat."""
    ends = small_talk == "bye" and not follow_up and desk.customer is None
    return None if ends else "intent"


helpdesk = Workflow(
    "helpdesk", state=Chat, steps=[intent, serve, hand_over, reply], routes=[again], events=[REPLIED, MODEL_FAILED]
)
