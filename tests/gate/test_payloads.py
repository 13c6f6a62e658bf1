"""What a person sees of a call that needs an approval: all of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine
from pausepoint.gate import approval_of_call
from pausepoint.model.approvals import LARGEST, Approval, ApprovalPart, approval_of, approval_text, question_line
from pausepoint.model.questions import Question
from tests.gate.kit import Project
from tests.support.loop import on_loop
from tests.support.waits import async_until

HARMLESS = "echo harmless && " * 30
HIDDEN = f"{HARMLESS}git push --force && rm -rf ./important"


def made(tool: str, arguments: dict[str, Any], folder: Path | str = "/tmp", *patterns: str) -> Approval:
    return approval_of_call("claude-ada", str(folder), tool, arguments, patterns or (tool,))


def change(tool: str, folder: Path, **arguments: Any) -> ApprovalPart:
    return made(tool, arguments, folder).parts[0]


def highlighted(part: ApprovalPart) -> list[str]:
    return [part.text[begin:end] for begin, end in part.spans]


async def asked(project: Project, engine: Engine, tool: str, arguments: dict[str, Any]) -> tuple[Question, Any]:
    """Let the hook ask about a call, and return the question and the task of the hook."""
    call = {"tool_name": tool, "tool_use_id": "t", "tool_input": arguments}
    hook = asyncio.create_task(project.call_hook("PreToolUse", "ada", **call))

    async def is_asked() -> bool:
        return bool(await engine.questions())

    await async_until(is_asked)
    [question] = await engine.questions()
    return question, hook


@on_loop
async def test_a_question_of_the_gate_has_the_whole_call(project: Project) -> None:
    async with project.served("git push") as (engine, _):
        question, hook = await asked(project, engine, "Bash", {"command": HIDDEN, "timeout": 5})
        approval = approval_of(question.payload)
        assert approval is not None
        assert (approval.agent, approval.tool, approval.folder) == ("claude-ada", "Bash", str(project.folder))
        command, rest = approval.parts
        assert command.text == HIDDEN
        assert highlighted(command) == ["git", "push"]
        assert json.loads(rest.text) == {"timeout": 5}
        assert "characters folded" in question.next_question
        assert "git push --force && rm -rf ./important" in question.next_question
        assert "restricted (git push)" in question.next_question
        await engine.answer(question.id, {"approved": False}, by="ann")
        await hook


@on_loop
async def test_a_write_of_an_agent_is_compared_with_the_file_on_the_disk(project: Project) -> None:
    (project.folder / "a.txt").write_text("one\ntwo\nthree\n")
    content = "one\n2\nthree\n" + "x" * 40_000
    async with project.served("Write") as (engine, _):
        question, hook = await asked(project, engine, "Write", {"file_path": "a.txt", "content": content})
        approval = approval_of(question.payload)
        assert approval is not None
        diff, arguments = approval.parts
        assert diff.text.startswith("@@ line 1 @@\n one\n-two\n+2\n three\n")
        assert json.loads(arguments.text)["content"] == content
        assert question.next_question.startswith("claude-ada wants to run “Write: Change of a.txt”.")
        await engine.answer(question.id, {"approved": False}, by="ann")
        await hook


@pytest.mark.long
@on_loop
async def test_what_a_hook_could_not_send_is_told_in_the_question(project: Project) -> None:
    """A person cannot check it, so the question says so, also where nothing but its text is shown."""
    command = "true;" * 200_000 + "git push"
    async with project.served("git push") as (engine, _):
        question, hook = await asked(project, engine, "Bash", {"command": command})
        digest = hashlib.sha256(command.encode()).hexdigest()
        assert "bytes are missing in this question, so nobody can check them here" in question.next_question
        assert f"(SHA-256 of the whole: {digest})" in question.next_question
        approval = approval_of(question.payload)
        assert approval is not None
        [part] = approval.parts
        assert part.text.startswith("true;")
        assert part.text.endswith("git push")
        assert highlighted(part)[-2:] == ["git", "push"]
        stored = part.text.encode()
        told = part.text[part.text.index("\n‹") : part.text.index("›\n") + 2]
        assert part.omitted >= len(command) - len(stored)
        assert len(stored) <= LARGEST + len(told.encode())
        await engine.answer(question.id, {"approved": False}, by="ann")
        await hook


@pytest.mark.long
def test_a_long_part_keeps_its_beginning_and_end_and_says_how_much_is_missing() -> None:
    command = f"git push a; {'ä' * LARGEST}; git push b"
    approval = made("Bash", {"command": command}, "/tmp", "git push")
    [part] = approval.parts
    head, _, tail = part.text.partition("\n‹")
    told, _, tail = tail.partition("›\n")
    data = command.encode()
    assert part.omitted == len(data) - len(head.encode()) - len(tail.encode())
    digest = hashlib.sha256(data).hexdigest()
    assert told == f"{part.omitted:,} bytes are missing here. SHA-256 of all {len(data):,} bytes: {digest}"
    assert highlighted(part) == ["git", "push", "git", "push"]
    assert f"Command: {part.omitted:,} bytes are missing" in question_line(approval)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("cd x && git -C y push", ["git", "push"]),
        ("sudo /usr/bin/git push", ["/usr/bin/git", "push"]),
        ("sh -c 'cd x; git push'", ["git", "push"]),
        ('sh -c "sh -c \\"git push\\""', ["git", "push"]),
        ("g\"\"it 'pu'sh", ['g""it', "pu'sh"]),
        ("echo $(git push)", ["git", "push"]),
        ("git \\\n push", ["git", "push"]),
        ("git pu\\\nsh", ["git", "pu\\\nsh"]),
        ("git push; git push", ["git", "push", "git", "push"]),
        (["sh", "-c", "echo 'it'; git push"], ["git", "push"]),
        (["git", "push"], ["git", "push"]),
        ("git push --force", ["git", "push"]),
    ],
)
def test_the_words_that_made_a_call_restricted_are_marked(command: str | list[str], words: list[str]) -> None:
    [part] = made("Bash", {"command": command}, "/tmp", "git push").parts
    assert highlighted(part) == words
    assert "".join(text for _, text in part.pieces) == part.text
    assert [text for kind, text in part.pieces if kind == "match"] == words


def test_all_rules_that_match_are_named_and_their_words_marked() -> None:
    approval = made("Bash", {"command": "git push -f origin && rm -r x"}, "/tmp", "rm", "git push -f", "Bash", "ls")
    assert approval.restricted == ("rm", "git push -f", "Bash")
    assert highlighted(approval.parts[0]) == ["git", "push", "-f", "rm"]


def test_a_long_command_is_folded_around_its_restricted_words() -> None:
    command = "\n".join([*(f"step {n}" for n in range(400)), "git push --force", *(f"more {n}" for n in range(400))])
    approval = made("Bash", {"command": command}, "/tmp", "git push")
    [part] = approval.parts
    short = "".join(text for _, text in part.folded)
    assert short.startswith("step 0\n")
    assert "git push --force" in short
    assert short.endswith("more 399")
    gaps = [text for kind, text in part.folded if kind == "fold"]
    shown = sum(len(text) for kind, text in part.folded if kind != "fold")
    folded = sum(int(gap.rpartition(" characters")[0].split()[-1].replace(",", "")) for gap in gaps)
    assert shown + folded == len(command), "every character is shown or counted"
    assert command in approval_text(approval, whole=True)


def test_hidden_characters_and_line_ends_of_a_command_are_visible_in_the_question() -> None:
    question = question_line(made("Bash", {"command": "ls \u202egnp\u200b\ngit push"}, "/tmp", "git push"))
    assert "“Bash: ls ‹U+202E›gnp‹U+200B› ⏎ git push”" in question


def test_other_tools_show_all_their_arguments() -> None:
    arguments = {"to": "ann", "text": "x" * 5_000}
    [part] = made("mcp__mail__send", arguments, "/tmp", "mcp__*").parts
    assert json.loads(part.text) == arguments
    assert part.folded
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-one\n+two\n*** End Patch"
    assert made("apply_patch", {"command": patch}).parts[0].text == patch


# changes of files


def test_an_edit_is_shown_as_a_diff(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("".join(f"line {n}\n" for n in range(40)))
    edit = {"old_string": "line 20\n", "new_string": "new\n"}
    part = change("Edit", tmp_path, file_path="a.py", **edit)
    assert part.text == "@@ line 18 @@\n line 17\n line 18\n line 19\n-line 20\n+new\n line 21\n line 22\n line 23"
    assert part.note == "compared when this was asked"
    both = [edit, {"old_string": "line 3", "new_string": "LINE 3", "replace_all": True}]
    text = change("MultiEdit", tmp_path, file_path=str(path), edits=both).text
    removed, added = ([line[1:] for line in text.splitlines() if line.startswith(sign)] for sign in "-+")
    assert removed == ["line 3", "line 20", *(f"line 3{n}" for n in range(10))]
    assert added == ["LINE 3", "new", *(f"LINE 3{n}" for n in range(10))]


def test_a_cell_of_a_notebook_is_shown_as_a_diff(tmp_path: Path) -> None:
    cells = [{"id": "a", "source": ["x = 1\n", "y = 2"]}, {"id": "b", "source": "print(x)"}]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    part = change("NotebookEdit", tmp_path, notebook_path="n.ipynb", cell_id="a", new_source="x = 1\ny = 3")
    assert part.text == "@@ line 1 @@\n x = 1\n-y = 2\n+y = 3"
    deleted = change("NotebookEdit", tmp_path, notebook_path="n.ipynb", cell_id="b", edit_mode="delete", new_source="")
    assert deleted.text == "@@ line 1 @@\n-print(x)"
    lost = change("NotebookEdit", tmp_path, notebook_path="n.ipynb", cell_number=7, new_source="")
    assert lost.note == "it cannot be shown: the cell is not in the notebook"


def test_a_change_that_cannot_be_shown_says_why_and_names_sizes(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\0\1" * 50)
    (tmp_path / "large").write_bytes(b"x" * 1_100_000)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "secret").write_text("x")
    notes = {
        name: change("Write", tmp_path, file_path=name, content="new").note for name in ("binary", "large", "pipe", ".")
    }
    assert notes == {
        "binary": "it cannot be shown: the file is binary, with 100 bytes",
        "large": "it cannot be shown: the file has 1,100,000 bytes, and at most 1,048,576 are compared",
        "pipe": "it cannot be shown: it is not a regular file",
        ".": "it cannot be shown: it is not a regular file",
    }
    assert change("Write", tmp_path, file_path="new.txt", content="a\nb").note == "a new file"
    gone = change("Edit", tmp_path, file_path="secret", old_string="y", new_string="z")
    assert gone.note == "it cannot be shown: the text that it replaces is not in the file"
    assert "no valid file_path" in change("Write", tmp_path, file_path="a\0b", content="x").note
    assert "secret" not in change("Write", tmp_path, content="x").title


def test_a_link_is_named_with_the_file_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("old\n")
    (tmp_path / "notes").symlink_to(tmp_path / "profile")
    part = change("Write", tmp_path, file_path="notes", content="new\n")
    assert part.title == f"Change of notes → {os.path.realpath(tmp_path / 'profile')}"
    assert "-old\n+new" in part.text


def test_a_change_of_line_ends_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n")
    part = change("Write", tmp_path, file_path="a", content="one\r\ntwo\r\n")
    assert part.note == "compared when this was asked; its line ends change to CRLF"


def test_a_hostile_file_is_compared_in_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("\n".join(str(n % 150) for n in range(20_000)))
    content = "\n".join(str(n * 7 % 150) for n in range(20_000))
    part = change("Write", tmp_path, file_path="a", content=content)
    assert part.folded
    assert sum(line.startswith("+") for line in part.text.split("\n")) > 19_000
