"""The commands for operators and for links: ``operator`` and ``link``."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from pausepoint import Engine
from pausepoint.apps.helpdesk import conversation
from pausepoint.apps.helpdesk.operators import AUTHORS, ENDED, WORKFLOWS, Case, attend, case_of, cases
from pausepoint.apps.helpdesk.shop import customer_name, open_shop, shop_file
from pausepoint.apps.helpdesk.site import NAME
from pausepoint.apps.helpdesk.workflow import helpdesk
from pausepoint.apps.input import BadInput
from pausepoint.apps.links import link_options, linked
from pausepoint.apps.words import one_line
from pausepoint.cli import Start

T = TypeVar("T")
Told = tuple[str, dict[str, Any]]

WIDTH = 60
"""How many characters of a message a list shows."""


def run(start: Start, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    """Run an operator's action with an engine of its own."""

    async def main() -> T:
        async with Engine(start.store, workflows=WORKFLOWS, create=False) as engine:
            return await work(engine)

    return asyncio.run(main())


@click.argument("chat", required=False)
@click.option("--say", metavar="TEXT", help="Send this message to the customer. It takes the chat over.")
@click.option("--take-over", is_flag=True, help="Make the bot silent.")
@click.option("--hand-back", is_flag=True, help="Let the bot answer again, after the message of --say.")
@click.option("--all", "everything", is_flag=True, help="List all chats, also those that no person must look at.")
@click.option("--by", metavar="NAME", help="Your name, which the customer sees. Default: your login name.")
def operator(
    start: Start, chat: str | None, say: str | None, take_over: bool, hand_back: bool, everything: bool, by: str | None
) -> Told:
    """List the chats that wait for a person, show one, answer in it, take it over or hand it back.

    Without CHAT it lists the chats and their tickets. With CHAT it shows the whole conversation. While an operator has
    a chat, the bot is silent. The inbox has a question about each chat that waits for a person.
    """
    acts = {"--say": say is not None, "--take-over": take_over, "--hand-back": hand_back}
    if chat is None:
        if given := [name for name, is_given in acts.items() if is_given]:
            raise BadInput(f"{given[0]} needs a chat. Name one: {start.command('operator', 'CHAT', given[0])}")
        return run(start, lambda engine: _listed(engine, start, everything))
    if everything:
        raise BadInput("--all lists chats, and CHAT shows one. Pass only one of them.")
    if take_over and hand_back:
        raise BadInput("--take-over and --hand-back cannot be combined. Pass only one of them.")
    if say is not None and not say.strip():
        raise BadInput("--say: The message is empty. Write what the customer shall read.")
    name = by or getpass.getuser()

    async def act(engine: Engine) -> Told:
        await _check(engine, chat)
        if take_over:
            await conversation.take_over(engine, chat, by=name)
        if say is not None:
            await conversation.say(engine, chat, say, by=name)
        if hand_back:
            await conversation.hand_back(engine, chat, by=name)
        if any(acts.values()):
            await engine.session(chat).outcome()  # the chat has read it
            await attend(engine, chat)
        return await _shown(engine, start, chat)

    return run(start, act)


async def _check(engine: Engine, chat: str) -> None:
    info = await engine.session(chat).info()
    if info.workflow != helpdesk.name:
        raise BadInput(f"{chat!r} is not a chat but a session of workflow {info.workflow}. Name a chat.")


async def _listed(engine: Engine, start: Start, everything: bool) -> Told:
    found = await cases(engine, everything)
    document = {"chats": [case.document() for case in found]}
    if not found:
        return ("There is no chat." if everything else "No chat waits for a person."), document
    lines = [f"{case.chat}  {_standing(case)}  {case.customer or ''}\n    {_cut(case.last)}" for case in found]
    return "\n".join([*lines, f"Read and answer: {start.command('operator', found[0].chat)}"]), document


def _standing(case: Case) -> str:
    parts = [f"ticket {case.ticket}"] if case.ticket is not None else []
    parts += [f"with {case.operator}"] if case.operator is not None else []
    parts += ["waits for a person"] if case.waits else []
    return ", ".join(parts) or (case.status.value if case.status in ENDED else "with the bot")


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


async def _shown(engine: Engine, start: Start, chat: str) -> Told:
    read = await conversation.read(engine, chat)
    case = await case_of(engine, await engine.session(chat).info())
    lines = [f"{each.by or AUTHORS[each.role]}: {each.text}" for each in read.messages]
    way = "--hand-back" if read.operator is not None else "--take-over"
    lines += ["", f"{chat}: {_standing(case)}", f"Answer: {start.command('operator', chat, '--say', 'TEXT')}"]
    lines += [f"{'Hand back' if read.operator is not None else 'Take over'}: {start.command('operator', chat, way)}"]
    messages = [
        {"author": AUTHORS[each.role], "by": each.by or None, "text": each.text, "ticket": each.ticket}
        for each in read.messages
    ]
    return "\n".join(lines), {**case.document(), "messages": messages}


@click.argument("customer")
@link_options
@click.option(
    "--shop",
    type=click.Path(path_type=Path),
    help="The shop's file, or a folder for it. Default: shop.db next to the store.",
)
def link(start: Start, customer: str, days: float, url: str, revoke: bool, shop: Path | None) -> Told:
    """Print a link with which CUSTOMER, an e-mail address that the shop knows, opens the web chat.

    Everybody who has the link can read and continue the customer's chat, until it ends or is revoked. Send it to the
    customer only. `serve --new-token` revokes all links of all customers.
    """
    place = shop_file(start.folder, shop)
    open_shop(place)
    if customer_name(place, customer) is None:
        raise BadInput(f"The shop {place} has no customer {customer!r}. Pass the e-mail address of a customer.")
    return linked(start, NAME, customer, "customer", days=days, url=url, revoke=revoke)
