"""Errors carry fields and travel between processes; signals cannot be swallowed."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from pausepoint import errors
from pausepoint.errors import PausepointError, Signal, did_you_mean

ERRORS = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, PausepointError)]
SIGNALS = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Signal)]


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("through", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_every_error_survives_pickling_with_its_fields(
    cls: type[PausepointError], through: Callable[[Any], Any]
) -> None:
    declared = {name: f"the {name}" for name in _declared(cls)}
    error = cls("something is wrong; do this", extra=[1, {"a": 2}], **declared)
    again: Any = through(error)
    assert again.extra == [1, {"a": 2}]
    assert type(again) is cls
    assert str(again) == "something is wrong; do this"
    assert again.fields == error.fields == {"extra": [1, {"a": 2}], **declared}
    for name, value in declared.items():
        assert getattr(again, name) == value


def _declared(cls: type) -> set[str]:
    return {name for base in cls.__mro__ for name in inspect.get_annotations(base)} - {"message", "fields"}


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_is_drawn_in_the_tree_and_says_what_it_means(cls: type[PausepointError]) -> None:
    assert errors.__doc__ is not None
    assert cls.__name__ in errors.__doc__
    assert cls.__doc__


def test_the_families_stand_apart() -> None:
    families = (
        errors.DefinitionError, errors.SessionError, errors.CallRefused, errors.OrchestratorError, errors.StepError,
        errors.StoreError, errors.ScheduleRefused, errors.DrawerRefused,
    )  # fmt: skip
    for cls in ERRORS:
        if cls is not PausepointError:
            assert sum(issubclass(cls, family) for family in families) == 1, cls


@pytest.mark.parametrize("cls", SIGNALS, ids=lambda cls: cls.__name__)
def test_a_signal_passes_through_except_exception(cls: type[Signal]) -> None:
    assert not issubclass(cls, Exception)

    def careless() -> str:
        try:
            raise cls
        except Exception:
            return "swallowed"

    with pytest.raises(cls):
        careless()


def test_errors_are_ordinary_exceptions() -> None:
    assert ERRORS
    assert SIGNALS
    assert all(issubclass(cls, Exception) for cls in ERRORS)


def test_the_nearest_name_is_proposed_else_all_are_listed() -> None:
    assert did_you_mean("reserch", ["write", "research"]) == ". Did you mean 'research'?"
    assert did_you_mean("zzz", ["b", "a", "b"]) == ". Known: a, b."
    assert did_you_mean("zzz", []) == "."
