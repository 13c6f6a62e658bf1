"""The results as JSON, as tables and as pictures, and the part of docs/benchmarks.md that shows them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import CONTENDERS, ROOT
from benchmarks.peers.plots import draw
from benchmarks.peers.workloads import GROWTHS, WORKLOADS

DOCS = ROOT / "docs"
PAGE = DOCS / "benchmarks.md"
FILE = DOCS / "benchmarks-peers.json"
BEGIN = "<!-- peers: written by make bench-peers ARGS=--docs -->"
END = "<!-- peers: end -->"

Results = dict[str, Any]


def merged(old: Results, new: Results) -> Results:
    """Return old results in which those of the contenders and workloads that were measured again are replaced.

    If only some contenders were measured again, raw SQLite stays as it was: a new ratio refers to the raw commits of
    its own run.
    """
    if new["contenders"].keys() == old["contenders"].keys():
        return _joined(old, new)
    again = [key for key in new["contenders"] if key != "raw"]
    found: Results = json.loads(json.dumps(old))
    for part in ("workloads", "growths", "contenders", "syncs"):
        for key, cells in new[part].items():
            if part in ("contenders", "syncs"):
                if key in again:
                    found[part][key] = cells
            else:
                found[part].setdefault(key, {}).update({name: cells[name] for name in again if name in cells})
    before = old.get("again", {}).get("contenders", [])
    found["again"] = {"contenders": [*before, *[key for key in again if key not in before]], "facts": new["facts"]}
    return found


def _joined(old: Results, new: Results) -> Results:
    """Return the results of two parts of one run."""
    parts = {part: old[part] | new[part] for part in ("workloads", "growths", "contenders", "syncs")}
    facts = old["facts"] | new["facts"] | {"loads": old["facts"]["loads"] + new["facts"]["loads"]}
    facts["minutes"] = old["facts"]["minutes"] + new["facts"]["minutes"]
    facts["limits"] = old["facts"].get("limits", {}) | new["facts"]["limits"]
    return parts | {"facts": facts}


def tables(results: Results) -> str:
    """Return everything as Markdown."""
    keys = [key for key in CONTENDERS if key in results["contenders"]]
    parts = [
        _facts(results),
        _definitions(results),
        _figures(results, keys),
        _cpu(results, keys),
        _syncs(results, keys),
    ]
    parts += [_ahead(results), _reasons(results)]
    if results["growths"]:
        parts += [_growths(results)]
    return "\n\n".join(part for part in parts if part)


def _facts(results: Results) -> str:
    lines = [_measured("Measured with `make bench-peers`", results["facts"])]
    if "again" in results:
        names = " and ".join(CONTENDERS[key].title for key in results["again"]["contenders"])
        lines.append(
            _measured(f"Figures of {names} were measured again later, beside raw SQLite", results["again"]["facts"])
        )
    versions = [
        f"{CONTENDERS[key].title} ({', '.join(f'{name} {text}' for name, text in found['versions'].items())})"
        for key, found in results["contenders"].items()
        if "versions" in found
    ]
    absent = [
        f"{CONTENDERS[key].title} is absent: {found['absent']}."
        for key, found in results["contenders"].items()
        if "absent" in found
    ]
    return "\n\n".join([*lines, f"Versions: {'; '.join(versions)}.", *absent])


def _measured(what: str, facts: Mapping[str, Any]) -> str:
    return (
        f"{what} on {facts['date']}: {facts['machine']}; {facts['repeats']} repeats. The load, the number "
        f"of programs that want one of the {facts['cores']} processors, was {_loads(facts['loads'])}. The run took "
        f"{facts['minutes']:.0f} minutes."
    )


def _loads(loads: Sequence[float]) -> str:
    if not loads:
        return "not noted"
    return f"{min(loads):.1f} to {max(loads):.1f} (median {statistics.median(loads):.1f})"


def _definitions(results: Results) -> str:
    limits = results["facts"]["limits"]
    rows = [[each.key, each.words, f"{limits[each.key]:g} s" if each.key in limits else ""] for each in WORKLOADS]
    return _table(["workload", "what runs, and what is measured", "limit of time"], rows)


def _figures(results: Results, keys: Sequence[str]) -> str:
    head = ["workload", *[CONTENDERS[key].title for key in keys]]
    rows = [
        [f"{each.key}, {each.unit}", *[cell(results["workloads"][each.key].get(key, {})) for key in keys]]
        for each in WORKLOADS
        if each.key in results["workloads"]
    ]
    note = (
        "Each cell has the median, the lowest and the highest in parentheses, and the ratio to raw SQLite in the same "
        "repeat (median)."
    )
    return f"{note}\n\n{_table(head, rows)}"


def cell(found: Mapping[str, Any]) -> str:
    """Write one cell.

    >>> cell({"value": 1234.0, "lowest": 1100.0, "highest": 2000.0, "ratio": 2.04, "repeats": 5})
    '1,234 (1,100–2,000) · 2.0 ×'
    >>> cell({"lacks": "no pause from outside"}), cell({"over": 60.0}), cell({})
    ('does not have it', 'over 60 s', 'not measured')
    """
    if "value" not in found:
        if str(found.get("lacks", "")).startswith("not comparable"):
            return "not comparable"
        for name, text in (("lacks", "does not have it"), ("failed", "failed, see below")):
            if name in found:
                return text
        return f"over {found['over']:g} s" if "over" in found else "not measured"
    spread = "" if found["repeats"] == 1 else f" ({_number(found['lowest'])}–{_number(found['highest'])})"
    ratio = f" · {_ratio(found['ratio'])} ×" if "ratio" in found else ""
    sessions = f" · {found['sessions']:,} sessions" if "sessions" in found else ""
    failed = f" · failed after {found['repeats']} repeats" if "failed" in found else ""
    return f"{_number(found['value'])}{spread}{ratio}{sessions}{failed}"


def _ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cpu(results: Results, keys: Sequence[str]) -> str:
    rows = []
    for each in WORKLOADS:
        cells = [results["workloads"].get(each.key, {}).get(key, {}) for key in keys]
        if any("cpu" in found for found in cells):
            rows.append([each.key, *[_number(found["cpu"]) if "cpu" in found else "" for found in cells]])
    if not rows:
        return ""
    note = (
        "Processor time of a step in µs, of all threads of the process. Other programs hardly affect it. The server of "
        "Restate is a process of its own and not included."
    )
    return f"{note}\n\n{_table(['workload', *[CONTENDERS[key].title for key in keys]], rows)}"


def _syncs(results: Results, keys: Sequence[str]) -> str:
    found = results["syncs"]
    if not found:
        return ""
    rows = []
    for key in keys:
        if "per_step" in found.get(key, {}):
            share = f"{found[key]['on_disk']:.0%}".replace("%", " %")
            rows.append([CONTENDERS[key].title, f"{found[key]['per_step']:.2f}", share])
        else:
            rows.append([CONTENDERS[key].title, found.get(key, {}).get("failed", "not counted"), ""])
    note = "Whether a step of W1 is on disk when it ends, counted with strace in 100 steps:"
    return f"{note}\n\n{_table(['contender', 'fsyncs per step', 'steps with an fsync before the next begins'], rows)}"


def _ahead(results: Results) -> str:
    lines = []
    for each in WORKLOADS:
        cells = results["workloads"].get(each.key, {})
        ranks = {key: _rank(found) for key, found in cells.items() if key != "raw" and _rank(found) > 0}
        cpu = {key: found["cpu"] for key, found in cells.items() if "cpu" in found and key not in ("raw", "restate")}
        for what, figures in ((each.key, ranks), (f"{each.key}, processor time", cpu)):
            ours = figures.get("pausepoint", 0.0)
            ahead = [f"{CONTENDERS[key].title} {ours / figures[key]:.1f}" for key in figures if figures[key] < ours]
            lines += [f"- {what}: {', '.join(ahead)} times"] if ahead else []
    if not lines:
        return "No peer was ahead of Pausepoint in a workload of this run."
    return "\n".join(["Where a peer is ahead of Pausepoint:", "", *lines])


def _rank(found: Mapping[str, Any]) -> float:
    return float(found.get("ratio", found.get("value", 0.0)))


def _reasons(results: Results) -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for key, cells in results["workloads"].items():
        for name, found in cells.items():
            for kind in ("lacks", "failed"):
                if kind in found:
                    reasons.setdefault((CONTENDERS[name].title, found[kind]), []).append(key)
    lines = [f"- {title}, {', '.join(keys)}: {reason}" for (title, reason), keys in reasons.items()]
    return "\n".join(["What is not there, and why:", "", *lines]) if lines else ""


def _growths(results: Results) -> str:
    parts = [
        f"![{growth.title}](pictures/peers-{growth.key}.svg)" for growth in GROWTHS if growth.key in results["growths"]
    ]
    note = (
        "The growth plots, in µs of processor time per step, of all threads of the process; one run of each point. The "
        "server of Restate is a process of its own and not included. `docs/benchmarks-peers.json` has the points and "
        f"the times. A point that is not there took longer than its limit: {_growth_limits(results)}."
    )
    return "\n\n".join([note, *parts])


def _growth_limits(results: Results) -> str:
    limits = results["facts"]["limits"]
    return ", ".join(f"{limits[each.key]:g} s over {each.key}" for each in GROWTHS if each.key in limits)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *[f"| {' | '.join(row)} |" for row in rows]])


def pictures(results: Results) -> dict[str, str]:
    """Return the growth plots as SVG, by file name."""
    titles = {key: entry.title for key, entry in CONTENDERS.items()}
    found = {}
    for growth in GROWTHS:
        lines = {
            key: [(float(point["at"]), float(point["cpu"])) for point in points if "cpu" in point]
            for key, points in results["growths"].get(growth.key, {}).items()
        }
        if any(lines.values()):
            unit = "µs of processor time per step"
            found[f"peers-{growth.key}.svg"] = draw(growth.title, growth.axis, unit, lines, titles)
    return found


def write(results: Results) -> None:
    """Write the JSON, the pictures, and the part of the page between the markers."""
    FILE.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name, picture in pictures(results).items():
        Path(DOCS, "pictures", name).write_text(picture, "utf-8")
    PAGE.write_text(with_part(PAGE.read_text("utf-8"), tables(results)), "utf-8")


def with_part(page: str, part: str) -> str:
    """Return the page with another part between the markers.

    >>> with_part(f"a\\n{BEGIN}\\nold\\n{END}\\nb", "new") == f"a\\n{BEGIN}\\n\\nnew\\n\\n{END}\\nb"
    True
    """
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has no lines {BEGIN!r} and {END!r}. Put them where the results belong.")
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"
