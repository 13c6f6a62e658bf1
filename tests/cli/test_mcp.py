"""`mcp` as a command: what it prints, what it refuses, and the commands that its tools name.

The server itself is tested with real clients in tests/integrations/test_mcp_server.py.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from contextlib import chdir
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

from pausepoint.cli.commands import mcp
from pausepoint.cli.context import ADD, Cli
from pausepoint.integrations.mcp_desk import CallRefused, Desk
from pausepoint.integrations.mcp_tools import TOOLS, Allow
from pausepoint.name import NAME
from tests.cli.kit import Process, run
from tests.cli.zoo import fill, here


def test_the_tools_are_printed(tmp_path: Path) -> None:
    looking, acting = here(tmp_path, "mcp", "--tools"), here(tmp_path, "mcp", "--tools", "--allow", "act")
    names = [line.split()[0] for line in acting.stdout.splitlines()]
    assert names == list(TOOLS)
    assert acting.stdout.startswith(looking.stdout)
    assert len(looking.stdout.splitlines()) == 7
    found = json.loads(here(tmp_path, "mcp", "--tools", "--json").stdout)
    assert [each["name"] for each in found["tools"] if each["changes"]] == ["pause_session", "pause_everything"]


def test_stdout_is_for_the_client(tmp_path: Path) -> None:
    done = here(tmp_path, "mcp", "--json")
    assert (done.code, done.stdout) == (2, "")
    assert "--json prints the list of tools. Add --tools" in done.stderr


def test_a_mistyped_permission_gets_the_nearest(tmp_path: Path) -> None:
    done = here(tmp_path, "mcp", "--allow", "acts")
    assert (done.code, "Did you mean 'act'?" in done.stderr) == (2, True)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "find_spec", lambda name: None)
    done = here(tmp_path, "mcp")
    assert (done.code, done.stdout) == (2, "")
    assert "pip install 'pausepoint[mcp]'" in done.stderr
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "pausepoint.integrations.mcp_server", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'pausepoint\[mcp\]'"):
        import_module("pausepoint.integrations.mcp_server")


def test_at_a_terminal_it_says_what_it_waits_for_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with Process("mcp", "--store", "s.db", cwd=tmp_path, tty=True) as process:
        process.until(f"claude mcp add pausepoint -- pausepoint mcp --store {tmp_path / 's.db'}")
        process.type("\x03")
        assert process.wait().code == 130


def said(desk: Desk, name: str, **given: Any) -> str:
    try:
        return json.dumps(asyncio.run(desk.call(name, desk.arguments(name, given), "shell")))
    except CallRefused as refusal:
        return str(refusal)


@pytest.mark.long
def test_the_commands_that_the_tools_name_work(tmp_path: Path) -> None:
    ids = fill(tmp_path, "fail", "ask", student="lunch")
    with chdir(tmp_path):
        looking, acting = (Desk(mcp._settings(Cli(None, (), False, False), allow, "ann")) for allow in get_args(Allow))
    texts = [
        said(looking, "open_questions"),
        said(looking, "resume_session", session_id="student"),
        said(looking, "pause_session", session_id="student"),
        said(acting, "resume_session", session_id=ids["fail"]),
        said(acting, "pause_everything"),
    ]
    ended = []
    for text in texts:
        (found,) = re.findall(rf"[`\"]`?({NAME} [^`\"]+)[`\"]", text)
        words = shlex.split(found)[1:]
        words += ["formal"] if words[0] == "answer" else []
        words += ["--target", "brief.py:brief"] if ADD in text else []
        ended.append((words[0], run(*words, cwd=tmp_path).code))
    assert ended == [("answer", 0), ("resume", 0), ("resume", 0), ("resume", 1), ("resume", 0)]
