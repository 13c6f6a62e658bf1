"""The memo as a program, and its README: every command and message of the specification, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine, Session, artifacts
from pausepoint.apps.memo import AGENTS, memo, search
from pausepoint.apps.memo import checks as checking
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo.__main__ import main
from pausepoint.apps.memo.documents import ENDINGS
from pausepoint.apps.memo.models import CompanyData, MemoDocument
from tests.apps import memo_kit
from tests.apps.calls import Forked, calling, ran
from tests.apps.memo_kit import FILES, ONE, PAGE, Calls, Memo, Program, company, searched
from tests.apps.pdfs import make_pdf
from tests.cli.kit import Process
from tests.docs.pages import rows, section
from tests.support.children import ROOT
from tests.support.forkserver import Forks

README = ROOT / "src" / "pausepoint" / "apps" / "memo" / "README.md"


call, calls, program = calling(main), memo_kit.calls, memo_kit.program


# as a process


@pytest.mark.long
def test_without_arguments_or_terminal_it_writes_a_sample_out_of_the_wheel_from_any_folder(
    wheel: Path, tmp_path: Path
) -> None:
    done = ran("memo", tmp_path, PYTHONPATH=str(wheel))
    assert (done.code, done.stderr) == (0, "")
    for number, agent in enumerate(AGENTS, 1):
        assert f"Running agent: {agent}\nFinished agent: {agent} ({number} of 13) in " in done.stdout
    assert f"✓ Memo complete: {ONE}/4-final-draft.md\n" in done.stdout
    assert sorted(str(path.relative_to(tmp_path / ONE)) for path in (tmp_path / ONE).rglob("*")
                  if path.is_file() and ".pausepoint" not in path.parts) == FILES  # fmt: skip


@pytest.mark.long
@pytest.mark.covers("S4.5", "S4.60", "S4.61", "S4.63")
def test_ctrl_c_in_an_agent_says_how_to_resume_and_that_goes_on_there(tmp_path: Path, forks: Forks) -> None:
    """The specification's example: an interruption during citation enrichment."""
    memo = Memo(tmp_path, forks)
    said = memo.write(at="enrich_visualizations", by=signal.SIGINT)
    (command,) = re.findall(r"^Resume: .* (Fernstone --resume --version v0\.0\.1)$", said, re.MULTILINE)
    assert "Interrupted. Finished work is kept." in said
    memo.write("--resume", at="cite", by=signal.SIGINT)
    said = memo.write(*command.split()[1:])
    goes_on = said[said.index("✓ Resuming from checkpoint: ") :]
    agent = goes_on.split()[4]
    assert agent in ("cite", "validate_citations"), "an agent that has ended when the signal is seen is kept"
    later = AGENTS[AGENTS.index(agent) :]
    assert re.findall(r"^Running agent: (\w+)$", goes_on, re.MULTILINE) == [*later]


@pytest.mark.long
def test_a_kill_while_an_edit_is_worked_in_loses_neither(tmp_path: Path, forks: Forks) -> None:
    memo = Memo(tmp_path, forks)
    memo.write()
    before = len(memo.order)
    header = memo.desk.file("header.md")
    header.write_text(header.read_text().replace("Investment memo", "Confidential memo"))
    memo.write("--resume", "--edits", "accept", at="fact_check")
    memo.write("--resume")
    assert memo.order[before:] == ["cite", "validate_citations", "fact_check", "fact_check", "validate", "finalize"]
    assert b"Confidential memo" in memo.desk.contents()["header.md"]
    assert "Confidential memo" in memo.desk.read("4-final-draft.md")
    assert memo.write("--resume").startswith("✓ Memo already complete: ")


@pytest.mark.long
@pytest.mark.covers("S1.62")
def test_a_memo_that_another_process_writes_is_left_to_it(here: Path, program: Program, forks: Forks) -> None:
    child = Memo(here, forks).begin("Fernstone", at="cite", by=signal.SIGSTOP)
    child.wait_stopped()
    for option in (["--resume"], ["--from", "draft"], ["--resume", "--mode", "justify"]):
        assert program("Fernstone", *option, code=5) == "", "nothing is said to be resumed"
        assert f"{ONE} is being written by process {child.pid} " in program.err
        assert re.search(r"^Stop it: .* pause \S+$", program.err, re.MULTILINE)
    child.signal(signal.SIGCONT)
    assert child.wait() == 0
    assert program("Fernstone", "--resume") == f"✓ Memo already complete: {ONE}/4-final-draft.md\n"


@pytest.mark.long
@pytest.mark.covers("S4.107")
def test_what_an_agent_takes_and_costs_is_told_as_it_ends(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    with searched(monkeypatch, [PAGE]):
        said = program("Quietwater", "--until", "section_research", code=3)
    assert re.search(r"^Finished agent: research \(2 of 13\) in \d+\.\d\d s, \$0\.04$", said, re.MULTILINE)
    cost = re.findall(r"^Spent: (\$[\d.]+)$", said, re.MULTILINE)
    said = program("Quietwater", "--resume", code=3)
    assert re.search(r"^Finished agent: enrich_trademark \(5 of 13\) in \d+\.\d\d s$", said, re.MULTILINE)
    assert re.findall(r"^Saved by resuming: .* and (\$[\d.]+) \(3 agents skipped\)$", said, re.MULTILINE) == cost


# the messages


@pytest.mark.covers("S4.53", "S4.58", "S4.59", "S4.80", "S4.105")
def test_a_memo_goes_on_is_complete_and_says_so_in_the_words_of_the_specification(
    here: Path, program: Program, calls: Calls
) -> None:
    said = program("Fernstone", "--until", "enrich_visualizations", code=3)
    assert program.ran() == [*AGENTS[:8]]
    assert "Paused: " in program.err
    assert " Fernstone --resume --version v0.0.1" in program.err
    said = program("Fernstone", "--resume")
    assert said.startswith("✓ Resuming from checkpoint: cite\nAgents: ✓ deck_analyst ✓ research ")
    assert "✓ enrich_visualizations · cite · validate_citations" in said
    assert program.ran() == [*AGENTS[8:]]
    assert f"✓ Memo complete: {ONE}/4-final-draft.md\nScore: 10.0\nSaved by resuming: " in said
    assert "(8 agents skipped)" in said
    calls.clear()
    assert program("Fernstone", "--resume") == f"✓ Memo already complete: {ONE}/4-final-draft.md\n"
    assert calls == []


@pytest.mark.covers("S4.55", "S4.59")
def test_nothing_to_resume_is_told_apart_from_nothing_done_yet(here: Path, program: Program) -> None:
    program("Fernstone", "--resume", code=4)
    none, start = program.err.splitlines()
    assert none == "No artifacts found for Fernstone in output"
    assert start.startswith("Start a memo: ")
    assert start.endswith(" Fernstone")
    (here / ONE).mkdir(parents=True)
    said = program("Fernstone", "--resume")
    assert said.startswith("⚠️  No checkpoints found, starting from scratch...\n")
    assert "✓ Memo complete: output/Fernstone-v0.0.2/4-final-draft.md" in said
    program("Fernstone", "--resume", "--version", "v0.0.7", code=4)
    assert program.err == "No artifacts found for Fernstone v0.0.7 in output. Available versions: v0.0.1, v0.0.2.\n"


@pytest.mark.covers("S4.11", "S4.54", "S4.62", "S4.78", "S4.79", "S4.101", "S4.102", "S4.103", "S4.104")
def test_a_normal_call_begins_in_a_new_version_and_resume_takes_the_latest_or_the_one_named(
    here: Path, program: Program
) -> None:
    program("Fernstone", "--until", "research", code=3)
    (here / ONE).rename(here / "output/Fernstone-v0.0.9")  # a session knows its folder by name, so this one is new:
    before = sorted((here / "output/Fernstone-v0.0.9").rglob("*"))
    program("Fernstone", "--until", "draft", code=3)
    assert program.err.startswith("hint: output/Fernstone-v0.0.9 was not finished. Resume it: ")
    assert (here / "output/Fernstone-v0.0.10").is_dir()
    assert sorted((here / "output/Fernstone-v0.0.9").rglob("*")) == before
    said = program("Fernstone", "--resume", "--until", "cite", code=3)
    assert said.startswith("✓ Resuming from checkpoint: enrich_trademark\n")
    warning = "⚠️  Several versions are incomplete: Fernstone-v0.0.9, Fernstone-v0.0.10; resuming Fernstone-v0.0.10"
    assert warning in program.err
    program("Fernstone", "--force-restart", "--resume", "--until", "research", code=3)
    assert (here / "output/Fernstone-v0.0.11").is_dir()
    assert program.ran() == ["deck_analyst", "research"]
    said = program("Fernstone", "--resume", "--version", "v0.0.10")
    assert program.ran() == [*AGENTS[9:]]
    assert "✓ Memo complete: output/Fernstone-v0.0.10/4-final-draft.md" in said


@pytest.mark.covers("S4.10")
def test_the_folder_has_a_safe_name(here: Path, program: Program) -> None:
    company(here, "Fern & Stone / Ltd.")
    program("Fern & Stone / Ltd.", "--until", "research", code=3)
    assert [path.name for path in (here / "output").iterdir()] == ["Fern-Stone-Ltd-v0.0.1"]


@pytest.mark.long
@pytest.mark.covers("S4.83")
def test_a_part_is_redone_with_from(here: Path, program: Program) -> None:
    program("Fernstone")
    said = program("Fernstone", "--from", "cite")
    assert said.startswith("✓ Resuming from checkpoint: cite\n")
    assert program.ran() == [*AGENTS[8:]]
    assert "(8 agents skipped)" in said
    program("Fernstone", "--resume", "--type", "direct")
    assert program.out.startswith("✓ Memo already complete: "), "it is direct already"
    program("Fernstone", "--until", "research", code=3)
    program("Fernstone", "--from", "cite", code=2)
    assert program.err.startswith("memo: --from: cite has not finished yet, so there is nothing to redo. Resume: ")
    assert program.err.endswith(" Fernstone --resume --version v0.0.2\n")
    program("Fernstone", "--resume", "--until", "research", code=2)
    assert program.err == "memo: --until: research has already finished. Redo it with --from research.\n"


@pytest.mark.covers("S4.56")
def test_type_and_mode_are_those_of_the_session_unless_given_anew(here: Path, program: Program) -> None:
    program("Fernstone", "--type", "fund", "--mode", "justify", "--until", "enrich_trademark", code=3)
    header = here / ONE / "header.md"
    assert "fund commitment, in support of a decision" in header.read_text()
    program("Fernstone", "--resume", "--until", "cite", code=3)
    assert "fund commitment, in support of a decision" in (here / ONE / "4-final-draft.md").read_text()
    program("Fernstone", "--resume", "--mode", "consider")
    assert program.ran() == [*AGENTS[3:]], "the draft and the header say what the memo is for"
    assert "fund commitment, for consideration" in header.read_text()
    program("Fernstone", "--resume", "--type", "direct")
    assert program.ran() == [*AGENTS[1:]]
    names = {path.name for path in (here / ONE / "2-sections").iterdir()}
    assert "05-technology-product.md" in names
    assert json.loads((here / ONE / "state.json").read_text())["investment_type"] == "direct"


@pytest.mark.long
def test_what_is_given_anew_is_used_and_what_is_the_same_changes_nothing(
    here: Path, program: Program, calls: Calls
) -> None:
    company(here, "Fernstone", deck="deck.pdf")
    make_pdf(here / "data" / "deck.pdf", [["Fernstone", "The team of Fernstone has 12 engineers."]])
    data = here / "data" / "Fernstone.json"
    program("Fernstone", "--until", "validate", code=3)
    same: list[str | Path] = [
        "--documents",
        here / "data" / "papers",
        "--deck",
        here / "data" / "deck.pdf",
        "--data",
        data,
    ]
    calls.clear()
    program("Fernstone", "--resume", *same, code=3)
    assert calls == []
    (here / "more").mkdir()
    (here / "more" / "news.md").write_text("Fernstone raised $9 million in a funding round in 2030.\n")
    program("Fernstone", "--resume", "--documents", "more", "--until", "cite", code=3)
    assert calls.taken() == [*AGENTS[1:9]]
    assert "$9 million in a funding round in 2030[^" in (here / ONE / "4-final-draft.md").read_text()
    make_pdf(here / "new.pdf", [["Fernstone", "The team of Fernstone has 80 engineers."]])
    program("Fernstone", "--resume", "--deck", "new.pdf", "--until", "cite", code=3)
    assert calls.taken() == [*AGENTS[:9]]
    assert "has 80 engineers[^" in (here / ONE / "4-final-draft.md").read_text()
    (here / "other.json").write_text(json.dumps({"name": "Fernstone", "trademark": {"mark": "FERN™"}}))
    program("Fernstone", "--resume", "--data", "other.json", "--until", "enrich_trademark", code=3)
    assert (here / ONE / "header.md").read_text().startswith("# FERN™\n")
    program("Fernstone", "--resume", "--documents", "nowhere", code=2)
    assert program.err == "memo: nowhere: There is no such folder. Name a folder of documents with --documents.\n"


@pytest.mark.long
def test_what_is_given_anew_is_worked_in_also_after_a_crash_right_behind_it(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change and what has to be redone for it are one transaction."""
    program("Fernstone", "--mode", "consider")
    with monkeypatch.context() as crashing:
        crashing.setattr(Session, "resume", lambda *args, **options: pytest.exit("crash"))
        with pytest.raises(pytest.exit.Exception, match="crash"):
            main(["Fernstone", "--resume", "--mode", "justify"])
    program("Fernstone", "--resume")
    assert program.ran() == [*AGENTS[3:]]
    assert "in support of a decision" in (here / ONE / "4-final-draft.md").read_text()
    assert program("Fernstone", "--resume").startswith("✓ Memo already complete: ")


def test_names_that_make_the_same_folder_are_not_mixed_up(here: Path, program: Program) -> None:
    company(here, "Fern Stone")
    program("Fern Stone", "--until", "research", code=3)
    program("Fern/Stone", "--resume", code=2)
    assert "output/Fern-Stone-v0.0.1 is the memo of 'Fern Stone', not of 'Fern/Stone'" in program.err
    program("Fern Stone", "--resume", code=3)
    (answer,) = re.findall(r"^Answer: .* (answer \S+ approve)$", program.err, re.MULTILINE)
    program(*answer.split())
    program("Fern/Stone", "--resume", code=2)
    assert "is the memo of 'Fern Stone'" in program.err
    assert program("FERN  STONE".replace("  ", " "), "--resume", code=4) == ""


def test_the_command_that_is_printed_goes_on_wherever_the_memo_lies_and_whatever_its_name(
    here: Path, program: Program
) -> None:
    company(here, "--resume")
    args = ["--output", "elsewhere", "--until", "research", "--data", "data/resume.json", "--", "--resume"]
    resume, hint = r"^Resume: .*? (--resume .*)$", r"^hint: .*: .*? (--resume .*)$"
    for found, agent in {resume: "section_research", hint: "draft"}.items():  # the hint is about the first version
        program(*args, code=3)
        (line,) = re.findall(found, program.err, re.MULTILINE)
        program("--until", agent, *shlex.split(line), code=3)
        assert program.ran() == [agent]


# review


@pytest.mark.covers("S4.67", "S4.69")
def test_a_review_is_asked_for_survives_resumes_and_is_answered_with_the_command_that_is_printed(
    here: Path, program: Program
) -> None:
    said = program("Quietwater", code=3)
    assert "Skipped agent: deck_analyst (there is no deck)\nRunning agent: research" in said
    assert "Human review: the memo about Quietwater has a score of " in said
    said = program("Quietwater", "--resume", code=3)
    assert said.startswith("✓ Resuming from checkpoint: finalize\n")
    (answer,) = re.findall(r"^Answer: .* (answer \S+ approve)$", program.err, re.MULTILINE)
    program(*answer.split(), code=0)
    program("Quietwater", "--resume")
    assert "✓ Memo complete: output/Quietwater-v0.0.1/4-final-draft.md" in program.out
    text = (here / "output/Quietwater-v0.0.1/4-final-draft.md").read_text()
    assert text.count("The available sources contain ") == 9


@pytest.mark.long
def test_to_write_a_memo_does_not_go_on_with_another_one_whose_review_was_answered(
    here: Path, program: Program
) -> None:
    program("Quietwater", code=3)
    (answer,) = re.findall(r"^Answer: .* (answer \S+ approve)$", program.err, re.MULTILINE)
    program(*answer.split())
    program("Fernstone")
    assert not (here / "output/Quietwater-v0.0.1/state.json").exists()
    program("Quietwater", "--resume", "--until", "validate", code=2)
    assert not (here / "output/Quietwater-v0.0.1/state.json").exists(), "a call that is refused changes nothing"


def at_terminal(cwd: Path, *args: str, answers: list[tuple[str, str]]) -> tuple[int, str]:
    """The program at a terminal, where somebody types an answer to each prompt."""
    with Process(*args, cwd=cwd, tty=True, program=("-m", "pausepoint.apps.memo")) as process:
        for prompt, answer in answers:
            process.until(prompt)
            process.type(f"{answer}\n")
        done = process.wait()
    return done.code, done.stdout


@pytest.mark.long
@pytest.mark.covers("S4.78", "S4.97")
def test_at_a_terminal_it_offers_to_resume_asks_for_the_review_and_about_edits(here: Path, program: Program) -> None:
    program("Quietwater", "--until", "draft", code=3)
    answers = [("output/Quietwater-v0.0.1 was not finished. Resume it?", "y"), ("(approve, reject, later)", "approve")]
    code, said = at_terminal(here, "Quietwater", answers=answers)
    assert code == 0, said
    assert "✓ Resuming from checkpoint: enrich_trademark" in said
    assert "✓ Memo complete: output/Quietwater-v0.0.1/4-final-draft.md" in said
    header = here / "output/Quietwater-v0.0.1/header.md"
    header.write_text(header.read_text().replace("Investment", "Confidential"))
    code, said = at_terminal(here, "Quietwater", "--resume", answers=[("Accept or discard the changes?", "stop")])
    assert (code, "cite (0." in said) == (6, True)
    answers = [("Accept or discard the changes?", "accept"), ("(approve, reject, later)", "later")]
    code, said = at_terminal(here, "Quietwater", "--resume", answers=answers)
    assert (code, "Running agent: cite" in said) == (3, True)


@pytest.mark.long
def test_ctrl_c_says_what_is_finished_first_and_twice_ends_that(here: Path) -> None:
    with socket.create_server(("localhost", 0)) as silent:  # a model that never answers
        env = {"PAUSEPOINT_MODEL": "m", "PAUSEPOINT_MODEL_URL": f"http://localhost:{silent.getsockname()[1]}/v1"}
        with Process(cwd=here, env=env, program=("-m", "pausepoint.apps.memo")) as process:
            process.until("Running agent: section_research\n")
            asked, _ = silent.accept()
            process.signal(signal.SIGINT)
            process.until("SIGINT received: The current operation of section_research finishes first. Interrupt again")
            process.signal(signal.SIGINT)
            done = process.wait()
            asked.close()
    assert done.code == 130
    assert done.stdout.endswith(" Fernstone --resume --version v0.0.1\n")


@pytest.mark.long
def test_ctrl_c_where_it_asks_ends_it_at_once_with_the_command_that_goes_on(here: Path, program: Program) -> None:
    program("Fernstone")
    header = here / ONE / "header.md"
    header.write_text(header.read_text().replace("Investment", "Confidential"))
    with Process("Fernstone", "--resume", cwd=here, tty=True, program=("-m", "pausepoint.apps.memo")) as process:
        process.until("Accept or discard the changes? (accept, discard, stop) [stop]: ")
        process.interrupt()
        done = process.wait()
    assert done.code == 130
    assert "Interrupted. Finished work is kept." in done.stdout
    assert "Fernstone --resume --version v0.0.1" in done.stdout


@pytest.mark.long
def test_json_says_how_it_stands_whatever_comes_of_it(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def document(*args: str, code: int) -> dict[str, Any]:
        program("Fernstone", "--json", *args, code=code)
        found: dict[str, Any] = program.done.last_document
        assert found["exit_code"] == code
        return found

    assert document("--resume", code=4)["folder"] is None
    with monkeypatch.context() as failing:
        failing.setattr(citing, "assembled", lambda *args: 1 / 0)
        found = document(code=1)
    assert (found["status"], found["folder"], found["memo"]) == ("failed", ONE, None)
    assert found["failure"] == {"agent": "cite", "type": "ZeroDivisionError", "message": "division by zero"}
    assert document("--resume", code=0)["memo"] == f"{ONE}/4-final-draft.md"
    found = document("--resume", code=0)
    assert (found["status"], found["memo"]) == ("completed", f"{ONE}/4-final-draft.md")
    (here / ONE / "header.md").write_text("# Fernstone\n\nA memo that is edited.\n")
    assert document("--resume", code=6)["status"] is None


@pytest.mark.long
def test_json_is_one_document(tmp_path: Path, forks: Forks) -> None:
    done = Forked("memo", tmp_path, forks)("Quietwater", "--json")
    found = json.loads(done.stdout)
    assert (done.code, found["status"], found["exit_code"], len(found["questions"])) == (3, "waiting", 3, 1)
    assert (found["memo"], found["spent_usd"]) == ("output/Quietwater-v0.0.1/4-final-draft.md", 0.0)


def test_documents_that_cannot_be_read_are_told_and_the_others_are_used(here: Path, program: Program) -> None:
    company(here, "Acme")
    papers = here / "data" / "papers"
    (papers / "old.txt").write_bytes(b"caf\xe9")
    (papers / "odd.html").write_text("<p>Acme.</p><![odd bar")
    make_pdf(papers / "scan.pdf", [[]])
    with (papers / "large.md").open("wb") as file:
        file.truncate(50_000_000)
    said = program("Acme", "--until", "research", code=3)
    told = re.findall(r"^not read: .*/(.*?): ", said, re.MULTILINE)
    assert told == ["large.md", "odd.html", "old.txt", "scan.pdf"]
    found = json.loads((here / "output/Acme-v0.0.1/1-research.json").read_text())
    assert [source["where"] for source in found["sources"]] == ["Acme.json", "note.md"]
    assert len(found["unread"]) == 4


# refusals

BAD: list[tuple[list[str], str]] = [
    (["Nowhere"], "COMPANY: There is no data about 'Nowhere' in data/Nowhere.json."),
    ([" "], "COMPANY: The name must contain"),
    (["Fernstone", "--from", "sited"], "--from: There is no agent 'sited'. The agents: deck_analyst, research, "),
    (["Fernstone", "--until", "end"], "--until: There is no agent 'end'"),
    (["Fernstone", "--type", "loan"], "--type: 'loan' is not one of "),
    (["Fernstone", "--mode", "maybe"], "--mode: 'maybe' is not one of "),
    (["Fernstone", "--deck", "nowhere.pdf"], "nowhere.pdf: No such file or directory"),
    (["Fernstone", "--deck", "notes.md"], "notes.md: The deck is not a PDF file"),
    (["Fernstone", "--deck", "locked.pdf"], "locked.pdf: The PDF is encrypted"),
    (["Fernstone", "--deck", "damaged.pdf"], "damaged.pdf: The PDF cannot be read"),
    (["Fernstone", "--documents", "nowhere"], "nowhere: There is no such folder"),
    (["Fernstone", "--documents", "empty"], "empty: The folder contains no documents"),
    (["Fernstone", "--outline", "nowhere.toml"], "nowhere.toml: No such file or directory"),
    (["Fernstone", "--outline", "broken.toml"], "broken.toml: The outline is not valid TOML: Expected "),
    (["Fernstone", "--outline", "twice.toml"], "twice.toml: section.name: 'a' occurs twice"),
    (["Fernstone", "--outline", "path.toml"], "path.toml: section.0.name: String should match pattern"),
    (["Fernstone", "--data", "broken.json"], "broken.json: Invalid JSON: "),
    (["Fernstone", "--data", "other.json"], "other.json: name: The data is about 'Other', not about 'Fernstone'"),
    (["Fernstone", "--data", "field.json"], "field.json: founded: Input should be a valid integer"),
    (["Fernstone", "--data", "link.json"], "link.json: links.X: 'x.example' is not a web address"),
    (["Fernstone", "--edits", "maybe"], "--edits: 'maybe' is not one of accept, discard."),
    (["Fernstone", "--force-restart", "--from", "cite"], "--force-restart cannot be combined with --from"),
    (["Fernstone", "--from", "cite", "--until", "draft"], "--until: draft comes before cite"),
    (["🚀 / …"], "COMPANY: The name must contain a letter or a digit"),
    (["Fernstone", "--deck", "folder.pdf"], "folder.pdf: This is a folder. Name a PDF file"),
    (["Fernstone", "--deck", "scan.pdf"], "scan.pdf: The file contains no text. If it is a scan, run text recognition"),
    (["Fernstone", "--deck", "nothing.pdf"], "nothing.pdf: The file is empty"),
    (["Fernstone", "--outline", "none.toml"], "none.toml: section: List should have at least 1 item"),
    (["Fernstone", "--outline", "blank.toml"], "blank.toml: section: Field required. An outline is a list of"),
    (["Fernstone", "--outline", "case.toml"], "case.toml: section.name: 'A' occurs twice"),
    (["Fernstone", "--outline", "titles.toml"], "titles.toml: section.title: 'Same' occurs twice"),
    (["Fernstone", "--outline", "lines.toml"], "lines.toml: section.0.title: String should match pattern"),
    (["Fernstone", "--data", "logo.json"], "logo.json: trademark.logo: 'javascript:x' is not a web address"),
    (["Fernstone", "--data", "page.json"], "page.json: people.0.linkedin: 'https://x.example/linkedin.com/in/a' is"),
    (["Fernstone", "--data", "list.json"], "list.json: Input should be an object"),
]  # fmt: skip


@pytest.mark.covers("S4.66")
@pytest.mark.parametrize(("args", "said"), BAD)
def test_bad_input_is_refused_with_a_message_that_names_it_and_nothing_is_stored(
    here: Path, program: Program, args: list[str], said: str
) -> None:
    make_pdf(here / "locked.pdf", [["text"]], encrypted=True)
    (here / "damaged.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    (here / "empty").mkdir()
    texts = {
        "notes.md": "# Notes", "broken.toml": "[[section]", "path.toml": '[[section]]\nname = "../a"\ntitle = "A"',
        "twice.toml": '[[section]]\nname = "a"\ntitle = "A"\n' * 2, "broken.json": "{",
        "other.json": '{"name": "Other"}',
        "field.json": '{"name": "Fernstone", "founded": "long ago"}',
        "link.json": '{"name": "Fernstone", "links": {"X": "x.example"}}', "nothing.pdf": "", "list.json": "[]",
        "none.toml": "section = []", "blank.toml": "",
        "case.toml": '[[section]]\nname = "a"\ntitle = "A"\n[[section]]\nname = "A"\ntitle = "B"\n',
        "titles.toml": '[[section]]\nname = "a"\ntitle = "Same"\n[[section]]\nname = "b"\ntitle = "Same"\n',
        "lines.toml": '[[section]]\nname = "a"\ntitle = "A\\n## B"\n',
        "logo.json": '{"name": "Fernstone", "trademark": {"logo": "javascript:x"}}',
        "page.json": '{"name": "Fernstone", "people": [{"name": "A", "linkedin": "https://x.example/linkedin.com/in/a"}]}',
    }  # fmt: skip
    make_pdf(here / "scan.pdf", [[]])
    (here / "folder.pdf").mkdir()
    for name, text in texts.items():
        (here / name).write_text(text)
    program(*args, code=2)
    assert said in program.err
    assert program.out == ""
    assert not (here / ".pausepoint").exists()
    assert not (here / "output").exists()


# the README


@pytest.mark.covers("S4.112")
def test_every_agent_of_the_readme_is_in_its_place_and_leaves_what_it_says() -> None:
    told = [(row[0].strip("`"), re.findall(r"`(.*?)`", row[1])) for row in rows(section(README, "The agents"))]
    assert told == [(step.name, [each.path for each in step.publishes]) for step in memo.steps]


@pytest.mark.covers("S4.112")
def test_every_key_of_the_document_is_in_the_readme_with_the_agent_that_writes_it() -> None:
    told = {row[0].strip("`"): row[1].strip("`") for row in rows(section(README, "The document"))}
    assert [*told] == [*MemoDocument.model_fields]
    assert set(told.values()) <= {*AGENTS, "the call"}


@pytest.mark.covers("S4.112")
def test_the_functions_behind_a_resume_are_named_where_they_are_told_of() -> None:
    told = set(re.findall(r"\w+", (ROOT / "docs" / "artifacts.md").read_text("utf-8")))
    for name, owner in {"detect": artifacts, "rebuild": Engine, "VersionFolders": artifacts}.items():
        assert name in told
        assert hasattr(owner, name)


def test_fields_formats_settings_and_weights_of_the_readme_are_those_of_the_code() -> None:
    fields = [name for row in rows(section(README, "Input")) for name in re.findall(r"`(\w+)`", row[0])]
    assert fields == [*CompanyData.model_fields]
    formats = next(row[1] for row in rows(section(README, "Input")) if row[0] == "`documents`")
    assert tuple(re.findall(r"`(\.\w+)`", formats)) == ENDINGS
    weights = {row[0]: float(row[1]) for row in rows(section(README, "The score"))}
    assert weights == checking.WEIGHTS
    assert f"With {checking.ENOUGH} or more" in section(README, "The score")
    variables = [row[0].strip("`") for row in rows(section(README, "Where the words come from"))]
    assert variables == re.findall(r"PAUSEPOINT_SEARCH_\w+", search.__doc__ or "")


@pytest.mark.long
@pytest.mark.covers("S4.109", "S4.113")
def test_the_commands_of_the_readme_do_what_it_says(here: Path, program: Program) -> None:
    commands = re.findall(r"^\$ python -m pausepoint\.apps\.memo(.*?)(?: +#.*)?$", README.read_text(), re.MULTILINE)
    assert len(commands) == 10
    ends = [program(*words, code=code).splitlines()[-1] for words, code in zip(
        map(shlex.split, commands[:7]), (0, 3, 0, 0, 0, 3, 0), strict=True)]  # fmt: skip
    assert ends[0] == f"Page: {ONE}/memo.html"
    assert ends[1].startswith("Human review: ")
    assert ends[2] == ends[3] == f"✓ Memo already complete: {ONE}/4-final-draft.md"
