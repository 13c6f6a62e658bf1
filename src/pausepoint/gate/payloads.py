"""What a person is shown of a tool call that needs an approval: the command or arguments, and the change of a file.

The change is compared with the file on the disk when the question is asked. Whatever keeps it from being shown is said:
a file that cannot be read, is not text, or is too large.
"""

from __future__ import annotations

import difflib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pausepoint.gate.approval import commands_of, matches, shell_text
from pausepoint.gate.reports import Missing
from pausepoint.model.approvals import Approval, ApprovalPart, approval_part

LARGEST_FILE = 2**20
"""The most bytes of a file that is compared."""

MOST_COMPARED = 1_000
"""The most changed lines that are compared one by one. It bounds the time for hostile files. More lines are shown as
removed and added as a whole."""

CONTEXT = 3
MOMENT = "compared when this was asked"


class _NotShown(Exception):
    """The change of a file cannot be shown. The message says why."""


def approval_of_call(
    agent: str, folder: str, tool: str, arguments: Mapping[str, Any], patterns: Sequence[str],
    missing: Mapping[str, Missing] | None = None, why: str = "",
) -> Approval:  # fmt: skip
    """Return everything that a person must see of a call. It reads the file that the call would write.

    ``missing`` are the arguments that the agent's hook had to cut. ``why`` is a reason to ask besides the patterns.
    """
    missing = missing or {}
    commands = commands_of(arguments)
    met = {name: list(matches(command, patterns)) for name, command in commands.items()}
    rules = {match.pattern for one in met.values() for match in one}
    parts = [
        approval_part(
            "Command", shell_text(command), [span for match in met[name] for span in match.spans],
            **_lacks([missing[name]] if name in missing else []),
        )
        for name, command in commands.items()
    ]  # fmt: skip
    rest = {name: value for name, value in arguments.items() if name not in commands}
    if rest or not commands:
        text = json.dumps(rest, indent=2, ensure_ascii=False)
        lacks = _lacks([missing[name] for name in missing if name not in commands])
        parts.append(approval_part("Other arguments" if commands else "Arguments", text, **lacks))
    restricted = tuple(pattern for pattern in patterns if pattern in rules or fnmatchcase(tool, pattern))
    return Approval(
        approval=1, agent=agent, tool=tool, folder=folder, restricted=(*restricted, *filter(None, [why])),
        parts=(*file_changes(tool, arguments, folder, missing), *parts),
    )  # fmt: skip


def _lacks(missing: Sequence[Missing]) -> dict[str, Any]:
    sizes, digests = [size for size, _ in missing], [digest for _, digest in missing]
    return {"omitted": sum(sizes), "sha256": ", ".join(digests)}


def file_changes(
    tool: str, arguments: Mapping[str, Any], folder: str, missing: Mapping[str, Missing]
) -> list[ApprovalPart]:
    """Return the change that a call makes to a file, as a diff; nothing for a tool that writes no file."""
    if tool not in _EDITS:
        return []
    name, change = _EDITS[tool]
    path = arguments.get(name)
    if not isinstance(path, str) or not path or "\0" in path:
        return [ApprovalPart("Change", note=f"it cannot be shown: the call has no valid {name}")]
    title = f"Change of {path}{_elsewhere(folder, path)}"
    try:
        if missing:
            size = sum(count for count, _ in missing.values())
            raise _NotShown(f"the call is too large, and {size:,} bytes are missing")
        before = _content(Path(folder, path))
        if before is None and tool != "Write" and arguments.get("old_string") != "":
            raise _NotShown("there is no such file")
        after = change(before or "", arguments)
        former = _cell(before or "", arguments) if tool == "NotebookEdit" else before or ""
    except _NotShown as why:
        return [ApprovalPart(title, note=f"it cannot be shown: {why}")]
    note = f"{'a new file' if before is None else MOMENT}{_line_ends(before, after)}"
    lines = "\n".join(_unified(former.split("\n") if former else [], after.split("\n") if after else []))
    return [approval_part(title, lines, kind="diff", note=note if lines else f"{note}; no line changes")]


def _elsewhere(folder: str, path: str) -> str:
    """Return where a symbolic link leads."""
    plain = os.path.normpath(os.path.join(folder, path))
    real = os.path.realpath(plain)
    own = os.path.join(os.path.realpath(os.path.dirname(plain)), os.path.basename(plain))
    return "" if real == own else f" → {real}"


def _content(path: Path) -> str | None:
    """Return the text of a file; None if it does not exist."""
    try:
        # A pipe must not hold the server, and a device has no end.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _NotShown(f"the file cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise _NotShown("it is not a regular file")
        if facts.st_size > LARGEST_FILE:
            raise _NotShown(f"the file has {facts.st_size:,} bytes, and at most {LARGEST_FILE:,} are compared")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(LARGEST_FILE + 1)
    finally:
        os.close(handle)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise _NotShown(f"the file is binary, with {len(data):,} bytes")
    return text


# what each tool writes


def _text(arguments: Mapping[str, Any], name: str) -> str:
    text = arguments.get(name)
    if not isinstance(text, str):
        raise _NotShown(f"the call has no {name}")
    return text


def _written(before: str, arguments: Mapping[str, Any]) -> str:
    return _text(arguments, "content")


def _edited(before: str, arguments: Mapping[str, Any]) -> str:
    old, new = _text(arguments, "old_string"), _text(arguments, "new_string")
    if not old and not before:
        return new
    if not old or old not in before:
        raise _NotShown("the text that it replaces is not in the file")
    return before.replace(old, new, -1 if arguments.get("replace_all") is True else 1)


def _edited_often(before: str, arguments: Mapping[str, Any]) -> str:
    edits = arguments.get("edits")
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        raise _NotShown("the call has no list of edits")
    for edit in edits:
        before = _edited(before, edit)
    return before


def _cell(before: str, arguments: Mapping[str, Any]) -> str:
    """Return the source of the cell that a call replaces or deletes; empty if it inserts one."""
    if arguments.get("edit_mode") == "insert":
        return ""
    try:
        cells = json.loads(before)["cells"]
        wanted = arguments.get("cell_id")
        index = next((at for at, cell in enumerate(cells) if cell.get("id") == wanted), arguments.get("cell_number", 0))
        source = cells[index]["source"]
        return source if isinstance(source, str) else "".join(source)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise _NotShown("the cell is not in the notebook") from None


def _renewed_cell(before: str, arguments: Mapping[str, Any]) -> str:
    _cell(before, arguments)
    return "" if arguments.get("edit_mode") == "delete" else _text(arguments, "new_source")


_EDITS: dict[str, tuple[str, Callable[[str, Mapping[str, Any]], str]]] = {
    "Write": ("file_path", _written),
    "Edit": ("file_path", _edited),
    "MultiEdit": ("file_path", _edited_often),
    "NotebookEdit": ("notebook_path", _renewed_cell),
}
"""The tools of Claude Code that write files: the argument with the path, and what the file has afterwards. The patch of
Codex is its own diff."""


# the diff


def _line_ends(before: str | None, after: str) -> str:
    if before is None or ("\r\n" in before) == ("\r\n" in after):
        return ""
    ends = "CRLF" if "\r\n" in after else "LF"
    return f"; its line ends change to {ends}"


def _unified(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a diff. Only the part between the equal beginning and the equal end is compared."""
    shorter = min(len(before), len(after))
    start = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    shorter -= start
    end = next((n for n in range(shorter) if before[-1 - n] != after[-1 - n]), shorter)
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if not old and not new:
        return
    lead, trail = before[max(0, start - CONTEXT) : start], before[len(before) - end : len(before) - end + CONTEXT]
    yield f"@@ line {start + 1 - len(lead):,} @@"
    yield from (f" {line}" for line in lead)
    if max(len(old), len(new)) > MOST_COMPARED:
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
    else:
        yield from _compared(old, new)
    yield from (f" {line}" for line in trail)


def _compared(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for kind, first, last, begin, end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if kind != "equal":
            yield from (f"-{line}" for line in old[first:last])
            yield from (f"+{line}" for line in new[begin:end])
        elif last - first <= 2 * CONTEXT + 1:
            yield from (f" {line}" for line in old[first:last])
        else:
            yield from (f" {line}" for line in old[first : first + CONTEXT])
            yield f"@@ {last - first - 2 * CONTEXT:,} equal lines @@"
            yield from (f" {line}" for line in old[last - CONTEXT : last])
