"""A call that needs an approval, on the page: everything that would run is one click away."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect

from pausepoint import Context, workflow
from pausepoint.gate import approval_of_call
from pausepoint.model.approvals import approval_of, question_line
from tests.page.kit import INBOX, Person, asked

HARMLESS = "echo 👩 harmless; " * 200
COMMAND = f"{HARMLESS}git -C x push --force && rm -rf ./important\u202e"


@workflow
async def gated(tool: str, arguments: dict[str, object], place: str, ctx: Context) -> bool:
    call = approval_of_call("claude-ada", place, tool, arguments, ["git push", "Write"])
    return await ctx.confirm(question_line(call), payload=msgspec.to_builtins(call))


@pytest.mark.long
def test_a_long_command_is_folded_and_a_click_shows_all_of_it(person: Person) -> None:
    asked(person.server, gated, "ada", tool="Bash", arguments={"command": COMMAND}, place="/srv/shop")
    person.open(INBOX)
    article = person.page.get_by_role("article")
    for fact in ("Bash", "/srv/shop", "claude-ada", "restricted (git push)"):
        expect(article.locator("dl")).to_contain_text(fact)
    call = article.locator("pre.call")
    expect(call).to_contain_text("characters folded")
    expect(call).to_contain_text("rm -rf ./important‹U+202E›")
    assert call.locator("mark").all_inner_texts() == ["git", "push"]
    article.get_by_text("Show all:").click()
    expect(call).to_have_text(COMMAND.replace("\u202e", "‹U+202E›"))
    assert call.locator("mark").all_inner_texts() == ["git", "push"], "positions count characters, not halves of pairs"
    article.get_by_text("Fold it again").click()
    expect(call).to_contain_text("characters folded")


@pytest.mark.long
def test_a_write_shows_its_diff_and_a_missing_part_is_told(person: Person, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    arguments = {"file_path": "a.txt", "content": "one\n2\n"}
    asked(person.server, gated, "writes", tool="Write", arguments=arguments, place=str(tmp_path))
    asked(person.server, gated, "huge", tool="Bash", arguments={"command": f"git push {'x' * 300_000}"}, place="/")
    person.open(INBOX)
    change = person.page.get_by_role("article").filter(has_text="Change of a.txt")
    assert change.locator("pre.call").first.locator(".removed, .added").all_inner_texts() == ["-two", "+2"]
    huge = person.page.get_by_role("article").filter(has_text="are missing in this question")
    expect(huge.get_by_role("alert")).to_contain_text("nobody can check them here")
    [question] = person.server.run(person.server.engine.session("huge").questions())
    approval = approval_of(question.payload)
    assert approval is not None
    assert f"{approval.parts[0].omitted:,} bytes" in question.next_question
