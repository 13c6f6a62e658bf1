"""Mutants of the rooms below: values and their bytes, definitions, and the records of the model."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

VALUES = (
    Mutant(
        "nan-becomes-null", "codec",
        "if (kind is float and not isfinite(value)) or", "if",
        "A number that JSON lacks is stored as null.",
        ("tests/codec/test_values.py",),
    ),
    Mutant(
        "unions-mixed-up", "codec",
        "return _typed(annotation, repr(annotation))", 'return _typed(annotation, "")',
        "A field of type `str | int` is read as `int | str`.",
        ("tests/codec/test_values.py",), "order_matters",
    ),
    Mutant(
        "one-attempt-more", "definition",
        "if attempt >= self.attempts or not self._may_help(error):",
        "if attempt > self.attempts or not self._may_help(error):",
        "A step is tried once more than its policy says.",
        ("tests/definition/test_retry.py",),
    ),
    Mutant(
        "one-above-the-limit", "model",
        "return self._at_work[limit.target, group] >= (limit.most or 0)",
        "return self._at_work[limit.target, group] > (limit.most or 0)",
        "One session more than the limit is at work.",
        ("tests/engine/test_queues.py",), "slot or limit",
    ),
    Mutant(
        "budget-overdrawn", "model",
        "if purse.usd is not None and usd >= purse.usd:", "if purse.usd is not None and usd > purse.usd:",
        "A session whose budget is spent to the cent continues.",
        ("tests/runtime/test_budget.py",), "budget",
    ),
    Mutant(
        "question-expires-with-its-session", "model",
        "if keep_for is None or any(row.live or row.awaits_answer_for_ever for row in tree):",
        "if keep_for is None or any(row.live for row in tree):",
        "A clean-up removes a session that still waits for a person.",
        ("tests/questions/test_record.py",),
    ),
    Mutant(
        "visit-not-sealed", "model",
        'return f"{seq}|{parent}|{kind}|{step}|{visit}|{at}"', 'return f"{seq}|{parent}|{kind}|{step}|{at}"',
        "A record with another visit matches its digest, and older stores cannot be read.",
        ("tests/testing/test_recorded_versions.py", "tests/testing/test_recorded.py"),
    ),
)  # fmt: skip
