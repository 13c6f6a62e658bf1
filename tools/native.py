"""Compile the hook of the gate while Pausepoint is built or installed, if a C compiler is at hand. hatch calls this.

The hook needs no library, so the wheel fits every Linux of the same processor. Without a compiler, or with
``PAUSEPOINT_NATIVE_HOOK=0``, the wheel has no binary and fits everywhere; agents then start the hook in Python.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src", "pausepoint", "integrations")
LINUX = "py3-none-manylinux_2_17_{0}.manylinux2014_{0}.musllinux_1_1_{0}"


class CustomBuildHook(BuildHookInterface[Any]):
    """The build hook of pyproject.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the hook into the package, and name the systems that it runs on."""
        source = Path(self.root) / FOLDER / "gate.c"
        tag = compile_hook(source, source.with_name("gate-hook"))
        if tag:
            build_data.update(pure_python=False, tag=tag)


def compile_hook(source: Path, hook: Path) -> str:
    """Compile the hook. Return the tag of a wheel with it; empty if there is none."""
    hook.unlink(missing_ok=True)
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if os.environ.get("PAUSEPOINT_NATIVE_HOOK") == "0" or compiler is None or sys.platform not in ("linux", "darwin"):
        return ""
    machine = platform.machine()
    if sys.platform == "darwin":
        return f"py3-none-macosx_11_0_{machine}" if _run(compiler, source, hook) else ""
    if _run(compiler, "-static", source, hook):
        return LINUX.format(machine)
    return f"py3-none-linux_{machine}" if _run(compiler, source, hook) else ""  # it needs the libc of this machine


def _run(compiler: str, *words: str | Path) -> bool:
    """Run the compiler. A hook that does not start is removed."""
    *options, source, hook = words
    draft = Path(f"{hook}.{os.getpid()}")
    try:
        subprocess.run([compiler, "-O2", "-s", *options, "-o", draft, source], check=True, capture_output=True)
        is_sound = subprocess.run([draft], capture_output=True).returncode == 1  # it has printed how it is used
        if is_sound:
            draft.rename(hook)
        return is_sound
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        draft.unlink(missing_ok=True)
