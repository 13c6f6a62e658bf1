"""An adapter whose framework is not installed says which extra installs it."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.integrations.claude import PausepointSessionStore, approve
from pausepoint.integrations.openai_sdk import NEEDED
from tests.docs.pages import ROOT
from tests.support.loop import on_loop


def test_the_adapter_of_openai_agents_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agents", None)
    monkeypatch.delitem(sys.modules, "pausepoint.integrations.openai_agents", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'pausepoint\[openai-agents\]'"):
        import_module("pausepoint.integrations.openai_agents")


def test_the_adapter_of_openai_agents_names_the_versions_of_its_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["openai-agents"] == [NEEDED]


@pytest.mark.parametrize("part", [PausepointSessionStore, approve])
@on_loop
async def test_the_adapter_of_claude_names_its_extra(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    async with Engine(":memory:") as engine:
        with pytest.raises(ImportError, match=r"pip install 'pausepoint\[claude-agent\]'"):
            part(engine)
