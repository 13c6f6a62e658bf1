"""Sixteen processes pause and resume the same sessions a thousand times. No process starves and no request is lost."""

from __future__ import annotations

import pytest

from tests.faults.contests import flips
from tests.faults.lab import Lab


@pytest.mark.long
def test_a_thousand_requests_from_sixteen_processes_all_take_effect_in_order(lab: Lab) -> None:
    wrong, took_effect = flips(lab, 16, 63)
    assert wrong == []
    assert took_effect >= 50  # a request for what a session already has leaves no signal


@pytest.mark.long
@pytest.mark.parametrize(
    ("twin", "symptom"), [("loses signals", "in a row"), ("does not wait", "got StoreUnavailable")]
)
def test_the_harness_catches_a_store_that_loses_requests(lab: Lab, twin: str, symptom: str) -> None:
    wrong, _ = flips(lab, 8, 20, 2, twin)
    assert any(symptom in text for text in wrong)
