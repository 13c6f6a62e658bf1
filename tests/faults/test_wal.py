"""Damage in the write-ahead log is noticed, and an ordinary power loss is not mistaken for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import wal_campaign
from tests.faults.crash_states import STYLES
from tests.faults.tally import main
from tests.faults.wal_states import (
    WRONG_RULES,
    Files,
    Habits,
    State,
    bits_of,
    flip_all,
    killed,
    opens,
    remember_checksums,
    states,
    verdict,
    wal_of,
)

SEEDS = (32, 21)  # of databases whose lives show every trap
MOMENTS = 6


@pytest.fixture(scope="module", autouse=True)
def quick_checksums() -> Iterator[None]:
    undo = remember_checksums()
    yield
    undo()


@pytest.fixture(scope="module")
def power_losses(tmp_path_factory: pytest.TempPathFactory) -> list[State]:
    found = []
    for seed in SEEDS:
        found += list(states(tmp_path_factory.mktemp("lives"), random.Random(seed), MOMENTS))
    return found


@pytest.mark.long
def test_no_power_loss_is_taken_for_damage(power_losses: list[State]) -> None:
    assert len(power_losses) >= 300
    assert {state.style for state in power_losses} == {*STYLES, "bytes", "one missing"}
    alarms = [(state.style, found) for state in power_losses if (found := verdict(state.files, padded=state.padded))]
    assert alarms == []


def test_the_store_opens_what_a_power_loss_leaves(power_losses: list[State], folder: Path) -> None:
    some = [state for state in power_losses if not state.padded][::20]
    assert len(some) >= 10
    assert [state.style for state in some if not opens(state.files, folder / "store.db")] == []


@pytest.mark.long
@pytest.mark.parametrize("rule", WRONG_RULES)
def test_a_wrong_rule_takes_power_losses_for_damage(power_losses: list[State], rule: str) -> None:
    assert [state for state in power_losses if rule in state.wrong_alarms()]


def test_without_a_sync_per_commit_a_power_loss_looks_like_damage(folder: Path) -> None:
    lazy = Habits(200, spill=False, pads=False, synchronous="NORMAL")
    assert any(verdict(state.files) for state in states(folder, random.Random(1), 4, lazy))


@pytest.mark.long
def test_padded_commits_are_no_damage_and_a_check_that_does_not_know_them_is_caught(folder: Path) -> None:
    padding = Habits(200, spill=False, pads=True)
    found = list(states(folder, random.Random(3), 2, padding))
    assert [state for state in found if verdict(state.files, padded=True)] == []
    assert [state for state in found if verdict(state.files, padded=False)]


@pytest.fixture(scope="module")
def left_by_a_kill(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return killed(tmp_path_factory.mktemp("killed") / "store.db", random.Random(14), 12)


def test_every_flip_that_loses_commits_of_a_killed_process_is_noticed(left_by_a_kill: Files) -> None:
    found = flip_all(left_by_a_kill, bits_of(left_by_a_kill["-wal"], random.Random(1), 300))
    assert found.losing >= 250
    assert found.noticed_with_index == found.losing
    assert found.alarms_without_loss == 0


def test_after_a_power_loss_only_the_documented_flips_are_not_noticed(left_by_a_kill: Files) -> None:
    log = wal_of(left_by_a_kill["-wal"])
    *_, before, end, last = [number for number in range(1, log.count + 1) if log.frame(number).commit]
    assert before < end - 1
    header = [*range(0, 256, 5)]
    heads = [byte * 8 + byte % 8 for n in range(end - 2, last + 1) for byte in range(log.place(n), log.place(n) + 24)]
    pages = [(log.place(n) + 24 + byte) * 8 + byte % 8 for n in range(1, end + 1, 5) for byte in range(7, 4096, 1024)]
    pages += [(log.place(end) + 24 + byte) * 8 for byte in range(7, 4096, 1024)]
    found = flip_all(left_by_a_kill, [*header, *heads, *pages])
    missed = {bit // 8 for bit in found.missed}
    stored = {log.place(end) + byte for byte in range(8, 24)} | {log.place(end - 1) + byte for byte in range(16, 24)}
    assert {byte for byte in missed if byte < log.place(end + 1)} <= stored
    assert found.noticed >= len(header) + len(pages) * 0.9


def test_flips_in_frames_of_an_older_log_raise_no_alarm(folder: Path) -> None:
    files = killed(folder / "old.db", random.Random(11), 60)
    log = wal_of(files["-wal"])
    last = log.live()[0]
    assert last < log.count - 20, "the log was not restarted"
    rng = random.Random(2)
    bits = [rng.randrange(log.place(last + 1) * 8, len(files["-wal"]) * 8) for _ in range(100)]
    found = flip_all(files, bits)
    assert (found.losing, found.alarms_without_loss) == (0, 0)


def test_a_commit_mark_counts_only_where_the_header_of_the_frame_is_in_one_sector() -> None:
    salt = b"saltsalt"
    head = (1).to_bytes(4, "big") + (9).to_bytes(4, "big") + salt + bytes(8)
    log = wal_of(bytes(16) + salt + bytes(8) + (head + bytes(4096)) * 128)
    spans = {number for number in range(1, log.count + 1) if log.place(number) % 512 in (496, 504)}
    assert len(spans) == 4
    assert {number for number in range(1, log.count + 1) if not log.ends_commit(number)} == spans


@pytest.mark.long
def test_the_campaign_counts_what_it_did(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_campaign, "MOMENTS", 2)
    monkeypatch.setattr(wal_campaign, "FLIPS", 30)
    assert main(wal_campaign.run, None, ["--seconds", "0.01", "--seed", "5"]) == 0
    told = capsys.readouterr().out
    assert "power-loss states" in told
    assert "0 faults; " in told


@pytest.mark.long
def test_the_campaign_reports_a_false_alarm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_campaign, "MOMENTS", 2)
    monkeypatch.setattr(wal_campaign, "FLIPS", 3)
    monkeypatch.setattr(wal_campaign, "verdict", lambda files, padded: "damage")
    assert main(wal_campaign.run, None, ["--seconds", "0.01", "--seed", "5"]) == 1
    assert "WRONG (false alarm), seed 5: " in capsys.readouterr().out
