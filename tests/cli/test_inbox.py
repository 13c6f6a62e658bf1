"""Questions on the command line: `inbox`, `answer`, and `run` and `resume` that ask in place at a terminal."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from tests.cli import survey as sample
from tests.cli.desk import last_line
from tests.cli.kit import Done, Process, plain, run
from tests.cli.samples import STORE, within
from tests.cli.zoo import here

ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(sample.__file__, tmp_path / "survey.py")
    (tmp_path / "pyproject.toml").write_text('[tool.pausepoint.workflows]\nsurvey = "survey.py:survey"\n')
    return tmp_path


def asking(folder: Path, *hows: str, **options: Any) -> dict[str, str]:
    """A session for each, which has its name as id and waits for an answer: the ids of the questions, by session."""

    async def start(engine: Engine) -> dict[str, str]:
        found = {}
        for how in hows:
            session = await engine.start(sample.survey, how=how, session_id=how, **options)
            found[how] = (await session.outcome()).questions[0].id
        return found

    ids: dict[str, str] = within(folder / STORE, start, sample.survey)
    return ids


def talk(folder: Path, *args: str, says: dict[str, str], program: tuple[str, ...] = ("-m", "pausepoint")) -> Done:
    """A command at a terminal; what is typed once something was said."""
    with Process(*args, cwd=folder, tty=True, program=program) as process:
        for said, typed in says.items():
            process.until(said)
            process.type(typed)
        done = process.wait()
    return Done(done.code, plain(done.stdout), "")


def said(folder: Path, session: str) -> Any:
    """The answer that reached the state of a session."""
    return json.loads(here(folder, "show", session, "--field", "said", "--json").stdout)


def waiting(folder: Path) -> int:
    """How many questions wait."""
    total: int = json.loads(here(folder, "inbox", "--json").stdout)["total"]
    return total


# the list


def test_the_inbox_lists_what_waits_over_all_sessions_with_age_and_time_left(folder: Path) -> None:
    ids = asking(folder, "tone", "call", owner="ann")
    asking(folder, "refund", owner="ben")
    done = here(folder, "inbox")
    head, *lines = done.stdout.splitlines()
    assert (done.code, head.split()) == (0, ["ID", "SESSION", "WORKFLOW", "AGE", "TIME", "QUESTION"])
    assert [re.split(r"  +", line)[0] for line in lines[:2]] == [ids["tone"], ids["call"]]
    assert [re.split(r"  +", line)[1] for line in lines] == ["tone", "call", "refund"]
    assert [re.split(r"  +", line)[5] for line in lines] == ["Which tone for 鯨?", "Where to?", "Refund 20 €?"]
    assert re.search(r"tone +survey +[\d.]+ m?s +29 min left", lines[0])
    assert last_line(done.stderr) == f"Answer:  pausepoint answer {ids['tone']}"
    found = json.loads(here(folder, "inbox", "--owner", "ann", "--limit", "1", "--json").stdout)
    assert (found["total"], [each["id"] for each in found["questions"]]) == (2, [ids["tone"]])
    assert found["questions"][0]["answer"] == f"pausepoint answer {ids['tone']}"
    short = here(folder, "inbox", "--limit", "1")
    assert (len(short.stdout.splitlines()), "… and 2 more. --all lists all." in short.stderr) == (2, True)
    assert "more" not in here(folder, "inbox", "--all").stderr
    (line,) = here(folder, "inbox", "call", "--jsonl").stdout.splitlines()
    assert json.loads(line)["sub_chain_id"].startswith("call.")
    assert "Did you mean 'survey'" in here(folder, "inbox", "--workflow", "survy").stderr
    assert found["next"] is not None
    rest = json.loads(here(folder, "inbox", "--owner", "ann", "--after", found["next"], "--json").stdout)
    assert ([each["id"] for each in rest["questions"]], rest["next"]) == ([ids["call"]], None)
    newest = json.loads(here(folder, "inbox", "--sort", "updated", "--json").stdout)["questions"]
    assert [each["session_id"] for each in newest] == ["refund", "call", "tone"]
    refused = here(folder, "inbox", "--after", found["next"], "--reverse")
    assert (refused.code, "--after is not a cursor of this list" in refused.stderr) == (2, True)


def test_ids_are_cut_on_a_terminal_and_the_hint_has_the_whole_id(folder: Path) -> None:
    ids = asking(folder, "tone")
    shown = plain(run("inbox", cwd=folder, tty=True).stdout)
    assert f"{ids['tone'][:6]}  tone" in shown
    assert f"Answer: pausepoint answer {ids['tone']}" in " ".join(shown.split())
    assert here(folder, "answer", ids["tone"], "formal").code == 0
    assert "resumed by" in here(folder, "inbox", "--status", "RESUMED").stdout
    assert "No question waits" in here(folder, "inbox").stderr


def test_without_a_store_the_inbox_is_empty_and_nothing_is_made(tmp_path: Path) -> None:
    done = run("inbox", "--json", cwd=tmp_path)
    assert (done.code, json.loads(done.stdout)["questions"], list(tmp_path.iterdir())) == (0, [], [])
    assert run("answer", "x", "y", cwd=tmp_path).code == 4


# answering without a terminal


@pytest.mark.long
def test_run_without_a_terminal_ends_with_3_and_the_command_that_answers_and_goes_on(folder: Path) -> None:
    done = run("run", "survey", "--how", "tone", "--session-id", "mine", cwd=folder)
    assert done.code == 3
    assert "Question: Which tone for 鯨? (one of formal, playful; 29 min left)" in done.stderr
    words = shlex.split(last_line(done.stderr).partition("Answer:")[2])
    assert words[:2] == ["pausepoint", "answer"]
    assert words[-1] == "--run"
    done = run(*words[1:], "playful", cwd=folder)
    assert (done.code, "How many words?" in done.stderr) == (3, True)
    words = shlex.split(last_line(done.stderr).partition("Answer:")[2])
    done = run(*words[1:], "300", "--json", cwd=folder)
    found = json.loads(done.stdout)
    assert (done.code, found["status"], found["state"]["said"]) == (0, "completed", ["playful", 300])


@pytest.mark.long
def test_an_answer_is_recorded_once_with_who_gave_it_and_waits_for_who_drives(folder: Path) -> None:
    ids = asking(folder, "address")
    first = here(folder, "answer", "address", "--set", "street=Kai 鯨", "--set", "number=7", "--by", "ann", "--json")
    found = json.loads(first.stdout)
    assert (found["question_id"], found["by"], found["channel"]) == (ids["address"], "ann", "cli")
    assert (first.code, found["session"]["status"], found["resume"]) == (0, "ready", "pausepoint resume address")
    again = here(folder, "answer", ids["address"], "--data", '{"street":"Kai 鯨","number":7}', "--json")
    assert (again.code, json.loads(again.stdout)["answered_at"]) == (0, found["answered_at"])
    other = here(folder, "answer", ids["address"], "--data", '{"street":"Elsewhere","number":7}')
    assert (other.code, "already has a different answer, given by ann through cli" in other.stderr) == (5, True)
    assert here(folder, "resume", "address").code == 0
    assert said(folder, "address") == {"street": "Kai 鯨", "number": 7, "kind": "home"}


@pytest.mark.long
def test_confirmations_are_approved_or_rejected_with_a_reason(folder: Path) -> None:
    ids = asking(folder, "refund", "tone")
    assert here(folder, "answer", "tone", "--approve").code == 2
    done = here(folder, "answer", ids["refund"], "--reject", "no receipt", "--run")
    assert (done.code, "was declined: no receipt" in done.stderr) == (1, True)
    asked = json.loads(here(folder, "run", "survey", "--how", "refund", "--force-restart", "--json").stdout)
    (question,) = asked["questions"]
    done = here(folder, *shlex.split(question["answer"])[1:], "--approve", "--json")
    assert (done.code, json.loads(done.stdout)["state"]["said"]) == (0, True)


@pytest.mark.long
def test_parameters_are_set_one_by_one_and_an_answer_may_come_through_a_pipe(folder: Path) -> None:
    ids = asking(folder, "collect", "tone")
    done = here(folder, "answer", "collect", "--set", "street=Quay", "--run")
    assert (done.code, "deliver needs: number." in done.stderr) == (3, True)
    assert run("answer", ids["collect"], "-", "--run", cwd=folder, typed="7\n").code == 0
    assert said(folder, "collect") == "to Quay 7"
    assert run("answer", "tone", "--data", "-", cwd=folder, typed='"formal"').code == 0


def test_with_run_nothing_is_taken_where_the_code_is_not_at_hand(folder: Path) -> None:
    ids = asking(folder, "tone")
    (folder / "pyproject.toml").unlink()
    done = run("answer", ids["tone"], "formal", "--run", cwd=folder)
    assert done.code == 2
    assert "needs the code of workflow 'survey', which is not loaded" in done.stderr
    assert done.stderr.endswith(" Without --run the answer is only recorded.\n")
    assert run("answer", ids["tone"], "formal", cwd=folder).code == 0


def test_later_shows_the_question_and_leaves_it_open(folder: Path) -> None:
    ids = asking(folder, "tone")
    done = here(folder, "answer", "--later")
    assert (done.code, last_line(done.stderr)) == (3, f"Answer:  pausepoint answer {ids['tone']}")
    assert "Which tone for 鯨?" in done.stdout
    found = json.loads(here(folder, "answer", "tone", "--later", "--json").stdout)
    assert json.loads(found["context_json"]) == {"how": "tone", "said": None}
    assert found["status"] == "WAITING_USER_INPUT"
    assert json.loads(here(folder, "inbox", "--json").stdout)["questions"][0]["expired_at"] == found["expired_at"]
    stale = here(folder, "answer", "tone", "formal", "--seen", "00" * 16)
    assert (stale.code, "changed" in stale.stderr) == (5, True)
    assert here(folder, "answer", "tone", "formal", "--seen", found["digest"]).code == 0


def test_what_cannot_be_meant_is_refused_in_words_and_nothing_is_answered(folder: Path) -> None:
    ids = asking(folder, "tone", "address", "both")
    for words, code, text in (
        ("tone rude", 2, "it must be one of 'formal', 'playful'"),
        ("tone", 2, "There is no terminal to ask at."),
        ("tone formal --approve", 2, "There is more than one answer"),
        ("tone --set a=1", 2, "asks for one value"),
        ("address --set stret=Quay", 2, "Did you mean 'street'?"),
        ("address --set number=x", 2, "--set number: 'x' is not a whole number"),
        ("address --set number=1 --set number=2", 2, "is given 2 times"),
        ("address --data {", 2, "--data is not JSON"),
        ("nobody x", 4, "No question or session id begins with 'nobody'"),
        ("both x", 2, "2 questions match. Name one:"),
    ):
        done = here(folder, "answer", *words.split())
        assert (done.code, text in done.stderr) == (code, True), (words, done)
    assert waiting(folder) == len(ids) + 1


def test_what_is_asked_cannot_move_a_terminals_cursor_and_keeps_its_letters(folder: Path) -> None:
    asking(folder, "odd")
    for words in ("inbox", "answer odd --later", "show odd", "ls", "answer odd --approve"):
        done = here(folder, *words.split())
        assert "\x1b" not in done.stdout + done.stderr, words
        assert "هل أنت متأكد؟ 🦑" in done.stdout + done.stderr, words
    assert run("answer", "odd", "نعم 🦑", "--run", cwd=folder).code == 0
    assert said(folder, "odd") == "نعم 🦑"


# at a terminal


def test_run_asks_in_place_at_a_terminal_until_nothing_is_asked(folder: Path) -> None:
    says = {
        "2  playful": "rude\n", "not one of formal, playful": "2\n",
        "[500]: ": "many\n", "not a whole number": "\n",
    }  # fmt: skip
    done = talk(folder, "run", "survey", "--how", "tone", "--session-id", "mine", says=says)
    assert (done.code, "Session mine of survey completed" in done.stdout) == (0, True)
    assert said(folder, "mine") == ["playful", 500]
    history = here(folder, "events", "mine", "--type", "question", "--jsonl").stdout
    answered = [each for each in map(json.loads, history.splitlines()) if each["event_type"] == "question.answered"]
    assert [each["data"]["channel"] for each in answered] == ["cli", "cli"]


@pytest.mark.long
def test_the_prompts_follow_the_schema_and_ctrl_d_leaves_the_question_for_a_resume(folder: Path) -> None:
    left = talk(folder, "run", "survey", "--how", "call", "--session-id", "mine", says={"street (where": "\x04"})
    assert left.code == 3
    assert re.search(rf"pausepoint answer {ID} --target survey.py:survey --run$", left.stdout.rstrip())
    says = {
        "street (where it goes): ": "\n", "street is required": "Quay\n", "number (INTEGER): ": "x\n",
        "not a whole number": "7\n", "[home]: ": "2\n",
    }  # fmt: skip
    done = talk(folder, "resume", "mine", says=says)
    assert (done.code, said(folder, "mine")) == (0, {"street": "Quay", "number": 7, "kind": "work"})


@pytest.mark.long
def test_answer_asks_at_a_terminal_and_drives_on_if_asked_to(folder: Path) -> None:
    asking(folder, "collect", "refund", "tags")
    says = {"street": "\n", "number": "\n", "Give at least one": "Quay\n7\n"}
    assert talk(folder, "answer", "collect", "--run", says=says).code == 0
    assert said(folder, "collect") == "to Quay 7"
    done = talk(folder, "answer", "refund", says={"[y/n]": "perhaps\n", "Type y or n": "n\n", "Reason": "no receipt\n"})
    assert (done.code, "refund is ready" in done.stdout) == (0, True)
    assert '{\n  "order": {\n    "id": 7\n  }\n}' in done.stdout.replace("\r", "")
    assert talk(folder, "answer", "--run", says={"a, b": "red, blue\n"}).code == 0
    assert said(folder, "tags") == ["red", "blue"]


def test_several_questions_of_one_session_are_asked_one_after_the_other(folder: Path) -> None:
    done = talk(folder, "run", "survey", "--how", "both", "--session-id", "x", says={"First?": "1\n", "Second?": "2\n"})
    assert (done.code, said(folder, "x")) == (0, ["1", "2"])


def test_one_ctrl_c_at_a_prompt_ends_the_program_and_not_the_question(folder: Path) -> None:
    done = talk(folder, "run", "survey", "--how", "tone", "--session-id", "mine", says={"Answer (": "\x03"})
    assert (done.code, last_line(done.stdout)) == (130, "Resume:  pausepoint resume mine --target survey.py:survey")
    assert waiting(folder) == 1
    assert talk(folder, "answer", "mine", says={"Answer (": "for\x03"}).code == 130
    found = json.loads(here(folder, "answer", "mine", "--later", "--json").stdout)
    assert (found["status"], found["current_round"]) == ("WAITING_USER_INPUT", 1)


def test_who_types_while_another_answers_is_told_and_sees_how_it_goes_on(folder: Path) -> None:
    with Process("run", "survey", "--how", "tone", "--session-id", "mine", cwd=folder, tty=True) as process:
        process.until("Answer (")
        assert here(folder, "answer", "mine", "formal", "--by", "ann").code == 0
        process.type("playful\n")
        assert "already has a different answer, given by ann" in process.until("How many words?").replace("\n", " ")
        process.type("9\n")
        assert process.wait().code == 0
    assert said(folder, "mine") == ["formal", 9]


@pytest.mark.long
def test_an_answer_that_is_typed_too_late_is_not_taken_and_the_session_goes_on_as_it_says(folder: Path) -> None:
    with Process("run", "survey", "--how", "soon", "--session-id", "mine", cwd=folder, tty=True) as process:
        process.until("Answer")
        while waiting(folder):
            pass
        process.type("me\n")
        done = process.wait()
    assert (done.code, "accepts no more answers" in plain(done.stdout).replace("\n", " ")) == (0, True)
    assert said(folder, "mine") == "nobody"


# elsewhere


def test_commands_that_look_name_the_question_and_the_command_that_answers(folder: Path) -> None:
    ids = asking(folder, "tone", "call")
    command = f"Answer:  pausepoint answer {ids['tone']}"
    for words in ("show tone", "watch tone", "why tone ask"):
        done = here(folder, *words.split())
        assert "Question: Which tone for 鯨? (one of formal, playful; " in done.stdout, words
        assert command in done.stdout, words
    assert f"pausepoint answer {ids['call']}" in here(folder, "show", "call").stdout
    assert json.loads(here(folder, "show", "tone", "--json").stdout)["questions"][0]["id"] == ids["tone"]
    listed = here(folder, "ls")
    assert "asks: Which tone for 鯨?" in listed.stdout
    assert "2 questions wait for an answer:  pausepoint inbox" in listed.stderr
    assert "asks: Where to?" in here(folder, "status").stdout
    assert "pausepoint inbox" in here(folder, "resume").stderr


def test_a_shell_is_offered_the_questions_that_wait_and_their_sessions(folder: Path) -> None:
    ids = asking(folder, "tone")
    for begun, offered in {"": [ids["tone"], "tone"], "to": ["tone"]}.items():
        line = f"pausepoint answer {begun}"
        env = {"_PAUSEPOINT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "2"}
        found = run(cwd=folder, env=env).stdout.splitlines()
        assert [each.partition(",")[2] for each in found] == offered


@pytest.mark.long
def test_a_program_has_the_commands_too_and_calls_itself(folder: Path) -> None:
    program = ("survey.py",)
    done = run("--how", "tone", "--session-id", "mine", cwd=folder, program=program)
    assert done.code == 3
    command = last_line(done.stderr).partition("Answer:")[2]
    assert re.fullmatch(rf"\S*python\S* survey.py answer {ID} --run", command.strip())
    assert run("inbox", cwd=folder, program=program).stdout.count("Which tone") == 1
    done = talk(folder, "answer", "mine", "--run", says={"Answer (": "1\n", "[500]": "3\n"}, program=program)
    assert (done.code, said(folder, "mine")) == (0, ["formal", 3])
