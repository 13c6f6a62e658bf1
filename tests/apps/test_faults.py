"""Each application as real processes: killed, interrupted and paused, then resumed by another process.

The result is that of an undisturbed session, and the calls are counted. `tests.apps.programs` has the five programs.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.apps.programs import APPS, App
from tests.support.forkserver import Forks

Undisturbed = Callable[[type[App]], object]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, forks: Forks) -> Undisturbed:
    """Return what a session leaves that no one disturbs."""

    found: dict[type[App], object] = {}

    def result(app: type[App]) -> object:
        if app not in found:
            with app(tmp_path_factory.mktemp("undisturbed"), forks) as session:
                session.check_undisturbed(session.start())
                assert session.calls == session.once
                found[app] = session.result()
        return found[app]

    return result


@pytest.fixture
def session(request: pytest.FixtureRequest, tmp_path: Path, forks: Forks) -> Iterator[App]:
    with APPS[request.param](tmp_path, forks) as found:
        yield found


def of_all(
    names: str, rows: Callable[[type[App]], Iterable[tuple[tuple[str, ...], tuple[str, ...]]]]
) -> pytest.MarkDecorator:
    """Parametrize a test with rows of all applications: the values, and the items that the row proves."""
    found = [
        pytest.param(name, *row, marks=[pytest.mark.covers(*items)] if items else [], id="-".join([name, *row]))
        for name, app in APPS.items()
        for row, items in rows(app)
    ]
    return pytest.mark.parametrize(("session", *names.split()), found, indirect=["session"])


@pytest.mark.long
@of_all("turns", lambda app: [((turns,), app.killed) for turns in app.kills])
def test_a_kill_costs_only_what_was_in_flight(session: App, turns: str, undisturbed: Undisturbed) -> None:
    """One process after another of a session is killed, each at another point."""
    points = session.kills[turns]
    session.start(at=points[0])
    for point, following in pairwise([*points, ""]):
        session.check_killed(point)
        session.check_resumed(point, following, session.run_again(at=following))
    session.check_cost(*points)
    assert session.result() == undisturbed(type(session))


@pytest.mark.long
@of_all("turns", lambda app: [((turns,), ()) for turns in app.interrupts])
def test_an_interrupt_finishes_what_runs(session: App, turns: str, undisturbed: Undisturbed) -> None:
    """One process after another of a session is interrupted, each at another point."""
    first, *others = points = session.interrupts[turns]
    said = session.start(at=first[0], by=signal.Signals[first[1]])
    for (point, by), (following, its) in pairwise([first, *others, ("", "SIGKILL")]):
        session.check_interrupted(point, by, said)
        said = session.resume(at=following, by=signal.Signals[its])
    again = session.calls - session.once
    assert session.once <= session.calls
    assert set(again) <= {call for point, _ in points for call in session.repeatable(point)}
    assert again.total() <= len(points)
    assert session.result() == undisturbed(type(session))


@pytest.mark.long
@of_all("turns", lambda app: [((turns,), app.paused) for turns in app.pauses])
def test_a_pause_from_another_process_finishes_what_runs_and_starts_nothing(
    session: App, turns: str, undisturbed: Undisturbed
) -> None:
    """A session is paused at one point after another."""
    points = session.pauses[turns]
    for number, point in enumerate(points):
        child = session.hold(point, is_paused=number > 0)
        session.pause()
        session.release()
        is_late = point == session.last
        said = session.ends(child, 0 if is_late else 3)
        if not is_late:
            assert "lunch" in said
            session.check_paused(point, said)
    session.resume()  # changes nothing if the last pause came too late
    assert session.calls == session.once, "nothing is done twice"
    assert session.result() == undisturbed(type(session))
