"""What the caller of an engine, or of `run`, types to continue a session."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pausepoint.model.sessions import Failure

_UNANSWERED = re.compile(r"pausepoint\.errors\.(?:Declined|QuestionExpired|RoundsExhausted): .*")
"""The line of a traceback with the error of a question that was declined or got no valid answer."""

_ASK_AGAIN = re.compile(r"session\.ask_again\('([^']*)'\)(?:, then resume)?")


def unanswered(failure: Failure | None) -> str | None:
    """Return the question whose answer made a session fail, so that a resume fails again; None if it was no question.

    The id is empty if the error does not name the question.
    """
    lines = [] if failure is None else _UNANSWERED.findall(failure.traceback)
    if not lines:
        return None
    named = _ASK_AGAIN.search(lines[-1])
    return "" if named is None else named[1]


class Ways:
    """What a caller types: verbs of an engine, or `run` and commands after a call of `run`.

    ``run_with`` is the store of that call; None if the caller has an engine.
    """

    def __init__(self, session_id: str, run_with: str | None) -> None:
        self._id = session_id
        self._engine = run_with is None
        self._store = f" --store {shlex.quote(run_with)}" if run_with else ""

    def resume(self, budget: bool = False) -> str:
        if self._engine:
            return f"engine.session({self._id!r}).resume({'budget=…' * budget})"
        return f"run(…, session_id={self._id!r}{', budget=…' * budget})"

    def answer(self, question_id: str) -> str:
        if self._engine:
            return f"engine.answer({question_id!r}, …)"
        return self._then_run(f"answer {question_id}")

    def reworded(self, message: str) -> str:
        """Return the message of a declined question with what this caller types."""
        return _ASK_AGAIN.sub(lambda call: self.ask_again(call[1]), message)

    def ask_again(self, question_id: str) -> str:
        if self._engine:
            named = repr(question_id) if question_id else ""
            return f"engine.session({self._id!r}).ask_again({named}), then {self.resume()}"
        return self._then_run(f"ask-again {self._id}{f' --question {question_id}' if question_id else ''}")

    @property
    def lift(self) -> str:
        """Continue a session although everything is paused. A call of `run` may not."""
        return self.resume() if self._engine else self._then_run("resume --all")

    @property
    def after_cancel(self) -> str:
        if self._engine:
            return "Rewind it to a step, fork it, or start a new session"
        return (
            f"Pass another session_id to run(), or rewind it with `pausepoint rewind {self._id} --to STEP{self._store}`"
        )

    @property
    def send(self) -> str:
        if self._engine:
            return f"engine.session({self._id!r}).send(…)"
        return f"`pausepoint send {self._id} TEXT{self._store}` and call {self.resume()}"

    @property
    def wait(self) -> str:
        return "await session.result()" if self._engine else f"call {self.resume()}"

    def _then_run(self, command: str) -> str:
        return f"`pausepoint {command}{self._store}`, then call {self.resume()}"
