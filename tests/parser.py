"""Parse a module again if Python 3.11 fails by mistake.

Its parser counts its depth in one place for all threads. If the garbage collector runs a finalizer while one thread
parses, another thread can parse meanwhile, and the first fails with "AST constructor recursion depth mismatch"
(python/cpython#106905). Pytest and Hypothesis parse modules while servers of the tests run in other threads.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

ATTEMPTS = 10

_parse: Callable[..., ast.AST] = ast.parse


def parse(*args: Any, **options: Any) -> ast.AST:
    """Do what `ast.parse` does."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _parse(*args, **options)
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise
    return _parse(*args, **options)


if sys.version_info < (3, 12):
    ast.parse = parse  # type: ignore[assignment]
