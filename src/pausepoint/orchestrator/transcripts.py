"""The transcript of an agent: what its model has used so far."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

import msgspec

MOST = 1_000
"""The most sub-agents that are read."""

COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class _Message(msgspec.Struct):
    id: str = ""
    usage: dict[str, object] = {}


class _Line(msgspec.Struct):
    message: _Message | None = None


_decode = msgspec.json.Decoder(_Line).decode


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
        counts = [message.usage.get(name) for name in COUNTS]
        found[message.id] = sum(each for each in counts if isinstance(each, int) and each > 0)
