"""The memo's artifacts: what each agent leaves, what a folder tells, and exactly who runs again after a change."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Status
from pausepoint.apps.memo import AGENTS, memo
from pausepoint.apps.memo.folders import detect_resume_point, looked_at, reconstruct, session_of
from pausepoint.apps.memo.models import Review, Validation, document
from pausepoint.artifacts import detect
from pausepoint.errors import FolderRefused, UndecidedEdits
from tests.apps import memo_kit
from tests.apps.memo_kit import FILES, SECTIONS, WRITTEN, Calls, Desk, Template
from tests.docs.pages import DOCS, section
from tests.support.loop import on_loop

EARLY = ["0-deck-analysis.json", "1-research.json", "1-section-research.json"]
TEXTS = [f"2-sections/{name}.md" for name in SECTIONS]
TEAM = "2-sections/04-team.md"


calls = memo_kit.calls


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    desk = Desk(tmp_path_factory.mktemp("memo"))
    outcome = asyncio.run(desk.run())
    assert outcome.status is Status.COMPLETED
    return Template(desk, tmp_path_factory.mktemp("backup"))


@pytest.fixture
def desk(template: Template, calls: Calls) -> Desk:
    return template.restored()


# what is left


@pytest.mark.covers("S4.8", "S4.9")
def test_the_pipeline_has_the_thirteen_agents_in_their_order() -> None:
    assert AGENTS == (
        "deck_analyst", "research", "section_research", "draft", "enrich_trademark", "enrich_socials", "enrich_links",
        "enrich_visualizations", "cite", "validate_citations", "fact_check", "validate", "finalize",
    )  # fmt: skip
    assert memo.outline == AGENTS


LEFT: list[tuple[str, str, list[str]]] = [
    ("S4.12", "deck_analyst", ["0-deck-analysis.json"]),
    ("S4.13", "research", ["1-research.json"]),
    ("S4.14", "section_research", ["1-section-research.json"]),
    ("S4.15", "draft", TEXTS),
    ("S4.16", "enrich_trademark", ["header.md"]),
    ("S4.17", "enrich_socials", []),
    ("S4.18", "enrich_links", []),
    ("S4.19", "enrich_visualizations", []),
    ("S4.20", "cite", ["4-final-draft.md"]),
    ("S4.21", "validate_citations", ["3-validation.json"]),
    ("S4.22", "fact_check", []),
    ("S4.23", "validate", ["4-final-draft.html"]),
    ("S4.24", "finalize", ["memo.html", "state.json"]),
]


def marked(text: dict[str, str], keys: list[str]) -> dict[str, bool]:
    """What tells one agent's work on the same files from another's."""
    return {
        "LinkedIn": "](https://www.linkedin.com/in/" in text.get(TEAM, ""),
        "links": "[Harbour Capital](https://harbour-capital.example)" in "".join(text.values()),
        "viz": "<!-- viz: " in "".join(text.values()),
        "citations": "[^1]" in text.get("4-final-draft.md", "") and "## Citations" in text.get("4-final-draft.md", ""),
        **{key: key in keys for key in ("citation_validation", "fact_check_results", "overall_score")},
    }


BEGUN_BY = {
    "LinkedIn": "enrich_socials", "links": "enrich_links", "viz": "enrich_visualizations", "citations": "cite",
    "citation_validation": "validate_citations", "fact_check_results": "fact_check", "overall_score": "validate",
}  # fmt: skip


@pytest.mark.long
@pytest.mark.covers(*(number for number, _, _ in LEFT))
def test_each_agent_leaves_its_artifact_and_no_other(tmp_path: Path) -> None:
    """One agent at a time: what has changed in the folder is that agent's."""
    desk = Desk(tmp_path)
    before: dict[str, bytes] = {}
    asyncio.run(desk.run(until=AGENTS[0]))
    for _, agent, new in LEFT:
        if agent != AGENTS[0]:
            asyncio.run(desk.resume(pause_after=agent) if agent != AGENTS[-1] else desk.resume())
        now = desk.contents()
        assert sorted(now.keys() - before.keys()) == new, agent
        text = {name: data.decode() for name, data in now.items()}
        found = marked(text, list(json.loads(text.get("3-validation.json", "{}"))))
        assert found == {name: AGENTS.index(agent) >= AGENTS.index(by) for name, by in BEGUN_BY.items()}, agent
        assert {path.stem for path in (desk.folder / ".pausepoint" / "done").iterdir()} == {
            *AGENTS[: AGENTS.index(agent) + 1]
        }
        before = now
    assert list(before) == FILES
    assert json.loads(before["state.json"])["final_memo"] == before["4-final-draft.md"].decode()


# who runs again

FROM_CITE = ["cite", "validate_citations", "fact_check", "validate", "finalize"]
FROM_VIZ = ["enrich_visualizations", *FROM_CITE]
FROM_DRAFT = ["draft", "enrich_socials", "enrich_links", *FROM_VIZ]
AGAIN = {
    "0-deck-analysis.json": ["deck_analyst", "finalize"],
    "1-research.json": ["research", "section_research", *FROM_DRAFT],
    "1-section-research.json": ["section_research", *FROM_DRAFT],
    "2-sections/03-market-context.md": FROM_VIZ,
    "header.md": ["enrich_trademark", *FROM_CITE],
    "4-final-draft.md": FROM_CITE,
    "3-validation.json": ["validate", "finalize"],
    "state.json": ["finalize"],
}
"""Artifact → who runs again if it is lost: the agent that left its last version, and all that have read from it."""


@pytest.mark.long
@pytest.mark.covers("S4.25", "S4.88")
@pytest.mark.parametrize("path", AGAIN)
@on_loop
async def test_a_deleted_artifact_has_its_agent_and_its_readers_run_again(desk: Desk, calls: Calls, path: str) -> None:
    before = desk.contents()
    desk.file(path).unlink()
    outcome = await desk.resume()
    assert (outcome.status, calls.taken()) == (Status.COMPLETED, AGAIN[path])
    assert desk.contents() == before
    assert outcome.skipped_visits == len(AGENTS) - len(AGAIN[path])


def truncated(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def flipped(data: bytes) -> bytes:
    """One bit of the first letter, or brace."""
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.covers("S4.75", "S4.85", "S4.89")
@pytest.mark.parametrize("damage", [truncated, flipped])
@pytest.mark.parametrize("path", AGAIN)
@on_loop
async def test_a_damaged_artifact_is_named_nothing_runs_and_it_can_be_put_back(
    desk: Desk, calls: Calls, path: str, damage: Callable[[bytes], bytes]
) -> None:
    before = desk.contents()
    broken = damage(before[path])
    desk.file(path).write_bytes(broken)
    with pytest.raises(UndecidedEdits, match=path):
        await desk.resume()
    assert (calls.taken(), desk.contents()) == ([], before | {path: broken})
    outcome = await desk.resume(edits="discard")
    assert (outcome.status, calls.taken(), desk.contents()) == (Status.COMPLETED, [], before)
    assert broken in [each.read_bytes() for each in (desk.folder / ".pausepoint" / "bin").iterdir()]


@pytest.mark.long
@pytest.mark.covers("S4.91")
@pytest.mark.parametrize("path", AGAIN)
@on_loop
async def test_a_cut_off_artifact_is_made_again_if_that_is_wanted(desk: Desk, calls: Calls, path: str) -> None:
    before = desk.contents()
    desk.file(path).write_bytes(truncated(before[path]))
    outcome = await desk.resume(rerun=AGAIN[path][0])
    assert (outcome.status, calls.taken(), desk.contents()) == (Status.COMPLETED, AGAIN[path], before)


def edited_json(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert old in text
        return json.dumps(json.loads(text.replace(old, new)))  # as another program would write it

    return edit


def edited_text(old: str, new: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return edit


EDITS: dict[str, tuple[Callable[[str], str], str]] = {
    "0-deck-analysis.json": (edited_json("Walls that grow back", "Walls that grow"), ""),
    "1-research.json": (edited_json("The main competitors of Fernstone", "The market rivals of Fernstone"),
                        "The market rivals of"),
    "1-section-research.json": (edited_json("Fernstone expects to make a profit", "Fernstone wants to make a profit"),
                                "wants to make a profit"),
    "2-sections/03-market-context.md": (edited_text("is expected to rise", "will rise"), "competition will rise"),
    "header.md": (edited_text("Investment memo", "Confidential memo"), "Confidential memo"),
    "4-final-draft.md": (edited_text("Nothing is decided yet.", "It will be soon."), "It will be soon."),
    "3-validation.json": (edited_json('"overall_score": 10.0', '"overall_score": 9.5'), ""),
    "state.json": (edited_json('"verdict": "not needed"', '"verdict": "approved"'), ""),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.covers("S4.81", "S4.95", "S4.97")
@pytest.mark.parametrize("path", AGAIN)
@on_loop
async def test_a_hand_edited_artifact_is_used_and_exactly_its_readers_run_again(
    desk: Desk, calls: Calls, path: str
) -> None:
    before, (edit, shown) = desk.contents(), EDITS[path]
    text = edit(before[path].decode())
    desk.file(path).write_text(text)
    readers = AGAIN[path][1:]
    if readers:
        with pytest.raises(UndecidedEdits, match=path) as told:
            await desk.resume()
        assert (told.value.stale, calls.taken()) == (readers, [])
    outcome = await desk.resume(edits="accept" if readers else None, by="ada")
    assert (outcome.status, calls.taken()) == (Status.COMPLETED, readers)
    assert desk.read(path) == text, "nobody has written over it"
    assert shown in desk.read("4-final-draft.md")
    assert json.loads(desk.read("state.json"))["final_memo"] == desk.read("4-final-draft.md")
    assert (await desk.resume()).status is Status.COMPLETED
    assert calls.taken() == []


@pytest.mark.long
@on_loop
async def test_an_edit_without_finished_readers_is_taken_in_without_further_ado(tmp_path: Path, calls: Calls) -> None:
    desk = Desk(tmp_path)
    await desk.run(until="research")
    calls.taken()
    edit, shown = EDITS["1-research.json"]
    desk.file("1-research.json").write_text(edit(desk.read("1-research.json")))
    outcome = await desk.resume()
    assert (outcome.status, calls.taken()) == (Status.COMPLETED, [*AGENTS[2:]])
    assert shown in desk.read("4-final-draft.md")


# sections


@pytest.mark.covers("S4.98", "S4.99")
@on_loop
async def test_with_seven_of_ten_sections_only_the_missing_three_are_written(tmp_path: Path, calls: Calls) -> None:
    desk = Desk(tmp_path)
    await desk.run(until="draft")
    before = desk.contents()
    assert calls.sections() == WRITTEN
    lost = [SECTIONS[1], SECTIONS[4], SECTIONS[8]]
    for name in lost:
        desk.file(f"2-sections/{name}.md").unlink()
    assert detect(desk.folder, memo).resume_at == "draft"
    await desk.resume(pause_after="draft")
    assert (calls.sections(), desk.contents()) == (lost, before)


@pytest.mark.covers("S4.98", "S4.99")
@on_loop
async def test_seven_of_ten_sections_are_kept_without_any_record_too(desk: Desk, calls: Calls) -> None:
    desk.keep([*EARLY, *TEXTS[:7]])
    before = desk.contents()
    state = desk.state()
    async with desk.engine("other.db") as engine:
        session = await session_of(engine, looked_at(desk.folder, lambda: state), lambda: state)
        await session.resume(pause_after="draft")
        await session.outcome()
    assert calls.sections() == SECTIONS[7:]
    assert {path: desk.contents()[path] for path in before} == before


@pytest.mark.covers("S4.110")
@on_loop
async def test_the_whole_state_is_kept_after_each_agent_and_the_documentation_says_why_files_are_kept_as_well(
    desk: Desk,
) -> None:
    async with desk.engine() as engine:
        session = engine.session("s1")
        made = sorted(await session.checkpoints(limit=None), key=lambda each: each.seq)
        states = [await session.state(each.seq) for each in made]
    assert [each.step for each in made] == [*AGENTS]
    assert [bool(state.sections) for state in states] == [*[False] * 3, *[True] * 10]
    assert [bool(state.memo) for state in states] == [*[False] * 8, *[True] * 5]
    assert "saved after each step anyway" in section(DOCS / "artifacts.md", "Why files, and not the whole state")


@pytest.mark.covers("S4.100")
@on_loop
async def test_the_outline_says_how_many_sections_there_are(tmp_path: Path, calls: Calls) -> None:
    outline = tmp_path / "short.toml"
    outline.write_text('[[section]]\nname = "1-people"\ntitle = "People"\nteam = true\nabout = ["team", "chief"]\n'
                       '[[section]]\nname = "2-money"\ntitle = "Money"\nabout = ["revenue", "raised"]\n')  # fmt: skip
    desk = Desk(tmp_path, outline=outline)
    outcome = await desk.run()
    assert (outcome.status, calls.sections()) == (Status.COMPLETED, ["1-people", "2-money"])
    assert [path.name for path in sorted(desk.file("2-sections").iterdir())] == ["1-people.md", "2-money.md"]
    assert "linkedin.com/in/ada-moss" in desk.read("2-sections/1-people.md")
    desk.keep([path for path in desk.contents() if path != "2-sections/2-money.md"])
    assert detect_resume_point(desk.folder, desk.state()) == "draft"


# what a folder tells


def without_keys(*keys: str) -> Callable[[str], str]:
    def drop(text: str) -> str:
        found = json.loads(text)
        return json.dumps({name: value for name, value in found.items() if name not in keys}, indent=1)

    return drop


def before_links(text: str) -> str:
    """A section as `enrich_socials` left it."""
    text = re.sub(r"\[([^\]]+)\]\((?!https://www\.linkedin)[^)]+\)", r"\1", text)
    return text.partition("\n<!-- viz:")[0]


def before_socials(text: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", before_links(text))


def before_viz(text: str) -> str:
    return text.partition("\n<!-- viz:")[0]


def same(text: str) -> str:
    return text


POINTS: list[tuple[str, list[str], dict[str, Callable[[str], str]], str]] = [
    ("S4.27", FILES, {}, "complete"),
    ("S4.28", FILES[:-1], {}, "finalize"),
    ("S4.29", FILES[:-1], {"3-validation.json": without_keys("overall_score", "validation_results")}, "validate"),
    ("S4.30", FILES[:-1],
     {"3-validation.json": without_keys("overall_score", "validation_results", "fact_check_results")}, "fact_check"),
    ("S4.31", [*EARLY, *TEXTS, "header.md", "4-final-draft.md"], {}, "validate_citations"),
    ("S4.31", [*EARLY, *TEXTS, "header.md", "4-final-draft.md"],
     {"4-final-draft.md": lambda text: "A placeholder for the memo. " * 10}, "cite"),
    ("S4.40", [*EARLY, *TEXTS, "header.md"], {}, "cite"),
    ("S4.40", [*EARLY, *TEXTS, "header.md"], dict.fromkeys(TEXTS, before_viz), "enrich_visualizations"),
    ("S4.32", [*EARLY, *TEXTS, "header.md"], dict.fromkeys(TEXTS, before_links), "enrich_links"),
    ("S4.33", [*EARLY, *TEXTS, "header.md"], dict.fromkeys(TEXTS, before_socials), "enrich_socials"),
    ("S4.34", [*EARLY, *TEXTS], dict.fromkeys(TEXTS, before_socials), "enrich_trademark"),
    ("S4.35", [*EARLY, *TEXTS[:7]], {}, "draft"),
    ("S4.98", [*EARLY, *TEXTS[:7]], {}, "draft"),
    ("S4.45", EARLY, {}, "draft"),
    ("S4.36", EARLY, {}, "draft"),
    ("S4.37", EARLY[:2], {}, "section_research"),
    ("S4.38", EARLY[:1], {}, "research"),
    ("S4.39", [], {}, "start"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("there", "changes", "expected"),
    [pytest.param(there, changes, expected, marks=pytest.mark.covers(number), id=f"{number}-{expected}")
     for number, there, changes, expected in POINTS],
)  # fmt: skip
def test_the_files_alone_tell_where_to_go_on(
    desk: Desk, there: list[str], changes: dict[str, Callable[[str], str]], expected: str
) -> None:
    """The folder ``2-sections`` stays, also where it is empty."""
    desk.keep(there)
    for path, change in changes.items():
        desk.file(path).write_text(change(desk.read(path)))
    assert detect_resume_point(desk.folder, desk.state()) == expected


@pytest.mark.covers("S4.26", "S4.41")
@on_loop
async def test_a_late_file_without_its_predecessors_is_inconsistent_and_not_gone_on_with(desk: Desk) -> None:
    desk.keep(["1-research.json", "state.json", "4-final-draft.md"])
    state = desk.state()
    found = detect(desk.folder, memo, outline=state.outline)
    assert found.resume_at == "section_research"
    assert any("the artifacts of cite are there, but section_research" in each for each in found.inconsistent)
    async with desk.engine("other.db") as engine:
        with pytest.raises(FolderRefused, match="is inconsistent"):
            await reconstruct(engine, desk.folder, state)


@pytest.mark.covers("S4.42")
def test_a_score_of_zero_is_a_score(desk: Desk) -> None:
    desk.keep(FILES[:-1])
    found = json.loads(desk.read("3-validation.json"))
    found["overall_score"] = 0.0
    desk.file("3-validation.json").write_text(json.dumps(found))
    assert detect_resume_point(desk.folder, desk.state()) == "finalize"


@pytest.mark.covers("S4.86", "S4.87", "S4.89")
def test_markdown_that_is_empty_or_cut_off_does_not_count_and_a_small_header_does(desk: Desk) -> None:
    desk.keep([*EARLY, *TEXTS, "header.md"])
    assert 20 < len(desk.read("header.md").partition("# ")[2]) < 100
    desk.file("header.md").write_text("# Fernstone®\n\nA memo.\n")
    assert detect_resume_point(desk.folder, desk.state()) == "cite"
    whole = desk.read(TEXTS[1])
    for text in ("", whole[:60], whole[: len(whole) // 2]):
        desk.file(TEXTS[1]).write_text(text)
        assert detect_resume_point(desk.folder, desk.state()) == "draft", text
    desk.file(TEXTS[1]).write_text(whole)
    desk.file("header.md").write_text("# F")
    assert detect_resume_point(desk.folder, desk.state()) == "enrich_trademark"


# no trace, no deck


@pytest.mark.covers("S4.43", "S4.44")
@on_loop
async def test_agents_that_find_nothing_are_done_all_the_same(tmp_path: Path, calls: Calls) -> None:
    desk = Desk(tmp_path, "Quietwater")
    outcome = await desk.run()
    assert (outcome.status, calls.taken()) == (Status.WAITING, [*AGENTS[1:-1]])
    assert not desk.file("0-deck-analysis.json").exists()
    assert "linkedin.com" not in "".join(desk.read(path) for path in TEXTS)
    plan = {}
    async with desk.engine() as engine:
        plan = {each.step: each.verdict for each in await engine.session("s1").plan()}
    assert {*list(plan.values())[:-1]} == {"done"}
    assert detect(desk.folder, memo).resume_at == "finalize"
    desk.forget()
    assert detect_resume_point(desk.folder, desk.state()) == "finalize", "the files tell it, too"


@pytest.mark.covers("S4.44")
def test_a_run_without_a_deck_starts_at_research(tmp_path: Path, calls: Calls) -> None:
    desk = Desk(tmp_path, "Quietwater")
    asyncio.run(desk.run(until="research"))
    assert calls.taken() == ["research"]
    desk.forget()
    assert detect_resume_point(desk.folder, desk.state()) == "section_research"


def test_a_deck_that_was_not_read_is_not_passed_over(desk: Desk) -> None:
    desk.keep([path for path in FILES if path != "0-deck-analysis.json"])
    assert detect_resume_point(desk.folder, desk.state()) == "deck_analyst"


# the state, made anew


@pytest.mark.covers("S4.46", "S4.47", "S4.48", "S4.49", "S4.50", "S4.52")
@on_loop
async def test_the_document_is_rebuilt_from_the_files_with_defaults_for_what_is_not_there(desk: Desk) -> None:
    state = desk.state()
    whole = desk.contents()

    async def rebuilt(*paths: str) -> dict[str, Any]:
        for path, data in whole.items():
            desk.file(path).parent.mkdir(exist_ok=True)
            desk.file(path).write_bytes(data)
        (desk.folder / ".pausepoint").mkdir(exist_ok=True)
        desk.keep(paths)
        async with desk.engine(f"{len(paths)}.db") as engine:
            return (await reconstruct(engine, desk.folder, state)).model_dump(mode="json")

    first = await rebuilt(*EARLY)
    assert first["company_data"] == state.company_data.model_dump(mode="json")
    for key, path in zip(("deck_analysis", "research", "section_research"), EARLY, strict=True):
        assert first[key] == json.loads(whole[path])
    assert first["draft_sections"] == first["validation_results"] == first["citation_validation"] == {}
    assert (first["fact_check_results"], first["overall_score"], first["final_memo"]) == ({}, 0.0, "")
    later = await rebuilt(*FILES[:-1])
    assert list(later["draft_sections"]) == SECTIONS
    text = whole[TEAM].decode()
    assert later["draft_sections"]["04-team"] == {
        "section_name": "04 Team", "content": text, "word_count": len(text.split()), "citations": []
    }  # fmt: skip
    found = json.loads(whole["3-validation.json"])
    for key in ("validation_results", "citation_validation", "fact_check_results", "overall_score"):
        assert later[key] == found[key]
    assert later["final_memo"] == whole["4-final-draft.md"].decode()


@pytest.mark.covers("S4.51", "S4.72", "S4.73")
@on_loop
async def test_every_agent_can_be_where_another_store_goes_on_from_the_folder(
    tmp_path: Path, template: Template, calls: Calls
) -> None:
    """A store after the other, each of which knows the folder alone and runs one agent."""
    whole = template.restored().contents()
    async with template.desk.engine() as engine:
        undisturbed = engine.session("s1")
        made = sorted(await undisturbed.checkpoints(limit=None), key=lambda each: each.seq)
        states = [await undisturbed.state(each.seq) for each in made]
    desk = Desk(tmp_path)
    await desk.run(until=AGENTS[0])
    calls.taken()
    for agent, before in zip(AGENTS[1:], states[:-1], strict=True):
        assert detect(desk.folder, memo).resume_at == agent
        async with desk.engine(f"{agent}.db") as engine:
            session = await engine.rebuild(desk.folder, memo)
            assert await session.state() == before
            await session.resume(pause_after=agent if agent != AGENTS[-1] else None)
            outcome = await session.outcome()
        assert calls.taken() == [agent]
        assert (outcome.status is Status.COMPLETED) == (agent == AGENTS[-1])
    assert desk.contents() == whole


# review


@pytest.mark.long
@pytest.mark.covers("S4.67", "S4.69", "S4.70")
@on_loop
async def test_a_low_score_waits_for_a_person_who_is_not_skipped_by_any_resume(tmp_path: Path, calls: Calls) -> None:
    desk = Desk(tmp_path, "Quietwater")
    outcome = await desk.run()
    (question,) = outcome.questions
    assert outcome.status is Status.WAITING
    assert outcome.state.validation.overall_score is not None
    assert outcome.state.validation.overall_score < 8.0
    assert "Human review" in question.next_question
    assert question.expired_at is None
    again = await desk.resume()
    assert (again.status, [each.id for each in again.questions]) == (Status.WAITING, [question.id])
    assert not detect(desk.folder, memo).complete
    async with desk.engine("other.db") as engine:
        session = await engine.rebuild(desk.folder, memo)
        await session.resume()
        assert (await session.outcome()).status is Status.WAITING, "also where only the folder was known"
    assert not desk.file("state.json").exists()
    calls.taken()
    async with desk.engine() as engine:
        await engine.answer(question.id, "approve", by="ada")
        outcome = await engine.session("s1").outcome()
    assert (outcome.status, calls.taken()) == (Status.COMPLETED, ["finalize"])
    assert json.loads(desk.read("state.json"))["review"] == {
        "verdict": "approved", "score": outcome.state.validation.overall_score, "reason": "", "agent": ""
    }  # fmt: skip
    assert detect(desk.folder, memo).complete


@pytest.mark.covers("S4.68")
def test_a_score_of_eight_needs_nobody(desk: Desk) -> None:
    assert json.loads(desk.read("state.json"))["review"]["verdict"] == "not needed"
    assert json.loads(desk.read("3-validation.json"))["overall_score"] >= 8.0


def test_keys_of_the_validation_are_there_once_they_are_known() -> None:
    assert Validation().model_dump(mode="json") == {}
    assert Validation(overall_score=0.0).model_dump_json() == '{"overall_score":0.0}'
    assert Validation.model_validate_json("{}") == Validation()


def test_a_document_has_every_key_of_the_seed(desk: Desk) -> None:
    found = document(desk.state(), Review(verdict="not needed", score=8.0))
    assert {*json.loads(desk.read("state.json"))} == {*found.model_dump()}
    assert {
        "company_name", "deck_analysis", "research", "section_research", "draft_sections", "validation_results",
        "citation_validation", "fact_check_results", "overall_score", "final_memo",
    } <= {*found.model_dump()}  # fmt: skip
