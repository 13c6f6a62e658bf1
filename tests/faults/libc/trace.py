"""The trace of a process: every call below libc that changed files below a folder, and the program's own notes.

`library` compiles the recorder. A program that was started with `environment` in its environment calls `begin`, then
`note` whenever something was acknowledged to its caller. `read` returns the trace.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.loop import PATIENCE

SOURCE = Path(__file__).with_name("recorder.c")
_HEADER = struct.Struct("=IIIIQQQQQ")

Kind = Literal["note", "write", "truncate", "sync", "create", "mkdir", "unlink", "rename", "link"]
_KINDS: dict[str, Kind] = {
    "N": "note", "W": "write", "T": "truncate", "S": "sync", "C": "create", "M": "mkdir", "U": "unlink",
    "V": "rename", "L": "link",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One recorded call. Folders and files are inode numbers.

    ``offset`` is where a write begins, or the new size for a truncation. A rename has a second folder and name.
    """

    kind: Kind
    node: int = 0
    folder: int = 0
    name: str = ""
    to_folder: int = 0
    to_name: str = ""
    offset: int = 0
    data: bytes = b""


class NotModelled(Exception):
    """The program made a call whose effect the model of the disk does not know."""


def why_not() -> str:
    """Return why nothing can be recorded on this machine; an empty string if it can."""
    if sys.platform != "linux":
        return "the recorder is loaded with LD_PRELOAD and reads /proc, which only Linux has"
    if _compiler() is None:
        return "there is no C compiler (cc, gcc or clang) for the recorder: install one, e.g. with apt install gcc"
    return ""


def _compiler() -> str | None:
    named = os.environ.get("CC")
    return next((found for name in (named, "cc", "gcc", "clang") if name and (found := shutil.which(name))), None)


def library(folder: Path) -> Path:
    """Compile the recorder into ``folder`` and return its path."""
    compiler, target = _compiler(), folder / "recorder.so"
    assert compiler is not None, why_not()
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(target), str(SOURCE), "-ldl"]
    subprocess.run([*command, "-lpthread"], check=True, timeout=PATIENCE)
    return target


def environment(library: Path) -> dict[str, str]:
    """Return the variables that load the recorder into a program."""
    return {"LD_PRELOAD": " ".join(filter(None, (str(library), os.environ.get("LD_PRELOAD"))))}


def begin(trace: str, folder: str) -> None:
    """Record this process from now on."""
    assert ctypes.CDLL(None).recorder_begin(os.fsencode(trace), os.fsencode(os.path.realpath(folder)))


def note(text: str) -> None:
    """Write a note of this process into the trace, between its calls."""
    ctypes.CDLL(None).recorder_note(text.encode())


def read(path: Path) -> list[Call]:
    """Return the recorded calls in order. Raises `NotModelled` if one of them is unknown to the model."""
    return list(_calls(path.read_bytes()))


def _calls(data: bytes) -> Iterator[Call]:
    at = 0
    while at < len(data):
        kind, first, second, _, folder, to_folder, node, offset, size = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        name, to_name = os.fsdecode(data[at : at + first]), os.fsdecode(data[at + first : at + first + second])
        at += first + second
        if chr(kind) == "X":
            raise NotModelled(name)
        yield Call(_KINDS[chr(kind)], node, folder, name, to_folder, to_name, offset, data[at : at + size])
        at += size
