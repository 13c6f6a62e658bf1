"""JSON documents as structs: how they are filled from records, and the schema that is derived from them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec
import pytest
from jsonschema import Draft202012Validator, ValidationError

from pausepoint.model.documents import Document, Moment, definitions

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)


class Lesson(msgspec.Struct):
    room: str
    begins_at: datetime
    length: timedelta
    pupils: tuple[str, ...] = ()
    secret: str = ""


class PupilDocument(Document):
    """A pupil, with a ``mark``."""

    name: str
    mark: Annotated[int | None, msgspec.Meta(description="null before the exam")]


class LessonDocument(Document):
    """A lesson.

    It has ``pupils``.
    """

    room: str
    begins_at: Moment
    seconds: float
    pupils: list[PupilDocument]
    level: Literal["easy", "hard"] | None


class CancelledLesson(LessonDocument):
    """A lesson that does not take place."""

    reason: str
    replaced_by: LessonDocument | msgspec.UnsetType = msgspec.UNSET


class Room(msgspec.Struct):
    """A record that is shown as it is. ``floor`` is None on the ground."""

    number: int
    floor: int | None = None


class Door(msgspec.Struct, omit_defaults=True):
    """A record that is shown without its defaults."""

    number: int
    name: str | None = None
    panes: tuple[str, ...] = ()


class House(Document):
    rooms: list[Room]
    garden: Room | msgspec.UnsetType = msgspec.UNSET


def lesson() -> LessonDocument:
    record = Lesson("12", NOON, timedelta(minutes=45), ("ada",), "do not tell")
    pupils = [PupilDocument(name, None) for name in record.pupils]
    return LessonDocument.of(record, seconds=record.length, pupils=pupils, level="easy")


def test_a_document_has_the_fields_of_its_record_and_those_that_are_passed_in_their_order() -> None:
    assert msgspec.json.encode(lesson()) == (
        b'{"room":"12","begins_at":"2026-11-19T12:00:00+00:00","seconds":2700.0,'
        b'"pupils":[{"name":"ada","mark":null}],"level":"easy"}'
    )


def test_a_field_that_nobody_has_is_an_error() -> None:
    with pytest.raises(AttributeError, match="seconds"):
        LessonDocument.of(Lesson("12", NOON, timedelta()), level=None)
    with pytest.raises(TypeError, match="colour"):
        LessonDocument.of(Lesson("12", NOON, timedelta()), seconds=0, level=None, colour="red")


def validator(name: str) -> Draft202012Validator:
    schema = {"$defs": definitions([CancelledLesson]), "$ref": f"#/$defs/{name}"}
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_schema_allows_a_document_and_nothing_less() -> None:
    document = msgspec.to_builtins(lesson())
    validator("lesson").validate(document | {"more": 1})  # a later version may add names
    for wrong in (
        {"room": 12}, {"begins_at": "2026-11-19T12:00:00Z"}, {"seconds": "long"}, {"level": "odd"}, {"pupils": None},
        {"pupils": [{"name": "ada"}]},
    ):  # fmt: skip
        with pytest.raises(ValidationError):
            validator("lesson").validate(document | wrong)
    for name in document:
        with pytest.raises(ValidationError, match=f"'{name}' is a required property"):
            validator("lesson").validate({other: value for other, value in document.items() if other != name})


def test_a_document_that_extends_another_one_refers_to_it_and_lists_its_own_fields_only() -> None:
    schemas = definitions([CancelledLesson])
    assert schemas.keys() == {"cancelled_lesson", "lesson", "pupil", "moment"}
    base, own = schemas["cancelled_lesson"]["allOf"]
    assert (base, own["properties"].keys(), own["required"]) == (
        {"$ref": "#/$defs/lesson"}, {"reason", "replaced_by"}, ["reason"]
    )  # fmt: skip
    cancelled = msgspec.to_builtins(lesson()) | {"reason": "snow"}
    validator("cancelled_lesson").validate(cancelled | {"replaced_by": msgspec.to_builtins(lesson())})
    with pytest.raises(ValidationError):
        validator("cancelled_lesson").validate(cancelled | {"room": None})


def test_a_field_with_a_default_is_always_there_and_one_that_may_be_unset_is_not() -> None:
    schemas = definitions([House])
    assert (schemas["house"]["required"], schemas["room"]["required"]) == (["rooms"], ["number", "floor"])
    assert "default" not in str(schemas)
    assert schemas["room"]["description"] == "A record that is shown as it is. `floor` is null on the ground."
    assert msgspec.json.encode(House([Room(1)])) == b'{"rooms":[{"number":1,"floor":null}]}'


def test_a_record_without_its_defaults_has_them_as_optional_fields_that_are_never_null() -> None:
    assert msgspec.json.encode([Door(1), Door(2, "front", ("blue",))]) == (
        b'[{"number":1},{"number":2,"name":"front","panes":["blue"]}]'
    )
    schema = definitions([Door])["door"]
    assert schema["required"] == ["number"]
    assert schema["properties"]["name"] == {"type": "string"}
    assert schema["properties"]["panes"] == {"type": "array", "items": {"type": "string"}}


def test_two_documents_of_one_name_are_refused() -> None:
    class Pupil(msgspec.Struct):
        name: str

    with pytest.raises(ValueError, match="'pupil'"):
        definitions([Pupil, PupilDocument])


def test_references_lead_to_where_the_schemas_will_be() -> None:
    text = str(definitions([CancelledLesson], "#/components/schemas/"))
    assert "#/components/schemas/pupil'" in text
    assert "#/$defs/" not in text


def test_descriptions_are_one_line_with_code_in_the_way_of_markdown() -> None:
    schemas = definitions([LessonDocument])
    assert schemas["lesson"]["description"] == "A lesson. It has `pupils`."
    assert schemas["pupil"]["properties"]["mark"]["description"] == "null before the exam"
    assert schemas["moment"]["description"] == "A time in ISO 8601, in UTC."
    assert schemas["lesson"]["properties"]["begins_at"] == {"$ref": "#/$defs/moment"}
