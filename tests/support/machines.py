"""Two machines with one network between them, as far as processes can tell.

On Linux each machine is a network namespace with its own host name, and a cable (a pair of ``veth`` devices) is the
only way from one to the other. No privileges are needed: the namespaces belong to a user namespace. Where the system
does not allow that, or ``unshare``, ``nsenter`` or ``ip`` are missing, the test is skipped with the reason; for root on
Linux it fails. Machines without namespaces are two loopback addresses: then only their folders and what follows from
them are separate, such as lock files, and not host name and network.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.support.children import ROOT, environment
from tests.support.loop import PATIENCE
from tests.support.relay import Address, Relay, listening

PORT = 5432
_ENTER = ("nsenter", "--user", "--net", "--uts", "--preserve-credentials", "--target")
_OWN = ("unshare", "--net", "--uts")
_STAY = "hostname {name} && echo ready && exec cat"

_LISTEN = """
import socket, sys
from tests.support.relay import listening
with socket.socket(fileno=int(sys.argv[1])) as pipe, listening(sys.argv[2], int(sys.argv[3])) as made:
    socket.send_fds(pipe, [b"here"], [made.fileno()])
"""


class Machine:
    """A machine. ``keeper`` is the process that keeps its namespaces, None if it has none."""

    def __init__(self, name: str, address: str, folder: Path, keeper: int | None) -> None:
        self.name, self.address, self._keeper = name, address, keeper
        self._folder = folder / name
        for each in ("run", "tmp"):
            (self._folder / each).mkdir(parents=True)

    def command(self, *words: str) -> list[str]:
        """Return a command that runs on this machine."""
        return [*_ENTER, str(self._keeper), *words] if self._keeper is not None else [*words]

    def do(self, *words: str) -> str:
        """Run a command on this machine and return its output."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=PATIENCE, check=True)
        return done.stdout.strip()

    @property
    def settings(self) -> dict[str, str]:
        own = {"XDG_RUNTIME_DIR": str(self._folder / "run"), "TMPDIR": str(self._folder / "tmp")}
        return environment() | own

    @contextmanager
    def python(self, *words: object) -> Iterator[subprocess.Popen[str]]:
        """Run Python on this machine, with pipes. The end of the block kills it."""
        command = self.command(sys.executable, *map(str, words))
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=self.settings
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.kill()

    def listen(self) -> socket.socket:
        """Return a socket that accepts connections at the address of this machine."""
        if self._keeper is None:
            return listening(self.address)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            words = sys.executable, "-c", _LISTEN, str(theirs.fileno()), self.address, str(PORT)
            subprocess.run(
                self.command(*words), check=True, cwd=ROOT, env=self.settings, pass_fds=[theirs.fileno()]
            )  # fmt: skip
            (found,) = socket.recv_fds(ours, 10, 1)[1]
        return socket.socket(fileno=found)


class Machines:
    """Two machines. The database stands on the first one."""

    def __init__(self, one: Machine, two: Machine, separate: bool) -> None:
        self.one, self.two, self.separate = one, two, separate

    def plug(self, how: str = "up") -> None:
        """Connect the machines, or take the cable away (``down``)."""
        self.one.do("ip", "link", "set", "wire1", how)

    @contextmanager
    def database(self, server: Address) -> Iterator[tuple[str, int]]:
        """Let both machines reach a server of the host, at the address of the first one."""
        relay = Relay(self.one.listen(), server)
        try:
            yield self.one.address, relay.port
        finally:
            relay.close()


@contextmanager
def two_machines(folder: Path, namespaces: bool = True) -> Iterator[Machines]:
    """Make two machines. Without ``namespaces``, they are two addresses of this one."""
    with ExitStack() as stack:
        if namespaces:
            require_namespaces()
        else:
            one, two = (Machine(f"m{n}", f"127.0.61.{n}", folder, None) for n in (1, 2))
            yield Machines(one, two, separate=False)
            return
        keepers = [stack.enter_context(_kept(1, ["unshare", "--user", "--map-root-user", *_OWN[1:]]))]
        keepers.append(stack.enter_context(_kept(2, [*_ENTER, str(keepers[0]), *_OWN])))
        one, two = (Machine(f"m{n}", f"10.61.0.{n}", folder, keepers[n - 1]) for n in (1, 2))
        one.do("ip", "link", "add", "wire1", "type", "veth", "peer", "name", "wire2", "netns", str(keepers[1]))
        for n, machine in enumerate((one, two), 1):
            machine.do("ip", "address", "add", f"{machine.address}/24", "dev", f"wire{n}")
            machine.do("ip", "link", "set", "lo", "up")
        two.do("ip", "link", "set", "wire2", "up")
        yield Machines(one, two, separate=True)


def require_namespaces() -> None:
    """Skip the test if this system does not let us make namespaces with a cable; fail if it should."""
    trial = "ip link add wire1 type veth peer name wire2 && command -v nsenter"
    command = ["unshare", "--user", "--map-root-user", "--net", "--uts", "sh", "-c", trial]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except OSError as error:
        reason = str(error)
    else:
        if done.returncode == 0:
            return
        reason = done.stderr.strip() or "nsenter is missing"
    text = f"There are no network namespaces here: {reason}"
    if sys.platform == "linux" and os.geteuid() == 0:
        pytest.fail(f"{text}. Run `apt-get install util-linux iproute2`, or allow namespaces on this machine.")
    pytest.skip(text)


@contextmanager
def _kept(number: int, command: Sequence[str]) -> Iterator[int]:
    """Run a process in new namespaces that keeps them, and return its id."""
    words = [*command, "sh", "-c", _STAY.format(name=f"m{number}")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as keeper:
        try:
            assert _line(keeper.stdout) == "ready"
            yield keeper.pid
        finally:
            keeper.kill()


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()
