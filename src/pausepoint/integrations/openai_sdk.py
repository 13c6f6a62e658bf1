"""Which versions of the OpenAI Agents SDK the adapter works with, and whether the installed one has what it needs.

The SDK has no hook around a model call or a tool call, so the adapter uses some of its private names. A version without
one of them must not be used: its calls would not be remembered.
"""

from __future__ import annotations

import dataclasses
from importlib.metadata import PackageNotFoundError, version
from typing import Any

NEEDED = "openai-agents>=0.24,<0.25"
"""The versions that the extra installs."""

_INSTALL = "pip install 'pausepoint[openai-agents]'"


def explained(error: ImportError) -> ImportError:
    """Return an error that says which version is needed, and how to install it."""
    if isinstance(error, ModuleNotFoundError) and error.name == "agents":
        return ImportError(f"The OpenAI Agents SDK is not installed. Install it with: {_INSTALL}")
    try:
        found = f"openai-agents {version('openai-agents')} is installed"
    except PackageNotFoundError:
        found = "openai-agents is not installed, and another package is named agents"
    return ImportError(
        f"The OpenAI Agents SDK lacks a name that Pausepoint uses: {error}. Pausepoint needs {NEEDED}, and {found}."
        f" Install a version that fits with: {_INSTALL}"
    )


def check_names() -> None:
    """Raise `ImportError` if a private attribute or method is missing. Missing names of modules raise it anyway."""
    from agents import FunctionTool, Handoff, RunResult, RunState
    from agents.tool import _FailureHandlingFunctionToolInvoker as Invoker

    fields = {
        FunctionTool: (
            "_agent_instance", "_failure_error_function", "_is_agent_tool", "_use_default_failure_error_function",
        ),
        Handoff: ("_agent_ref",),
        RunResult: ("_last_agent",),
        RunState: ("_current_agent",),
    }  # fmt: skip
    for kind, needed in fields.items():
        _check(kind.__name__, needed, [field.name for field in dataclasses.fields(kind)])
    _check(Invoker.__name__, ("__agents_bind_function_tool__", "__call__"), dir(Invoker))
    _check(Invoker.__name__, ("_invoke_tool_impl", "_on_handled_error"), _made(Invoker))


def _made(kind: Any) -> Any:
    """Return the attributes of an invoker, made as the adapter makes its own."""
    try:
        return vars(kind(None, None, function_tool=None))
    except TypeError as error:
        raise ImportError(f"{kind.__name__}: {error}") from error


def _check(owner: str, needed: Any, found: Any) -> None:
    for name in needed:
        if name not in found:
            raise ImportError(f"{owner} has no {name}")
