"""The list of items, the plugin that records which of them passed, and the report."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.children import LEAN
from tools.acceptance import (
    LIST,
    Item,
    Results,
    Standing,
    judge,
    main,
    read_items,
    read_later,
    read_results,
    report,
    verdict,
    write_results,
)

pytest_plugins = ["pytester"]

ITEMS = {
    item.number: item
    for item in [Item("S1.1", "One", "state"), Item("S1.2", "Two", "pause"), Item("S2.1", "Three", "pause")]
}


def results(*passed: str, failed: tuple[str, ...] = ()) -> Results:
    return Results(frozenset(passed), frozenset(failed))


# the list


def test_the_list_has_every_number_of_every_seed_in_order() -> None:
    sizes = {"S1": 66, "S2": 64, "S3": 102, "S4": 114, "S5": 69}
    expected = [f"{seed}.{n}" for seed, size in sizes.items() for n in range(1, size + 1)]
    assert list(read_items()) == expected
    assert len(expected) == 415


def test_no_row_of_the_list_escapes_the_reader() -> None:
    rows = re.findall(r"^\|\s*S\d", LIST.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == len(read_items())


def test_titles_are_short_and_tell_items_apart() -> None:
    titles = [item.title for item in read_items().values()]
    assert [title for title in titles if not 3 <= len(title.split()) <= 9] == []
    assert [title for title, times in Counter(titles).items() if times > 1] == []


def test_every_area_is_explained_on_the_page_and_used() -> None:
    explained = re.findall(r"^\| ([a-z-]+) \| [^|]+ \|$", LIST.read_text("utf-8"), re.MULTILINE)
    assert set(explained) - {"area", "item"} == {item.area for item in read_items().values()}


def test_a_number_with_two_rows_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "acceptance.md"
    page.write_text("| S1.1 | One thing | state |\n| S1.1 | Another thing | state |\n", "utf-8")
    with pytest.raises(ValueError, match=r"S1\.1 more than once"):
        read_items(page)


# the plugin

SUITE = """
    import pytest

    @pytest.mark.covers("S1.1", "S1.2")
    def test_passes(): pass

    @pytest.mark.covers("S1.3")
    def test_fails(): assert False

    @pytest.mark.covers("S1.4")
    @pytest.mark.skip
    def test_is_skipped(): pass

    @pytest.mark.covers("S1.5")
    @pytest.mark.xfail(strict=False)
    def test_passes_by_surprise(): pass

    @pytest.fixture
    def breaks_afterwards():
        yield
        assert False

    @pytest.mark.covers("S1.6")
    def test_breaks_in_teardown(breaks_afterwards): pass

    @pytest.mark.covers("S2.1")
    class TestGroup:
        @pytest.mark.covers("S2.2")
        def test_in_a_class(self): pass
"""


@pytest.mark.long
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["here", "in a worker"])
def test_only_what_really_passed_is_recorded(pytester: pytest.Pytester, workers: list[str]) -> None:
    pytester.makepyfile(SUITE)
    pytester.runpytest(*LEAN, "-p", "tests.covers", "--acceptance", "out.json", *workers)
    found = read_results(pytester.path / "out.json")
    assert found.passed == {"S1.1", "S1.2", "S1.6", "S2.1", "S2.2"}
    assert found.failed == {"S1.3", "S1.6"}
    assert found.covered == {"S1.1", "S1.2", "S2.1", "S2.2"}


@pytest.mark.long
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["here", "in a worker"])
def test_a_wrong_mark_is_an_error_of_collection(pytester: pytest.Pytester, workers: list[str]) -> None:
    wrong = {
        "test_unknown": ('"S1.1", "S1.67"', "covers 'S1.67', which docs/acceptance.md does not list"),
        "test_none": ("", "covers() takes numbers"),
        "test_named": ('number="S1.1"', "covers() takes numbers"),
    }
    for name, (numbers, _) in wrong.items():
        pytester.makepyfile(**{name: f"import pytest\n\n@pytest.mark.covers({numbers})\ndef test_it(): pass\n"})
    outcome = pytester.runpytest(*LEAN, "-p", "tests.covers", *workers)
    outcome.stdout.fnmatch_lines_random([f"{name}.py::test_it: {complaint}*" for name, (_, complaint) in wrong.items()])
    outcome.assert_outcomes(errors=3)


@pytest.mark.long
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["here", "in a worker"])
def test_a_test_that_was_not_selected_counts_as_a_test_of_its_item(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    pytester.makepyfile(SUITE)
    pytester.runpytest(*LEAN, "-p", "tests.covers", "--acceptance", "out.json", "-k", "in_a_class", *workers)
    found = read_results(pytester.path / "out.json")
    assert found.passed == {"S2.1", "S2.2"}
    assert found.marked == {"S1.1", "S1.2", "S1.3", "S1.4", "S1.5", "S1.6", "S2.1", "S2.2"}


def test_without_the_option_nothing_is_written(pytester: pytest.Pytester) -> None:
    pytester.makepyfile('import pytest\n\n@pytest.mark.covers("S1.1")\ndef test_it(): pass\n')
    pytester.runpytest(*LEAN, "-p", "tests.covers").assert_outcomes(passed=1)
    assert list(pytester.path.glob("*.json")) == []


# the report and the gate


def standing(*passed: str, failed: tuple[str, ...] = (), later: tuple[str, ...] = ()) -> Standing:
    return judge(ITEMS, frozenset(later), results(*passed, failed=failed))


def test_the_report_counts_by_seed_and_area() -> None:
    lines = [" ".join(line.split()) for line in report(ITEMS, standing("S1.2"), results("S1.2")).splitlines()]
    for line in ["S1 1 of 2", "S2 0 of 1", "pause 1 of 2", "state 0 of 1"]:
        assert line in lines


def test_an_item_that_a_failing_test_refutes_is_missing_and_the_report_says_so() -> None:
    refuted = standing("S1.1", "S1.2", failed=("S1.2",))
    assert refuted.missing == [ITEMS["S1.2"], ITEMS["S2.1"]]
    text = report(ITEMS, refuted, results("S1.1", "S1.2", failed=("S1.2",)))
    assert text.endswith("Refuted by a failing test:\n  S1.2  Two")


def test_the_verdict_names_what_is_missing_and_what_to_do() -> None:
    first, *rest = verdict(standing("S1.1", later=("S2.1",))).splitlines()
    assert first == "Acceptance: 1 of 3 items have a passing test. Postponed: S2.1."
    assert rest[:2] == ["Without a passing test:", "  S1.2  Two"]
    assert "@pytest.mark.covers" in rest[2]
    assert len(verdict(standing(*ITEMS)).splitlines()) == 1


def test_in_the_short_tier_an_item_needs_a_test_in_either_tier_and_no_failing_one() -> None:
    found = Results(frozenset({"S1.1"}), frozenset({"S1.2"}), frozenset({"S1.1", "S1.2", "S2.1"}))
    assert judge(ITEMS, frozenset(), found, anywhere=True).missing == [ITEMS["S1.2"]]
    assert judge(ITEMS, frozenset(), found).missing == [ITEMS["S1.2"], ITEMS["S2.1"]]
    alone = judge(ITEMS, frozenset(), Results(frozenset(), frozenset(), frozenset({"S1.1"})), anywhere=True)
    assert verdict(alone).startswith("Acceptance: 1 of 3 items have a test. Postponed: none.\nWithout a test:")


def test_an_item_that_waits_is_neither_missing_nor_shown_even_if_a_test_shows_some_of_it() -> None:
    found = standing("S1.1", "S1.2", "S2.1", later=("S2.1",))
    assert (found.shown, found.later, found.missing) == ([ITEMS["S1.1"], ITEMS["S1.2"]], [ITEMS["S2.1"]], [])


def test_what_waits_is_read_from_the_page_with_its_reason(tmp_path: Path) -> None:
    page = tmp_path / "acceptance.md"
    page.write_text("- **S1.1** needs a boat.\n\n| S1.1 | One thing | state |\n", "utf-8")
    assert read_later(page) == {"S1.1"}
    for reason in ("- **S1.1**\n", "- **S1.1** \n"):
        page.write_text(f"{reason}\n| S1.1 | One thing | state |\n", "utf-8")
        with pytest.raises(ValueError, match=r"postpones S1\.1 without a reason"):
            read_later(page)
    page.write_text("- **S1.2** needs a boat.\n\n| S1.1 | One thing | state |\n", "utf-8")
    with pytest.raises(ValueError, match=r"postpones S1\.2"):
        read_later(page)


def test_hardly_anything_waits() -> None:
    assert len(read_later()) <= 5


def test_the_gate_fails_while_one_item_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tmp_path / "deep" / "found.json"
    everything = read_items().keys() - read_later()
    write_results(found, everything, [])
    assert main([str(found)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    write_results(found, everything - {"S1.20"}, [])
    assert main([str(found)]) == 1
    assert "S1.20  A pause from outside touches nothing else" in capsys.readouterr().out
    write_results(found, everything, ["S1.20"])
    assert main([str(found), "--report"]) == 1
    assert "Refuted by a failing test:\n  S1.20" in capsys.readouterr().out


def test_a_run_that_wrote_no_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"found\.json does not exist: the test run ended before"):
        main([str(tmp_path / "found.json")])
