from __future__ import annotations

import socket
from typing import Annotated, Any, ForwardRef, Literal

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pausepoint.definition.fields import Append, At, Merge, Replace, Shape, shape, windowed
from pausepoint.errors import DefinitionError, StateRefused


class Author(BaseModel):
    name: str = Field(default="nobody", min_length=2)
    born: int | None = None

    @field_validator("name")
    @classmethod
    def tidy(cls, value: str) -> str:
        return value.strip()


class Plan(BaseModel):
    title: str = ""
    author: Author = Author()
    history: Annotated[list[str], Append] = []


class Paper(BaseModel):
    topic: str
    count: int = Field(default=0, ge=0)
    facts: list[str] = []
    log: Annotated[list[int], Append] = []
    scores: Annotated[dict[str, float], Merge] = {}
    plan: Plan = Plan()
    review: Plan | None = None
    extra: dict[str, int] = {}

    @field_validator("topic")
    @classmethod
    def not_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("say what it is about")
        return value.strip()


@pytest.fixture
def paper() -> Shape:
    return shape(Paper)


def refused(model: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        shape(model)
    return str(caught.value)


# places


def test_a_place_knows_its_type_and_whether_it_grows(paper: Shape) -> None:
    log = paper.place("log")
    assert (log.path, log.parts, log.field, log.annotation, log.grows) == ("log", ("log",), "log", list[int], "append")
    assert log.growth is not None
    assert paper.place("scores").grows == "merge"
    assert paper.place("facts").grows is None
    assert paper.place("facts").growth is None


def test_a_place_may_be_a_part_of_nested_models(paper: Shape) -> None:
    name = paper.place("plan.author.name")
    assert (name.parts, name.field, name.annotation) == (("plan", "author", "name"), "plan", str)
    assert paper.place("plan.history").grows == "append"


def test_a_place_knows_whether_it_may_hold_none(paper: Shape) -> None:
    assert paper.place("plan.author.born").admits_none
    assert not paper.place("plan.author.name").admits_none
    assert paper.place("review").admits_none


def test_a_part_of_an_optional_model_is_marked(paper: Shape) -> None:
    assert paper.place("review.title").under_optional
    assert paper.place("review.author.name").under_optional
    assert not paper.place("plan.title").under_optional


def test_the_same_place_is_made_once(paper: Shape) -> None:
    assert paper.place("plan.title") is paper.place("plan.title")
    assert shape(Paper) is paper


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("topci", "Did you mean 'topic'?"),
        ("plan.titel", "Did you mean 'plan.title'?"),
        ("plan.author.nmae", "Did you mean 'plan.author.name'?"),
        ("", "Known: count"),
        ("topic.length", "Only fields of a nested pydantic model"),
        ("extra.key", "Merge"),
        ("facts.first", "Append"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_with_the_nearest_right_one(paper: Shape, path: str, hint: str) -> None:
    with pytest.raises(DefinitionError, match=r"Paper|is not a field") as caught:
        paper.place(path)
    assert hint in str(caught.value)


# checking a single value


def test_check_returns_the_value_as_the_field_wants_it(paper: Shape) -> None:
    assert paper.place("topic").check("  otters ") == "otters"
    assert paper.place("count").check("3") == 3
    assert paper.place("facts").check(("a", "b")) == ["a", "b"]


def test_check_runs_constraints_and_validators_of_the_field_alone(paper: Shape) -> None:
    with pytest.raises(StateRefused, match="count: Input should be greater than or equal to 0") as caught:
        paper.place("count").check(-1)
    assert caught.value.field == "count"
    with pytest.raises(StateRefused, match="say what it is about"):
        paper.place("topic").check(" ")


def test_check_names_the_way_to_the_wrong_part(paper: Shape) -> None:
    with pytest.raises(StateRefused, match=r"facts\[1\]: Input should be a valid string \(got int\)"):
        paper.place("facts").check(["a", 2])
    with pytest.raises(StateRefused, match=r"plan\.author\.name: "):
        paper.place("plan").check({"author": {"name": 3}})


def test_check_of_a_part_runs_the_validators_of_the_nested_model(paper: Shape) -> None:
    assert paper.place("plan.author.name").check(" Ada ") == "Ada"
    with pytest.raises(StateRefused, match=r"plan\.author\.name: String should have at least 2 characters"):
        paper.place("plan.author.name").check("A")


def test_check_works_on_frozen_models_and_keeps_their_settings() -> None:
    class Frozen(BaseModel):
        model_config = ConfigDict(frozen=True, str_strip_whitespace=True)
        text: str = ""

    assert shape(Frozen).place("text").check(" a ") == "a"


def test_check_works_where_a_model_contains_itself() -> None:
    tree = shape(Tree)
    assert tree.place("children").check([{"name": "leaf"}]) == [Tree(name="leaf")]
    assert tree.place("parent.parent.name").check("root") == "root"
    with pytest.raises(StateRefused, match=r"children\[0\]\.name"):
        tree.place("children").check([{"name": 1}])


class Tree(BaseModel):
    name: str = ""
    parent: Tree | None = None
    children: list[Tree] = []


def test_check_ignores_aliases() -> None:
    class Inner(BaseModel):
        value: int = Field(alias="Value")

    class Outer(BaseModel):
        inner: Inner = Field(alias="Inner")

    assert shape(Outer).place("inner").check({"value": 3}).value == 3
    with pytest.raises(StateRefused, match=r"inner\.[vV]alue: a value is required"):
        shape(Outer).place("inner").check({"Value": 3})


def test_a_validator_that_breaks_is_a_refusal_too() -> None:
    class Broken(BaseModel):
        text: str = ""

        @field_validator("text")
        @classmethod
        def check(cls, value: str) -> str:
            raise LookupError("no such thing")

    with pytest.raises(StateRefused, match="A validator of text raised LookupError: no such thing") as caught:
        shape(Broken).place("text").check("a")
    assert isinstance(caught.value.__cause__, LookupError)


def test_stored_values_do_not_pass_validators_again() -> None:
    class Doubled(BaseModel):
        count: Annotated[int, AfterValidator(lambda value: value * 2)] = 0

    place = shape(Doubled).place("count")
    checked = place.check(2)
    assert checked == 4
    assert place.typed.decode(place.typed.encode(checked, "count"), "count") == 4


def test_discriminated_unions_are_stored_by_their_discriminator() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"] = "cat"

    class Dog(BaseModel):
        kind: Literal["dog"] = "dog"

    class Home(BaseModel):
        pet: Cat | Dog = Field(default=Cat(), discriminator="kind")

    place = shape(Home).place("pet")
    assert place.typed.decode(place.typed.encode(place.check({"kind": "dog"}), "pet"), "pet") == Dog()


# the whole state


def test_a_plain_model_needs_no_whole_validation(paper: Shape) -> None:
    assert not paper.needs_whole


def whole(model: type[BaseModel]) -> bool:
    return shape(model).needs_whole


def test_model_validators_need_the_whole() -> None:
    class After(BaseModel):
        low: int = 0

        @model_validator(mode="after")
        def check(self) -> After:
            return self

    class Before(BaseModel):
        low: int = 0

        @model_validator(mode="before")
        @classmethod
        def check(cls, data: Any) -> Any:
            return data

    class PostInit(BaseModel):
        low: int = 0

        def model_post_init(self, context: Any) -> None:
            pass

    class Outer(BaseModel):
        inner: After = After()

    assert whole(After)
    assert whole(Before)
    assert whole(PostInit)
    assert whole(Outer), "inner.low can be written alone"


def test_nested_validators_that_always_run_with_their_value_do_not_need_the_whole() -> None:
    class Item(BaseModel):
        low: int = 0
        high: int = 0

        @field_validator("high")
        @classmethod
        def check(cls, value: int, info: ValidationInfo) -> int:
            return value

        @model_validator(mode="after")
        def ordered(self) -> Item:
            return self

    class Items(BaseModel):
        items: list[Item] = []

    assert not whole(Items)


def test_a_growing_field_with_a_limit_needs_the_whole() -> None:
    class Limited(BaseModel):
        log: Annotated[list[str], Append] = Field(default=[], max_length=3)

    class Validated(BaseModel):
        log: Annotated[list[str], Append] = []

        @field_validator("log")
        @classmethod
        def check(cls, value: list[str]) -> list[str]:
            return value

    assert whole(Limited)
    assert whole(Validated)


class Range(BaseModel):
    low: int = 0
    high: int = 10

    @field_validator("high")
    @classmethod
    def above(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("low", 0):
            raise ValueError("high lies below low")
        return value


class Ranges(BaseModel):
    size: Range = Range()
    name: str = Field(default="", alias="Name")


def test_a_validator_that_looks_at_other_fields_runs_on_the_whole_only() -> None:
    ranges = shape(Range)
    assert ranges.needs_whole
    assert ranges.place("high").check("-5") == -5
    with pytest.raises(StateRefused, match="high: Input should be a valid integer"):
        ranges.place("high").check("many")
    with pytest.raises(StateRefused, match="high lies below low") as caught:
        ranges.check_whole({"low": 3, "high": 1})
    assert caught.value.field == "high"
    assert ranges.check_whole({"low": 3, "high": 4}) == {"low": 3, "high": 4}


def test_a_value_that_another_validator_has_to_prepare_waits_for_the_whole_check() -> None:
    class Prepared(BaseModel):
        words: list[str] = []

        @field_validator("words", mode="before")
        @classmethod
        def split(cls, value: Any, info: ValidationInfo) -> Any:
            return value.split() if isinstance(value, str) else value

    assert shape(Prepared).needs_whole
    assert shape(Prepared).place("words").check("a b") == "a b"
    assert shape(Prepared).check_whole({"words": "a b"}) == {"words": ["a", "b"]}


def test_the_whole_check_validates_nested_models_again() -> None:
    wrong = Range.model_construct(low=5, high=1)
    with pytest.raises(StateRefused, match=r"size\.high: .*high lies below low") as caught:
        shape(Ranges).check_whole({"size": wrong, "name": "a"})
    assert caught.value.field == "size"
    assert shape(Ranges).check_whole({"size": Range(low=1), "name": "a"}) == {"size": Range(low=1), "name": "a"}


def test_start_validates_and_adds_defaults(paper: Shape) -> None:
    values = paper.start({"topic": " otters "})
    assert values["topic"] == "otters"
    assert values["count"] == 0
    assert set(values) == set(Paper.model_fields)


def test_start_gives_fresh_defaults_each_time(paper: Shape) -> None:
    first, second = paper.start({"topic": "a"}), paper.start({"topic": "a"})
    first["facts"].append("changed")
    first["plan"].title = "changed"
    assert second["facts"] == []
    assert second["plan"].title == ""
    assert paper.start({"topic": "a"})["plan"].title == ""


def test_start_takes_the_model_itself(paper: Shape) -> None:
    assert paper.start(Paper(topic="a", count=2))["count"] == 2


def test_start_refuses_another_model(paper: Shape) -> None:
    class Wider(Paper):
        more: int = 0

    with pytest.raises(StateRefused, match="The state must be a Paper, not a Wider"):
        paper.start(Wider(topic="a"))


def test_start_refuses_an_unknown_field_with_the_nearest_one(paper: Shape) -> None:
    with pytest.raises(StateRefused, match=r"Paper has no field 'topci'. Did you mean 'topic'") as caught:
        paper.start({"topci": "a"})
    assert caught.value.field == "topci"


def test_start_names_the_field_that_is_missing_or_wrong(paper: Shape) -> None:
    with pytest.raises(StateRefused, match="topic: a value is required") as missing:
        paper.start({})
    assert missing.value.field == "topic"
    with pytest.raises(StateRefused, match=r"count: .*; facts: ") as wrong:
        paper.start({"topic": "a", "count": "x", "facts": 3})
    assert wrong.value.field == "count"


def test_start_knows_fields_by_name_not_by_alias() -> None:
    assert shape(Ranges).start({"name": "a"})["name"] == "a"
    with pytest.raises(StateRefused, match=r"^name: ") as caught:
        shape(Ranges).start({"name": 3})
    assert caught.value.field == "name"
    with pytest.raises(StateRefused, match="no field 'Name'"):
        shape(Ranges).start({"Name": "a"})


def test_build_runs_no_validators() -> None:
    built = shape(Range).build({"low": 5, "high": 1})
    assert isinstance(built, Range)
    assert (built.low, built.high, built.model_fields_set) == (5, 1, {"low", "high"})
    assert built == Range.model_construct(low=5, high=1)


def test_build_fills_in_fresh_defaults_and_refuses_what_has_none(paper: Shape) -> None:
    first, second = paper.build({"topic": "a"}), paper.build({"topic": "a"})
    assert first == Paper(topic="a")
    assert first.__dict__["facts"] is not second.__dict__["facts"]
    with pytest.raises(StateRefused, match=r"Paper\.topic has no value and no default") as caught:
        paper.build({})
    assert caught.value.field == "topic"


# models that cannot be a state


def test_a_state_is_a_pydantic_model_class() -> None:
    assert "not int" in refused(int)
    assert "Pass the class itself" in refused(Author())
    assert "subclass of BaseModel" in refused(BaseModel)
    assert "subclass of BaseModel" in refused({"a": int})


def test_a_root_model_is_refused() -> None:
    class Names(RootModel[list[str]]):
        pass

    assert "RootModel" in refused(Names)


def test_extra_fields_are_refused_with_a_hint() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    assert "Declare a dict field" in refused(Open)


def test_private_attributes_are_refused_also_in_parts() -> None:
    class Hidden(BaseModel):
        _cache: dict[str, int] = PrivateAttr(default_factory=dict)

    class Outer(BaseModel):
        inner: Hidden = Hidden()

    assert "Hidden._cache is a private attribute" in refused(Hidden)
    assert "Hidden._cache" in refused(Outer)


def test_excluded_fields_are_refused() -> None:
    class Shy(BaseModel):
        secret: str = Field(default="", exclude=True)

    assert "Shy.secret has exclude=True" in refused(Shy)


def test_types_that_cannot_be_stored_are_refused() -> None:
    class Wired(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        line: socket.socket | None = None

    assert "Wired.line" in refused(Wired)


def test_a_model_with_undefined_types_is_refused() -> None:
    class Vague(BaseModel):
        later: Annotated[Any, "x"] | ForwardRef("NotThere") = None  # type: ignore[valid-type]

    assert "uses a type that is not defined" in refused(Vague)


def test_growth_needs_a_list_or_a_dict() -> None:
    class WrongAppend(BaseModel):
        log: Annotated[list[str] | None, Append] = None

    class WrongMerge(BaseModel):
        scores: Annotated[dict[int, str], Merge] = {}

    class Both(BaseModel):
        log: Annotated[list[str], Append, Merge] = []

    class Buried(BaseModel):
        log: Annotated[list[str], Append] | None = None

    assert "marked Append and must be a list[X], not list[str] | None" in refused(WrongAppend)
    assert "marked Merge and must be a dict[str, X]" in refused(WrongMerge)
    assert "marked Append and Merge. Choose one" in refused(Both)
    assert "around the whole type" in refused(Buried)


def test_all_problems_of_a_model_are_told_together() -> None:
    class Bad(BaseModel):
        model_config = ConfigDict(extra="allow")
        secret: str = Field(default="", exclude=True)

    assert "extra" in refused(Bad)
    assert "exclude=True" in refused(Bad)


def test_markers_show_themselves() -> None:
    assert repr(Append) == "Append"
    assert repr(At("a.b")) == "At('a.b')"
    assert Replace([1]) == Replace([1])
    assert Replace([1]) != [1]
    assert "Paper: topic" in repr(shape(Paper))


# windows


@pytest.mark.parametrize(
    ("path", "found"),
    [("log", ("log", None)), ("plan.history[-3:]", ("plan.history", 3)), ("log[-123456789:]", ("log", 123_456_789))],
)
def test_a_window_is_split_from_its_path(path: str, found: tuple[str, int | None]) -> None:
    assert windowed(path) == found


@pytest.mark.parametrize("path", ["log[0]", "log[:-1]", "log[-0:]", "log]", "[-1:]", "log[-1:]x", "log[-1234567890:]"])
def test_any_other_slice_is_refused(path: str) -> None:
    with pytest.raises(DefinitionError, match=r"or the last items of a list, as in At\('"):
        windowed(path)


@pytest.mark.parametrize("path", ["facts", "log", "plan.history", "review.history"])
def test_what_is_stored_as_a_list_can_be_read_from_its_end(paper: Shape, path: str) -> None:
    assert paper.place(path).is_list


@pytest.mark.parametrize("path", ["topic", "scores", "plan", "extra", "count"])
def test_nothing_else_can(paper: Shape, path: str) -> None:
    assert not paper.place(path).is_list


def test_a_list_that_is_stored_in_a_form_of_its_own_cannot_be_read_from_its_end() -> None:
    class Packed(BaseModel):
        plain: list[int] | None = None
        joined: Annotated[list[int], PlainSerializer(lambda items: ",".join(map(str, items)))] = []
        either: list[int] | dict[str, int] = []

    assert [name for name, place in shape(Packed).fields.items() if place.is_list] == ["plain"]
