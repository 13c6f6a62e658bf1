"""What a hook reports: the agent, the event, and the tool call."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SESSION = r"^[A-Za-z0-9._][A-Za-z0-9._-]{0,127}\Z"
"""How the session of an agent, or the name of a script, is written."""

SCRIPT = "script"
"""The kind of an agent that is a script; see `GateCaller`."""

FOLLOWING = frozenset({"after", "asks", "batch", "idle", "stop", "substop", "end"})
"""The events that follow another one of the same process. Their hooks may report after the agent has ended."""

Text = Annotated[str, Meta(max_length=4096)]
Name = Annotated[str, Meta(max_length=200)]


Missing = tuple[int, Name]
"""The number of bytes that an argument lacks, and the SHA-256 of the whole."""


Kind = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
Pid = Annotated[int, Meta(ge=0)]


class AgentFacts(msgspec.Struct, frozen=True):
    """Who reports: the program, its own session, and the process. ``sub`` is the id of a sub-agent inside it."""

    kind: Kind
    session: Annotated[str, Meta(pattern=SESSION)]
    sub: Name | None = None
    folder: Text = ""
    pid: Pid = 0


class CallFacts(msgspec.Struct, frozen=True):
    """A tool call, as the agent describes it.

    ``cut``: its command is too long to be sent as a whole. ``missing`` are the arguments that were cut.
    """

    id: Name = ""
    name: Name = ""
    arguments: dict[str, Any] = {}
    cut: bool = False
    missing: dict[str, Missing] = {}


class Background(msgspec.Struct, frozen=True):
    """Something that an agent has left running while its turn is over: a ``shell`` command, or a ``subagent``."""

    kind: Name = ""
    what: Text = ""


class Report(msgspec.Struct, frozen=True):
    """One line of a hook. ``failure`` says why a turn ended if the model failed, such as ``rate_limit``.

    ``prompt`` is what the person said when a turn began, ``closing`` what the model said when it ended.
    """

    v: Literal[1]
    event: Literal[
        "before", "after", "asks", "batch", "start", "prompt", "idle", "stop", "substop", "end", "spend", "progress"
    ]
    agent: AgentFacts
    token: Name | None = None
    call: CallFacts | None = None
    ok: bool = True
    transcript: Text = ""
    failure: Name = ""
    prompt: Annotated[str, Meta(max_length=16_384)] = ""
    closing: Annotated[str, Meta(max_length=16_384)] = ""
    background: Annotated[tuple[Background, ...], Meta(max_length=100)] = ()
    usd: Annotated[float, Meta(ge=0, le=1e9)] = 0
    tokens: Annotated[int, Meta(ge=0, le=1 << 50)] = 0
    done: Annotated[int, Meta(ge=0, le=1 << 50)] = 0
    total: Annotated[int, Meta(ge=0, le=1 << 50)] = 0


decode_report = msgspec.json.Decoder(Report).decode


RAW = b'{"raw":'
"""How the first line of the hook in C begins."""


class RawHead(msgspec.Struct, frozen=True):
    """The first line of the hook in C. ``raw`` bytes follow: the JSON of the agent, as it came."""

    raw: Annotated[int, Meta(ge=0, le=1_000_000)]
    kind: Kind
    pid: Pid
    token: Name | None = None


decode_head = msgspec.json.Decoder(RawHead).decode
