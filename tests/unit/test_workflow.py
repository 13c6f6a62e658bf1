from __future__ import annotations

import functools
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field

from pausepoint.definition.binding import near_miss
from pausepoint.definition.fields import Append, At, Merge, Replace
from pausepoint.definition.retry import Retry
from pausepoint.definition.steps import migrate
from pausepoint.definition.workflow import Scope, Step, Workflow, guard, route, step
from pausepoint.errors import DefinitionError
from pausepoint.model.events import ENGINE_EVENTS
from pausepoint.model.ids import SessionId

if TYPE_CHECKING:
    from decimal import Decimal


class Context:
    __pausepoint_context__ = "async"


class BlockingContext:
    __pausepoint_context__ = "blocking"


class Plan(BaseModel):
    title: str = ""
    pages: int | None = None


class Brief(BaseModel):
    topic: str
    facts: list[str] = []
    draft: str = ""
    score: int = 0
    verdict: str | None = None
    log: Annotated[list[str], Append] = []
    votes: Annotated[dict[str, int], Merge] = {}
    plan: Plan = Plan()
    review: Plan | None = None
    notes: dict[str, str] = {}
    fixed: str = Field(default="", frozen=True)
    owner_id: str = ""
    anything: Any = None


def made(*steps: Any, **options: Any) -> Workflow[Brief]:
    return Workflow("brief", state=Brief, steps=steps, **options)


def refused(*steps: Any, **options: Any) -> str:
    """The message of the refusal. Every one names the workflow."""
    with pytest.raises(DefinitionError) as caught:
        made(*steps, **options)
    assert "workflow 'brief'" in str(caught.value)
    return str(caught.value)


def refused_once(*steps: Any, **options: Any) -> str:
    """The same for a definition with one mistake: it reads as one sentence."""
    message = refused(*steps, **options)
    assert "\n" not in message, message
    return message


@step(writes="facts")
async def research(topic: str, ctx: Context) -> list[str]:
    return [topic]


@step(writes="draft")
def write(topic: str, facts: list[str]) -> str:
    return f"{topic}: {', '.join(facts)}"


@step
def publish(draft: str) -> None:
    pass


# a good one


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
    assert write.__name__ == "write"


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
        with pytest.raises(DefinitionError, match="workflow 'brief' has no step 'wrtie'; did you mean 'write'"):
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
    with pytest.raises(DefinitionError, match="has no field 'topci'; did you mean 'topic'"):
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
        "workflow 'brief' has 2 problems:",
        "- workflow 'brief', step 'wrong': writes='drat': Brief has no field 'drat'; did you mean 'draft'?",
        "- workflow 'brief', step 'wrong': parameter 'topci' matches no field of Brief and has no default;"
        " did you mean 'topic'?",
    ]
    assert len(caught.value.problems) == 2
    assert caught.value.workflow == "brief"


def test_importing_the_definitions_does_not_import_pydantic() -> None:
    look = "import sys, pausepoint.workflow; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


# parameters


def test_a_parameter_that_matches_nothing_is_refused_with_the_nearest_field() -> None:
    @step
    def wrong(topci: str) -> None: ...

    message = refused_once(wrong)
    assert "step 'wrong'" in message
    assert "parameter 'topci' matches no field of Brief and has no default; did you mean 'topic'?" in message


def test_a_default_does_not_excuse_a_near_miss() -> None:
    @step
    def wrong(topci: str = "otters") -> None: ...

    assert "parameter 'topci' would keep its default" in refused_once(wrong)
    assert "did you mean 'topic'?" in refused_once(wrong)


def test_a_parameter_unlike_any_field_keeps_its_default() -> None:
    @step
    def fine(topic: str, limit: int = 3, *, colour: str = "red") -> None: ...

    assert [read.param for read in made(fine).step("fine").reads] == ["topic"]


@pytest.mark.parametrize("name", ["topci", "topics", "topi", "Topic", "to_pic", "tpoic"])
def test_near_misses(name: str) -> None:
    assert near_miss(name, ["topic", "facts"]) == "topic"


@pytest.mark.parametrize(
    ("name", "field"), [("limit", "list"), ("n", "k"), ("max", "map"), ("tonic_water", "topic"), ("factor", "facts")]
)
def test_names_that_are_merely_alike_are_no_near_misses(name: str, field: str) -> None:
    assert near_miss(name, [field]) is None


def test_two_slips_in_a_long_name_are_a_near_miss() -> None:
    assert near_miss("requirments_lst", ["requirements_list"]) == "requirements_list"


def test_a_parameter_whose_type_does_not_fit_is_refused() -> None:
    @step
    def wrong(facts: list[int]) -> None: ...

    assert "parameter 'facts' is list[int], but Brief.facts is list[str]" in refused_once(wrong)


def test_a_parameter_may_be_wider_than_its_field() -> None:
    @step
    def fine(
        facts: Sequence[str],
        score: float,
        topic: str | None,
        verdict: object,
        votes: Mapping[str, float],
        log: Iterable[object],
        draft: Any,
        plan: BaseModel,
    ) -> None: ...

    assert len(made(fine).step("fine").reads) == 8


def test_a_parameter_without_annotation_takes_anything() -> None:
    @step
    def fine(topic, verdict) -> None:  # type: ignore[no-untyped-def]
        pass

    assert [read.required for read in made(fine).step("fine").reads] == [False, False]


def test_narrowing_none_away_makes_a_value_required() -> None:
    @step
    def fine(verdict: str, review: Plan | None) -> None: ...

    assert [(read.param, read.required) for read in made(fine).step("fine").reads] == [
        ("verdict", True),
        ("review", False),
    ]


def test_narrowing_does_not_excuse_another_type() -> None:
    @step
    def wrong(verdict: int) -> None: ...

    assert "parameter 'verdict' is int, but Brief.verdict is str | None" in refused_once(wrong)


def test_parts_are_read_through_at() -> None:
    @step
    def fine(name: Annotated[str, At("plan.title")], pages: Annotated[int, At("plan.pages")]) -> None: ...

    assert [(read.param, read.place.path, read.required) for read in made(fine).step("fine").reads] == [
        ("name", "plan.title", False),
        ("pages", "plan.pages", True),
    ]


def test_a_part_of_an_optional_model_is_read_as_required() -> None:
    @step
    def fine(name: Annotated[str, At("review.title")], other: Annotated[str | None, At("review.title")]) -> None: ...

    assert [read.required for read in made(fine).step("fine").reads] == [True, False]


def test_at_an_unknown_path_is_refused_with_the_nearest_one() -> None:
    @step
    def wrong(name: Annotated[str, At("plan.titel")]) -> None: ...

    assert "parameter 'name': Brief has no field 'plan.titel'; did you mean 'plan.title'?" in refused_once(wrong)


def test_at_with_a_type_that_does_not_fit_is_refused() -> None:
    @step
    def wrong(name: Annotated[int, At("plan.title")]) -> None: ...

    assert "parameter 'name' is int, but Brief.plan.title is str" in refused_once(wrong)


def test_the_state_model_as_annotation_gets_the_whole_state() -> None:
    @step
    def fine(everything: Brief) -> None: ...

    bound = made(fine).step("fine")
    assert (bound.whole, bound.reads) == ("everything", ())


def test_the_whole_state_is_given_once() -> None:
    @step
    def wrong(one: Brief, two: Brief) -> None: ...

    assert "parameters 'one' and 'two' both ask for Brief" in refused_once(wrong)


def test_the_session_id_is_given_by_annotation() -> None:
    @step
    def fine(who: SessionId) -> None: ...

    assert made(fine).step("fine").session_id == "who"


def test_a_parameter_merely_named_session_id_matches_a_field_or_nothing() -> None:
    @step
    def wrong(session_id: str) -> None: ...

    assert "parameter 'session_id' matches no field" in refused_once(wrong)


def test_a_list_of_session_ids_is_no_session_id() -> None:
    class Related(BaseModel):
        others: list[str] = []

    @step
    def fine(others: list[SessionId]) -> None: ...

    assert Workflow("related", state=Related, steps=[fine]).step("fine").session_id is None


def test_a_parameter_that_could_be_field_or_session_id_is_refused() -> None:
    @step
    def wrong(owner_id: SessionId) -> None: ...

    assert "could be the field 'owner_id' or, by its annotation, SessionId" in refused_once(wrong)


def test_several_contexts_are_refused() -> None:
    @step
    async def wrong(ctx: Context, again: Context) -> None: ...

    assert "parameters 'ctx' and 'again' both ask for the context" in refused_once(wrong)


def test_a_context_may_be_optional_for_direct_calls() -> None:
    @step
    async def fine(ctx: Context | None = None) -> None: ...

    assert made(fine).step("fine").context == "ctx"


def test_a_plain_step_takes_a_blocking_context() -> None:
    @step
    def fine(ctx: BlockingContext) -> None: ...

    bound = made(fine).step("fine")
    assert (bound.context, bound.is_async, bound.takes_blocking) == ("ctx", False, True)


def test_a_context_without_an_annotation_is_told_which_one_it_needs() -> None:
    @step
    async def moving(ctx) -> None: ...  # type: ignore[no-untyped-def]

    @step
    def standing(context) -> None: ...  # type: ignore[no-untyped-def]

    @step
    async def optional(ctx=None) -> None: ...  # type: ignore[no-untyped-def]

    assert refused_once(moving).endswith("; annotate it: ctx: Context")
    assert refused_once(standing).endswith("; annotate it: context: BlockingContext")
    assert refused_once(optional).endswith("; annotate it: ctx: Context")


def test_a_field_may_be_called_context() -> None:
    class Chat(BaseModel):
        context: str = ""

    @step
    def fine(context) -> None: ...  # type: ignore[no-untyped-def]

    assert [read.param for read in Workflow("chat", state=Chat, steps=[fine]).step("fine").reads] == ["context"]


def test_a_context_in_a_plain_step_is_refused() -> None:
    @step
    def wrong(ctx: Context) -> None: ...

    assert "is a Context, but the step is a plain def; use BlockingContext" in refused_once(wrong)


def test_a_blocking_context_in_an_async_step_is_refused() -> None:
    @step
    async def wrong(ctx: BlockingContext) -> None: ...

    assert "is a BlockingContext, but the step is an async def; use Context" in refused_once(wrong)


def test_parameters_that_cannot_be_named_are_refused() -> None:
    @step
    def stars(*args: str) -> None: ...

    @step
    def keywords(**others: str) -> None: ...

    @step
    def positional(topic: str, /) -> None: ...

    assert "parameter *args: 'str' cannot be filled" in refused_once(stars)
    assert "**others" in refused_once(keywords)
    assert "parameter topic: 'str' cannot be filled" in refused_once(positional)


def test_a_name_that_exists_only_for_type_checkers_is_told() -> None:
    @step
    def wrong(score: Decimal) -> None: ...

    assert "an annotation names 'Decimal'" in refused_once(wrong)
    assert "TYPE_CHECKING" in refused_once(wrong)


def test_an_annotation_that_cannot_be_read_is_told() -> None:
    @step
    def wrong(topic: str[3]) -> None: ...  # type: ignore[misc]

    assert "its annotations cannot be read: TypeError" in refused_once(wrong)


# what can be a step


def test_a_bound_method_can_be_a_step() -> None:
    class Agent:
        def compose(self, topic: str) -> str:
            return topic

    bound = made(step(Agent().compose, writes="draft")).step("compose")
    assert [read.param for read in bound.reads] == ["topic"]
    assert bound.fn("otters") == "otters"


class Callable_:
    def __call__(self, topic: str) -> None: ...


@pytest.mark.parametrize(
    "thing",
    [Callable_(), functools.partial(publish.fn, draft=""), print, Plan, "facts", None],
    ids=["callable object", "partial", "built-in", "class", "text", "None"],
)
def test_other_callables_are_refused_as_steps(thing: Any) -> None:
    with pytest.raises(DefinitionError, match="a function is needed"):
        step(thing)


def test_generators_are_refused_as_steps() -> None:
    def generator(topic: str) -> Iterator[str]:
        yield topic

    async def async_generator(topic: str) -> AsyncIterator[str]:
        yield topic

    for each in (generator, async_generator):
        with pytest.raises(DefinitionError, match=r"step '.*generator': it is a generator"):
            step(each)


def test_a_decorator_that_hides_async_is_refused() -> None:
    async def work() -> None: ...

    @functools.wraps(work)
    def wrapper() -> Any:
        return work()

    with pytest.raises(DefinitionError, match="a decorator hides that it is async"):
        step(wrapper)


def test_a_step_is_decorated_once() -> None:
    with pytest.raises(DefinitionError, match="it is a step already"):
        step(write)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(DefinitionError, match="'<lambda>' is not a valid name"):
        step(lambda topic: None)


@pytest.mark.parametrize("name", ["", "1st", "a b", "ä", "a#1", "a/b", "-a"])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="is not a valid name"):
        Step(publish.fn, name=name or "-")
    with pytest.raises(DefinitionError, match="is not a valid name"):
        Scope(name)
    with pytest.raises(DefinitionError, match="is not a valid name"):
        Workflow(name, state=Brief, steps=[write])


@pytest.mark.parametrize("retry", [0, -1, True, 1.5, "3", None])
def test_a_nonsensical_retry_is_refused(retry: Any) -> None:
    with pytest.raises(DefinitionError, match=r"step 'publish': .*retry=3 means three attempts"):
        step(publish.fn, retry=retry)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), timedelta(0), True, "3"])
def test_a_nonsensical_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(DefinitionError, match=r"step 'publish': timeout=.* is not a time span above zero"):
        step(publish.fn, timeout=timeout)


# writes and results


def test_writing_an_unknown_field_is_refused_with_the_nearest_one() -> None:
    @step(writes="drfat")
    def wrong() -> str:
        return ""

    assert "step 'wrong': writes='drfat': Brief has no field 'drfat'; did you mean 'draft'?" in refused_once(wrong)


def test_writing_a_part_of_a_dict_is_refused_with_a_hint() -> None:
    @step(writes="notes.today")
    def wrong() -> str:
        return ""

    assert "Merge" in refused_once(wrong)


def test_writing_a_part_of_a_nested_model_is_possible() -> None:
    @step(writes="plan.title")
    def fine() -> str:
        return ""

    assert made(fine).step("fine").writes[0].parts == ("plan", "title")


def test_writing_a_part_of_an_optional_model_is_refused() -> None:
    @step(writes="review.title")
    def wrong() -> str:
        return ""

    assert "writes='review.title': a model on the way may be None; write that one as a whole" in refused_once(wrong)


def test_writing_a_frozen_field_is_refused() -> None:
    @step(writes="fixed")
    def wrong() -> str:
        return ""

    assert "writes='fixed': the field is frozen" in refused_once(wrong)


def test_writing_a_place_twice_is_refused() -> None:
    @step(writes=["draft", "draft"])
    def wrong() -> dict[str, str]:
        return {}

    assert "writes names 'draft' twice" in refused_once(wrong)


def test_writing_a_place_and_a_part_of_it_is_refused() -> None:
    @step(writes=["plan.title", "plan"])
    def wrong() -> dict[str, object]:
        return {}

    assert "writes names both 'plan.title' and 'plan'" in refused_once(wrong)


def test_a_field_whose_name_merely_begins_alike_is_no_part() -> None:
    class Alike(BaseModel):
        plan: str = ""
        plan_b: str = ""

    @step(writes=["plan", "plan_b"])
    def fine() -> dict[str, str]:
        return {}

    assert len(Workflow("alike", state=Alike, steps=[fine]).step("fine").writes) == 2


def test_a_missing_return_annotation_is_refused_with_the_right_one() -> None:
    @step(writes="facts")
    def wrong(topic: str):  # type: ignore[no-untyped-def]
        return [topic]

    @step
    def silent(topic: str):  # type: ignore[no-untyped-def]
        pass

    @step(writes=["facts", "draft"])
    def many(topic: str):  # type: ignore[no-untyped-def]
        return {}

    assert "the return annotation is missing; write '-> list[str]'" in refused_once(wrong)
    assert "write '-> None'" in refused_once(silent)
    assert "write '-> dict[str, object]'" in refused_once(many)


def test_a_result_that_does_not_fit_its_field_is_refused() -> None:
    @step(writes="draft")
    def wrong() -> int:
        return 0

    assert "step 'wrong': it returns int, but 'draft' is str" in refused_once(wrong)


def test_a_result_may_be_narrower_than_its_field() -> None:
    @step(writes="verdict")
    def fine() -> Literal["good", "bad"]:
        return "good"

    @step(writes="anything")
    def any_one() -> dict[str, int]:
        return {}

    assert made(fine, any_one)


def test_none_is_returned_only_where_the_field_admits_it() -> None:
    @step(writes="draft")
    def wrong() -> str | None:
        return None

    @step(writes="verdict")
    def fine() -> str | None:
        return None

    assert "it returns str | None, but 'draft' does not admit None; make the field str | None" in refused_once(wrong)
    assert made(fine)


def test_a_step_that_writes_nothing_returns_none() -> None:
    @step
    def wrong() -> str:
        return ""

    @step
    def never() -> NoReturn:
        raise ValueError

    assert "it returns str, but writes nothing; name the field in writes=, or return None" in refused_once(wrong)
    assert made(never)


def test_a_growing_list_is_written_with_what_is_new() -> None:
    @step(writes="log", name="a")
    def a_list() -> list[str]:
        return []

    @step(writes="log", name="b")
    def a_sequence() -> Sequence[Literal["x"]]:
        return []

    @step(writes="log", name="c")
    def replaced() -> Replace[list[str]]:
        return Replace([])

    @step(writes="log", name="d")
    def either() -> list[str] | Replace[list[str]]:
        return []

    assert len(made(a_list, a_sequence, replaced, either).steps) == 4


def test_a_growing_dict_is_written_with_what_is_new() -> None:
    @step(writes="votes", name="a")
    def a_dict() -> dict[str, int]:
        return {}

    @step(writes="votes", name="b")
    def replaced() -> Replace[dict[str, int]] | Mapping[str, bool]:
        return {}

    assert len(made(a_dict, replaced).steps) == 2


def test_what_a_growing_field_cannot_take_is_refused() -> None:
    @step(writes="log")
    def one() -> str:
        return ""

    @step(writes="log")
    def numbers() -> list[int]:
        return []

    @step(writes="log")
    def perhaps() -> list[str] | None:
        return None

    @step(writes="log")
    def replaced() -> Replace[list[int]]:
        return Replace([1])

    @step(writes="votes")
    def pairs() -> list[tuple[str, int]]:
        return []

    @step(writes="facts")
    def no_growth() -> Replace[list[str]]:
        return Replace([])

    assert "it returns str, but 'log' is list[str] and grows: return Sequence[str], only what is new" in refused(one)
    assert "it returns list[int], but 'log' is list[str] and grows" in refused_once(numbers)
    assert "'log' does not admit None; return what is new, empty if nothing is" in refused_once(perhaps)
    assert "it returns Replace[list[int]], but 'log'" in refused_once(replaced)
    assert "'votes' is dict[str, int] and grows: return Mapping[str, int]" in refused_once(pairs)
    assert "'facts' does not grow, so Replace has no meaning there" in refused_once(no_growth)


class Result(TypedDict, total=False):
    draft: str
    log: list[str] | Replace[list[str]]


class Misspelt(TypedDict, total=False):
    drafts: str


class Mistyped(TypedDict, total=False):
    draft: int


def test_several_writes_return_a_mapping() -> None:
    @step(writes=["draft", "log"], name="a")
    def typed_dict() -> Result:
        return {}

    @step(writes=["draft", "log"], name="b")
    def plain() -> dict[str, Any]:
        return {}

    @step(writes=["draft", "score"], name="c")
    def union() -> Mapping[str, str | int]:
        return {}

    assert all(each.many for each in made(typed_dict, plain, union).steps)


def test_several_writes_without_a_mapping_are_refused() -> None:
    @step(writes=["draft", "score"])
    def pair() -> tuple[str, int]:
        return "", 0

    @step(writes=["draft", "score"])
    def perhaps() -> dict[str, object] | None:
        return None

    assert "it writes draft, score and must return a mapping of these names" in refused_once(pair)
    assert "not None" in refused_once(perhaps)


def test_a_mapping_that_leaves_no_room_for_a_field_is_refused() -> None:
    @step(writes=["draft", "score"])
    def wrong() -> dict[str, str]:
        return {}

    @step(writes=["draft", "score"])
    def numbered() -> dict[int, object]:
        return {}

    assert "it returns dict[str, str], but 'score' is int" in refused_once(wrong)
    assert "the keys are names of fields" in refused_once(numbered)


def test_the_keys_of_a_typed_dict_are_among_the_writes() -> None:
    @step(writes=["draft", "score"])
    def wrong() -> Misspelt:
        return {}

    @step(writes=["draft", "score"])
    def mistyped() -> Mistyped:
        return {}

    assert "Misspelt has the key 'drafts', which the step does not write; did you mean 'draft'?" in refused_once(wrong)
    assert "Mistyped['draft'] is int, but 'draft' is str" in refused_once(mistyped)


# the list


def test_two_steps_of_one_name_are_refused() -> None:
    @step(name="write")
    def other() -> None: ...

    assert "two steps are called 'write'" in refused_once(write, other)


def test_a_step_listed_twice_is_refused() -> None:
    assert "step 'write' is listed twice; use a route" in refused_once(write, write)


def test_a_workflow_needs_steps() -> None:
    assert "it has no steps" in refused_once()


def test_what_is_not_a_step_is_refused_in_the_list() -> None:
    def plain() -> None: ...

    assert "function 'plain' in steps is not a step; decorate it with @step" in refused_once(write, plain)
    assert "'write' in steps is not a step" in refused_once("write")
    with pytest.raises(DefinitionError, match="steps must be a list of steps"):
        Workflow("brief", state=Brief, steps=write)  # type: ignore[arg-type]


def test_what_stands_in_the_wrong_list_is_told_where_it_belongs() -> None:
    @route(after=write)
    def onward(topic: str) -> Literal["write"] | None:
        return None

    @guard(after=write)
    def ready(topic: str) -> str | None:
        return None

    assert "route 'onward' is listed in steps=; move it to routes=[onward]" in refused_once(write, onward)
    assert "guard 'ready' is listed in steps=; move it to guards=[ready]" in refused_once(write, ready)
    assert "guard 'ready' is listed in routes=; move it to guards=[ready]" in refused_once(write, routes=[ready])
    assert "route 'onward' is listed in guards=; move it to routes=[onward]" in refused_once(write, guards=[onward])
    assert "step 'write' is listed in guards=; move it to steps=[write]" in refused_once(write, guards=[write])


def test_a_state_that_cannot_be_one_is_refused() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    with pytest.raises(DefinitionError, match=r"^workflow 'w': Open allows extra fields"):
        Workflow("w", state=Open, steps=[])
    with pytest.raises(DefinitionError, match=r"^workflow 'w': state must be a pydantic model .*, not dict"):
        Workflow("w", state=dict, steps=[])  # type: ignore[type-var]


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0])
def test_a_version_is_a_whole_number_from_one_on(version: Any) -> None:
    assert "is not a whole number from 1 on" in refused_once(write, version=version)
    assert made(write, version=3).version == 3


# routes


@route(after="write")
def judge(score: int) -> Literal["research", "publish"] | None:
    return "publish" if score else None


def test_the_return_type_of_a_route_is_the_list_of_legal_transitions() -> None:
    workflow = made(research, write, publish, routes=[judge])
    assert workflow.routes["write"].targets == ("research", "publish", None)
    assert workflow.targets("write") == ("research", "publish", None)
    assert workflow.targets("research") == ("write",)
    assert workflow.targets("publish") == (None,)
    assert workflow.routes["write"].check(score=1) == "publish"


def test_a_route_may_always_end_and_may_use_one_literal() -> None:
    @route(after="write")
    def stop() -> None: ...

    @route(after="research")
    def onward() -> Literal["write", None]:
        return None

    workflow = made(research, write, routes=[stop, onward])
    assert workflow.targets("write") == (None,)
    assert workflow.targets("research") == ("write", None)


def test_a_workflow_that_never_ends_is_allowed() -> None:
    @route(after=write)
    def again() -> Literal["research"]:
        return "research"

    assert made(research, write, routes=[again]).targets("write") == ("research",)


def test_a_route_to_an_unknown_step_is_refused() -> None:
    @route(after="write")
    def wrong() -> Literal["publsh"] | None:
        return None

    assert "route 'wrong': its return type names 'publsh', which is no step; did you mean 'publish'?" in refused_once(
        write, publish, routes=[wrong]
    )


def test_a_route_needs_a_literal_return_type() -> None:
    @route(after="write")
    def text() -> str:
        return "publish"

    @route(after="write")
    def silent(score: int):  # type: ignore[no-untyped-def]
        return "publish"

    assert "route 'text': it returns str; list the steps it may lead to: Literal" in refused_once(write, routes=[text])
    assert "route 'silent': it has no return annotation" in refused_once(write, routes=[silent])


def test_a_step_has_one_route() -> None:
    @route(after="write")
    def other() -> Literal["publish"]:
        return "publish"

    assert "step 'write' has the route 'judge' already" in refused_once(research, write, publish, routes=[judge, other])


def test_a_route_or_guard_after_an_unknown_step_is_refused() -> None:
    @route(after="wriet")
    def lost() -> None: ...

    @guard(after="reserach")
    def adrift() -> str | None:
        return None

    message = refused(research, write, routes=[lost], guards=[adrift])
    assert "route 'lost': it stands after 'wriet', which is no step; did you mean 'write'?" in message
    assert "guard 'adrift': it stands after 'reserach', which is no step; did you mean 'research'?" in message


def test_an_unreachable_step_is_refused() -> None:
    @route(after="research")
    def skip() -> Literal["publish"]:
        return "publish"

    assert "step 'write': no route leads to it" in refused_once(research, write, publish, routes=[skip])


def test_a_step_that_only_an_unreachable_one_leads_to_is_unreachable_too() -> None:
    @route(after="research")
    def stop() -> None: ...

    message = refused(research, write, publish, routes=[stop])
    assert "step 'write': no route" in message
    assert "step 'publish': no route" in message


def test_what_is_no_route_or_guard_is_refused_in_their_lists() -> None:
    def plain() -> None: ...

    message = refused(research, write, publish, routes=[plain], guards=[judge])
    assert "function 'plain' in routes is not a route; decorate it with @route(after=...)" in message
    assert "route 'judge' is listed in guards=; move it to routes=[judge]" in message


# guards and conditions


@guard(after=research)
def enough(facts: list[str]) -> str | None:
    return None if facts else "no facts yet"


@pytest.mark.covers("S3.67")
def test_any_step_can_have_guards_with_a_message() -> None:
    @guard(after="research")
    def named(topic: str) -> str | None:
        return None if topic else "no topic"

    @guard(after="publish")
    def approved(everything: Brief, plan_title: Annotated[str, At("plan.title")]) -> str | None:
        return None

    workflow = made(research, write, publish, guards=[enough, named, approved])
    assert [check.name for check in workflow.guards["research"]] == ["enough", "named"]
    assert [check.name for check in workflow.guards["publish"]] == ["approved"]
    assert workflow.guards["publish"][0].whole == "everything"
    assert workflow.guards["research"][0](facts=[]) == "no facts yet"
    assert "write" not in workflow.guards


def test_guards_and_routes_stay_callable() -> None:
    assert enough(["a"]) is None
    assert judge(1) == "publish"


def test_a_guard_returns_why_or_none() -> None:
    @guard(after="write")
    def flag() -> bool:  # type: ignore[arg-type]
        return True

    @guard(after="write")
    def always() -> str:
        return "no"

    @guard(after="write")
    def nothing() -> None: ...

    @guard(after="write")
    def silent():  # type: ignore[no-untyped-def]
        pass

    assert "guard 'flag': it returns bool; write '-> str | None'" in refused_once(write, guards=[flag])
    assert "guard 'always': it returns str" in refused_once(write, guards=[always])
    assert "guard 'nothing': it returns None" in refused_once(write, guards=[nothing])
    assert "guard 'silent': it has no return annotation" in refused_once(write, guards=[silent])


def test_routes_guards_and_conditions_are_plain_functions() -> None:
    @route(after="write")
    async def moving() -> None: ...

    @guard(after="write")
    async def waiting() -> str | None:  # type: ignore[arg-type]
        return None

    async def asking() -> bool:
        return True

    message = refused(step(write.fn, writes="draft", when=asking), routes=[moving], guards=[waiting])
    assert message.count("it must be a plain def, not async") == 3
    assert "step 'write', when: it must be" in message


def test_routes_guards_and_conditions_get_no_context_and_no_session_id() -> None:
    @route(after="write")
    def moving(ctx: Context) -> None: ...

    @guard(after="write")
    def waiting(ctx: BlockingContext) -> str | None:
        return None

    def asking(who: SessionId) -> bool:
        return True

    message = refused(step(write.fn, writes="draft", when=asking), routes=[moving], guards=[waiting])
    assert message.count("only steps get one, this is a pure function of fields") == 3


def test_their_parameters_match_fields_too() -> None:
    @route(after="write")
    def moving(scor: int) -> None: ...

    @guard(after="write")
    def waiting(score: str) -> str | None:
        return None

    message = refused(step(write.fn, writes="draft", when=lambda facst: bool(facst)), routes=[moving], guards=[waiting])
    assert "route 'moving': parameter 'scor' matches no field of Brief" in message
    assert "guard 'waiting': parameter 'score' is str, but Brief.score is int" in message
    assert "step 'write', when: parameter 'facst' matches no field" in message


def test_a_condition_reads_fields() -> None:
    def needed(facts: list[str], verdict: str) -> bool:
        return bool(facts)

    bound = made(step(write.fn, writes="draft", when=needed)).step("write")
    assert bound.when is not None
    assert [(read.param, read.required) for read in bound.when.reads] == [("facts", False), ("verdict", True)]
    assert bound.when(facts=["a"], verdict="") is True


def test_a_condition_says_that_it_returns_a_bool_unless_it_is_a_lambda() -> None:
    def text(topic: str) -> str:
        return topic

    def silent(topic):  # type: ignore[no-untyped-def]
        return bool(topic)

    assert "'text' returns str; write '-> bool'" in refused_once(step(publish.fn, when=text))  # type: ignore[arg-type]
    assert "'silent' has no return annotation" in refused_once(step(publish.fn, when=silent))
    assert made(step(publish.fn, when=lambda topic: bool(topic))).step("publish").when is not None


def test_a_condition_is_a_function() -> None:
    with pytest.raises(DefinitionError, match="step 'publish', when: a function is needed"):
        step(publish.fn, when="facts")  # type: ignore[arg-type]


# scopes


@pytest.mark.covers("S3.74")
def test_each_workflow_has_its_own_table_of_who_owns_what() -> None:
    ingestion = Scope("IngestionAgent", reads=["topic"], writes=["facts", "plan"])
    review = Scope("ReviewAgent", reads="*", writes=["verdict"])

    @ingestion.step(writes="facts")
    def ingest(topic: str, facts: list[str]) -> list[str]:
        return facts

    @ingestion.step(writes="plan.title")
    def name_it(pages: Annotated[int, At("plan.pages")]) -> str:
        return ""

    @review.step(writes="verdict", when=lambda score: score > 3)
    def look(everything: Brief) -> str:
        return ""

    workflow = made(ingest, name_it, look)
    assert workflow.scopes == (ingestion, review)
    assert [each.agent for each in workflow.steps] == ["IngestionAgent", "IngestionAgent", "ReviewAgent"]
    assert made(write).scopes == ()
    assert ingest.agent == "IngestionAgent"
    assert "in scope IngestionAgent" in repr(ingest)


def test_a_write_outside_a_scope_is_refused() -> None:
    estimation = Scope("EstimationAgent", reads=["topic"], writes=["score", "plan.pages"])

    @estimation.step(writes="verdict")
    def wrong(topic: str) -> str:
        return topic

    @estimation.step(writes="plan")
    def too_much(topic: str) -> Plan:
        return Plan()

    message = refused_once(wrong)
    assert "step 'wrong', scope 'EstimationAgent': the step writes 'verdict', which the scope does not own" in message
    assert "it has score, plan.pages" in message
    assert "the step writes 'plan', which the scope does not own" in refused_once(too_much)


@pytest.mark.covers("S3.73")
def test_a_read_outside_a_scope_is_refused() -> None:
    scope = Scope("Agent", reads=["plan.title"], writes=["score"])

    @scope.step
    def wrong(draft: str) -> None: ...

    @scope.step
    def too_much(plan: Plan) -> None: ...

    @scope.step(when=lambda draft: bool(draft))
    def asking() -> None: ...

    @scope.step
    def fine(name: Annotated[str, At("plan.title")], score: int) -> None: ...

    assert "scope 'Agent': parameter 'draft' reads 'draft', which the scope may not read" in refused_once(wrong)
    assert "parameter 'plan' reads 'plan'" in refused_once(too_much)
    assert "parameter 'draft' reads 'draft'" in refused_once(asking)
    assert made(fine)


def test_the_whole_state_is_only_for_scopes_that_read_everything() -> None:
    scope = Scope("Agent", reads=["topic", "draft"])

    @scope.step
    def wrong(everything: Brief) -> None: ...

    assert "parameter 'everything' asks for the whole state" in refused_once(wrong)


def test_unknown_fields_of_a_scope_are_refused_once() -> None:
    scope = Scope("Agent", reads=["topci"], writes=["drafft"])

    @scope.step
    def one() -> None: ...

    @scope.step
    def two() -> None: ...

    message = refused(one)
    assert "scope 'Agent': Brief has no field 'topci'; did you mean 'topic'?" in message
    assert "scope 'Agent': Brief has no field 'drafft'; did you mean 'draft'?" in message
    assert refused(one, two).count("topci") == 1


def test_a_scope_cannot_own_everything() -> None:
    scope = Scope("Agent", writes=["*"])

    @scope.step
    def one() -> None: ...

    assert 'writes=["*"] is not possible' in refused_once(one)


def test_a_scope_shows_itself() -> None:
    assert repr(Scope("Agent", reads="topic")) == "Scope('Agent', reads=['topic'], writes=[])"


# events


def test_a_workflow_declares_its_own_events() -> None:
    assert made(write, events=["paper.found", "spent-more"]).events == {"paper.found", "spent-more"}


@pytest.mark.parametrize("event", sorted(ENGINE_EVENTS))
def test_the_types_of_the_engine_are_taken(event: str) -> None:
    assert f"event '{event}' is one of the engine's own types" in refused_once(write, events=[event])


def test_invalid_event_names_are_refused() -> None:
    assert "event 'a b' is not a valid name" in refused_once(write, events=["a b"])


# versions


@migrate(from_version=1)
def one_up(state: dict[str, Any]) -> dict[str, Any]:
    return state


@migrate(from_version=2)
def two_up(state: dict[str, Any]) -> dict[str, Any]:
    return state


def test_migrations_lead_step_by_step_to_the_present_version() -> None:
    workflow = made(research, version=3, migrations=[two_up, one_up])
    assert workflow.migrations == {1: one_up, 2: two_up}
    assert made(research, version=3, migrations=[two_up]).migrations == {2: two_up}, "the oldest may be given up"
    assert repr(one_up) == "<migration one_up from version 1 to 2>"
    assert one_up({"topic": "eels"}) == {"topic": "eels"}


def test_gaps_doubles_and_migrations_that_lead_nowhere_are_refused() -> None:
    assert "no migration leads from version 2 to 3; add one: @migrate(from_version=2)" in refused_once(
        research, version=3, migrations=[one_up]
    )
    assert "migration 'two_up': it leads from version 2 to 3, but the workflow is version 2; set version=3" in (
        refused_once(research, version=2, migrations=[one_up, two_up])
    )

    @migrate(from_version=1)
    def again(state: dict[str, Any]) -> dict[str, Any]:
        return state

    assert "migrations 'one_up' and 'again' both start from version 1" in refused_once(
        research, version=2, migrations=[one_up, again]
    )


def test_what_is_no_migration_is_refused() -> None:
    def plain(state: dict[str, Any]) -> dict[str, Any]:
        return state

    assert "function 'plain' in migrations is not a migration; decorate it with @migrate" in refused_once(
        research, version=2, migrations=[plain]
    )
    assert "migration 'one_up' is listed in steps=; move it to migrations=[one_up]" in refused(research, one_up)


@pytest.mark.parametrize("version", [0, -1, "1", True, 1.0])
def test_a_migration_starts_from_a_whole_number(version: Any) -> None:
    with pytest.raises(DefinitionError, match="is not a whole number from 1 on"):
        migrate(from_version=version)(lambda state: state)


def test_a_migration_is_a_plain_function_of_the_state() -> None:
    async def later(state: dict[str, Any]) -> dict[str, Any]:
        return state

    def none() -> dict[str, Any]:
        return {}

    def two(state: dict[str, Any], more: int) -> dict[str, Any]:
        return state

    with pytest.raises(DefinitionError, match="migration 'later': it must be a plain def, not async"):
        migrate(from_version=1)(later)
    for fn in (none, two):
        with pytest.raises(DefinitionError, match="it must take one argument, the stored state as a dict"):
            migrate(from_version=1)(fn)
    with pytest.raises(DefinitionError, match="it is a migration already"):
        migrate(from_version=2)(one_up)


def test_a_step_says_what_it_was_called_before() -> None:
    @step(was="look_up")
    def find(topic: str) -> None: ...

    @step(was=["compose", "draft"])
    def phrase(topic: str) -> None: ...

    workflow = made(find, phrase)
    assert workflow.renamed == {"look_up": "find", "compose": "phrase", "draft": "phrase"}
    assert workflow.outline == ("find", "phrase")


def test_an_old_name_that_is_in_use_or_claimed_twice_is_refused() -> None:
    @step(was="write")
    def find(topic: str) -> None: ...

    @step(was=["same", "a b"])
    def one(topic: str) -> None: ...

    @step(was="same")
    def other(topic: str) -> None: ...

    @step(was="me")
    def me(topic: str) -> None: ...

    assert "step 'find': was='write': a step of that name is in use" in refused_once(find, write)
    message = refused(one, other)
    assert "step 'other': was='same': step 'one' claims that name too" in message
    assert "step 'one': was='a b': 'a b' is not a valid name" in message
    assert "was='me': a step of that name is in use" in refused_once(me)


# drawing


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
