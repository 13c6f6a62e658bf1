"""What the documentation says about the code is so: names, lists, links, paths."""

from __future__ import annotations

import asyncio
import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from pydantic import BaseModel

from pausepoint import Artifact, Budget, Context, Engine, Retry, Workflow, errors, guard, migrate, route, step
from pausepoint.codec.values import DEFAULT_LIMITS
from pausepoint.errors import AnswerConflict, QuestionExpired
from pausepoint.model import Chunk
from pausepoint.model.events import ENGINE_EVENTS
from pausepoint.model.sessions import Event, PauseKind, Status
from pausepoint.stores.sqlite import sql
from pausepoint.testing import ManualClock
from tests.docs.pages import DOCS, PAGES, ROOT, anchors, code, links, name_of, rows, section
from tests.support.children import outside_sql
from tests.support.status import settled

CONCEPTS, GUIDE, STORE, WRONG = (DOCS / f"{name}.md" for name in ("concepts", "guide", "store", "when-it-goes-wrong"))


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{name_of(page)} links to {link}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{name_of(page)} links to {link}: no such heading"


@pytest.mark.parametrize("page", [page for page in PAGES if page != DOCS / "acceptance.md"], ids=name_of)
def test_every_path_of_this_project_that_a_page_names_exists(page: Path) -> None:
    named = [name for name in code(page.read_text("utf-8")) if re.fullmatch(r"(src|tests|docs|tools)/[\w./-]+", name)]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        name for page in PAGES for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert {"demo", "test"} <= named <= targets


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, ahead = set[Path](), [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        files = [link.partition("#")[0] for link in links(page) if "://" not in link]
        ahead += [target for file in files if (target := (page.parent / file).resolve()).suffix == ".md"]
    assert sorted(map(name_of, set(PAGES) - reached)) == [], "docs/index.md leads to none of these; link them there"


def test_the_table_of_components_names_every_part_of_the_package() -> None:
    named = code("".join(row[0] + row[1] for row in rows(section(ROOT / "CONTRIBUTING.md", "Components"))))
    tops = {Path(name).relative_to("src/pausepoint").parts[0] for name in named if name.startswith("src/pausepoint/")}
    package = ROOT / "src" / "pausepoint"
    assert tops == {path.name for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}


def test_each_change_begins_with_a_name_that_is_in_the_file() -> None:
    table = rows(section(ROOT / "CONTRIBUTING.md", "Where a change begins"))
    assert len(table) >= 5
    for _, name, file, *_ in table:
        [begin], [path] = code(name), code(file)
        source = (ROOT / path).read_text("utf-8")
        assert re.search(rf"^(class |def |async def )?{begin}\b", source, re.MULTILINE), f"{path} has no {begin}"


def drawn_states() -> set[str]:
    """The states of the Mermaid drawing."""
    drawing = re.search(r"```mermaid\nstateDiagram-v2\n(.*?)```", CONCEPTS.read_text("utf-8"), re.DOTALL)
    assert drawing
    ends = re.findall(r"^\s*(\S+) --> (\w+|\[\*\])", drawing[1], re.MULTILINE)
    return {name for pair in ends for name in pair} - {"[*]"}


@pytest.mark.covers("S1.66")
def test_the_architecture_is_described_with_the_statuses_that_there_are() -> None:
    everything = {status.value for status in Status}
    assert drawn_states() == everything
    assert {name for row in rows(section(CONCEPTS, "State machine"))[:9] for name in code(row[0])} == everything
    for heading in ("State machine", "Checkpoint", "Pause check", "Re-entrant skip"):
        assert len(section(CONCEPTS, heading).split()) > 60, heading


def test_every_error_is_explained() -> None:
    page = (DOCS / "errors.md").read_text("utf-8")
    classes = [name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, BaseException)]
    assert len(classes) > 25
    assert [name for name in classes if f"`{name}`" not in page] == []
    ours = {name for row in rows(page) for name in code(row[0])}
    assert ours <= set(classes)


def test_every_kind_of_store_error_has_its_way_out() -> None:
    explained = {name for row in rows(section(STORE, "When the store raises")) for name in code(row[0])}
    every = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.StoreError)]
    assert explained == {each.__name__ for each in every}


def test_the_tables_of_the_store_are_those_of_its_schema() -> None:
    made = re.findall(r"^CREATE TABLE (\w+)", sql.schema(), re.MULTILINE)
    assert [code(row[0])[0] for row in rows(section(STORE, "Tables"))] == made


def test_limits_are_those_that_apply() -> None:
    said = [row[1] for row in rows(section(GUIDE, "What can be stored"))]
    limits = DEFAULT_LIMITS
    assert said == [f"{limits.depth} levels", f"{limits.value_bytes // 2**20} MiB", f"{limits.nodes:,}"]


def test_every_kind_of_pause_is_explained() -> None:
    said = {
        name for row in rows(section(WRONG, "Paused or failed, and a resume does not help")) for name in code(row[1])
    }
    assert set(get_args(PauseKind)) - {"operator"} <= said


def test_every_operation_of_a_context_is_in_the_table() -> None:
    named = {re.split(r"\W", name)[0] for row in rows(section(GUIDE, "Operations")) for name in code(row[0])}
    assert named == {name for name in dir(Context) if not name.startswith("_")}


def test_what_has_to_be_shown_is_said_in_the_words_of_the_project() -> None:
    titles = [row[1] for row in rows((DOCS / "acceptance.md").read_text("utf-8")) if re.fullmatch(r"S\d\.\d+", row[0])]
    assert len(titles) == 415
    synonyms = re.compile(r"\bstages?\b|\b(?:an?|the) (?:\w+ )?run\b", re.IGNORECASE)  # it is a step, a session
    assert [title for title in titles if synonyms.search(title)] == []


@pytest.mark.covers("S5.58")
def test_what_proves_the_global_pause_names_the_requirement_it_goes_back_to() -> None:
    """The pause itself (S5.5), and the application that has it (S5.45)."""
    for number in ("S5.5", "S5.45"):
        claim = re.compile(rf'mark\.covers\([^)]*"{re.escape(number)}"')
        proofs = [path for path in (ROOT / "tests").rglob("test_*.py") if claim.search(path.read_text("utf-8"))]
        assert proofs, number
        assert [path.name for path in proofs if "1_PRD-REQ-UI-008" not in path.read_text("utf-8")] == []


def test_decisions_are_numbered_without_a_gap_and_have_their_three_parts() -> None:
    records = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    for path in records:
        text = path.read_text("utf-8")
        assert text.startswith(f"# {path.name[:4]} "), path.name
        assert all(f"**{part}.**" in text for part in ("Context", "Decision", "Consequences")), path.name


# The events table is compared with what really happens.


class Everything(BaseModel):
    days: int = 0
    notes: list[str] = []
    log: list[str] = []


doors = {"open": False}
tries: list[int] = []


async def double(number: int) -> int:
    return number * 2


async def no_twos(number: int) -> int:
    if number == 2:
        raise ValueError("two")
    return number


@step(writes="days", retry=Retry(attempts=2, first=0))
async def work(days: int, ctx: Context) -> int:
    tries.append(days)
    await ctx.do(double, 1 if len(tries) == 1 else 2)  # other input in the second attempt
    ctx.spend(usd=0.5, tokens=3)
    ctx.emit("note.made", "noted", page=1)
    ctx.progress(1, 2)
    await ctx.commit()
    await ctx.map(no_twos, [1, 2, 3], on_error="collect")
    if len(tries) == 1:
        raise OSError("once")
    return days + 1


def never(days: int) -> bool:
    return days < 0


@step(writes="notes", when=never)
def skip_me() -> list[str]:
    return []


@step
def gate() -> None: ...


@guard(after=gate)
def closed(days: int) -> str | None:
    return None if doors["open"] else "closed"


@step(writes=["notes", "log"])
def trespass() -> dict[str, Any]:
    return {"days": 1}


@step
def lost() -> None: ...


@route(after=lost)
def nowhere(days: int) -> Literal["lost", None]:
    raise LookupError("no way")


EVENTFUL = Workflow(
    "eventful", state=Everything, steps=[work, skip_me, gate], guards=[closed], events=["note.made"]
)  # fmt: skip
REFUSED = Workflow("refused", state=Everything, steps=[trespass])
LOST = Workflow("lost", state=Everything, steps=[lost], routes=[nowhere])
PLAIN = Workflow("plain", state=Everything, steps=[gate])


async def all_events() -> list[Event]:
    """The histories of sessions that meet everything there is an event for."""
    doors["open"] = False
    tries.clear()
    found: list[Event] = []
    async with Engine(":memory:") as engine:
        eventful = await engine.start(EVENTFUL, paused=True, reason="later", by="ann", budget=1)
        await eventful.resume(by="ann", budget=2)
        following = asyncio.create_task(_followed(eventful.events(follow=True)))
        await eventful.outcome()
        doors["open"] = True
        await eventful.resume()
        await eventful.outcome()
        found += await following
        for workflow in (REFUSED, LOST):
            session = await engine.start(workflow)
            await session.outcome()
            found += await _followed(session.events())
        cancelled = await engine.start(PLAIN, paused=True)
        await cancelled.cancel("no need", by="bob")
        found += await _followed(cancelled.events())
    return found


async def _followed(events: Any) -> list[Event]:
    return [event async for event in events]


async def stopped_and_paused() -> list[Event]:
    @step
    async def forever(ctx: Context) -> None:
        while True:
            await asyncio.sleep(0)
            await ctx.safe_point()

    workflow = Workflow("forever", state=Everything, steps=[forever])
    found: list[Event] = []
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow)
        await session.pause("tea", by="ann")
        await session.outcome()
        await session.resume()
        await engine._service.driver.stop("the end")
        found += await _followed(session.events())
    return found


async def waited() -> list[Event]:
    """Timers, messages, and children that end in every way."""

    class Part(BaseModel):
        n: int

    @step
    async def part(n: int, ctx: Context) -> None:
        if n == 1:
            raise OSError("no paper")
        if n > 1:
            await ctx.receive()

    @guard(after=part)
    def held(n: int) -> str | None:
        return "wait for Monday" if n == 3 else None

    parts = Workflow("part", state=Part, steps=[part], guards=[held])

    @step
    async def whole(ctx: Context) -> None:
        await ctx.sleep(60)
        await ctx.receive(int)
        await asyncio.gather(*[ctx.call(parts, n=n) for n in range(4)], return_exceptions=True)

    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("whole", state=Everything, steps=[whole]))
        await session.pause(freeze=True)
        await session.resume()
        await settled(session, Status.SLEEPING)
        clock.advance(60)
        await session.send("one")
        await session.send(1)
        await session.outcome()
        for info in await session.children():
            if info.status is Status.WAITING:
                await engine.session(info.session_id).send("go on")
        await session.outcome()
        for info in await session.children():
            if info.status is Status.PAUSED:
                await engine.session(info.session_id).cancel()
        await session.outcome()
        return await _followed(session.events())


async def redefined(version: int) -> list[Event]:
    """The history of a session whose steps have all changed while it was parked, and its version too if it is 2."""

    @step(name="old")
    async def first() -> None: ...

    @step(name="here")
    async def fails() -> None:
        raise OSError("once")

    @step(was="old")
    async def renamed() -> None: ...

    @step
    async def added() -> None: ...

    @step(name="here")
    async def works() -> None: ...

    @migrate(from_version=1)
    def longer(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "days": 7}

    migrations = [longer] if version == 2 else []
    newer = Workflow(
        "lost", state=Everything, steps=[renamed, added, works], version=version, migrations=migrations
    )  # fmt: skip
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("lost", state=Everything, steps=[first, lost, fails]))
        await session.outcome()
        engine.workflows["lost"] = newer
        await (await session.resume(code="accept")).outcome()
        return await _followed(session.events())


async def redacted_and_removed() -> list[Event]:
    async with Engine(":memory:") as engine:
        session = await engine.start(PLAIN)
        await session.outcome()
        await session.redact(seq=1)
        found = await _followed(session.events())
        await session.remove()
        return found + await _followed(session.events())


async def gone_back() -> list[Event]:
    async with Engine(":memory:") as engine:
        session = await engine.start(PLAIN)
        await session.outcome()
        await session.edit(dict(await session.state()), by="ann", reason="the same again")
        await session.rewind("gate", by="ann", reason="once more")
        copy = await session.fork(paused=True)

        async def look_up() -> int:
            return 1

        @step
        async def work(ctx: Context) -> None:
            await ctx.do(look_up)

        inside = await engine.start(Workflow("inside", state=Everything, steps=[work]))
        await inside.outcome()
        part = await inside.fork(at_operation="look_up", paused=True)
        await inside.forget("look_up")
        return [event for each in (session, copy, inside, part) for event in await _followed(each.events())]


async def asked() -> list[Event]:
    """A question that is answered before it is asked, and wrongly, one that is answered twice, and one that nobody
    answers."""

    @step
    async def curious(ctx: Context) -> None:
        await ctx.ask("How many?", int, key="many")
        await ctx.ask("Sure?", bool, expires=timedelta(days=1), remind=timedelta(days=1))  # reminds at once
        with pytest.raises(QuestionExpired):
            await ctx.ask("Anybody?", expires=timedelta(milliseconds=30), on_expiry="escalate")

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("curious", state=Everything, steps=[curious]), paused=True)
        await session.answer("none", key="many")
        await session.resume()
        await session.outcome()
        await session.send([3])
        await session.outcome()
        [question] = (await session.outcome()).questions
        await session.answer(3)
        await session.outcome()
        await session.pause()
        await session.ask_again(question.id, by="ann", reason="once more")
        await session.resume()
        await session.outcome()
        await session.answer(3)
        [question] = (await session.outcome()).questions
        await session.answer(True)
        with pytest.raises(AnswerConflict):
            await engine.answer(question.id, False)
        return await _followed(session.events(follow=True))


async def unused() -> list[Event]:
    """A message that goes to a task that nobody waits for, and a result that the second attempt does not ask for."""
    attempts: list[int] = []

    async def number() -> int:
        return len(attempts)

    @step(retry=Retry(attempts=2, first=0))
    async def forgetful(ctx: Context) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            await ctx.do(number)
            raise OSError("once")
        forgotten = asyncio.create_task(ctx.receive())
        while not forgotten.done():
            await asyncio.sleep(0)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("forgetful", state=Everything, steps=[forgetful]), paused=True)
        await session.send("hello")
        await session.resume()
        return await _followed(session.events(follow=True))


async def filed(folder: Path) -> list[Event]:
    async def torn(chunk: Chunk) -> None:
        raise ValueError("a torn page")

    @step()
    async def ingest(ctx: Context) -> None:
        await ctx.files.chunks(await ctx.files.add(b"notes", "notes.txt"), torn, 1, retry=1)

    async with Engine(folder / "filed.db") as engine:
        session = await engine.start(Workflow("filed", state=Counter, steps=[ingest]))
        return await _followed(session.events(follow=True))


async def left(folder: Path) -> list[Event]:
    """An artifact that is left where something else was, edited, and restored."""

    @step(writes="lines", publishes=Artifact("lines.json", min_bytes=1))
    async def write_down() -> list[str]:
        return ["one"]

    (folder / "lines.json").write_text("mine")
    async with Engine(folder / "left.db") as engine:
        session = await engine.start(Workflow("left", state=Counter, steps=[write_down]), folder=folder)
        await session.outcome()
        (folder / "lines.json").write_text('["two"]')
        await session.adopt()
        (folder / "lines.json").unlink()
        await session.restore()
        return await _followed(session.events())


async def held_in_place() -> list[Event]:
    began, go = asyncio.Event(), asyncio.Event()

    async def look_up(number: int) -> None:
        began.set()
        await go.wait()

    @step
    async def twice(ctx: Context) -> None:
        await ctx.do(look_up, 1)
        await ctx.do(look_up, 2)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("held", state=Counter, steps=[twice]))
        await began.wait()
        await session.pause()
        while "session.pausing" not in [event.event_type async for event in session.events()]:
            await asyncio.sleep(0.01)
        go.set()
        await session.outcome()
        await session.resume()
        return await _followed(session.events(follow=True))


async def retried() -> list[Event]:
    """The history of a session whose operation is retried, whose child takes too long, and whose budget is raised."""
    clock, calls = ManualClock(), list[int]()

    async def model(number: int, ctx: Context) -> None:
        calls.append(number)
        ctx.spend(usd=1, model="gpt-5", input_tokens=1, output_tokens=1)
        if len(calls) == 1:
            raise OSError("once")

    @step
    async def listen(ctx: Context) -> None:
        await ctx.receive()

    @step
    async def act(ctx: Context) -> None:
        await ctx.map(model, [1], retry=Retry(attempts=2, first=0))
        await ctx.call(Workflow("listen", state=Everything, steps=[listen]), timeout=60)

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("retried", state=Everything, steps=[act]), budget=1)
        await session.outcome()
        await session.resume(budget=Budget(usd=9, tokens=99, operations=9))
        await settled(session)
        clock.advance(61)
        await session.outcome()
        return await _followed(session.events())


@pytest.mark.long
def test_the_table_of_events_says_what_they_carry(tmp_path: Path) -> None:
    table = {code(row[0])[0]: set(code(row[2])) for row in rows(section(GUIDE, "Events"))}
    assert table.keys() == ENGINE_EVENTS
    seen: dict[str, set[str]] = {}
    changed = asyncio.run(redefined(1)) + asyncio.run(redefined(2))
    changed += asyncio.run(redacted_and_removed()) + asyncio.run(waited()) + asyncio.run(gone_back())
    changed += asyncio.run(asked()) + asyncio.run(filed(tmp_path)) + asyncio.run(left(tmp_path))
    changed += asyncio.run(held_in_place()) + asyncio.run(retried()) + asyncio.run(unused())
    for event in asyncio.run(all_events()) + asyncio.run(stopped_and_paused()) + changed:
        seen.setdefault(event.event_type, set()).update(event.data)
    assert seen.pop("note.made") == {"page"}
    assert ENGINE_EVENTS - seen.keys() == set()
    assert seen == {name: fields for name, fields in table.items() if name in seen}


def test_a_budget_in_an_event_is_in_dollars() -> None:
    asked = [event for event in asyncio.run(all_events()) if event.event_type == "resume.requested"]
    assert asked[0].data == {"budget_usd": 2.0}


# A backup, made as the page says.


class Counter(BaseModel):
    lines: list[str] = []


@step(writes="lines")
def count(lines: list[str]) -> list[str]:
    return [*lines, "one"]


COUNTING = Workflow("counting", state=Counter, steps=[count])


@pytest.mark.long
def test_a_backup_made_with_vacuum_into_is_a_whole_store(tmp_path: Path) -> None:
    database, backup = tmp_path / "pausepoint.db", tmp_path / "backup.db"

    async def make() -> None:
        async with Engine(database) as engine:
            await engine.start(COUNTING, session_id="kept", paused=True)
            await asyncio.to_thread(outside_sql, database, f"VACUUM INTO '{backup}'", "SELECT 1")

    async def restore() -> Any:
        async with Engine(backup, workflows=[COUNTING]) as engine:
            return await (await engine.session("kept").resume()).outcome()

    assert "VACUUM INTO" in section(STORE, "Backups")
    asyncio.run(make())
    assert outside_sql(backup, "PRAGMA journal_mode") == [{"journal_mode": "delete"}]
    assert asyncio.run(restore()).state.lines == ["one"]
    assert outside_sql(backup, "PRAGMA journal_mode") == [{"journal_mode": "wal"}]
