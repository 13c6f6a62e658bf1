"""LangGraph: put a graph under the pause button (`workflow`), or keep its threads in a store (`PausepointSaver`).

Needs the extra ``langgraph``. See docs/langgraph.md.
"""

from __future__ import annotations

from pausepoint.name import NAME

try:
    import langgraph.checkpoint.base
    import langgraph.pregel  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"This module needs the package langgraph, which is not installed. Install it with pip install"
        f" '{NAME}[langgraph]'."
    ) from error

from pausepoint.integrations.langgraph.graph import GraphRun, workflow
from pausepoint.integrations.langgraph.saver import PausepointSaver

__all__ = ["GraphRun", "PausepointSaver", "workflow"]
