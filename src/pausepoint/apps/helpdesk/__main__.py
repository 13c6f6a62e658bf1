"""``python -m pausepoint.apps.helpdesk``: the command line. At a terminal it chats; otherwise it plays a sample."""

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
from pausepoint.apps.endings import Ending, at_terminal
from pausepoint.apps.helpdesk.chat import Talk, chatted, ending, interrupted, left, played
from pausepoint.apps.helpdesk.commands import link, operator
from pausepoint.apps.helpdesk.errands import errand
from pausepoint.apps.helpdesk.models import Desk, Language
from pausepoint.apps.helpdesk.operators import person
from pausepoint.apps.helpdesk.shop import SAMPLE, open_shop, shop_file
from pausepoint.apps.helpdesk.site import WebChat
from pausepoint.apps.helpdesk.workflow import helpdesk
from pausepoint.apps.input import BadInput, known_zone, local_zone, refusal
from pausepoint.cli import Start
from pausepoint.errors import StoreMissing, UnknownSession
from pausepoint.server import Site

HELP = """Chat with the helpdesk of a made-up shop about orders, addresses, refunds and appointments.

At a terminal it prompts for messages. Without a terminal it plays a sample, or the lines of --play or --say. You can
leave, kill or pause a chat at any message. Pass --session-id to continue it.
"""

SCRIPTS = {"english": "english.txt", "chinese": "chinese.txt"}
SAMPLE_NOW = "2030-03-04T09:00"
"""The sample has fixed dates, so it also fixes the current time. Each sample chat gets a new shop."""


Place = Annotated[
    Path | None, Field(description="The shop's file, or a folder for it. Default: shop.db next to the store.")
]
Spoken = Annotated[Language | None, Field(description="The reply language. Default: that of the message.")]
Zone = Annotated[str | None, Field(description="The shop's time zone. Default: this machine's.")]
Now = Annotated[str | None, Field(description="Count days from this time. Default: the time of each message.")]
Rounds = Annotated[int | None, Field(description="Questions before a person takes over. Default: 4.")]
Minutes = Annotated[float | None, Field(description="Minutes until a question expires. Default: 30.")]


def chat(
    start: Start,
    session_id: Annotated[str | None, Field(description="The chat to continue. Default: a new chat.")] = None,
    say: Annotated[list[str] | None, Field(description="Send this message, then leave the chat.")] = None,
    play: Annotated[
        str | None,
        Field(description="Send the lines of a file, or of a sample: english, chinese."),
    ] = None,
    shop: Place = None,
    language: Spoken = None,
    time_zone: Zone = None,
    now: Now = None,
    rounds: Rounds = None,
    expires: Minutes = None,
    by: Annotated[str | None, Field(description="The name of the speaker, kept in the history.")] = None,
) -> Ending:
    """Chat with the helpdesk, or send messages to a chat."""
    if say and play is not None:
        raise BadInput("--say and --play cannot be combined. Pass only one of them.")
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


def _spoken(talk: Talk, lines: list[str], whole: bool) -> Ending:
    try:
        stand, document = asyncio.run(played(talk, lines, whole))
    except KeyboardInterrupt:
        return interrupted(talk), None
    left(talk, stand)
    return ending(stand), document


async def check_new(talk: Talk, given: dict[str, Any]) -> None:
    """Refuse settings for an existing chat, which keeps its own."""
    try:
        async with Engine(talk.start.store, create=False) as engine:
            await engine.session(talk.session_id).info()
    except (UnknownSession, StoreMissing):
        return
    option = min(given).replace("_", "-")
    raise BadInput(f"--{option}: Chat {talk.session_id!r} already has its settings. Pass them only for a new chat.")


def desk_of(start: Start, given: dict[str, Any]) -> Desk:
    """Return the settings of a chat, or refuse them before anything is stored."""
    values: dict[str, Any] = {"shop": shop_file(start.folder, given["shop"])}
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
        raise BadInput(
            f"--expires: {given['expires']} is not a valid number of minutes. Pass a number such as 30."
        ) from None


def _moment(text: str, time_zone: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--now: {text!r} is not a date or time. Write 2030-03-04 or 2030-03-04T09:00.") from None
    return found if found.tzinfo else found.replace(tzinfo=ZoneInfo(time_zone))


def script(name: str) -> list[str]:
    """Return the lines of a script. Lines that start with # are comments."""
    try:
        if name == "-":
            text = sys.stdin.read()
        else:
            text = (SAMPLE / SCRIPTS[name] if name in SCRIPTS else Path(name)).read_text("utf-8")
    except OSError as error:
        raise BadInput(f"--play: {name}: {error.strerror}. Name a file, or a sample: {', '.join(SCRIPTS)}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"--play: {name} is not UTF-8 text. Save it as UTF-8.") from None
    lines = [line.strip() for line in text.splitlines()]
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise BadInput(f"--play: {name} has no lines to send. Write one message per line.")
    return found


def site(
    start: Start, shop: Place = None, language: Spoken = None, time_zone: Zone = None, now: Now = None,
    rounds: Rounds = None, expires: Minutes = None,
) -> Site:  # fmt: skip
    """Return the web chat. The settings are those of chats that begin while the server runs."""
    desk = desk_of(start, {
        "shop": shop, "language": language, "time_zone": time_zone, "now": now, "rounds": rounds, "expires": expires
    })  # fmt: skip
    open_shop(desk.shop)
    return WebChat(desk).site()


main = program(helpdesk, errand, person, instead=chat, help=HELP, site=site)
main.verb()(operator)
main.verb()(link)

if __name__ == "__main__":
    main()
