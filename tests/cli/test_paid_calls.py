"""Every way out that is printed about work that may run again, followed literally on a program that counts calls."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import shop as sample
from tests.cli.kit import Done, run

MISS = "charge runs again: 'now' differs from the remembered call (it cost $0.25)"


class Shop:
    """A folder with the program. What has been paid for is in its file ``calls.txt``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def paid(self) -> list[str]:
        path = self.root / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, *words: str) -> Done:
        return run(*words, cwd=self.root)

    def follow(self, label: str, text: str, *more: str) -> Done:
        """Run the command that was printed with this label, exactly as it was printed. ``more`` is an answer."""
        (line,) = [line for line in text.splitlines() if line.startswith(f"{label}:")]
        words = shlex.split(line.partition(":")[2])
        assert words[0] == "pausepoint", line
        return self.run(*words[1:], *more)

    def copy(self, name: str) -> Shop:
        return Shop(Path(shutil.copytree(self.root, self.root.parent / name)))


def text(done: Done) -> str:
    return done.stdout + done.stderr


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A session that has paid once and then failed. Its code is mended since."""
    root = tmp_path / "shop"
    root.mkdir()
    shutil.copy(sample.__file__, root / "shop.py")
    (root / "now.txt").write_text("1")
    (root / "break").touch()
    found = Shop(root)
    done = found.run("run", "shop.py", "--session-id", "s")
    assert (done.code, found.paid) == (1, ["charge"])
    (root / "break").unlink()
    return found


def test_a_miss_is_printed_at_once_and_in_the_last_lines(shop: Shop) -> None:
    (shop.root / "now.txt").write_text("2")
    done = shop.run("resume", "s", "--target", "shop.py")
    assert done.stdout.splitlines().count(MISS) == 1
    assert done.stdout.endswith(f"Remembered results that were not used:\n  {MISS}\n")
    assert shop.paid == ["charge", "charge"]


def test_a_result_that_changed_code_leaves_unused_is_printed(shop: Shop) -> None:
    (shop.root / "other").touch()
    asked = shop.run("resume", "s", "--target", "shop.py")
    done = shop.follow("Answer", text(asked), "--approve")
    unused = "a remembered result of charge was not used: the step no longer makes this call (it cost $0.25)"
    assert f"Remembered results that were not used:\n  {unused}\n" in text(done)


@pytest.mark.long
def test_the_ways_out_of_a_strict_pause_pay_once_or_what_was_accepted(shop: Shop) -> None:
    (shop.root / "strict").touch()
    (shop.root / "now.txt").write_text("2")
    paused = shop.run("resume", "s", "--target", "shop.py")
    assert (paused.code, shop.paid) == (3, ["charge"])
    assert "charge would run again: 'now' differs from the remembered call (it cost $0.25)." in paused.stderr
    for words in (["plan", "s", "--target", "shop.py"], ["resume", "s", "--dry-run", "--target", "shop.py"]):
        assert "would run again" in text(shop.run(*words))
    again = shop.copy("again")
    assert again.follow("Resume", text(paused)).code == 3  # paused again, and nothing paid
    assert again.paid == ["charge"]
    (again.root / "now.txt").write_text("1")
    assert again.follow("Resume", text(paused)).code == 3  # it asks now
    assert again.paid == ["charge"]
    accepted = shop.copy("accepted")
    done = accepted.follow("Run it again", text(paused))
    assert MISS in done.stdout
    assert accepted.paid == ["charge", "charge"]


PRINTED = re.compile(r"`(pausepoint [^`]*)`|:  +(pausepoint .*)$", re.MULTILINE)
"""A command in a text, and one on a line of its own after what it is for."""

TARGET = ("--target", "shop.py")


def declined(shop: Shop) -> str:
    asked = shop.run("resume", "s", *TARGET)
    return text(shop.follow("Answer", text(asked), "--reject", "no"))


def missed(shop: Shop) -> str:
    (shop.root / "now.txt").write_text("2")
    (shop.root / "break").touch()
    done = shop.run("resume", "s", *TARGET)
    (shop.root / "break").unlink()
    return text(done)


def held(shop: Shop) -> str:
    (shop.root / "strict").touch()
    (shop.root / "now.txt").write_text("2")
    return text(shop.run("resume", "s", *TARGET))


def rewound(shop: Shop) -> str:
    declined(shop)
    return text(shop.run("rewind", "s", "--to", "shop", *TARGET))


def kept(shop: Shop) -> str:
    declined(shop)
    return text(shop.run("rewind", "s", "--to", "shop", "--reuse", *TARGET))


STATES: dict[str, Callable[[Shop], str]] = {
    "failed": lambda shop: text(shop.run("why", "s", *TARGET)), "declined": declined, "missed": missed, "held": held,
    "rewound": rewound, "kept": kept,
}  # fmt: skip


def announced(shop: Shop) -> int:
    """How many payments the plan says run again: after a rewind, or if a strict pause is lifted."""
    plan = json.loads(shop.run("plan", "s", "--json", *TARGET).stdout)
    again = [each for each in plan["operations"] if each["verdict"] == "runs again" and each["operation"] == "charge"]
    assert all(each["usd"] == 0.25 * each["count"] for each in again)
    held = ["charge would run again" in each["why"] for each in plan["steps"]]
    return sum(held, start=sum(int(each["count"]) for each in again))


@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
def test_no_command_that_is_printed_pays_again_unless_the_plan_said_so(shop: Shop, state: str) -> None:
    said = [STATES[state](shop)]
    looks = [["status"], ["show", "s"], ["why", "s", *TARGET], ["why", "s", "shop", *TARGET], ["plan", "s", *TARGET]]
    said += [text(shop.run(*words)) for words in looks]
    printed = dict.fromkeys(one or other.strip() for part in said for one, other in PRINTED.findall(part))
    assert printed
    planned, before = announced(shop), len(shop.paid)
    assert planned == (1 if state in ("rewound", "held") else 0)
    for number, command in enumerate(printed):
        here = shop.copy(f"{state}{number}")
        words = shlex.split(command)[1:]
        more = [] if "--target" in words or words[0] in ("answer", "watch", "show", "status") else [*TARGET]
        done = here.run(*words, *more)
        assert done.code in (0, 1, 3), (command, done)
        assert len(here.paid) <= before + planned, (command, done)


@pytest.mark.long
def test_a_question_is_asked_again_as_printed_and_the_card_is_charged_once(shop: Shop) -> None:
    said = declined(shop)
    for words in (["why", "s", *TARGET], ["show", "s", *TARGET], ["plan", "s", *TARGET]):
        assert "Ask again" in text(shop.run(*words))
    plan = shop.run("rewind", "s", "--to", "shop", "--dry-run", *TARGET)
    assert "runs again  charge" in plan.stdout
    assert "it had finished in shop#1; it cost $0.25" in plan.stdout
    asked = shop.follow("Ask again", said)
    assert (asked.code, shop.paid) == (3, ["charge"])
    assert shop.follow("Answer", text(asked), "--approve").code == 0
    assert shop.paid == ["charge", "ship"]
