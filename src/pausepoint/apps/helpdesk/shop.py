"""The made-up shop, in its own SQLite file. The tools of the helpdesk read and change it.

Each change has two methods: one checks it and returns what would be written, the other writes it after a confirmation.
Every change is one transaction and stores the idempotency key of its operation in a unique column. If a process dies
between a change and its record in the session, the operation runs again, finds its key, and changes nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import BlockingContext
from pausepoint.apps.helpdesk.models import ToolName
from pausepoint.apps.helpdesk.parameters import AddressChange, Appointment, Cancellation, Refund, StatusOf
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


CHANGES: frozenset[ToolName] = frozenset(("change_address", "refund", "cancel_order", "appointment"))
"""The tools that change the shop. They run after a confirmation only."""


class Served(BaseModel):
    """The reply of a tool: facts, or a refusal. ``ask`` names the parameter that needs another value."""

    facts: dict[str, Any] = {}
    refused: str = ""
    ask: str = ""


def shop_file(folder: Path, given: Path | None) -> Path:
    """Return the shop's file: the given one, or ``shop.db`` in the given folder or next to the store."""
    place = folder if given is None else given
    return (place / "shop.db" if given is None or place.is_dir() else place).absolute()


def open_shop(path: Path) -> None:
    """Create the shop from the sample unless it exists. Several processes may do this at the same time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _transaction(path, create=True) as db:
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


@cache
def _schema() -> list[str]:
    return (SAMPLE / "shop.sql").read_text("utf-8").split(";")


@contextmanager
def _transaction(path: Path, create: bool = False, customer: str | None = None) -> Iterator[sqlite3.Connection]:
    if not (create or path.exists()):  # SQLite would create an empty file
        raise FileNotFoundError(f"The shop's file {path} is missing. Put it back, then resume.")
    with closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        db.create_function("is_own", 1, lambda owner: customer in (None, owner))
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in _schema():  # a shop that an earlier version made may lack a table
                db.execute(statement)
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


class Shop:
    """The tools of the shop. ``now`` is the time of the request in the shop's time zone.

    With ``customer``, the orders of other customers are unknown.
    """

    def __init__(self, path: Path, now: datetime, customer: str | None = None) -> None:
        self.path = path
        self.now = now
        self.customer = customer

    def _open(self) -> AbstractContextManager[sqlite3.Connection]:
        return _transaction(self.path, customer=self.customer)

    def check(self, tool: ToolName) -> Callable[[Any], Served]:
        """Return what runs as soon as the values of a tool are known. It changes nothing."""
        checks: dict[ToolName, Callable[[Any], Served]] = {
            "order_status": self.order_status, "change_address": self.quote_address, "refund": self.quote_refund,
            "cancel_order": self.quote_cancellation, "appointment": self.quote_appointment,
        }  # fmt: skip
        return checks[tool]

    def write(self, tool: ToolName) -> Callable[..., Served]:
        """Return what runs after a confirmation."""
        writes: dict[ToolName, Callable[..., Served]] = {
            "change_address": self.change_address, "refund": self.pay_refund, "cancel_order": self.cancel_order,
            "appointment": self.book,
        }  # fmt: skip
        return writes[tool]

    def order_status(self, asked: StatusOf) -> Served:
        """Return the facts of an order."""
        with self._open() as db:
            order = _order(db, asked.order)
            return _unknown(asked.order) if order is None else Served(facts=order)

    def quote_address(self, change: AddressChange) -> Served:
        """Return the address that would be written, if the order has not been shipped."""
        with self._open() as db:
            order = _order(db, change.order)
            return _new_address(change, order)

    def change_address(self, change: AddressChange, ctx: BlockingContext) -> Served:
        """Change the address of an order that has not been shipped."""
        key = ctx.idempotency_key
        with self._open() as db:
            order = _order(db, change.order)
            if order is not None and _is_done(db, "address_changes", key):
                return Served(facts=order)
            served = _new_address(change, order)
            if not served.refused:
                place = {"street": change.street, "postcode": change.postcode, "city": change.city}
                _insert(db, "address_changes", {"key": key, "number": change.order, **place})
                db.execute(
                    "UPDATE orders SET street = ?, postcode = ?, city = ? WHERE number = ?",
                    (*place.values(), change.order),
                )
            return served

    def quote_refund(self, refund: Refund) -> Served:
        """Return the amount that would be refunded."""
        with self._open() as db:
            return _payment(db, refund)

    def pay_refund(self, refund: Refund, ctx: BlockingContext) -> Served:
        """Pay a refund."""
        key = ctx.idempotency_key
        with self._open() as db:
            if _is_done(db, "refunds", key):
                return Served(facts={**(_order(db, refund.order) or {}), "amount": f"{refund.amount:.2f}"})
            served = _payment(db, refund)
            if not served.refused:
                row = {"number": refund.order, "amount": served.facts["amount"], "reason": refund.reason}
                _insert(db, "refunds", {"key": key, **row})
            return served

    def quote_cancellation(self, wanted: Cancellation) -> Served:
        """Return what would be paid back if the order were cancelled."""
        with self._open() as db:
            return _cancellation(db, wanted.order)

    def cancel_order(self, wanted: Cancellation, ctx: BlockingContext) -> Served:
        """Cancel an order that has not been shipped."""
        key = ctx.idempotency_key
        with self._open() as db:
            done = db.execute("SELECT amount FROM cancellations WHERE key = ?", (key,)).fetchone()
            if done is not None:
                return Served(facts={**(_order(db, wanted.order) or {}), "amount": done["amount"]})
            served = _cancellation(db, wanted.order)
            if not served.refused:
                _insert(db, "cancellations", {"key": key, "number": wanted.order, "amount": served.facts["amount"]})
            return served

    def quote_appointment(self, wanted: Appointment) -> Served:
        """Return the appointment that would be booked, if the shop is open and the time is free."""
        with self._open() as db:
            return self._booking(db, wanted)

    def book(self, wanted: Appointment, ctx: BlockingContext) -> Served:
        """Book an appointment if the shop is open and the time is free."""
        key = ctx.idempotency_key
        with self._open() as db:
            if _is_done(db, "appointments", key):
                return Served(facts=wanted.model_dump(mode="json"))
            served = self._booking(db, wanted)
            if not served.refused:
                row = {"day": wanted.day.isoformat(), "time": f"{wanted.time:%H:%M}"}
                _insert(db, "appointments", {"key": key, **row, "kind": wanted.kind, "contact": wanted.contact})
            return served

    def _booking(self, db: sqlite3.Connection, wanted: Appointment) -> Served:
        facts = wanted.model_dump(mode="json")
        if trouble := self._closed(wanted.day, wanted.time):
            return Served(facts=facts, refused=trouble, ask="time" if trouble == "closed_then" else "day")
        known = db.execute("SELECT time FROM appointments WHERE day = ?", (wanted.day.isoformat(),)).fetchall()
        if any(abs(_minutes(time.fromisoformat(at)) - _minutes(wanted.time)) < LENGTH for (at,) in known):
            return Served(facts=facts, refused="taken", ask="time")
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
        with self._open() as db:
            if not _is_done(db, "tickets", key):
                _insert(db, "tickets", {"key": key, "about": json.dumps(about, ensure_ascii=False)})
            found = db.execute("SELECT number FROM tickets WHERE key = ?", (key,)).fetchone()
            return int(found["number"])


def _minutes(at: time) -> int:
    return at.hour * 60 + at.minute


def _order(db: sqlite3.Connection, number: str) -> dict[str, Any] | None:
    row = db.execute("SELECT * FROM orders WHERE number = ? AND is_own(customer)", (number,)).fetchone()
    if row is None:
        return None
    cancelled = db.execute("SELECT 1 FROM cancellations WHERE number = ?", (number,)).fetchone() is not None
    refunded = _refunded(db, number)
    return {
        **dict(row), **({"status": "cancelled"} if cancelled else {}),
        **({"refunded": f"{refunded:.2f}"} if refunded else {}),
    }  # fmt: skip


def _new_address(change: AddressChange, order: dict[str, Any] | None) -> Served:
    if order is None:
        return _unknown(change.order)
    if order["status"] != "packed":
        return Served(facts=order, refused=f"has_{order['status']}")
    return Served(facts={**order, "street": change.street, "postcode": change.postcode, "city": change.city})


def _payment(db: sqlite3.Connection, refund: Refund) -> Served:
    order = _order(db, refund.order)
    if order is None:
        return _unknown(refund.order)
    if order["status"] == "cancelled":
        return Served(facts=order, refused="has_cancelled")
    left = Decimal(order["total"]) - _refunded(db, refund.order)
    if left <= 0:
        return Served(facts=order, refused="refunded_before")
    if refund.amount is not None and refund.amount > left:
        return Served(facts={**order, "left": f"{left:.2f}"}, refused="too_much")
    return Served(facts={**order, "amount": f"{refund.amount or left:.2f}", "reason": refund.reason})


def _cancellation(db: sqlite3.Connection, number: str) -> Served:
    order = _order(db, number)
    if order is None:
        return _unknown(number)
    if order["status"] != "packed":
        refused = "has_cancelled" if order["status"] == "cancelled" else f"too_late_{order['status']}"
        return Served(facts=order, refused=refused)
    left = max(Decimal(order["total"]) - _refunded(db, number), Decimal(0))
    return Served(facts={**order, "amount": f"{left:.2f}"})


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


def customer_name(path: Path, email: str) -> str | None:
    """Return the name of a customer; None if the shop does not know the address."""
    with _transaction(path) as db:
        found = db.execute("SELECT name FROM customers WHERE email = ?", (email,)).fetchone()
        return None if found is None else str(found["name"])
