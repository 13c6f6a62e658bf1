"""Find, stop, continue and end all processes of a command, and end leftover commands if their driver is killed.

The processes of a command are its process group, every process whose environment has the command's token, and all
descendants of these. So a child in a session of its own is found, too. The commands of an agent that a person started
are the children of its process, and their descendants. This needs ``/proc`` (Linux). Elsewhere, the processes of a
command are its process group.

The warden itself is a process of its own that outlives the driver, the process that runs the commands. It reads the
group and the token of each command from its standard input (``+123 TOKEN``, ``-123 TOKEN``). The driver has the other
end of the pipe, so the warden notices when the driver ends for any reason, and ends the remaining commands. Until then
it holds a lock. The warden of the next driver waits for the lock, so a command never starts while processes of its last
attempt are alive. This file uses only the standard library. Its command line is ``python -I -S warden.py LOCK GRACE``.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

TICK = 0.02
QUIET = 2
"""A sweep is complete after this many passes in a row that find nothing new: a process may fork during a pass."""

PATIENCE = 2.0
"""The seconds in which stopped and killed processes must be gone from the list of running ones."""

HOOK = f"{os.path.basename(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))}/integrations/gate.py"
"""The end of the path of the hook's program, which is in the command line of each hook and of its shell."""

_HAS_PROC = os.path.isdir("/proc/self/fd")
_DEAD, _STOPPED = (b"Z", b"X"), (b"T", b"t")


class Process(NamedTuple):
    """A process. ``start`` is the time at which it started; a process with the same number and start is the same."""

    pid: int
    parent: int
    group: int
    session: int
    start: int
    state: bytes

    @property
    def id(self) -> tuple[int, int]:
        """The number and the start, which together are never used again."""
        return self.pid, self.start

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return self.state in _STOPPED

    @property
    def is_dead(self) -> bool:
        """Whether it has ended, although its parent has not read its exit code yet."""
        return self.state in _DEAD


class Processes:
    """The processes of commands. Add each command with `add`, right after it was started in a session of its own.

    Or name the ``parent`` of all commands: then its children are commands, except the hooks of the gate. `freeze`,
    `thaw` and `end` block, so call them in a thread.

    >>> import subprocess
    >>> command = subprocess.Popen(["sleep", "60"], start_new_session=True)
    >>> processes = Processes()
    >>> processes.add(command.pid, "a secret token")
    >>> processes.end(grace=5)
    >>> command.wait()
    -15
    """

    TOKEN = "PAUSEPOINT_GATE_TOKEN"
    """The variable with the token of a command. Set it in the environment of the command."""

    def __init__(self, parent: int = 0) -> None:
        self.parent = parent
        self._groups: dict[int, int] = {}  # the group of each command, and when its leader started
        self._tokens: set[bytes] = set()
        self._known: set[tuple[int, int]] = set()  # all that were found, because a descendant may lose its parent
        self._frozen: dict[tuple[int, int], Process] = {}
        self._since = 0

    def add(self, group: int, token: str) -> None:
        """Add a command by the number of its group and its token."""
        leader = look(group)
        self._groups[group] = 0 if leader is None else leader.start
        self._tokens.add(_variable(token))
        self._since = min(self._groups.values())  # earlier processes cannot belong to a command

    def discard(self, group: int, token: str) -> None:
        """Remove a command that has ended."""
        self._groups.pop(group, None)
        self._tokens.discard(_variable(token))

    def __bool__(self) -> bool:
        return bool(self._groups)

    def find(self) -> list[Process]:
        """Return the living processes of the commands, parents before their children."""
        everyone = {process.pid: process for process in _all()} if _HAS_PROC else {}
        children: dict[int, list[Process]] = {}
        for process in everyone.values():
            children.setdefault(process.parent, []).append(process)
        found = {process.pid: process for process in everyone.values() if self._is_ours(process, everyone)}
        queue = list(found.values())
        for process in queue:
            for child in children.get(process.pid, ()):
                if child.pid not in found and child.pid != os.getpid():
                    found[child.pid] = child
                    queue.append(child)
        self._known.update(process.id for process in queue)
        return [process for process in queue if not process.is_dead]

    def _is_ours(self, process: Process, everyone: dict[int, Process]) -> bool:
        if process.id in self._known:
            return True
        if process.start < self._since or process.pid == os.getpid():
            return False
        if self.parent and process.parent == self.parent:
            return self._is_command(process)
        started = self._groups.get(process.group, self._groups.get(process.session))
        if started is not None:
            leader = everyone.get(process.group if process.group in self._groups else process.session)
            # Otherwise all processes of the group have ended, and another program got its number.
            return leader is None or leader.start == started
        return bool(self._tokens) and not self._tokens.isdisjoint(_environment(process.pid))

    def _is_command(self, child: Process) -> bool:
        """Return whether a child of the parent is a command. One with the parent's command line is not, or not yet."""
        line = command_of(child.pid)
        return line != command_of(self.parent) and HOOK not in line

    @property
    def frozen(self) -> list[Process]:
        """The processes that `freeze` stopped."""
        return list(self._frozen.values())

    def adopt(self, stopped: Iterable[tuple[int, int]]) -> None:
        """Take over processes that a `freeze` in another program stopped, by their ids. `thaw` continues them."""
        for pid, start in stopped:
            process = look(pid)
            if process is not None and process.start == start:
                self._known.add(process.id)
                self._frozen[process.id] = process

    def freeze(self, note: Callable[[Sequence[Process]], None] = lambda found: None) -> bool:
        """Stop all processes with SIGSTOP. Return False if one has not stopped in time, because it is in the kernel.

        ``note`` is called with processes before they are stopped.
        """
        if not _HAS_PROC:
            return self._signal_groups(signal.SIGSTOP)
        until, quiet = time.monotonic() + PATIENCE, 0
        tried: set[tuple[int, int]] = set()
        while quiet < QUIET:
            running = [each for each in self.find() if not each.is_stopped]
            new = [each for each in running if each.id not in tried]
            tried.update(each.id for each in new)
            if new:
                note(new)
            self._frozen.update((each.id, each) for each in new if send(each, signal.SIGSTOP))
            tried -= self._let_start(running, until)
            quiet = 0 if any(each.id in self._frozen for each in running) else quiet + 1
            if not quiet:
                if time.monotonic() > until:
                    return False
                time.sleep(TICK / 4)
        return True

    def _let_start(self, running: Sequence[Process], until: float) -> set[tuple[int, int]]:
        """Continue children that were stopped before they ran their program, until they do. Return their ids.

        A shell starts a program with ``vfork`` and waits in the kernel until the child runs it. Nothing can stop the
        shell meanwhile, so it would run as soon as the child continues. The next look stops such a child again.
        """
        parents = {process.pid: command_of(process.pid) for process in running if process.state == b"D"}
        children = [process for process in self._frozen.values() if process.parent in parents]
        children = [child for child in children if command_of(child.pid) == parents[child.parent]]
        for child in children:
            send(child, signal.SIGCONT)
            del self._frozen[child.id]
            while command_of(child.pid) == parents[child.parent] and time.monotonic() < until:
                time.sleep(TICK / 4)
        return {child.id for child in children}

    def thaw(self) -> None:
        """Continue the processes that `freeze` stopped, children first. Others that were stopped stay so."""
        if not _HAS_PROC:
            self._signal_groups(signal.SIGCONT)
        for process in reversed(self._frozen.values()):
            send(process, signal.SIGCONT)
        self._frozen.clear()

    def end(self, grace: float) -> None:
        """End all processes with SIGTERM, and with SIGKILL after ``grace`` seconds, until no new one is found.

        The hooks of the gate come last: an agent makes the call for which a hook waits if the hook ends before it.
        """
        if not _HAS_PROC:
            _end_groups(set(self._groups), grace)
            return
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, PATIENCE)):
            if self._end(number, patience):
                break
        self._frozen.clear()

    def _end(self, number: signal.Signals, patience: float) -> bool:
        """Send a signal to all processes, each once. Return whether all have ended within ``patience`` seconds."""
        until, quiet = time.monotonic() + patience, 0
        asked: set[tuple[int, int]] = set()
        while quiet < QUIET:
            found = self.find()
            for process in [each for each in found if HOOK not in command_of(each.pid)] or found:
                if process.id not in asked:
                    asked.add(process.id)
                    send(process, number)
                    send(process, signal.SIGCONT)  # a stopped process does not handle SIGTERM
            self.reap()
            quiet = 0 if found else quiet + 1
            if found:
                if time.monotonic() >= until:
                    return False
                time.sleep(TICK)
        return True

    def _signal_groups(self, number: signal.Signals) -> bool:
        for group in self._groups:
            try:
                os.killpg(group, number)
            except (ProcessLookupError, PermissionError):
                continue
        return True

    def reap(self) -> None:
        """Reap the orphans among the processes that have ended. They are children of a driver that adopts orphans.

        The leader of a command is not an orphan: the driver waits for it.
        """
        for pid, start in list(self._known):
            found = look(pid)
            if found is None or found.start != start:
                self._known.discard((pid, start))
            elif found.state == b"Z" and found.parent == os.getpid() and pid not in self._groups:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue


def look(pid: int) -> Process | None:
    """Return a process, or None if it does not exist or there is no ``/proc``."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Process(pid, int(words[1]), int(words[2]), int(words[3]), int(words[19]), words[0])


def present() -> int:
    """Return the present time, as `Process.start` counts it. 0 if there is no ``/proc``."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) if _HAS_PROC else 0


def command_of(pid: int) -> str:
    """Return the beginning of the command line of a process, or "" if it cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _all() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := look(int(name))) is not None:
            yield found


def _variable(token: str) -> bytes:
    return f"{Processes.TOKEN}={token}".encode()


def _environment(pid: int) -> Iterable[bytes]:
    """Return the variables with which a process was started; none if they cannot be read, for example after setuid."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return ()


def send(process: Process, number: signal.Signals) -> bool:
    """Send a signal to this very process, not to another one that got its number. Return whether it was sent."""
    try:
        handle = os.pidfd_open(process.pid)
    except (OSError, AttributeError):
        handle = -1  # the process has ended, or the kernel is too old
    try:
        now = look(process.pid)
        if now is None or now.start != process.start:
            return False
        if handle < 0:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def adopt_orphans() -> None:
    """Make this process the parent of all descendants that lose their own, so that they can be found and reaped."""
    if sys.platform == "linux":
        import ctypes

        PR_SET_CHILD_SUBREAPER = 36
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def is_gone(group: int) -> bool:
    """Return whether a process group has no living process."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # macOS refuses it for a group of zombies
        return True
    return False


def _end_groups(groups: set[int], grace: float) -> None:
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, PATIENCE)):
        left = {group for group in groups if not is_gone(group)}
        for group in left:
            try:
                os.killpg(group, number)
                os.killpg(group, signal.SIGCONT)
            except (ProcessLookupError, PermissionError):
                continue
        until = time.monotonic() + patience
        while left and time.monotonic() < until:
            left = {group for group in left if not is_gone(group)}
            time.sleep(TICK)


# the warden


def warden_command(lock: str, grace: float) -> list[str]:
    """Return the command line of a warden, whose standard input must be a pipe."""
    return [sys.executable, "-I", "-S", __file__, lock, str(grace)]


def under_warden(words: Sequence[str]) -> list[str]:
    """Return a command line whose process tells the warden about itself before it becomes the command.

    Its standard input must be the pipe to the warden, and its environment must have the token (`Processes.TOKEN`). The
    command itself reads from ``/dev/null``.
    """
    return ["/bin/sh", "-c", f'echo "+$$ ${Processes.TOKEN}" >&0 || exit 70; exec "$@" </dev/null', "sh", *words]


def take(path: str) -> int:
    """Wait for the lock and return it. Print ``busy`` if another process has it, then ``ready``."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(1, b"busy\n")
        fcntl.flock(file, fcntl.LOCK_EX)
    os.write(1, b"ready\n")
    return file


def main(path: str, grace: float) -> None:
    """Track commands until the other end of the pipe is closed, then end them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lock = take(path)
    processes = Processes()
    for line in sys.stdin:
        group, _, token = line[1:].strip().partition(" ")
        (processes.add if line[0] == "+" else processes.discard)(int(group), token)
    if processes:
        processes.end(grace)
    os.close(lock)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
