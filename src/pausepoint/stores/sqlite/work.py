"""One piece of work for the writer of a SQLite store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from pausepoint.model.commits import Commit
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.threads import acceptable

T = TypeVar("T")


class Brief(Generic[T]):
    """A write that takes about as long as a commit, whatever the store holds. It may run on the loop's thread."""

    __slots__ = ("verb",)

    def __init__(self, verb: Callable[[Any], T]) -> None:
        self.verb = verb

    def __call__(self, connection: Any) -> T:
        return self.verb(connection)


class Work(msgspec.Struct, eq=False):
    """One commit or one other write, and its result. ``urgent`` work may use the ballast.

    A struct, because one is made for every commit, and ``__init__`` would cost more than the rest.
    """

    commit: Commit | None = None
    verb: Callable[[Connection], Any] | None = None
    urgent: bool = False
    answer: Any = None
    error: BaseException | None = None
    future: asyncio.Future[Any] | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer

    def deliver(self) -> None:
        future = self.future
        if future is None or future.done():  # the waiting task was cancelled
            return
        if self.error is not None:
            future.set_exception(acceptable(self.error))
        else:
            future.set_result(self.answer)
