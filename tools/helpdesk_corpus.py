"""Measure how many ordinary sentences of customers the helpdesk understands.

    python -m tools.helpdesk_corpus FILE [--sentences 50] [--seed 23] [--others] [--show] [--patience 300]

FILE is a CSV file with a column ``intent`` and a column ``utterance`` or ``instruction``, such as the customer service
datasets of Bitext. Every sentence is the first message of a new chat. It is understood if the chat begins exactly the
requests that its intent needs. ``--others`` takes sentences about things that the shop does not do instead; they are
understood if no change of the shop begins. If PAUSEPOINT_MODEL is set, the model reads; otherwise the rules do. A
customer waits 20 seconds for the model, and after an outage the rules read for a minute. Here the model gets every
sentence, with as much time as ``--patience`` says, so that the figure is that of the model and not of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pausepoint import Engine, Session
from pausepoint.apps.helpdesk import Chat, Desk, agent, conversation, errand, helpdesk, open_shop
from pausepoint.apps.helpdesk.agent import MODEL_FAILED
from pausepoint.apps.helpdesk.shop import CHANGES
from pausepoint.apps.model import settings

TOOLS = {
    "cancel_order": "cancel_order", "change_shipping_address": "change_address", "complaint": "hand_over",
    "contact_customer_service": "hand_over", "contact_human_agent": "hand_over", "delivery_period": "order_status",
    "get_refund": "refund", "set_up_shipping_address": "change_address", "track_order": "order_status",
    "track_refund": "order_status",
}  # fmt: skip
"""The tool that serves an intent. The other intents are about things that the shop does not do."""

Sentence = tuple[str, str]


def sample(file: Path, count: int, seed: int, others: bool) -> list[Sentence]:
    """Return sentences with their intents, the same ones for the same seed."""
    with file.open(encoding="utf-8-sig", newline="") as source:
        rows = list(csv.DictReader(source))
    text = "utterance" if rows and "utterance" in rows[0] else "instruction"
    found = sorted({(row[text].strip(), row["intent"]) for row in rows if (row["intent"] not in TOOLS) == others})
    return random.Random(seed).sample(found, min(count, len(found)))


async def measure(sentences: list[Sentence], show: bool) -> tuple[Counter[str], int]:
    """Return how many sentences of each intent were understood, and how often the model failed."""
    understood, failed = Counter[str](), 0
    with TemporaryDirectory() as folder:
        desk = Desk(shop=Path(folder, "shop.db"), now=datetime(2030, 3, 4, 9, tzinfo=UTC))
        open_shop(desk.shop)
        async with Engine(":memory:", workflows=[helpdesk, errand]) as engine:
            for text, intent in sentences:
                session: Session[Chat] = await engine.start(helpdesk, desk=desk)
                await conversation.send(engine, session.id, text)
                await session.outcome()
                began = {call.tool for call in (await session.state()).calls}
                failed += sum([event.event_type == MODEL_FAILED async for event in session.events()])
                right = began == {TOOLS[intent]} if intent in TOOLS else not began & CHANGES
                understood[intent] += right
                if show and not right:
                    print(f"{intent}: {text!r} began {', '.join(sorted(began)) or 'nothing'}")
    return understood, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--others", action="store_true", help="sentences about things that the shop does not do")
    parser.add_argument("--patience", type=float, default=300.0, help="the seconds that a model has for a sentence")
    parser.add_argument("--show", action="store_true", help="print the sentences that were not understood")
    args = parser.parse_args()
    agent.PATIENCE, agent.REST = args.patience, 0.0
    sentences = sample(args.file, args.sentences, args.seed, args.others)
    understood, failed = asyncio.run(measure(sentences, args.show))
    for intent, count in sorted(Counter(intent for _, intent in sentences).items()):
        print(f"{intent:28} {understood[intent]:3} of {count}")
    model = settings()
    how = "by rules" if model is None else f"by the model {model.name}; it failed {failed} times, then the rules read"
    print(f"{understood.total()} of {len(sentences)} sentences understood, {how}.")


if __name__ == "__main__":
    main()
