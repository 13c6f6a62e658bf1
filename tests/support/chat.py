"""A chat session: its only step waits for a message, answers it and runs again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from pausepoint import Append, Context, Session, Workflow, route, step
from pausepoint.definition import At
from pausepoint.model.records import Record, SignalRecord
from pausepoint.stores.base import Store
from tests.support.otherstores import ProxyStore

WINDOW = 20


class Message(BaseModel):
    role: Literal["user", "bot"]
    text: str


class Chat(BaseModel):
    messages: Annotated[list[Message], Append] = []
    seen: int = 0


class Chatting:
    """The workflow ``chat``. The message "bye" ends it.

    ``calls`` lists the messages that the step received, ``views`` the messages that it read each time. With
    ``reads_all`` the step reads the whole history instead of its end.
    """

    def __init__(self, reads_all: bool = False, padding: int = 0) -> None:
        self.calls: list[str] = []
        self.views: list[list[str]] = []
        path = "messages" if reads_all else f"messages[-{WINDOW}:]"

        @step(writes=["messages", "seen"])
        async def turn(recent: Annotated[list[Message], At(path)], ctx: Context) -> dict[str, object]:
            text = await ctx.receive()
            self.calls.append(text[:20])
            self.views.append([message.text[:8] for message in recent])
            said = Message(role="user", text=text), Message(role="bot", text=f"re: {text}" + "." * padding)
            return {"messages": list(said), "seen": len(recent)}

        @route(after="turn")
        def again(last: Annotated[list[Message], At("messages[-2:]")]) -> Literal["turn", None]:
            return None if last[0].text == "bye" else "turn"

        self.workflow = Workflow("chat", state=Chat, steps=[turn], routes=[again])


class Mail(BaseModel):
    wanted: int = 1
    got: Annotated[list[Any], Append] = []
    ended: bool = False


def listening(kind: Any = str) -> Workflow[Mail]:
    """Make a workflow that receives ``wanted`` messages of one type in one visit."""

    @step(writes="got")
    async def listen(wanted: int, ctx: Context) -> list[Any]:
        return [plain(await ctx.receive(kind)) for _ in range(wanted)]

    @step(writes="ended")
    async def close() -> bool:
        return True

    return Workflow("mail", state=Mail, steps=[listen, close])


def plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


async def history(session: Session[Any]) -> list[str]:
    return [event.event_type async for event in session.events()]


class CountingStore(ProxyStore):
    """Count the records, signals and large values that are read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.records_read = 0
        self.record_bytes = 0
        self.blob_bytes = 0
        self.signals_read = 0

    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        found = await self._inner.records(key, since, until)
        self.records_read += len(found)
        self.record_bytes += sum(len(record.payload) for record in found)
        return found

    async def blobs(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        found = await self._inner.blobs(hashes)
        self.blob_bytes += sum(map(len, found.values()))
        return found

    async def mail(
        self, key: int, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        found = await self._inner.mail(key, limit, kind, about)
        self.signals_read += len(found)
        return found

    def counted(self) -> Sequence[int]:
        """Return the counts of records, of their bytes and of the bytes of large values since the last call."""
        counts = self.records_read, self.record_bytes, self.blob_bytes
        self.records_read = self.record_bytes = self.blob_bytes = 0
        return counts
