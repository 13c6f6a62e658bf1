"""``init``, ``demo`` and ``completion``: commands for getting started."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import click

from pausepoint.cli.console import Output
from pausepoint.cli.exits import USAGE, Refused
from pausepoint.cli.host import command_line
from pausepoint.cli.options import OneOf, Whole
from pausepoint.name import DEFAULT_STORE, FOLDER, NAME, variable

EXAMPLE = "brief.py"
SETTINGS = f'\n[tool.{NAME}.workflows]\nbrief = "{EXAMPLE}:brief"\n'


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def init(as_json: bool) -> None:
    """Set up a Pausepoint project in this folder.

    Creates .pausepoint/ for the store, and a small example, brief.py, with an entry in pyproject.toml so that it runs
    by its name. Existing files are never overwritten, so you can run it again.
    """
    out, made = Output(as_json), _Made()
    here = Path.cwd()
    _make_folder(here / FOLDER, made)
    made_example = _make_example(here / EXAMPLE, made)
    named = _name_example(here / "pyproject.toml", made, made_example)
    is_example = made_example or named
    command = command_line("run", "brief" if named else EXAMPLE, *(["--topic", "octopus"] if is_example else []))
    if as_json:
        from pausepoint.cli.documents import Initialised

        out.document(Initialised(str(here), made.made, made.kept, command))
    for text in made.said:
        out.line(text)
    if is_example:
        out.note(f"Try it:  {command}")
    else:
        out.note(f"No example was created, because {EXAMPLE} is your own file. If it has a workflow, run it:"
                 f"  {command}")  # fmt: skip


class _Made:
    """What was created, what already existed, and the lines about both."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.kept: list[str] = []
        self.said: list[str] = []

    def make(self, name: str, why: str) -> None:
        self.made.append(name)
        self.said.append(f"created  {name}: {why}")

    def keep(self, name: str, why: str) -> None:
        self.kept.append(name)
        self.said.append(f"kept     {name}: {why}")


def _make_folder(folder: Path, made: _Made) -> None:
    if folder.is_dir():
        made.keep(f"{FOLDER}/", "it already exists")
        return
    try:
        folder.mkdir(mode=0o700)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise Refused(
            f"The folder {folder} cannot be created: {error.strerror}. Check the permissions of {folder.parent}", USAGE
        ) from error
    made.make(f"{FOLDER}/", f"for the store, {DEFAULT_STORE}; git ignores it")


def _make_example(path: Path, made: _Made) -> bool:
    from importlib.resources import files

    text = files(f"{NAME}.cli").joinpath("templates", "brief.py").read_text(encoding="utf-8")
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        made.keep(path.name, "it already exists")
        return path.read_text(encoding="utf-8", errors="replace") == text
    made.make(path.name, "an example workflow with two steps")
    return True


def _name_example(path: Path, made: _Made, made_example: bool) -> bool:
    """Name the example in pyproject.toml. Return whether it can be run by its name."""
    there = path.is_file()
    text = path.read_text(encoding="utf-8") if there else ""
    settings = _parsed(path, text).get("tool", {}).get(NAME)
    if settings is not None:
        made.keep("pyproject.toml", "it already has [tool.pausepoint]")
        return "brief" in settings.get("workflows", {})
    if not made_example:
        if there:
            made.keep("pyproject.toml", f"{EXAMPLE} is your own file; name it under [tool.pausepoint.workflows]")
        return False
    added = text + ("" if text.endswith("\n") or not text else "\n") + SETTINGS.lstrip("" if text else "\n")
    _parsed(path, added)
    path.write_text(added, encoding="utf-8")
    made.make("pyproject.toml", f"[tool.pausepoint.workflows] names {EXAMPLE}")
    return True


def _parsed(path: Path, text: str) -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{path} is not valid TOML: {error}. Fix the file.", USAGE) from error


@click.command()
@click.option("--store", metavar="FOLDER", help="Create the store in this folder, and keep it.")
@click.option("--keep", is_flag=True, help="Keep the temporary folder with the store.")
@click.option("--fast", is_flag=True, help="Take only a few seconds.")
@click.option("--serve", is_flag=True, help="Show sessions of many kinds on a web page instead.")
@click.option("--port", type=Whole(), default=0, help="The port of the page. Default: any free one.")
def demo(store: str | None, keep: bool, fast: bool, serve: bool, port: int) -> int:
    """Watch a session being killed, resumed and paused.

    Runs real processes with their own store in a temporary folder. It takes less than a minute and needs no setup.
    With --serve, a browser opens the page of `pausepoint serve` over sessions that run, wait, sleep, are paused, failed
    or done. Answer, pause, resume and edit them. Ctrl+C ends it.
    """
    import runpy  # the command line must not import an application

    flags = {"--keep": keep, "--fast": fast, "--serve": serve}
    words = [*(["--store", store] if store else []), *(flag for flag, given in flags.items() if given)]
    words += ["--port", str(port)] if serve else []
    found: int = runpy.run_module(f"{NAME}.apps.demo.__main__")["main"](words)
    return found


_SHELLS = {
    "bash": ("~/.bashrc", f'eval "$({NAME} completion bash)"'),
    "zsh": ("~/.zshrc", f'eval "$({NAME} completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", f"{NAME} completion fish | source"),
}


@click.command()
@click.argument("shell", required=False, type=OneOf(list(_SHELLS)))
def completion(shell: str | None) -> None:
    """Print the completion script for SHELL: bash, zsh or fish. Default: $SHELL.

    \b
    bash, in ~/.bashrc:                    eval "$(pausepoint completion bash)"
    zsh, in ~/.zshrc:                      eval "$(pausepoint completion zsh)"
    fish, in ~/.config/fish/config.fish:   pausepoint completion fish | source
    """
    from click.shell_completion import get_completion_class

    from pausepoint.cli.app import app

    shell = shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in _SHELLS:
        raise Refused(
            f"There is no completion for the shell {shell or 'unknown'!r}. Name one of {', '.join(_SHELLS)}.", USAGE
        )
    kind = get_completion_class(shell)
    assert kind is not None, shell
    place, line = _SHELLS[shell]
    click.echo(kind(app, {}, NAME, f"_{variable('COMPLETE')}").source())
    click.echo(f"# Put this line into {place}:\n#   {line}")  # last, because zsh expects its own header first
