"""A workflow as a whole: its list of steps, its events and its diagram."""

from __future__ import annotations

import inspect
import subprocess
import sys
from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from pausepoint import BlockingContext, Context
from pausepoint.definition.fields import At
from pausepoint.definition.retry import Retry
from pausepoint.definition.workflow import Workflow, guard, route, step
from pausepoint.errors import DefinitionError
from pausepoint.model.events import ENGINE_EVENTS
from tests.definition.kit import Brief, Plan, enough, made, publish, refused_once, research, write

# a valid workflow


def test_a_workflow_is_the_visible_list_of_its_steps() -> None:
    brief = made(research, write, publish)
    assert [each.name for each in brief.steps] == ["research", "write", "publish"]
    assert brief.first == "research"
    assert (brief.name, brief.version, brief.model) == ("brief", 1, Brief)


@pytest.mark.covers("S1.31")
def test_the_only_way_through_a_plain_list_is_its_order() -> None:
    @step
    def sync() -> None: ...

    @step
    def analyze() -> None: ...

    @step
    def plan_it() -> None: ...

    @step
    def report() -> None: ...

    fixed = made(sync, analyze, plan_it, report)
    order: list[str | None] = [fixed.first]
    while order[-1] is not None:
        (following,) = fixed.targets(order[-1])
        order.append(following)
    assert order == ["sync", "analyze", "plan_it", "report", None]


@pytest.mark.covers("S1.6")
def test_steps_are_compared_by_position_never_by_name() -> None:
    @step(name="SYNCING")
    def first() -> None: ...

    @step(name="ANALYZING")
    def second() -> None: ...

    ordered = made(first, second)
    assert ordered.position("SYNCING") < ordered.position("ANALYZING")
    assert "SYNCING" > "ANALYZING"
    assert ordered.following("SYNCING") == "ANALYZING"
    assert ordered.following("ANALYZING") is None


def test_a_bound_step_says_what_it_reads_and_writes() -> None:
    bound = made(research, write).step("research")
    assert [(read.param, read.place.path, read.required) for read in bound.reads] == [("topic", "topic", False)]
    assert [place.path for place in bound.writes] == ["facts"]
    assert (bound.context, bound.whole, bound.session_id, bound.many) == ("ctx", None, None, False)
    assert (bound.is_async, bound.takes_blocking, bound.agent) == (True, False, "research")
    assert bound.retry.attempts == 1
    assert bound.timeout is None


def test_a_step_stays_an_ordinary_function() -> None:
    assert write("otters", ["swim"]) == "otters: swim"
    assert list(inspect.signature(write).parameters) == ["topic", "facts"]
    assert vars(write)["__name__"] == "write"


def test_options_of_a_step_arrive() -> None:
    retry = Retry(attempts=5)

    @step(writes="draft", name="compose", retry=retry, timeout=timedelta(minutes=1))
    def some(topic: str) -> str:
        return topic

    @step(retry=4, timeout=2)
    def other() -> None: ...

    workflow = made(some, other)
    assert workflow.step("compose").retry is retry
    assert workflow.step("compose").timeout == 60.0
    assert workflow.step("other").retry.attempts == 4
    assert workflow.step("other").timeout == 2.0


def test_an_unknown_step_is_told_with_the_nearest_one() -> None:
    for ask in (made(write).step, made(write).following, made(write).targets, made(write).position):
        with pytest.raises(DefinitionError, match=r"Workflow 'brief' has no step 'wrtie'. Did you mean 'write'"):
            ask("wrtie")


def test_writers_of_a_field_include_those_of_its_parts() -> None:
    @step(writes="plan.title")
    def name_it() -> str:
        return ""

    @step(writes="plan")
    def plan_it() -> Plan:
        return Plan()

    workflow = made(name_it, plan_it, write)
    assert workflow.writers("plan") == ("name_it", "plan_it")
    assert workflow.writers("plan.title") == ("name_it", "plan_it")
    assert workflow.writers("plan.pages") == ("plan_it",)
    assert workflow.writers("draft") == ("write",)
    assert workflow.writers("topic") == ()


def test_readers_of_a_field_are_those_whose_outcome_depends_on_it() -> None:
    @step(writes="draft", when=lambda topic: bool(topic))
    def maybe() -> str:
        return ""

    @step(writes="plan.title")
    def name_it(title: Annotated[str, At("plan.title")]) -> str:
        return title

    @step(writes="draft")
    def whole(state: Brief) -> str:
        return state.topic

    workflow = made(maybe, name_it, whole)
    assert workflow.readers("topic") == ("maybe", "whole")
    assert workflow.readers("plan") == ("name_it", "whole")
    assert workflow.readers("plan.pages") == ("whole",)
    assert workflow.readers("topic", "plan") == ("maybe", "name_it", "whole")
    assert workflow.readers() == ()
    with pytest.raises(DefinitionError, match=r"has no field 'topci'. Did you mean 'topic'"):
        workflow.readers("topci")


def test_workflows_and_steps_show_themselves() -> None:
    assert repr(made(research, write)) == "Workflow('brief', version=1, state=Brief, steps=[research, write])"
    assert repr(write) == "<step write, writes draft>"
    assert repr(publish) == "<step publish, writes nothing>"


def test_one_step_may_serve_in_several_workflows() -> None:
    class Other(BaseModel):
        topic: str
        facts: list[str] = []
        draft: str = ""

    assert made(write).step("write").writes[0] is not Workflow("o", state=Other, steps=[write]).step("write").writes[0]


def test_all_problems_are_told_together_one_per_line() -> None:
    @step(writes="drat")
    def wrong(topci: str) -> str:
        return topci

    with pytest.raises(DefinitionError) as caught:
        made(wrong)
    assert str(caught.value).splitlines() == [
        "Workflow 'brief' has 2 problems:",
        "- Workflow 'brief', step 'wrong': writes='drat': Brief has no field 'drat'. Did you mean 'draft'?",
        "- Workflow 'brief', step 'wrong': parameter 'topci' matches no field of Brief and has no default."
        " Did you mean 'topic'?",
    ]
    error: Any = caught.value
    assert (len(error.problems), error.workflow) == (2, "brief")


def test_importing_the_definitions_does_not_import_pydantic() -> None:
    look = "import sys, pausepoint.definition.workflow; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


# the list


def test_two_steps_of_one_name_are_refused() -> None:
    @step(name="write")
    def other() -> None: ...

    assert "two steps have the name 'write'" in refused_once(write, other)


def test_a_step_listed_twice_is_refused() -> None:
    assert "step 'write' is listed twice. List it once, and use a route" in refused_once(write, write)


def test_a_workflow_needs_steps() -> None:
    assert "the workflow has no steps" in refused_once()


def test_what_is_not_a_step_is_refused_in_the_list() -> None:
    def plain() -> None: ...

    assert "function 'plain' in steps= is not a step. Decorate it with @step" in refused_once(write, plain)
    assert "'write' in steps= is not a step" in refused_once("write")
    with pytest.raises(DefinitionError, match="steps= must be a list of steps"):
        Workflow("brief", state=Brief, steps=write)  # type: ignore[arg-type]


def test_what_stands_in_the_wrong_list_is_told_where_it_belongs() -> None:
    @route(after=write)
    def onward(topic: str) -> Literal["write"] | None:
        return None

    @guard(after=write)
    def ready(topic: str) -> str | None:
        return None

    assert "route 'onward' is listed in steps=. Move it to routes=[onward]" in refused_once(write, onward)
    assert "guard 'ready' is listed in steps=. Move it to guards=[ready]" in refused_once(write, ready)
    assert "guard 'ready' is listed in routes=. Move it to guards=[ready]" in refused_once(write, routes=[ready])
    assert "route 'onward' is listed in guards=. Move it to routes=[onward]" in refused_once(write, guards=[onward])
    assert "step 'write' is listed in guards=. Move it to steps=[write]" in refused_once(write, guards=[write])


def test_a_state_that_cannot_be_one_is_refused() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    with pytest.raises(DefinitionError, match=r"^Workflow 'w': Open allows extra fields"):
        Workflow("w", state=Open, steps=[])
    with pytest.raises(DefinitionError, match=r"^Workflow 'w': state= must be a pydantic model .*, not dict"):
        Workflow("w", state=dict, steps=[])  # type: ignore[type-var]


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0])
def test_a_version_is_a_whole_number_from_one_on(version: Any) -> None:
    assert "must be a whole number of 1 or more" in refused_once(write, version=version)
    assert made(write, version=3).version == 3


# events


def test_a_workflow_declares_its_own_events() -> None:
    assert made(write, events=["paper.found", "spent-more"]).events == {"paper.found", "spent-more"}


@pytest.mark.parametrize("event", sorted(ENGINE_EVENTS))
def test_the_types_of_the_engine_are_taken(event: str) -> None:
    assert f"event '{event}' is an event type of the engine" in refused_once(write, events=[event])


def test_a_step_that_emits_an_undeclared_event_is_refused_when_the_workflow_is_defined() -> None:
    @step
    async def tell(ctx: Context) -> None:
        async def inside() -> None:
            ctx.emit("paper.lost", "twice", count=2)

        ctx.emit("paper.found")
        ctx.emit(event_type="paper.fuond")
        await inside()

    @step
    def shout(context: BlockingContext) -> None:
        context.emit("step.completed", "by hand")

    assert made(tell, events=["paper.found", "paper.fuond", "paper.lost"]).events
    with pytest.raises(DefinitionError) as refused:
        made(tell, shout, events=["paper.found"])
    error: Any = refused.value
    lost, fuond, taken = error.problems
    assert "step 'tell': it emits 'paper.lost', which the workflow does not declare. Add it to" in lost
    assert "it emits 'paper.fuond'" in fuond
    assert "Did you mean 'paper.found'?" in fuond
    assert "step 'shout': it emits 'step.completed', which is one of the engine's own events. Choose" in taken


def test_only_certain_names_of_events_are_checked_when_the_workflow_is_defined() -> None:
    class Horn:
        def emit(self, text: str) -> None: ...

    @step
    async def tell(topic: str, ctx: Context) -> None:
        def toot(ctx: Horn) -> None:
            ctx.emit("not of the context")

        toot(Horn())
        Horn().emit("not of the context either")
        ctx.emit(topic)
        ctx.emit("paper." + topic)
        ctx.emit(f"paper.{topic}")

    @step
    async def replaces(ctx: Context) -> None:
        ctx = Horn()  # type: ignore[assignment]
        ctx.emit("of another object")

    scope: dict[str, Any] = {"Context": Context}
    exec("async def unseen(ctx: Context) -> None:\n    ctx.emit('no source')", scope)
    assert made(tell, replaces, step(scope["unseen"])).outline == ("tell", "replaces", "unseen")


def test_invalid_event_names_are_refused() -> None:
    assert "event 'a b' is not a valid name" in refused_once(write, events=["a b"])


# diagram


def test_the_drawing_shows_steps_guards_and_all_targets_of_routes() -> None:
    @step(name="end", when=lambda draft: bool(draft))
    def last(draft: str) -> None: ...

    @route(after="write")
    def choose() -> Literal["research", "end"] | None:
        return None

    workflow = made(research, write, last, routes=[choose], guards=[enough])
    assert workflow.mermaid() == (
        "flowchart TD\n"
        '    start(["start"]) --> s0\n'
        '    s0["research"]\n'
        '    s0 --> g0_0{{"guard enough"}}\n'
        "    g0_0 --> s1\n"
        '    s1["write"]\n'
        '    s1 --> r1{"choose"}\n'
        "    r1 --> s0\n"
        "    r1 --> s2\n"
        "    r1 --> done\n"
        '    s2["end<br/>when lambda"]\n'
        "    s2 --> done\n"
        '    done(["end"])\n'
    )
    assert workflow.mermaid() == workflow.mermaid()


def test_the_drawing_of_an_endless_workflow_has_no_end() -> None:
    @route(after="write")
    def again() -> Literal["research"]:
        return "research"

    assert "done" not in made(research, write, routes=[again]).mermaid()
