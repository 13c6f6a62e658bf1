"""Put the mark ``long`` on tests that take long, and take it off tests that do not.

    python -m tools.marks [build/failures.json] [--write]

The file has the seconds of each test; `make test-all` writes it. Without ``--write`` the script only says what it would
change. A function is long if one of its cases took more than half a second. It loses the mark if none took more than a
fifth of a second, so that a test near the limit does not change with every run. A test that was skipped
keeps the mark that it has.

An item of docs/acceptance.md keeps one proof in the short tier: if all of its tests are long, the cheapest stays there.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONG, BRIEF = 0.5, 0.2
MARK = "pytest.mark.long"


@dataclass
class Case:
    """A test function: where it is, what it proves and how long its cases took."""

    path: str
    name: str
    line: int
    """The line of its first decorator, or of its ``def``."""
    indent: int
    numbers: set[str]
    marked_at: int | None
    """The line of its own mark."""
    inherits_mark: bool
    seconds: list[float] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(self.seconds)


def covered(expressions: list[ast.expr]) -> set[str]:
    """Return the numbers of all ``covers`` marks in decorators, also of single parameters."""
    calls = [node for top in expressions for node in ast.walk(top) if isinstance(node, ast.Call)]
    marks = [call for call in calls if ast.unparse(call.func).endswith("mark.covers")]
    return {
        arg.value for mark in marks for arg in mark.args if isinstance(arg, ast.Constant) and type(arg.value) is str
    }


def read_cases(path: Path) -> Iterator[Case]:
    """Return the test functions of a file, with those of its classes."""
    tree = ast.parse(path.read_text("utf-8"))
    module_marks = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    yield from _cases(tree.body, path.relative_to(ROOT).as_posix(), "", module_marks)


def _cases(body: list[ast.stmt], path: str, prefix: str, above: list[ast.expr]) -> Iterator[Case]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _cases(node.body, path, f"{prefix}{node.name}::", [*above, *node.decorator_list])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            own = node.decorator_list
            marks = [mark.lineno for mark in own if ast.unparse(mark) == MARK]
            yield Case(
                path, f"{prefix}{node.name}", min([node.lineno, *(mark.lineno for mark in own)]), node.col_offset,
                covered([*above, *own]), marks[0] if marks else None,
                any(MARK in ast.unparse(expression) for expression in above),
            )  # fmt: skip


def choose(cases: list[Case]) -> set[tuple[str, str]]:
    """Return the path and name of the functions that are long."""
    long = {(case.path, case.name): case for case in cases if _takes_long(case)}
    short = [case for case in cases if (case.path, case.name) not in long and not case.inherits_mark]
    missing = {number for case in cases for number in case.numbers} - _proven(short)
    kept: list[Case] = []
    while able := [case for case in long.values() if case.numbers & missing and case.seconds]:
        kept.append(min(able, key=lambda case: case.total / len(case.numbers & missing)))
        missing -= kept[-1].numbers
    if missing:
        print(f"No short test can prove {', '.join(sorted(missing))}.", file=sys.stderr)
    for case in list(kept):  # an early choice may prove only what later ones prove, too
        others = [other for other in kept if other is not case]
        if case.numbers <= _proven([*short, *others]):
            kept = others
    return long.keys() - {(case.path, case.name) for case in kept}


def _takes_long(case: Case) -> bool:
    marked = case.marked_at is not None
    return max(case.seconds) > (BRIEF if marked else LONG) if case.seconds else marked


def _proven(cases: list[Case]) -> set[str]:
    return {number for case in cases for number in case.numbers}


def rewrite(path: Path, cases: list[Case], long: set[tuple[str, str]]) -> int:
    """Put marks into one file and take others out. Return how many."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    changes = 0
    for case in sorted(cases, key=lambda case: -case.line):
        wanted = (case.path, case.name) in long and not case.inherits_mark
        if wanted and case.marked_at is None:
            lines.insert(case.line - 1, f"{' ' * case.indent}@{MARK}\n")
        elif not wanted and case.marked_at is not None:
            del lines[case.marked_at - 1]
        else:
            continue
        changes += 1
    if changes:
        path.write_text(_with_import("".join(lines)), "utf-8")
    return changes


def _with_import(text: str) -> str:
    """Import pytest where the first mark of a file needs it; `make format` sorts the line."""
    if "import pytest\n" in text or "pytest.mark" not in text:
        return text
    after = "from __future__ import annotations\n"
    return text.replace(after, f"{after}\nimport pytest\n", 1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tools.marks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("times", type=Path, nargs="?", default=Path("build/failures.json"))
    parser.add_argument("--write", action="store_true", help="change the files")
    options = parser.parse_args(arguments)
    if not options.times.exists():
        raise SystemExit(f"{options.times} does not exist. Run `make test-all` first.")
    seconds: dict[str, float] = json.loads(options.times.read_text("utf-8"))["seconds"]
    cases = [case for path in sorted((ROOT / "tests").rglob("test_*.py")) for case in read_cases(path)]
    by_name = {(case.path, case.name): case for case in cases}
    for node, took in seconds.items():
        path, _, name = node.partition("[")[0].partition("::")
        case = by_name.get((path, name))
        if case:
            case.seconds.append(took)
        elif took > LONG:
            print(f"{took:6.1f} s  {node} is inherited or generated; mark its class by hand.", file=sys.stderr)
    long = choose(cases)
    changed = 0
    for path in sorted({case.path for case in cases}):
        own = [case for case in cases if case.path == path]
        if options.write:
            changed += rewrite(ROOT / path, own, long)
        else:
            changed += sum(((case.path, case.name) in long) != (case.marked_at is not None) for case in own)
    short = sum(case.total for case in cases if (case.path, case.name) not in long)
    print(f"{len(long)} functions are long, {changed} marks {'' if options.write else 'would '}change. "
          f"The rest took {short:.0f} s.")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
