"""When a step is retried, and when it fails for good."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.definition.retry import Retry, retry_after
from pausepoint.errors import MapFailed

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Busy(Exception):
    def __init__(self, after: object = None) -> None:
        super().__init__("busy")
        self.retry_after = after


def middle() -> float:
    """Return the random number that leaves a wait unchanged."""
    return 0.5


def test_waits_grow_by_the_factor_up_to_the_longest() -> None:
    retry = Retry(attempts=8, first=1, factor=3, longest=20)
    assert [retry.delay(n, OSError(), middle, NOW) for n in range(1, 8)] == [1, 3, 9, 20, 20, 20, 20]


def test_it_gives_up_when_the_attempts_are_used_up() -> None:
    retry = Retry(attempts=3)
    assert retry.delay(2, OSError(), middle, NOW) is not None
    assert retry.delay(3, OSError(), middle, NOW) is None
    assert retry.delay(4, OSError(), middle, NOW) is None
    assert Retry(attempts=1).delay(1, OSError(), middle, NOW) is None


def test_only_the_listed_errors_are_tried_again() -> None:
    retry = Retry(on=(TimeoutError, KeyError))
    assert retry.delay(1, TimeoutError(), middle, NOW) == 1
    assert retry.delay(1, KeyError(), middle, NOW) == 1
    assert retry.delay(1, ValueError(), middle, NOW) is None
    assert retry.delay(1, OSError(), middle, NOW) is None


def test_an_error_that_says_it_will_not_pass_is_not_tried_again() -> None:
    class Refused(OSError):
        retryable = False

    assert Retry(attempts=3).delay(1, Refused(), middle, NOW) is None
    assert Retry(attempts=3).delay(1, OSError(), middle, NOW) is not None


class Hopeless(Exception):
    retryable = False


def failed(*errors: Exception) -> MapFailed:
    error = MapFailed(f"{len(errors)} failed", failed={})
    error.errors = errors
    return error


@pytest.mark.parametrize("several", [failed, lambda *errors: ExceptionGroup("several", errors)])
def test_several_errors_are_tried_again_if_each_of_them_would_be_after_the_longest_wait(several: Any) -> None:
    retry = Retry(on=(OSError, Busy))
    assert retry.delay(1, several(OSError(), TimeoutError()), middle, NOW) == 1
    assert retry.delay(1, several(Busy(5), OSError(), Busy("70")), middle, NOW) == 70
    assert retry.delay(1, several(OSError(), ValueError()), middle, NOW) is None
    assert retry.delay(1, several(ValueError(), OSError()), middle, NOW) is None
    assert retry.delay(1, several(failed(OSError()), ExceptionGroup("inner", [OSError()])), middle, NOW) == 1
    assert retry.delay(1, several(failed(OSError(), ValueError())), middle, NOW) is None
    assert Retry().delay(1, several(OSError(), Hopeless()), middle, NOW) is None
    assert Retry().delay(1, several(OSError(), ValueError()), middle, NOW) == 1
    assert Retry(on=(MapFailed, ExceptionGroup)).delay(1, several(ValueError()), middle, NOW) == 1


def test_by_default_signals_and_interrupts_are_not_tried_again() -> None:
    assert Retry().delay(1, KeyboardInterrupt(), middle, NOW) is None
    assert Retry().delay(1, Exception(), middle, NOW) == 1


def test_an_error_that_asks_for_a_wait_is_still_given_up_in_the_end() -> None:
    assert Retry(attempts=2).delay(2, Busy(5), middle, NOW) is None
    assert Retry(on=(OSError,)).delay(1, Busy(5), middle, NOW) is None


@pytest.mark.parametrize(("drawn", "wait"), [(0.0, 5.0), (0.25, 7.5), (0.5, 10.0), (0.75, 12.5)])
def test_jitter_spreads_the_wait_both_ways(drawn: float, wait: float) -> None:
    assert Retry(first=10, jitter=0.5).delay(1, OSError(), lambda: drawn, NOW) == wait
    assert Retry(first=10, jitter=0).delay(1, OSError(), lambda: drawn, NOW) == 10


FORMS: list[tuple[object, float | None]] = [
    (7, 7.0),
    (7.5, 7.5),
    (0, 0.0),
    (-3, 0.0),
    ("120", 120.0),
    (" 1.5 ", 1.5),
    (timedelta(minutes=2), 120.0),
    (timedelta(seconds=-1), 0.0),
    (NOW + timedelta(hours=1), 3600.0),
    ((NOW + timedelta(hours=1)).astimezone(), 3600.0),
    (NOW - timedelta(hours=1), 0.0),
    (datetime(2030, 1, 1), None),
    (None, None),
    (True, None),
    ("soon", None),
    ("", None),
    (float("nan"), None),
    (float("inf"), None),
    ("inf", None),
    (10**400, None),
    ([5], None),
]


@pytest.mark.parametrize(("asked", "seconds"), FORMS, ids=[repr(asked)[:40] for asked, _ in FORMS])
def test_what_an_error_asks_for_is_understood_in_every_form(asked: object, seconds: float | None) -> None:
    assert retry_after(Busy(asked), NOW) == seconds
    wait = Retry(first=1, jitter=0).delay(1, Busy(asked), middle, NOW)
    assert wait == max(1.0, seconds or 0.0)


def test_an_error_without_the_attribute_asks_for_nothing() -> None:
    assert retry_after(OSError(), NOW) is None


def test_what_an_error_asks_for_is_not_cut_by_the_longest_wait() -> None:
    assert Retry(longest=60).delay(1, Busy(600), lambda: 0.0, NOW) == 600


def test_a_backoff_longer_than_what_was_asked_for_stands() -> None:
    assert Retry(first=30, jitter=0).delay(1, Busy(5), middle, NOW) == 30


def test_no_number_of_attempts_overflows() -> None:
    retry = Retry(attempts=10**9, factor=1e300)
    assert retry.delay(10**9 - 1, OSError(), middle, NOW) == 60
    assert Retry(attempts=10**9, first=0).delay(10**9 - 1, OSError(), middle, NOW) == 0
    assert Retry(longest=0).delay(1, OSError(), middle, NOW) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"attempts": 2.0},
        {"attempts": True},
        {"attempts": "3"},
        {"first": -1},
        {"first": "1"},
        {"first": float("nan")},
        {"factor": 0.5},
        {"longest": -1},
        {"longest": float("inf")},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": True},
        {"on": TimeoutError},
        {"on": [TimeoutError]},
        {"on": (TimeoutError, "OSError")},
    ],
    ids=str,
)
def test_nonsense_is_refused_and_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"^{name} is .*[.] It must be "):
        Retry(**wrong)


RETRIES = st.builds(
    Retry,
    attempts=st.integers(1, 50),
    first=st.floats(0, 1e6),
    factor=st.floats(1, 1e6),
    longest=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
)


@given(RETRIES, st.integers(1, 60), st.none() | st.floats(0, 1e9), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_at_least_what_was_asked_and_otherwise_at_most_the_longest_with_jitter(
    retry: Retry, attempt: int, asked: float | None, drawn: float
) -> None:
    wait = retry.delay(attempt, Busy(asked), lambda: drawn, NOW)
    if attempt >= retry.attempts:
        assert wait is None
        return
    assert wait is not None
    assert wait >= (asked or 0.0)
    if wait != asked:
        assert 0 <= wait <= retry.longest * (1 + retry.jitter) * (1 + 1e-9)


@given(RETRIES, st.integers(1, 49))
def test_without_jitter_waits_never_shrink(retry: Retry, attempt: int) -> None:
    now, later = (retry.delay(n, OSError(), middle, NOW) for n in (attempt, attempt + 1))
    if later is not None:
        assert now is not None
        assert later >= now * (1 - 1e-9)
