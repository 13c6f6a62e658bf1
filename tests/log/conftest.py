"""Fixtures for telemetry: the exported spans and metrics, and the log lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.log.brief import Lines
from tests.support.telemetry import Telemetry, telemetry


@pytest.fixture
def seen() -> Iterator[Telemetry]:
    with telemetry() as seen:
        yield seen


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    loggers = [logging.getLogger(name) for name in ("pausepoint", "mine")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
