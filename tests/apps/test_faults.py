"""Each application as real processes: killed, interrupted and paused, then resumed by another process.

The result is that of an undisturbed session, and the calls are counted. `tests.apps.programs` has the five programs.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
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
@of_all("point", lambda app: [((point,), items) for point, items in app.kills.items()])
def test_a_kill_costs_only_what_was_in_flight(session: App, point: str, undisturbed: Undisturbed) -> None:
    session.start(at=point)
    session.check_killed(point)
    session.check_resumed(point, session.run_again())
    session.check_cost(point)
    assert session.result() == undisturbed(type(session))


@pytest.mark.long
@of_all("", lambda app: [((), ())])
def test_a_session_that_is_killed_again_and_again_comes_to_the_same_end(session: App, undisturbed: Undisturbed) -> None:
    first, *others = session.turns
    session.start(at=first)
    for point in others:
        session.resume(at=point)
    session.resume()
    session.check_cost(*session.turns)
    assert session.result() == undisturbed(type(session))


@pytest.mark.long
@of_all("point by", lambda app: [((point, by), ()) for point, by in app.interrupts])
def test_an_interrupt_finishes_what_runs(session: App, point: str, by: str, undisturbed: Undisturbed) -> None:
    session.check_interrupted(point, by, session.start(at=point, by=signal.Signals[by]))
    session.resume()
    again = session.calls - session.once
    assert session.once <= session.calls
    assert set(again) <= session.repeatable(point)
    assert again.total() <= 1
    assert session.result() == undisturbed(type(session))


@pytest.mark.long
@of_all("point", lambda app: [((point,), items) for point, items in app.pauses.items()])
def test_a_pause_from_another_process_finishes_what_runs_and_starts_nothing(
    session: App, point: str, undisturbed: Undisturbed
) -> None:
    child = session.hold(point)
    session.pause()
    session.release()
    is_late = point == session.last
    said = session.ends(child, 0 if is_late else 3)
    if not is_late:
        assert "lunch" in said
        session.check_paused(point, said)
    session.resume()  # changes nothing if the pause came too late
    assert session.calls == session.once, "nothing is done twice"
    assert session.result() == undisturbed(type(session))
