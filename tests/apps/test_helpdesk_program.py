"""The helpdesk as a program, and its README: what a person types, and what the page says."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pausepoint.apps.helpdesk.__main__ import SCRIPTS, script
from pausepoint.apps.helpdesk.models import EXPIRES, ROUNDS
from pausepoint.apps.helpdesk.parameters import MODELS
from pausepoint.apps.helpdesk.shop import SAMPLE
from pausepoint.apps.helpdesk.workflow import helpdesk
from tests.apps.calls import Forked, ran
from tests.apps.helpdesk_kit import effects
from tests.apps.readmes import check_components
from tests.cli.kit import Process, plain, screen
from tests.docs.pages import blocks, code, rows, section
from tests.support.children import ROOT
from tests.support.forkserver import Forks
from tests.support.loop import PATIENCE
from tools import helpdesk_corpus

README = ROOT / "src" / "pausepoint" / "apps" / "helpdesk" / "README.md"
OURS = ("-m", "pausepoint.apps.helpdesk")


@pytest.fixture
def desk(tmp_path: Path, forks: Forks) -> Forked:
    return Forked("helpdesk", tmp_path, forks)


@pytest.mark.long
def test_without_a_terminal_it_plays_its_sample_out_of_the_wheel_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    done = ran("helpdesk", tmp_path, PYTHONPATH=str(wheel))
    assert (done.code, done.stderr) == (0, "")
    assert "> Where is A-1001" in done.stdout
    assert "Done: order A-1002 goes to Harbour Road 17, 24105 Kiel." in done.stdout
    [shop] = (tmp_path / ".pausepoint").glob("shop-of-chat-*.db")
    assert effects(shop).total() == 4


@pytest.mark.long
def test_a_sample_goes_the_same_way_each_time(desk: Forked) -> None:
    """It pays a refund and takes an appointment, which it could not do twice in the same shop."""
    first, second = desk("--play", "english"), desk("--play", "english")
    assert (first.code, first.stdout) == (0, second.stdout)


@pytest.mark.long
def test_json_is_one_document_and_lines_can_be_said_one_by_one(tmp_path: Path, desk: Forked) -> None:
    first = desk("--session-id", "c1", "--say", "退款 C-3003 🐙", "--json")
    assert first.code == 3
    shown = json.loads(first.stdout)
    assert (shown["session_id"], shown["status"], shown["questions"][0]["next_question"]) == (
        "c1", "waiting", "退款：请告诉我原因（损坏、发错货、不想要或者太迟）。",
    )  # fmt: skip
    assert desk("inbox", "--json").code == 0
    second = desk("--session-id", "c1", "--say", "坏了", "--say", "好的", "--say", "再见")
    assert (second.code, second.stderr) == (0, "")
    assert second.stdout.splitlines()[-1] == "  再见！"
    ended = desk("--session-id", "c1", "--say", "hello", "--json")
    assert (ended.code, ended.stdout) == (5, "")
    error = json.loads(ended.stderr.splitlines()[-1])["error"]
    assert "Session 'c1' is completed and accepts no more messages" in error
    assert effects(tmp_path / ".pausepoint" / "shop.db")["refunds"] == 1


@pytest.mark.long
def test_the_commands_of_pausepoint_are_other_channels(tmp_path: Path, desk: Forked) -> None:
    desk("--session-id", "c1", "--say", "refund B-2001, it is damaged")
    assert "Shall I refund 35.50" in desk("inbox").stdout
    answered = desk("answer", "c1", "--approve", "--run", "--by", "ann")
    assert answered.code == 3  # the chat waits for the next message
    assert effects(tmp_path / ".pausepoint" / "shop.db")["refunds"] == 1
    assert desk("send", "c1", "where is A-1001?").code == 0
    assert desk("resume", "c1").code == 3
    shown = desk("--session-id", "c1", "--say", "bye")
    assert (shown.code, shown.stdout.splitlines()[-1]) == (0, "  Goodbye!")


@pytest.mark.long
def test_the_shop_lies_where_it_is_wanted(tmp_path: Path, desk: Forked) -> None:
    (tmp_path / "mine").mkdir()
    for number, (given, found) in enumerate([("mine", "mine/shop.db"), ("other.db", "other.db")]):
        assert desk("--shop", given, "--session-id", f"c{number}", "--say", "bye").code == 0
        assert (tmp_path / found).exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--time-zone", "Mars"], "--time-zone: There is no time zone 'Mars'"),
        (["--now", "soon"], "--now: 'soon' is not a date or time. Write 2030-03-04"),
        (["--rounds", "0"], "--rounds: Input should be greater than or equal to 1"),
        (["--expires", "0"], "--expires: Input should be greater than 0"),
        (["--expires", "nan"], "--expires: nan is not a valid number of minutes"),
        (["--language", "fr"], "--language"),
        (
            ["--play", "nowhere.txt"],
            "--play: nowhere.txt: No such file or directory. Name a file, or a sample: english",
        ),
        (["--play", "empty.txt"], "--play: empty.txt has no lines to send"),
        (["--say", "hi", "--play", "english"], "--say and --play cannot be combined"),
        (["--shop", "empty.txt/x.db"], "shop: "),
        (["--sy", "x"], "There is no option --sy. Did you mean"),
        (["chta"], "no command 'chta'. Did you mean 'chat'?"),
    ],
)
def test_bad_input_is_refused_with_a_message_that_names_it(
    tmp_path: Path, desk: Forked, args: list[str], said: str
) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n")
    done = desk(*args)
    assert done.code == 2, done
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / ".pausepoint" / "shop.db").exists()


@pytest.mark.long
def test_a_file_that_is_no_shop_and_settings_for_an_old_chat_are_refused(tmp_path: Path, desk: Forked) -> None:
    (tmp_path / "no.db").write_text("this is no database at all, " * 50)
    done = desk("--shop", "no.db", "--say", "hi")
    assert (done.code, "cannot be used as the shop's file" in done.stderr) == (2, True)
    desk("--session-id", "c1", "--say", "hi")
    done = desk("--session-id", "c1", "--rounds", "2", "--say", "hi")
    assert (done.code, done.stderr) == (
        2, "helpdesk: --rounds: Chat 'c1' already has its settings. Pass them only for a new chat.\n",
    )  # fmt: skip


@pytest.mark.long
def test_a_late_answer_is_told_so_in_the_language_of_the_chat(tmp_path: Path, desk: Forked) -> None:
    asked = desk("--session-id", "c1", "--expires", "0.02", "--say", "退款 C-3003", "--json")
    question = json.loads(asked.stdout)["questions"][0]
    time.sleep(max((datetime.fromisoformat(question["expired_at"]) - datetime.now(UTC)).total_seconds(), 0))
    late = desk("--session-id", "c1", "--say", "坏了", "--json")
    assert "该问题已失效，您的回答未被采用。" in late.stderr
    texts = [each["text"] for each in json.loads(late.stdout)["transcript"]]
    assert "坏了" not in texts
    assert any(text.startswith("退款：没有及时收到您的回答") for text in texts)
    assert json.loads(late.stdout)["questions"][0]["next_question"].startswith(
        "退款：请告诉我原因"
    )  # it is asked again


@pytest.mark.long
def test_a_failure_is_told_to_the_customer_without_internals_and_to_programs_with_the_reason(
    tmp_path: Path, desk: Forked
) -> None:
    desk("--session-id", "c1", "--say", "refund B-2001, it is damaged")
    shop = tmp_path / ".pausepoint" / "shop.db"
    kept = shop.rename(tmp_path / "elsewhere.db")
    done = desk("--session-id", "c1", "--say", "yes")
    assert done.code == 1
    assert "Something went wrong on our side. Nothing is lost." in done.stdout
    shown = done.stdout + "".join(line for line in done.stderr.splitlines() if not line.startswith("Continue: "))
    assert not any(word in shown for word in ("shop.db", "Traceback", "settle", "serve", "Error", "c1"))
    assert "shop.db is missing" in json.loads(desk("--session-id", "c1", "--say", "hm", "--json").stdout)["trouble"]
    kept.rename(shop)
    assert "Done: 35.50 €" in desk("--session-id", "c1", "--say", "where is A-1001?").stdout
    assert effects(shop)["refunds"] == 1


def test_a_session_that_is_no_chat_is_refused(tmp_path: Path, desk: Forked) -> None:
    asked = desk("--session-id", "c1", "--say", "refund", "--json")
    errand = json.loads(asked.stdout)["questions"][0]["sub_chain_id"]
    done = desk("--session-id", errand, "--say", "hi")
    assert (done.code, done.stderr) == (
        2,
        f"helpdesk: --session-id: {errand!r} is not a chat but a session of workflow errand. Name a chat, or a new"
        " id.\n",
    )


# at a terminal


@pytest.mark.long
@pytest.mark.parametrize("width", [80, 140])
def test_at_a_terminal_it_prompts_and_ctrl_c_leaves_a_chat_that_goes_on(tmp_path: Path, width: int) -> None:
    with Process("--session-id", "c1", cwd=tmp_path, program=OURS, tty=True, size=(width, 30)) as process:
        process.until("> ")
        process.type("change the address of A-1002\n")
        process.until("the city.")
        process.interrupt()
        done = process.wait()
    assert done.code == 130
    shown = screen(done.stdout)
    assert max(map(len, shown.splitlines())) <= max(width, len(shown.splitlines()[-1]))
    assert "Interrupted. Nothing in the chat is lost." in shown
    assert shown.splitlines()[-1].endswith("-m pausepoint.apps.helpdesk --session-id c1")
    with Process("--session-id", "c1", cwd=tmp_path, program=OURS, tty=True, size=(width, 30)) as process:
        process.until("The new address: please tell me")  # it is asked again
        process.type("Harbour Road 7, 24105 基尔\n")
        process.until("to Harbour Road 7, 24105 基尔?")
        process.type("yes, go ahead\n")
        process.until("goes to Harbour Road 7, 24105 基尔.")
        process.type("\nbye\n")
        done = process.wait()
    assert (done.code, plain(done.stdout).rstrip().splitlines()[-1]) == (0, "  Goodbye!")


@pytest.mark.long
def test_ctrl_d_leaves_the_chat_waiting(tmp_path: Path) -> None:
    with Process(cwd=tmp_path, program=OURS, tty=True) as process:
        process.until("> ")
        process.type("\x04")
        done = process.wait()
    assert done.code == 3
    assert "Continue: " in screen(done.stdout).splitlines()[-1]
    assert "--session-id chat-" in screen(done.stdout).splitlines()[-1]


def test_the_share_of_a_corpus_that_is_understood_is_measured(here: Path) -> None:
    lines = ["utterance,intent", "where is my order?,track_order", "sing,cancel_order", "I lost my bill,get_invoice"]
    (here / "corpus.csv").write_text("\n".join(lines), "utf-8")
    sentences = helpdesk_corpus.sample(here / "corpus.csv", 50, 23, others=False)
    assert sorted(intent for _, intent in sentences) == ["cancel_order", "track_order"]
    understood, failed = asyncio.run(helpdesk_corpus.measure(sentences, show=False))
    assert (understood, failed) == ({"cancel_order": 0, "track_order": 1}, 0)
    others = helpdesk_corpus.sample(here / "corpus.csv", 50, 23, others=True)
    assert asyncio.run(helpdesk_corpus.measure(others, show=False)) == ({"get_invoice": 1}, 0)


# the README


def test_the_table_of_components_names_every_file_and_only_those_that_exist() -> None:
    check_components(README, "sample_data", "page")


def test_the_readme_says_what_the_code_does() -> None:
    steps = [code(row[0])[0] for row in rows(section(README, "The nodes"))]
    assert [step for step in steps if "." not in step] == [step.name for step in helpdesk.steps]
    tools = {code(row[0])[0]: set(code(row[1])) for row in rows(section(README, "What it can do"))}
    assert {name: set(model.model_fields) for name, model in MODELS.items()} == {
        name: tools[name] for name in MODELS
    }  # fmt: skip
    text = README.read_text("utf-8")
    assert f"after {ROUNDS} questions" in text
    assert f"{int(EXPIRES.total_seconds() // 60)} minutes" in text
    assert all(script(name) for name in SCRIPTS)
    assert {path.name for path in SAMPLE.iterdir()} == {"shop.json", "shop.sql", *SCRIPTS.values()}


@pytest.mark.long
def test_the_channel_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    (block,) = blocks(README)
    done = subprocess.run(
        [sys.executable, "-c", block.source], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.splitlines() == [
        "The refund: please tell me the reason (damaged, wrong item, unwanted or late).",
        "Shall I refund 35.50 € for order B-2001 (Tea kettle)? Yes or no?",
    ], done.stderr
