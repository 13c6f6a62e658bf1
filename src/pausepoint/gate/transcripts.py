"""The transcript of an agent: what its model says and has used, and whether its person has interrupted it."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

import msgspec

MOST = 1_000
"""The most sub-agents that are read."""

TAIL = 64 * 1024
"""The bytes at the end of a transcript that tell whether the agent was interrupted, and what it said last."""

INTERRUPTED = "[Request interrupted by user"
"""How the last message of an interrupted agent begins."""

_UNUSUAL = re.compile(r"[^\w-]")

COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class _Message(msgspec.Struct):
    id: str = ""
    usage: dict[str, object] = {}


class _Line(msgspec.Struct):
    message: _Message | None = None


_decode = msgspec.json.Decoder(_Line).decode


class _Part(msgspec.Struct):
    text: str = ""


class _Said(msgspec.Struct):
    content: str | list[_Part] = ""


class _Entry(msgspec.Struct):
    type: str = ""
    timestamp: datetime | None = None
    message: _Said | None = None


_decode_entry = msgspec.json.Decoder(_Entry).decode


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    tool_use_id: str = ""
    content: Any = None


class _Spoken(msgspec.Struct):
    content: str | list[_Block] = ""


class _Words(msgspec.Struct):
    type: str
    message: _Spoken
    timestamp: datetime | None = None
    is_inner: bool = msgspec.field(default=False, name="isSidechain")


_decode_words = msgspec.json.Decoder(_Words).decode


class Words(NamedTuple):
    """What the model said, or what the call ``id`` has returned."""

    text: str
    id: str


def words_in(path: Path, start: int, since: float) -> tuple[list[Words], int]:
    """Return what a transcript of Claude Code says from byte ``start``, and up to which byte it was read.

    Lines that are older than ``since`` are left out. A file that cannot be read says nothing.
    """
    words: list[Words] = []
    with suppress(OSError):
        if S_ISREG(path.stat().st_mode):
            with path.open("rb") as file:
                file.seek(start)
                for line in file:
                    if not line.endswith(b"\n") or len(words) >= MOST:  # it is just being written
                        break
                    start += len(line)
                    words += _spoken(line, since)
    return words, start


def _spoken(line: bytes, since: float) -> list[Words]:
    try:
        entry = _decode_words(line)
    except msgspec.MsgspecError:
        return []  # another kind of line
    if entry.is_inner or entry.timestamp is None or entry.timestamp.timestamp() < since:
        return []
    content = entry.message.content
    if isinstance(content, str):
        return [Words(content, "")] if entry.type == "assistant" and content else []
    if entry.type == "assistant":
        return [Words(each.text, "") for each in content if each.type == "text" and each.text]
    results = [each for each in content if each.type == "tool_result" and each.tool_use_id]
    return [Words(_result_text(each.content), each.tool_use_id) for each in results]


def _result_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(each.get("text", f"‹{each.get('type')}›")) for each in content if isinstance(each, dict))
    return content if isinstance(content, str) else ""


def tokens_of(usage: object) -> int:
    """Return the tokens that a message or a result of an agent names; 0 if it names none.

    >>> tokens_of({"input_tokens": 3, "output_tokens": 4, "service_tier": "standard"}), tokens_of(None)
    (7, 0)
    """
    given = usage if isinstance(usage, dict) else {}
    return sum(each for name in COUNTS if isinstance(each := given.get(name), int) and each > 0)


def transcript_of(path: Path, sub: str | None) -> Path:
    """Return the transcript of a sub-agent, from that of its agent. None is the agent itself."""
    return path if sub is None else path.with_suffix("") / "subagents" / f"agent-{_UNUSUAL.sub('_', sub)}.jsonl"


def interrupted_since(path: Path, moment: float) -> bool:
    """Return whether a person has interrupted the agent after a moment, and it has done nothing since.

    No hook reports that. A file that cannot be read says no.
    """
    return _is_interruption(_tail(path), moment)


def lacks(path: Path, text: str) -> bool:
    """Return whether the end of a transcript does not have this text of the model. A file that cannot be read says no.

    Claude Code writes its transcript after its hooks have run.
    """
    lines = _tail(path)
    return bool(lines) and all(Words(text, "") not in _spoken(line, 0) for line in lines)


def _tail(path: Path) -> list[bytes]:
    """Return the last lines of a transcript. The first may be a part of one."""
    with suppress(OSError):
        if S_ISREG(path.stat().st_mode):
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - TAIL, 0))
                return file.read(TAIL).split(b"\n")
    return []


def _is_interruption(lines: list[bytes], moment: float) -> bool:
    """Look at the last message in these lines."""
    for line in reversed(lines):
        with suppress(msgspec.MsgspecError):  # another kind of line, or a part of one
            entry = _decode_entry(line)
            if entry.message is not None and entry.timestamp is not None and entry.type in ("user", "assistant"):
                content = entry.message.content
                first = content if isinstance(content, str) else next((part.text for part in content), "")
                return first.startswith(INTERRUPTED) and entry.timestamp.timestamp() > moment
    return False


def tokens_in(path: Path) -> int:
    """Return the tokens that a transcript of Claude Code records, with those of its sub-agents, each message once.

    Its lines are JSON; several lines may belong to one message and repeat its usage. A file that cannot be read counts
    as empty.
    """
    found: dict[str, int] = {}
    for each in (path, *sorted(path.with_suffix("").glob("subagents/agent-*.jsonl"))[:MOST]):
        with suppress(OSError):
            _read(each, found)
    return sum(found.values())


def _read(path: Path, found: dict[str, int]) -> None:
    if S_ISREG(path.stat().st_mode):
        with path.open("rb") as file:
            for line in file:
                if b'"usage"' in line:
                    _add(found, line)


def _add(found: dict[str, int], line: bytes) -> None:
    try:
        message = _decode(line).message
    except msgspec.MsgspecError:
        return  # another kind of line, or one that is just being written
    if message is not None and message.id:
        found[message.id] = tokens_of(message.usage)
