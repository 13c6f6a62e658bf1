"""Tasks and what they need: what is refused, and what comes next."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.errors import DefinitionError
from pausepoint.orchestrator import Task
from pausepoint.orchestrator.graph import Board, check, dependants
from tests.support.loop import on_loop


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        ([Task(id="a"), Task(id="a")], "Several tasks have the same id: a"),
        ([Task(id="build"), Task(id="test", needs=["biuld"])], "'test' needs 'biuld'.*Did you mean 'build'"),
        ([Task(id="a", needs=["a"])], "a → a"),
        ([Task(id="a", needs=["c"]), Task(id="b", needs=["a"]), Task(id="c", needs=["b"])], "a → c → b → a"),
    ],
)
def test_a_graph_that_cannot_be_worked_through_is_refused_naming_what_is_wrong(tasks: list[Task], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        check(tasks)


def test_all_that_needs_a_task_is_found_whatever_lies_between() -> None:
    tasks = [Task(id="a"), Task(id="b", needs=["a"]), Task(id="c", needs=["b", "a"]), Task(id="d")]
    assert dependants(tasks, "a") == ["a", "b", "c"]


@on_loop
async def test_the_highest_priority_comes_first_then_the_order_of_the_list() -> None:
    board = Board([Task(id="a"), Task(id="b", priority=1), Task(id="c"), Task(id="d", priority=1)], agents=4)
    taken = [await board.take() for _ in range(4)]
    assert [given[0].id for given in taken if given is not None] == ["b", "d", "a", "c"]
    assert len({given[1] for given in taken if given is not None}) == 4


@on_loop
async def test_what_needs_a_failed_task_never_comes_and_the_rest_does() -> None:
    board = Board([Task(id="a"), Task(id="b", needs=["a"]), Task(id="c", needs=["b"]), Task(id="d")], agents=1)
    for id, ended in (("a", board.fails), ("d", board.done)):
        given = await board.take()
        assert given is not None
        assert given[0].id == id
        board.free(given[1])
        ended(id, "no")
    assert await board.take() is None
    assert (board.blocked, board.failed) == (["b", "c"], {"a": "no"})


@on_loop
async def test_a_skipped_task_counts_as_done_and_is_not_handed_out() -> None:
    tasks = [Task(id="a"), Task(id="b", needs=["a"]), Task(id="c", needs=["b"])]
    board = Board(tasks, agents=1, skipped={"b": "", "a": ""})
    given = await board.take()
    assert given is not None
    assert given[0].id == "c"


@on_loop
async def test_who_comes_back_to_a_task_goes_before_new_ones() -> None:
    board = Board([Task(id="a"), Task(id="b")], agents=1)
    first = await board.take()
    assert first is not None
    next_one = asyncio.ensure_future(board.take())
    back = asyncio.ensure_future(board.back())
    gone = asyncio.ensure_future(board.back())
    await asyncio.sleep(0)
    gone.cancel()
    board.free(first[1])
    assert await back == first[1]
    assert not next_one.done()
    board.free(first[1])
    assert await next_one is not None


@pytest.mark.long
@given(st.data())
def test_every_task_comes_once_and_after_what_it_needs(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    tasks = [
        Task(id=str(n), needs=[str(m) for m in data.draw(st.sets(st.integers(0, n - 1)))] if n else [])
        for n in range(count)
    ]
    order = data.draw(st.permutations(tasks))
    check(order)
    agents = data.draw(st.integers(1, 4))

    async def work() -> list[str]:
        board, open_tasks, done = Board(order, agents), list[tuple[Task, str]](), list[str]()
        while True:
            while len(open_tasks) < agents and (board._ready and board._free):
                given = await board.take()
                assert given is not None
                assert set(given[0].needs) <= set(done)
                open_tasks.append(given)
            if not open_tasks:
                assert await board.take() is None
                return done
            task, agent = open_tasks.pop(data.draw(st.integers(0, len(open_tasks) - 1)))
            board.free(agent)
            board.done(task.id, None)
            done.append(task.id)

    assert sorted(asyncio.run(work())) == sorted(task.id for task in tasks)
