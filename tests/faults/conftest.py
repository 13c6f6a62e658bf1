"""The fork server and the lab of the fault tests, one of each per test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.bench_server import Server
from tests.faults.lab import Lab
from tests.faults.libc import lab as libc
from tests.faults.libc import trace
from tests.support.folders import scratch
from tests.support.forkserver import ForkServer


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.faults.jobs") as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


@pytest.fixture
def lab(server: ForkServer, folder: Path) -> Iterator[Lab]:
    with Lab(server, folder) as lab:
        yield lab


@pytest.fixture(scope="session")
def bench_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def power() -> Iterator[libc.Lab]:
    """The lab for power losses of whole folders. It needs a C compiler."""
    if reason := trace.why_not():
        pytest.skip(reason)
    with libc.opened_lab() as lab:
        yield lab
