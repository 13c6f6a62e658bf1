"""Simulated power loss of whole folders: the trees of files that a recorded process can leave on the disk.

The rules are those of POSIX, without the kindness of any one file system:

- Bytes and sizes of a file are durable once the file is synced. Any part of the later writes may survive: none, all,
  the first ones, some but not others, or single 512-byte sectors of them.
- A name (created, linked, renamed, removed, a new folder) is durable once *its folder* is synced. Later changes of
  names may survive or not, independently of each other and of the bytes. Changes of one name survive in order.
- A rename within a folder is atomic. One between folders is durable in each folder separately: the new name may exist
  next to the old one, but the old one never disappears before the new one is durable.

A file is found only through the names on its path. SQLite's index of the WAL (``-shm``) is left out: it is rebuilt.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.faults.crash_states import STYLES, Style, applied, survivors
from tests.faults.libc.trace import Call
from tests.faults.vfs import Kind, Touch

Tree = dict[str, "bytes | Tree"]
"""A folder: the content of files and folders by name."""


@dataclass
class _Node:
    """A file or folder. The bytes and names in it are durable; ``pending`` are the writes since the last sync."""

    is_folder: bool
    content: bytes = b""
    pending: list[Touch] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)


@dataclass
class _Change:
    """An unsynced change of names in one folder. ``after`` are the earlier changes that must survive if this does."""

    folder: int
    names: dict[str, int | None]
    after: list[_Change]


@dataclass(frozen=True)
class CrashState:
    """A tree after a power loss, and the notes that the program had written before it."""

    name: str
    tree: Tree
    notes: tuple[str, ...]
    digest: bytes


class Disk:
    """Follows a trace call by call, and computes what a power loss may leave at any moment."""

    def __init__(self, root: Path) -> None:
        """Begin with the folder ``root`` as it is now. Everything in it is durable."""
        self._nodes: list[_Node] = []
        self._numbers: dict[int, int] = {}  # by inode; a reused inode is a new node
        self._changes: list[_Change] = []
        self._root = self._found(root)

    def _found(self, path: Path) -> int:
        number = self._new(path.stat().st_ino, path.is_dir())
        node = self._nodes[number]
        if node.is_folder:
            node.names = {each.name: self._found(each) for each in path.iterdir()}
        else:
            node.content = path.read_bytes()
        return number

    def _new(self, inode: int, is_folder: bool) -> int:
        self._nodes.append(_Node(is_folder))
        self._numbers[inode] = len(self._nodes) - 1
        return len(self._nodes) - 1

    # following the trace

    def follow(self, call: Call) -> None:
        if call.kind in ("create", "mkdir"):
            new = self._new(call.node, call.kind == "mkdir")
            self._change(call.folder, {call.name: new})
        elif call.kind == "unlink":
            self._change(call.folder, {call.name: None})
        elif call.kind == "link":
            self._change(call.folder, {call.name: self._numbers[call.node]})
        elif call.kind == "rename":
            self._rename(call)
        elif call.kind == "sync":
            self._sync(self._numbers[call.node])
        elif call.kind in ("write", "truncate"):
            kind: Kind = "write" if call.kind == "write" else "truncate"
            self._nodes[self._numbers[call.node]].pending.append(Touch(0, kind, "", call.offset, call.data))

    def _rename(self, call: Call) -> None:
        node = self._numbers[call.node]
        if call.folder == call.to_folder:
            self._change(call.folder, {call.name: None, call.to_name: node})
            return
        new = self._change(call.to_folder, {call.to_name: node})
        self._change(call.folder, {call.name: None}, new)

    def _change(self, inode: int, names: dict[str, int | None], *after: _Change) -> _Change:
        folder = self._numbers[inode]
        same = [each for each in self._changes if each.folder == folder and each.names.keys() & names.keys()]
        self._changes.append(_Change(folder, names, [*same, *after]))
        return self._changes[-1]

    def _sync(self, number: int) -> None:
        node = self._nodes[number]
        node.content, node.pending = applied(node.content, node.pending), []
        settled = _with_needed(each for each in self._changes if each.folder == number)
        for change in self._changes:
            if id(change) in settled:
                _apply(change, self._nodes[change.folder].names)
        self._changes = [each for each in self._changes if id(each) not in settled]

    # losing power

    def crash(self, names: Style, bytes_: Style, rng: random.Random) -> Tree:
        """Return what is left if unsynced names and unsynced bytes survive in the given styles."""
        folders = {number: dict(node.names) for number, node in enumerate(self._nodes) if node.is_folder}
        left = _with_needed(self._surviving(names, rng))
        for change in self._changes:
            if id(change) in left:
                _apply(change, folders[change.folder])
        return self._tree(self._root, folders, lambda node: _left(node, bytes_, rng), {})

    def _surviving(self, style: Style, rng: random.Random) -> Sequence[_Change]:
        if style == "synced":
            return ()
        if style == "all":
            return self._changes
        if style in ("prefix", "torn tail"):
            return self._changes[: rng.randint(0, len(self._changes))]
        return [each for each in self._changes if rng.random() < 0.5]

    def _tree(
        self, number: int, folders: dict[int, dict[str, int]], content: Callable[[_Node], bytes], seen: dict[int, bytes]
    ) -> Tree:
        tree: Tree = {}
        for name, inner in folders[number].items():
            node = self._nodes[inner]
            if node.is_folder:
                tree[name] = self._tree(inner, folders, content, seen)
            elif not name.endswith("-shm"):
                if inner not in seen:  # two names of one file show the same bytes
                    seen[inner] = content(node)
                tree[name] = seen[inner]
        return tree


def _with_needed(changes: Iterable[_Change]) -> set[int]:
    """Return the identities of changes and of all changes that must survive with them."""
    found: set[int] = set()
    waiting = list(changes)
    while waiting:
        change = waiting.pop()
        if id(change) not in found:
            found.add(id(change))
            waiting += change.after
    return found


def _apply(change: _Change, names: dict[str, int]) -> None:
    for name, node in change.names.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _left(node: _Node, style: Style, rng: random.Random) -> bytes:
    return applied(node.content, survivors(node.pending, style, rng))


# trees


def digest_of(tree: Tree) -> bytes:
    """Return a digest that distinguishes trees."""
    digest = sha256()
    for name, inner in sorted(tree.items()):
        mark, part = (b"d", digest_of(inner)) if isinstance(inner, dict) else (b"f", sha256(inner).digest())
        digest.update(mark + len(name).to_bytes(4, "little") + name.encode("utf-8", "surrogateescape") + part)
    return digest.digest()


def found_in(folder: Path) -> Tree:
    """Return the tree that is really there."""
    tree: Tree = {}
    for path in folder.iterdir():
        if path.is_dir():
            tree[path.name] = found_in(path)
        elif not path.name.endswith("-shm"):
            tree[path.name] = path.read_bytes()
    return tree


def build(tree: Tree, folder: Path) -> None:
    """Replace the content of a folder."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    _fill(tree, folder)


def _fill(tree: Tree, folder: Path) -> None:
    for name, inner in tree.items():
        if isinstance(inner, dict):
            (folder / name).mkdir()
            _fill(inner, folder / name)
        else:
            (folder / name).write_bytes(inner)


# moments


def sample(calls: Sequence[Call], disk: Disk, rng: random.Random, count: int) -> Iterator[CrashState]:
    """Yield up to ``count`` different states, in the order of the trace.

    First of all the strictest state after every note: nothing that was not synced survives. The others are drawn.
    """
    moments, notes, seen = _moments(calls, rng, count), list[str](), set[bytes]()
    for place, call in enumerate(calls):
        if call.kind == "note":
            notes.append(call.data.decode())
        else:
            disk.follow(call)
        for names, bytes_ in moments.get(place, ()):
            tree = disk.crash(names, bytes_, rng)
            digest = sha256(len(notes).to_bytes(4, "little") + digest_of(tree)).digest()
            if digest not in seen:
                seen.add(digest)
                yield CrashState(f"names: {names}, bytes: {bytes_}, after call {place}", tree, tuple(notes), digest)


def _moments(calls: Sequence[Call], rng: random.Random, count: int) -> dict[int, list[tuple[Style, Style]]]:
    noted = [place for place, call in enumerate(calls) if call.kind == "note"]
    moments: dict[int, list[tuple[Style, Style]]] = {place: [("synced", "synced")] for place in noted[:count]}
    for _ in range(count - len(noted)):
        place = rng.choice(noted) if rng.random() < 0.25 else rng.randrange(len(calls))
        moments.setdefault(place, []).append((rng.choice(STYLES), rng.choice(STYLES)))
    return moments
