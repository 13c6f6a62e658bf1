"""The made-up shop, in its own SQLite file. The tools of the helpdesk read and change it.

Every change is one transaction and stores the idempotency key of its operation in a unique column. If a process dies
between a change and its record in the session, the operation runs again, finds its key, and changes nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import BlockingContext
from pausepoint.apps.helpdesk.parameters import AddressChange, Appointment, Refund, StatusOf
from pausepoint.apps.input import BadInput

SAMPLE = Path(__file__).parent / "sample_data"
PATIENCE = 30
"""The seconds that a transaction waits for another one."""

OPENS, CLOSES = time(9), time(18)
LENGTH = 30
"""The length of an appointment in minutes."""

SUNDAY = 6
FURTHEST = 90
"""The maximum number of days until an appointment."""


class Served(BaseModel):
    """The reply of a tool: facts, or a refusal. ``ask`` names the parameter that needs another value."""

    facts: dict[str, Any] = {}
    refused: str = ""
    ask: str = ""


def open_shop(path: Path) -> None:
    """Create the shop from the sample unless it exists. Several processes may do this at the same time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _transaction(path, create=True) as db:
            for statement in (SAMPLE / "shop.sql").read_text("utf-8").split(";"):
                db.execute(statement)
            if db.execute("SELECT 1 FROM orders").fetchone() is None:
                _fill(db, json.loads((SAMPLE / "shop.json").read_text("utf-8")))
    except sqlite3.DatabaseError as error:
        raise BadInput(f"shop: {path} cannot be used as the shop's file: {error}. Name another file.") from None
    except OSError as error:
        raise BadInput(f"shop: {path} cannot be created: {error.strerror}. Name another file.") from None


def _fill(db: sqlite3.Connection, sample: dict[str, list[dict[str, str]]]) -> None:
    for table, rows in sample.items():
        for row in rows:
            names = ", ".join(row)
            db.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


@contextmanager
def _transaction(path: Path, create: bool = False) -> Iterator[sqlite3.Connection]:
    if not (create or path.exists()):  # SQLite would create an empty file
        raise FileNotFoundError(f"The shop's file {path} is missing. Put it back, then resume.")
    with closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


class Shop:
    """The tools of the shop. ``now`` is the time of the request in the shop's time zone."""

    def __init__(self, path: Path, now: datetime) -> None:
        self.path = path
        self.now = now

    def order_status(self, asked: StatusOf) -> Served:
        """Return the facts of an order."""
        with _transaction(self.path) as db:
            order = _order(db, asked.order)
            return _unknown(asked.order) if order is None else Served(facts=order)

    def change_address(self, change: AddressChange, ctx: BlockingContext) -> Served:
        """Change the address of an order that has not been shipped."""
        key = ctx.idempotency_key
        with _transaction(self.path) as db:
            order = _order(db, change.order)
            if order is None:
                return _unknown(change.order)
            place = {"street": change.street, "postcode": change.postcode, "city": change.city}
            if not _is_done(db, "address_changes", key):
                if order["status"] != "packed":
                    return Served(facts=order, refused=f"has_{order['status']}")
                _insert(db, "address_changes", {"key": key, "number": change.order, **place})
                db.execute(
                    "UPDATE orders SET street = ?, postcode = ?, city = ? WHERE number = ?",
                    (*place.values(), change.order),
                )
            return Served(facts={**order, **place})

    def quote_refund(self, refund: Refund) -> Served:
        """Return the amount that would be refunded, without paying it."""
        with _transaction(self.path) as db:
            order = _order(db, refund.order)
            if order is None:
                return _unknown(refund.order)
            left = Decimal(order["total"]) - _refunded(db, refund.order)
            if left <= 0:
                return Served(facts=order, refused="refunded_before")
            if refund.amount is not None and refund.amount > left:
                return Served(facts={**order, "left": f"{left:.2f}"}, refused="too_much")
            return Served(facts={**order, "amount": f"{refund.amount or left:.2f}", "reason": refund.reason})

    def pay_refund(self, order: str, amount: str, reason: str, ctx: BlockingContext) -> Served:
        """Pay a refund."""
        key = ctx.idempotency_key
        with _transaction(self.path) as db:
            known = _order(db, order)
            if known is None:
                return _unknown(order)
            if not _is_done(db, "refunds", key):
                if Decimal(amount) > Decimal(known["total"]) - _refunded(db, order):
                    return Served(facts=known, refused="refunded_before")
                _insert(db, "refunds", {"key": key, "number": order, "amount": amount, "reason": reason})
            return Served(facts={**known, "amount": amount})

    def book(self, wanted: Appointment, ctx: BlockingContext) -> Served:
        """Book an appointment if the shop is open and the time is free."""
        key, facts = ctx.idempotency_key, wanted.model_dump(mode="json")
        if trouble := self._closed(wanted.day, wanted.time):
            return Served(facts=facts, refused=trouble, ask="time" if trouble == "closed_then" else "day")
        with _transaction(self.path) as db:
            if not _is_done(db, "appointments", key):
                day = wanted.day.isoformat()
                known = db.execute("SELECT time FROM appointments WHERE day = ?", (day,)).fetchall()
                if any(abs(_minutes(time.fromisoformat(at)) - _minutes(wanted.time)) < LENGTH for (at,) in known):
                    return Served(facts=facts, refused="taken", ask="time")
                row = {"day": day, "time": f"{wanted.time:%H:%M}", "kind": wanted.kind, "contact": wanted.contact}
                _insert(db, "appointments", {"key": key, **row})
            return Served(facts=facts)

    def _closed(self, day: date, at: time) -> str:
        if datetime.combine(day, at, self.now.tzinfo) <= self.now:
            return "past"
        if (day - self.now.date()).days > FURTHEST:
            return "too_far"
        if day.weekday() == SUNDAY:
            return "sunday"
        return "" if at >= OPENS and _minutes(at) + LENGTH <= _minutes(CLOSES) else "closed_then"

    def open_ticket(self, about: dict[str, Any], ctx: BlockingContext) -> int:
        """Open a ticket for a person and return its number."""
        key = ctx.idempotency_key
        with _transaction(self.path) as db:
            if not _is_done(db, "tickets", key):
                _insert(db, "tickets", {"key": key, "about": json.dumps(about, ensure_ascii=False)})
            found = db.execute("SELECT number FROM tickets WHERE key = ?", (key,)).fetchone()
            return int(found["number"])


def _minutes(at: time) -> int:
    return at.hour * 60 + at.minute


def _order(db: sqlite3.Connection, number: str) -> dict[str, Any] | None:
    row = db.execute("SELECT * FROM orders WHERE number = ?", (number,)).fetchone()
    return None if row is None else dict(row)


def _unknown(number: str) -> Served:
    return Served(facts={"number": number}, refused="unknown_order", ask="order")


def _refunded(db: sqlite3.Connection, number: str) -> Decimal:
    rows = db.execute("SELECT amount FROM refunds WHERE number = ?", (number,)).fetchall()
    return sum((Decimal(row["amount"]) for row in rows), Decimal(0))


def _is_done(db: sqlite3.Connection, table: str, key: str) -> bool:
    """Return whether the action with this key was done before."""
    return db.execute(f"SELECT 1 FROM {table} WHERE key = ?", (key,)).fetchone() is not None


def _insert(db: sqlite3.Connection, table: str, row: dict[str, str]) -> None:
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
