"""The five applications on a Postgres server, by the URL of a store that does not exist yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.calls import ran
from tests.cli.kit import run
from tests.support.postgres import schema_of


@pytest.mark.long
@pytest.mark.parametrize(("app", "code", "said", "status"), [
    ("aura", 0, "Sample Student has 10 open assignments.", "completed"),
    ("planner", 0, "Plan 1, approved:", "completed"),
    ("helpdesk", 0, "Done: order A-1002 goes to Harbour Road 17, 24105 Kiel.", "completed"),
    ("memo", 0, "Memo complete:", "completed"),
    ("devs", 3, "book is waiting: 8 done, 1 waiting for an answer", "waiting"),
])  # fmt: skip
def test_an_application_runs_its_sample_by_the_url_of_a_store_alone(
    tmp_path: Path, app: str, code: int, said: str, status: str
) -> None:
    with schema_of(new=True) as url:
        url += f"&files={tmp_path / 'files'}"
        done = ran(app, tmp_path, PAUSEPOINT_STORE=url)
        assert (done.code, said in done.stdout) == (code, True), (done.stdout, done.stderr)
        listed = run("ls", "--json", cwd=tmp_path, env={"PAUSEPOINT_STORE": url})
    assert f'"status": "{status}"' in listed.stdout
