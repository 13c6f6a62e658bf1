"""Ctrl+Z (SIGTSTP) takes effect between two transactions.

A process that is suspended in the middle of a transaction keeps the database locked, and no other process can write
until it is continued. So the handler of the signal waits for the transactions in progress, lets no other one begin, and
then suspends the process as the system would. SIGSTOP cannot be handled.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LIMIT = 10.0
"""Seconds after which the process is suspended in any case, such as in the middle of a large removal."""

LOOK_EVERY = 0.001
"""Seconds between two looks at the transactions in progress, or at the end of the suspension."""


class Suspension:
    """Suspends this process between its transactions, while an engine that handles signals is open.

    The handler runs between any two bytecodes of the main thread, so nothing here takes a lock.
    """

    def __init__(self) -> None:
        self.threads: set[int] = set()  # those that are inside a transaction
        self.is_pending = False  # the main thread is inside one, and suspends the process at its end
        self.is_beginning = False  # no transaction may begin
        self.users: set[object] = set()

    def install(self, user: object) -> None:
        """Handle the signal in the main thread, unless the program handles or ignores it."""
        if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:
            signal.signal(signal.SIGTSTP, self.suspend)
        self.users.add(user)

    def uninstall(self, user: object) -> None:
        """Restore the default with the last user, unless other code has replaced our handler since."""
        self.users.discard(user)
        if not self.users and signal.getsignal(signal.SIGTSTP) == self.suspend:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def enter(self) -> None:
        """Note that this thread begins a transaction. Wait first if the process is about to be suspended."""
        thread = threading.get_ident()
        self.threads.add(thread)
        while self.is_beginning and thread != threading.main_thread().ident:
            self.threads.discard(thread)
            time.sleep(LOOK_EVERY)
            self.threads.add(thread)

    def leave(self) -> None:
        """Note that the transaction of this thread has ended."""
        thread = threading.get_ident()
        self.threads.discard(thread)
        if self.is_pending and thread == threading.main_thread().ident:
            self.is_pending = False
            self.suspend()

    def stand_aside(self) -> bool:
        """Let the process be suspended while this thread waits for a lock. Return whether it was."""
        if not self.is_beginning:
            return False
        self.leave()
        self.enter()
        return True

    def suspend(self, number: int = signal.SIGTSTP, frame: FrameType | None = None) -> None:
        """Suspend the process when no transaction is in progress. Returns when it is continued."""
        if threading.get_ident() in self.threads:
            self.is_pending = True
            return
        if self.is_beginning:
            return
        self.is_beginning = True
        try:
            end = time.monotonic() + LIMIT
            while self.threads and time.monotonic() < end:
                time.sleep(LOOK_EVERY)
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)
            if self.users and signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:
                signal.signal(signal.SIGTSTP, self.suspend)
        finally:
            self.is_beginning = False


SUSPENSION = Suspension()
"""The one of this process: it has one handler of the signal, however many engines are open."""

os.register_at_fork(after_in_child=SUSPENSION.threads.clear)


def unsuspended(transaction: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that runs a transaction: Ctrl+Z waits for its end."""

    @functools.wraps(transaction)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        SUSPENSION.enter()
        try:
            return transaction(*args, **kwargs)
        finally:
            SUSPENSION.leave()

    return run
