"""Let the locks of SQLite belong to open files instead of the process.

SQLite uses POSIX record locks. The system drops them when *any* code of the process closes *any* descriptor of the
file: a search through the project, an indexer, Python's ``sqlite3``. Two processes could then write at once. Linux also
has locks of open files. They exclude record locks, and stay until their own file is closed.

- The locks on the index (``-shm``) order all reads and writes. SQLite has one descriptor of it per process, so
  `install` makes SQLite ask for the other kind there, with SQLite's interface for replacing system calls. The
  replacement of ``fcntl`` must be native: a Python function would wait for the GIL, and a signal handler that raises in
  it would look like a lock that was granted. It is a dozen instructions that change the number of the command.
- The lock on the database says that someone has it open. Without it, another process would delete the log when it
  closes. SQLite may take it with one descriptor and give it back with another, so it stays a record lock. `Presence`
  locks the same bytes, as long as the store is open.

On other systems and processors, SQLite's locks stay as they are.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import mmap
import os
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import apsw

from pausepoint.name import NAME
from pausepoint.stores.liveness import set_lock

logger = logging.getLogger(NAME)

_SHARED, _COUNT = 0x40000002, 510  # the bytes of a database that SQLite locks while it is open

# F_GETLK, F_SETLK and F_SETLKW (5 to 7) become F_OFD_GETLK, F_OFD_SETLK and F_OFD_SETLKW (36 to 38) if the lock begins
# before byte 2**30, where SQLite's locks on a database begin. These commands want 0 as the process id of the lock. The
# address of fcntl follows the instructions. A length of 0 gives back all locks on a database.
_INSTRUCTIONS = {
    "x86_64": """
        f30f1efa          endbr64
        448d5efb          lea   r11d, [rsi - 5]
        4183fb02          cmp   r11d, 2
        771b              ja    end
        48817a0800000040  cmp   qword ptr [rdx + 8], 0x40000000
        7311              jae   end
        48837a1000        cmp   qword ptr [rdx + 16], 0
        740a              je    end
        83c61f            add   esi, 31
        c7421800000000    mov   dword ptr [rdx + 24], 0
        ff2500000000      end: jmp [rip]
    """,
    "aarch64": """
        5f2403d5          bti   c
        29140051          sub   w9, w1, #5
        3f090071          cmp   w9, #2
        08010054          b.hi  end
        490440f9          ldr   x9, [x2, #8]
        29fd5ed3          lsr   x9, x9, #30
        a90000b5          cbnz  x9, end
        490840f9          ldr   x9, [x2, #16]
        690000b4          cbz   x9, end
        217c0011          add   w1, w1, #31
        5f1800b9          str   wzr, [x2, #24]
        50000058          end: ldr x16, address
        00021fd6          br    x16
    """,
}
_MEMORY = f"{NAME}-locks"
_MAP_FIXED = 0x10


def install() -> bool:
    """Make the locks on the index of every database that apsw opens belong to the open file. Return whether they do."""
    text = _INSTRUCTIONS.get(os.uname().machine) if sys.platform == "linux" and sys.maxsize > 2**32 else None
    if text is None:
        return False
    vfs = apsw.VFS(_MEMORY, "unix")
    try:
        fcntl_address = vfs.xGetSystemCall("fcntl")
        assert fcntl_address is not None
        code = instructions(text) + fcntl_address.to_bytes(8, "little")
        atexit.register(_uninstall, _executable(code))  # which keeps the code mapped until then
        vfs.xSetSystemCall("fcntl", _address())
        return True
    except OSError as exc:
        logger.warning(
            "SQLite's locks belong to the process, because this system does not map native code (%s). Do not open the"
            " files of a store in a process that has it open.",
            exc.strerror,
        )
        return False
    finally:
        vfs.unregister()


def _uninstall(code: mmap.mmap) -> None:
    """Give SQLite its own call back before Python unmaps the code: connections may be closed still later."""
    vfs = apsw.VFS(_MEMORY, "unix")
    vfs.xSetSystemCall("fcntl", 0)
    vfs.unregister()


def instructions(text: str) -> bytes:
    """Return the code of a listing, whose first column has the bytes."""
    return bytes.fromhex("".join(line.split()[0] for line in text.strip().splitlines()))


def _executable(code: bytes) -> mmap.mmap:
    """Map code from a file in memory, so that no page is ever both writable and executable."""
    descriptor = os.memfd_create(_MEMORY)
    try:
        os.write(descriptor, code)
        return mmap.mmap(descriptor, len(code), mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
    finally:
        os.close(descriptor)


def _address() -> int:
    """Return where the code is mapped. `mmap` does not tell; ``ctypes`` would, and takes long to import."""
    mapped = re.findall(rf"^([0-9a-f]+)-.* /memfd:{_MEMORY} ", _maps(), re.MULTILINE)
    if not mapped:
        raise OSError(0, "the mapping is not listed in /proc/self/maps")
    return int(mapped[-1], 16)


def _maps() -> str:
    return Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")


class Presence:
    """Keeps a database open in the eyes of all connections but those of apsw in this process.

    It begins before the first connection, because another SQLite library in this process would share the lock of a
    connection, and could delete the log while it opens. Without a path, it does nothing.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = None if path is None else os.path.realpath(path)
        self._descriptor = -1

    def take(self) -> None:
        """Lock the database. Raises `apsw.BusyError` while someone deletes its log or creates it."""
        if self.path is None or sys.platform != "linux":
            return
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            _present.add(self)
        try:
            set_lock(self._descriptor, _SHARED, fcntl.F_RDLCK, _COUNT)
        except BlockingIOError as exc:
            raise apsw.BusyError(f"{self.path} is locked") from exc

    def withdraw(self) -> None:
        """Unlock the database for a connection that needs it alone: to make it, or to delete its log."""
        if self._descriptor >= 0:
            set_lock(self._descriptor, _SHARED, fcntl.F_UNLCK, _COUNT)

    def close(self) -> None:
        _present.discard(self)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _descriptors(paths: Collection[str]) -> Iterator[int]:
    """Yield the descriptors of this process for these files."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself is closed by now
            if os.readlink(f"/proc/self/fd/{name}") in paths:
                yield int(name)


_present: set[Presence] = set()


def _prepare_fork() -> None:
    if _present:
        import ctypes  # noqa: F401  # a child of a program with threads should not load libraries


def _leave_to_parent() -> None:
    """Let go, in a forked child, of the open files whose locks would outlive the parent.

    A mapping keeps its file open, too. SQLite knows the descriptors and the addresses of the index, so something
    harmless takes their place: nothing, and a copy of the memory.
    """
    indexes = {f"{presence.path}-shm" for presence in _present}
    for presence in list(_present):
        presence.close()
    if not indexes:
        return
    for line in _maps().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5] in indexes:
            first, end = (int(address, 16) for address in words[0].split("-"))
            _copy_in_place(first, end - first)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for descriptor in _descriptors(indexes):
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def _copy_in_place(address: int, size: int) -> None:
    """Replace a mapped file by memory with the same content."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mmap.restype = ctypes.c_void_p
    content = ctypes.string_at(address, size)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    if libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == address:
        ctypes.memmove(address, content, size)


os.register_at_fork(before=_prepare_fork, after_in_child=_leave_to_parent)
