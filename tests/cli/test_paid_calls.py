"""Every way out that is printed about work that may run again, followed literally on a program that counts calls."""

from __future__ import annotations

import shlex
import shutil
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
