"""Run the demo: run, kill -9, resume, pause from outside, resume, and report the work saved; or serve a web page."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from pausepoint import Engine, PausepointError
from pausepoint.apps.demo.pipeline import report
from pausepoint.apps.demo.screen import Screen
from pausepoint.apps.demo.story import OutOfStep, Story

PACE, FAST = 0.9, 0.15

GRACE = 15
"""Seconds in which a server ends after Ctrl+C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Return 0 if it ran to completion."""
    parser = _parser()
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        try:
            folder = _folder(stack, options.store, options.keep)
        except OSError as error:
            parser.error(
                f"Cannot create a store in {options.store or 'a temporary folder'}: {error.strerror}."
                " Name another folder with --store."
            )
        try:
            return _serve(folder, options) if options.serve else _show(folder, options)
        except BrokenPipeError:  # the reader, such as head, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards unflushed output
            return 128 + signal.SIGPIPE


def _show(folder: Path, options: argparse.Namespace) -> int:
    screen = Screen()
    screen.say(f"A workflow of {len(report.steps)} steps writes a report. Its pace and prices are simulated.")
    try:
        asyncio.run(_tell(folder, FAST if options.fast else PACE, screen))
    except (OutOfStep, PausepointError) as error:
        screen.say(f"\nThe demo stopped: {error}", "red")
        return 1
    except KeyboardInterrupt:
        return 130
    kept = options.keep or options.store is not None
    place = folder / "pausepoint.db"
    if kept:
        screen.say(f"\nThe store is kept. Look at it:\n   pausepoint ls --store {shlex.quote(str(place))}")
    else:
        screen.say(f"\nThe store was {place}. It has been removed.")
        screen.say("To keep it, run `pausepoint demo --keep` or `make demo ARGS=--keep`.")
    screen.say("To see such sessions in a browser, run `pausepoint demo --serve` or `make demo ARGS=--serve`.")
    return 0


def _serve(folder: Path, options: argparse.Namespace) -> int:
    """Serve the page over a few sessions, until Ctrl+C."""
    from pausepoint.apps.demo import stage  # its workflows are for the page only

    place = folder / "pausepoint.db"
    try:
        if not place.exists():
            _fill(place)
    except PausepointError as error:
        print(f"The demo stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    targets = [word for name in stage.WORKFLOWS for word in ("--target", f"{stage.__name__}:{name}")]
    words = ["serve", "--store", str(place), "--port", str(options.port), *targets]
    pace = {stage.PACE: str(FAST if options.fast else PACE)}
    if sys.stdout.isatty():  # a program that reads the address opens it itself
        words.append("--open")
    with subprocess.Popen([sys.executable, "-m", "pausepoint", *words], env=os.environ | pace) as server:
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        code = _end_of(server)
    if options.keep or options.store is not None:
        print(f"The store is kept: {place}")
    return code if code >= 0 else 128 - code  # a signal ended the server before it was ready for one


def _fill(place: Path) -> None:
    """Create the store with its sessions. If this is interrupted, there is no store, and the next call begins again."""
    from pausepoint.apps.demo import stage

    new = place.with_name(".demo-unfinished")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    asyncio.run(stage.fill(new / place.name))
    for file in sorted(new.iterdir(), key=lambda each: each.name == place.name):  # the store itself comes last
        file.replace(place.with_name(file.name))
    new.rmdir()


def _end_of(server: subprocess.Popen[bytes]) -> int:
    """Wait until the server has ended, and return its exit code. Ctrl+C reaches the server too."""
    try:
        return server.wait()
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):  # the signal may be for this process only
            return server.wait(GRACE)
        server.terminate()
        return server.wait()


async def _tell(folder: Path, pace: float, screen: Screen) -> None:
    async with Engine(folder / "pausepoint.db", workflows=[report]) as engine:
        await Story(engine, folder, f"demo-{secrets.token_hex(3)}", pace, screen).tell()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m pausepoint.apps.demo", description="Watch a session being killed, resumed and paused."
    )
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="create the store in this folder and keep it")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder with the store")
    parser.add_argument("--serve", action="store_true", help="show sessions of many kinds on a web page instead")
    parser.add_argument("--port", type=int, default=0, help="the port of the page; by default any free one")
    parser.add_argument("--fast", action="store_true", help="finish within a few seconds")
    return parser


def _folder(stack: ExitStack, chosen: Path | None, keep: bool) -> Path:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=chosen):  # an existing folder may still not be writable
            return chosen
    if keep:
        return Path(tempfile.mkdtemp(prefix="pausepoint-demo-"))
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pausepoint-demo-")))


if __name__ == "__main__":
    sys.exit(main())
