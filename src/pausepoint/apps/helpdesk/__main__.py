"""``python -m pausepoint.apps.helpdesk``: the helpdesk as a program. At a terminal it chats, else it plays a sample."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field, ValidationError

from pausepoint import Engine, program
from pausepoint.apps.helpdesk.chat import Talk, at_terminal, chatted, ending, interrupted, left, played
from pausepoint.apps.helpdesk.errands import errand
from pausepoint.apps.helpdesk.models import Desk, Language
from pausepoint.apps.helpdesk.shop import SAMPLE
from pausepoint.apps.helpdesk.workflow import helpdesk
from pausepoint.apps.input import BadInput, known_zone, local_zone, refusal
from pausepoint.cli import Start
from pausepoint.errors import StoreMissing, UnknownSession

HELP = """Chat with the helpdesk of an invented shop: look up orders, change addresses, refunds, appointments.

At a terminal it prompts. Without one it plays a sample, or what --play or --say gives it. A chat can be left, killed
and paused at any word; --session-id goes on with it.
"""

SCRIPTS = {"english": "english.txt", "chinese": "chinese.txt"}
SAMPLE_NOW = "2030-03-04T09:00"
"""The sample has dates of its own, so it brings the moment that they belong to; and a shop of its own, in which
nothing of it was done before."""


def chat(
    start: Start,
    session_id: Annotated[str | None, Field(description="Which chat; else a new one.")] = None,
    say: Annotated[list[str] | None, Field(description="Say this, and leave the chat.")] = None,
    play: Annotated[
        str | None,
        Field(description="Say the lines of a file, or of a sample: english, chinese."),
    ] = None,
    shop: Annotated[
        Path | None, Field(description="The shop's file, or a folder for it; else shop.db beside the store.")
    ] = None,
    language: Annotated[Language | None, Field(description="Answer in it; else as the message is.")] = None,
    time_zone: Annotated[str | None, Field(description="Where the shop is; else that of this machine.")] = None,
    now: Annotated[str | None, Field(description="Count days from this moment; else from each message.")] = None,
    rounds: Annotated[int | None, Field(description="Questions before a person takes over; else 4.")] = None,
    expires: Annotated[float | None, Field(description="Minutes that a question waits; else 30.")] = None,
    by: Annotated[str | None, Field(description="Who talks; kept in the history.")] = None,
) -> tuple[int, dict[str, Any] | None]:
    """Chat, or say something to a chat."""
    if say and play is not None:
        raise BadInput("--say and --play: give one of them")
    if not say and play is None and not at_terminal():
        play = "english"
    settings = {
        "shop": shop, "language": language, "time_zone": time_zone, "now": now, "rounds": rounds, "expires": expires
    }  # fmt: skip
    given = {name: value for name, value in settings.items() if value is not None}
    lines = say or ([] if play is None else script(play))
    chosen = session_id or f"chat-{token_hex(4)}"
    if play in SCRIPTS:
        settings |= {"now": now or SAMPLE_NOW, "shop": shop or start.folder / f"shop-of-{chosen}.db"}
    channel = "script" if lines else "terminal"
    talk = Talk(start, chosen, desk_of(start, settings), by, channel)
    if session_id is not None and given:
        asyncio.run(check_new(talk, given))
    return _spoken(talk, lines, whole=play is not None) if lines else chatted(talk)


def _spoken(talk: Talk, lines: list[str], whole: bool) -> tuple[int, dict[str, Any] | None]:
    try:
        stand, document = asyncio.run(played(talk, lines, whole))
    except KeyboardInterrupt:
        return interrupted(talk), None
    left(talk, stand)
    return ending(stand), document


async def check_new(talk: Talk, given: dict[str, Any]) -> None:
    """Settings are for a new chat: one that exists has its own."""
    try:
        async with Engine(talk.start.store, create=False) as engine:
            await engine.info(talk.session_id)
    except (UnknownSession, StoreMissing):
        return
    option = min(given).replace("_", "-")
    raise BadInput(f"--{option}: settings are for a new chat; {talk.session_id!r} has its own")


def desk_of(start: Start, given: dict[str, Any]) -> Desk:
    """The settings of a chat, or a refusal before anything is stored."""
    shop: Path = given["shop"] or start.folder
    values: dict[str, Any] = {"shop": (shop / "shop.db" if shop.is_dir() or not given["shop"] else shop).absolute()}
    try:
        values["time_zone"] = known_zone(given["time_zone"] or local_zone())
    except ValueError as error:
        raise BadInput(f"--time-zone: {error}") from None
    values |= {name: given[name] for name in ("language", "rounds") if given[name] is not None}
    if given["now"] is not None:
        values["now"] = _moment(given["now"], values["time_zone"])
    try:
        if given["expires"] is not None:
            values["expires"] = timedelta(minutes=given["expires"])
        return Desk(**values)
    except ValidationError as error:
        raise BadInput(f"--{refusal(error)}") from None
    except (ValueError, OverflowError):
        raise BadInput(f"--expires: {given['expires']} is no number of minutes that can be waited") from None


def _moment(text: str, time_zone: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--now: {text!r} is not a moment; write 2030-03-04 or 2030-03-04T09:00") from None
    return found if found.tzinfo else found.replace(tzinfo=ZoneInfo(time_zone))


def script(name: str) -> list[str]:
    """The lines of a script; those that begin with # are remarks."""
    try:
        if name == "-":
            text = sys.stdin.read()
        else:
            text = (SAMPLE / SCRIPTS[name] if name in SCRIPTS else Path(name)).read_text("utf-8")
    except OSError as error:
        raise BadInput(f"--play: {name}: {error.strerror}; there are also {', '.join(SCRIPTS)}") from None
    except UnicodeDecodeError:
        raise BadInput(f"--play: {name} is no text in UTF-8") from None
    lines = [line.strip() for line in text.splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise BadInput(f"--play: {name} has no line to say")
    return found


main = program(helpdesk, errand, instead=chat, help=HELP)

if __name__ == "__main__":
    main()
