"""The stored form of a state: slots, growth, parts, sealing, key frames."""

from __future__ import annotations

from copy import deepcopy
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausepoint.codec.values import decode, encode
from pausepoint.log.replay import KeyBody, to_payload
from pausepoint.log.state import (
    INLINE_BYTES,
    SEGMENT_BYTES,
    Act,
    Blob,
    Blobs,
    Change,
    Grown,
    Inline,
    Part,
    Parts,
    State,
    stored,
)


class Kept:
    """A state, and the blobs that a store would keep for it."""

    def __init__(self, **fields: object) -> None:
        self.blobs: dict[bytes, bytes] = {}
        self.state = State({name: self.value(value) for name, value in fields.items()})

    def value(self, value: object) -> Inline | Blob:
        blobs: Blobs = []
        slot = stored(encode(value, ""), blobs)
        self.blobs.update(blobs)
        return slot

    def change(self, path: str, act: Act, value: object) -> None:
        self.state.apply(Change(path, act, self.value(value)))

    def seal(self) -> Blobs:
        blobs = self.state.seal()
        self.blobs.update(blobs)
        return blobs

    def through_key_frame(self) -> Blobs:
        """Seal the state, store it as a key frame, and continue with the stored form. Nothing is loaded then."""
        blobs = self.seal()
        payload = to_payload(KeyBody(self.state.slots, "step"))
        self.state = State(dict(msgspec.json.decode(payload, type=KeyBody).fields))
        return blobs

    def read(self, path: str) -> Any:
        needed = self.state.needs([path])
        self.state.provide({key: self.blobs[key] for key in needed})
        assert not self.state.needs([path])
        data = self.state.read(path)
        return None if data is None else decode(data)

    def recent(self, path: str, count: int) -> Any:
        """Return the last items, after fetching the blobs that `State.needs_recent` asks for, as often as needed."""
        self.fetched: list[bytes] = []
        while needed := self.state.needs_recent(path, count):
            self.fetched += needed
            self.state.provide({key: self.blobs[key] for key in needed})
        data = self.state.recent(path, count)
        return None if data is None else decode(data)

    def frame_bytes(self) -> int:
        return len(to_payload(KeyBody(self.state.slots, "step")))


def grown(state: State, field: str) -> Grown:
    slot = state.slots[field]
    assert isinstance(slot, Grown)
    return slot


# values


def test_a_value_is_inline_up_to_the_limit_and_a_blob_above_it() -> None:
    blobs: Blobs = []
    assert isinstance(stored(b"x" * INLINE_BYTES, blobs), Inline)
    assert blobs == []
    data = b"x" * (INLINE_BYTES + 1)
    assert stored(data, blobs) == Blob(sha256(data).hexdigest(), len(data))
    assert blobs == [(sha256(data).digest(), data)]


def test_a_field_that_was_never_written_reads_as_nothing() -> None:
    assert State().read("topic") is None
    assert State().read("topic.name") is None


def test_only_what_is_read_and_not_yet_there_is_asked_for() -> None:
    kept = Kept(small="s", large="l" * INLINE_BYTES, other="o" * INLINE_BYTES)
    assert kept.state.needs(["small"]) == set()
    needed = kept.state.needs(["small", "large"])
    assert needed == {sha256(encode("l" * INLINE_BYTES, "")).digest()}
    kept.state.provide({key: kept.blobs[key] for key in needed})
    assert kept.state.needs(["small", "large"]) == set()
    assert len(kept.state.needs(["other"])) == 1


def test_a_large_value_that_becomes_small_is_no_longer_asked_for() -> None:
    kept = Kept(text="t" * INLINE_BYTES)
    kept.change("text", "set", "short")
    assert kept.state.needs(["text"]) == set()
    assert kept.read("text") == "short"


# growth


def test_appends_and_merges_add_segments_and_read_as_one_value() -> None:
    kept = Kept(items=[1], book={"a": 1})
    kept.change("items", "append", [2, 3])
    kept.change("items", "append", [])
    kept.change("book", "merge", {"b": 2})
    kept.change("book", "merge", {"a": 9})
    assert len(grown(kept.state, "items").segments) == 3
    assert kept.read("items") == [1, 2, 3]
    assert kept.read("book") == {"a": 9, "b": 2}


def test_growth_of_a_field_that_was_never_written_starts_it() -> None:
    kept = Kept()
    kept.change("items", "append", [1])
    kept.change("items", "append", [2])
    assert kept.read("items") == [1, 2]


def test_empty_segments_leave_no_gap() -> None:
    kept = Kept(items=[])
    for new in ([], [1], [], [2], []):
        kept.change("items", "append", new)
    assert kept.read("items") == [1, 2]


def test_a_set_forgets_what_had_grown() -> None:
    kept = Kept(items=[1])
    kept.change("items", "append", [2])
    kept.change("items", "set", [7])
    assert isinstance(kept.state.slots["items"], Inline)
    kept.change("items", "append", [8])
    assert kept.read("items") == [7, 8]


def test_merged_keys_may_start_with_a_dollar_or_be_no_text_at_all() -> None:
    kept = Kept(book={"$ref": 1}, numbers={1: "a"})
    kept.change("book", "merge", {"plain": {"$set": [1]}})
    kept.change("book", "merge", {"$set": [2], "$ref": 3})
    kept.change("numbers", "merge", {2: "b", 1: "c"})
    kept.through_key_frame()
    assert kept.read("book") == {"$ref": 3, "plain": {"$set": [1]}, "$set": [2]}
    assert kept.read("numbers") == {1: "c", 2: "b"}


def test_overwritten_keys_are_forgotten_on_reading() -> None:
    kept = Kept(book={})
    for n in range(100):
        kept.change("book", "merge", {"same": n})
    before = kept.state.weight()
    assert kept.read("book") == {"same": 99}
    assert len(grown(kept.state, "book").segments) == 1
    assert kept.state.weight() < before / 50
    kept.change("book", "merge", {"more": 1})
    assert kept.read("book") == {"same": 99, "more": 1}


# parts


def test_a_part_is_written_beside_the_rest() -> None:
    kept = Kept(box={"a": 1, "b": {"c": 2, "d": [3]}})
    kept.change("box.b.c", "set", 20)
    kept.change("box.b.d", "append", [4])
    assert isinstance(kept.state.slots["box"], Parts)
    assert kept.read("box") == {"a": 1, "b": {"c": 20, "d": [3, 4]}}
    assert kept.read("box.a") == 1
    assert kept.read("box.b") == {"c": 20, "d": [3, 4]}
    assert kept.read("box.b.d") == [3, 4]


@pytest.mark.parametrize(("text", "kind"), [("t", Inline), ("t" * INLINE_BYTES, Part)], ids=["small", "large"])
def test_a_part_that_grows_is_cut_out_of_a_small_value_and_points_into_a_large_one(text: str, kind: type) -> None:
    kept = Kept(box={"items": [1], "text": text})
    kept.change("box.items", "append", [2])
    box = kept.state.slots["box"]
    assert isinstance(box, Parts)
    items = box.over["items"]
    assert isinstance(items, Grown)
    assert type(items.segments[0]) is kind
    kept.through_key_frame()
    assert kept.read("box") == {"items": [1, 2], "text": text}


def test_a_part_of_an_absent_value_is_absent() -> None:
    kept = Kept(box=None)
    assert kept.read("box.items") is None


def test_a_small_part_beside_a_large_value_does_not_ask_for_it_unless_it_is_read() -> None:
    kept = Kept(box={"text": "t" * INLINE_BYTES, "n": 1})
    kept.change("box.n", "set", 2)
    assert kept.state.needs(["box.n"]) == set()
    assert kept.read("box.n") == 2
    assert len(kept.state.needs(["box.text"])) == 1
    assert kept.read("box") == {"text": "t" * INLINE_BYTES, "n": 2}


def test_a_set_of_the_whole_forgets_its_parts() -> None:
    kept = Kept(box={"a": 1})
    kept.change("box.a", "set", 2)
    kept.change("box", "set", {"a": 3})
    assert kept.read("box.a") == 3
    kept.change("box.a", "set", 4)
    assert kept.read("box") == {"a": 4}


def test_a_copy_can_be_changed_without_touching_the_original() -> None:
    kept = Kept(items=[1], box={"items": [1]}, large="l" * INLINE_BYTES)
    kept.change("items", "append", [2])
    kept.change("box.items", "append", [2])
    kept.read("large")
    twin = kept.state.copy()
    assert twin.needs(["large"]) == set()
    for path in ("items", "box.items"):
        twin.apply(Change(path, "append", kept.value([3])))
    assert decode(twin.read("items") or b"") == [1, 2, 3]
    assert kept.read("items") == [1, 2]
    assert kept.read("box") == {"items": [1, 2]}


# sealing


def test_a_short_tail_stays_in_the_key_frame_as_one_segment() -> None:
    kept = Kept(items=[])
    for n in range(100):
        kept.change("items", "append", [n])
    assert kept.seal() == []
    assert len(grown(kept.state, "items").segments) == 1
    assert kept.read("items") == list(range(100))


@pytest.mark.parametrize("path", ["items", "box.inner.items"])
def test_a_full_tail_is_sealed_once_and_never_again(path: str) -> None:
    kept = Kept(items=[], box={"inner": {"items": []}})
    line = "x" * 1000
    sealed: list[bytes] = []
    for round_ in range(1, 6):
        for _ in range(100):
            kept.change(path, "append", [line])
        sealed += [data for _, data in kept.through_key_frame()]
        assert kept.frame_bytes() < SEGMENT_BYTES + 2_000 * round_
    assert all(SEGMENT_BYTES <= len(data) < SEGMENT_BYTES + 2_000 for data in sealed)
    assert 450_000 < sum(map(len, sealed)) <= 510_000  # each line is in exactly one segment
    assert kept.read(path) == [line] * 500


def test_a_key_frame_does_not_follow_the_weight_of_what_it_names() -> None:
    kept = Kept(pages=[], **{f"text{n}": "t" * 1_000_000 for n in range(3)})
    for n in range(20):
        kept.change("pages", "append", [f"{n}" * 40_000])
    kept.through_key_frame()
    assert kept.frame_bytes() < 5_000
    assert kept.state.weight() < 5_000
    assert [len(page) for page in kept.read("pages")] == [40_000] * 10 + [80_000] * 10


def test_the_weight_is_that_of_what_a_key_frame_holds_itself() -> None:
    kept = Kept(a="x" * 100, b="y" * INLINE_BYTES, items=["z" * 50], box={"n": 1})
    assert kept.state.weight() == 102 + 80 + 54 + 7
    kept.change("items", "append", ["z" * 50])
    kept.change("box.n", "set", 22)
    assert kept.state.weight() == 102 + 80 + 108 + (7 + 2)
    assert kept.state.weight() <= kept.frame_bytes() <= kept.state.weight() + 250


def test_the_weight_is_what_is_left_once_full_segments_are_sealed() -> None:
    kept = Kept(items=[], box={"items": []})
    for path in ("items", "box.items"):
        for n in range(300):
            kept.change(path, "append", [f"{n:04}" * 250])
    before = kept.state.weight()
    kept.through_key_frame()
    assert before < 2 * SEGMENT_BYTES
    assert abs(kept.state.weight() - before) < 10_000


# windows


@pytest.mark.parametrize(
    "value",
    [[], [1], [1, 2, 3], [{"$set": [1]}, {2}, (3, [4])], ["big" * 9000, "b"]],
    ids=["none", "one", "three", "tagged", "large"],
)
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_the_last_items_of_a_list_are_read_alone(value: list[Any], count: int) -> None:
    assert Kept(items=value).recent("items", count) == value[-count:]
    assert Kept(box={"items": value}).recent("box.items", count) == value[-count:]


def test_a_window_of_what_is_not_there_or_no_list_is_what_reading_gives() -> None:
    assert Kept().recent("items", 3) is None
    assert Kept(items=None).recent("items", 3) is None
    assert Kept(box=None).recent("box.items", 3) is None
    assert Kept(items="a text").recent("items", 3) == "a text"
    assert Kept(items={"a": 1}).recent("items", 3) == {"a": 1}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 100])
def test_a_window_passes_over_empty_segments_and_joins_others(count: int) -> None:
    kept, whole = Kept(items=[0]), [0]
    for new in ([1, 2], [], [3], [], [4, 5], []):
        kept.change("items", "append", new)
        whole += new
        assert kept.recent("items", count) == whole[-count:]


def lines(kept: Kept, path: str, numbers: range) -> None:
    """Append numbered lines of 1,000 characters."""
    for n in numbers:
        kept.change(path, "append", [f"{n:04}" * 250])


def numbers(found: list[str]) -> list[int]:
    return [int(line[:4]) for line in found]


@pytest.mark.parametrize("path", ["items", "box.inner.items"])
def test_a_window_fetches_the_last_segments_only(path: str) -> None:
    kept = Kept(items=[], box={"inner": {"items": []}})
    lines(kept, path, range(1000))
    assert len(kept.through_key_frame()) == 15
    assert numbers(kept.recent(path, 10)) == list(range(990, 1000))
    assert kept.fetched == []  # the tail is in the key frame
    assert numbers(kept.recent(path, 60)) == list(range(940, 1000))
    assert len(kept.fetched) == 1
    assert numbers(kept.recent(path, 200)) == list(range(800, 1000))
    assert len(kept.fetched) == 2
    assert numbers(kept.recent(path, 5000)) == list(range(1000))
    assert len(kept.fetched) == 12
    assert kept.recent(path, 5000) == kept.read(path)


def test_a_large_beginning_is_not_fetched_for_what_came_after_it() -> None:
    kept = Kept(items=["x" * 1_000_000], box={"text": "t" * INLINE_BYTES, "items": [1]})
    for path in ("items", "box.items"):
        for n in (2, 3):
            kept.change(path, "append", [n])
        assert (kept.recent(path, 2), kept.fetched) == ([2, 3], [])
        assert len(kept.recent(path, 3)) == 3
        assert len(kept.fetched) == 1


def test_one_huge_item_costs_itself_and_nothing_beside_it() -> None:
    kept = Kept(items=[])
    for n in range(5):
        kept.change("items", "append", [f"{n}" * 500_000])
    kept.through_key_frame()
    assert [item[0] for item in kept.recent("items", 1)] == ["4"]
    assert len(kept.fetched) == 1
    kept.change("items", "append", ["small"])
    kept.state.forget()
    assert kept.recent("items", 1) == ["small"]
    assert kept.fetched == []


def test_what_was_replaced_is_not_seen_by_a_window() -> None:
    kept = Kept(items=[])
    lines(kept, "items", range(200))
    kept.through_key_frame()
    kept.change("items", "set", [1])
    kept.change("items", "append", [2])
    assert (kept.recent("items", 10), kept.fetched) == ([1, 2], [])


@pytest.mark.long
def test_what_a_window_has_left_behind_is_forgotten_and_what_it_needs_is_kept() -> None:
    kept, most = Kept(items=[]), 0
    for n in range(0, 2000, 10):
        lines(kept, "items", range(n, n + 10))
        if n % 100 == 0:
            kept.seal()
        assert numbers(kept.recent("items", 150)) == list(range(max(0, n - 140), n + 10))
        kept.state.forget()
        most = max(most, len(kept.state.loaded))
    assert most == 3
    assert len(kept.recent("items", 150)) == 150
    assert kept.fetched == []
    assert kept.read("items")[0].startswith("0000")  # forgotten values are fetched again


def test_large_items_that_were_appended_and_that_nobody_reads_are_forgotten() -> None:
    kept = Kept(items=[], text="")
    for n in range(20):
        blobs: Blobs = []
        item, text = (stored(encode(value * INLINE_BYTES, ""), blobs) for value in ([n], f"{n}"))
        kept.state.provide(dict(blobs))  # as a checkpoint does with the writes of its step
        kept.state.apply(Change("items", "append", item))
        kept.state.apply(Change("text", "set", text))
        kept.state.forget()
        kept.blobs.update(blobs)
        assert len(kept.state.loaded) == 1  # the text, because the next step is likely to read it
    assert len(kept.read("items")) == 20 * INLINE_BYTES


def test_a_window_does_not_forget_what_somebody_read_as_a_whole() -> None:
    kept = Kept(items=[], text="t" * INLINE_BYTES)
    lines(kept, "items", range(500))
    kept.through_key_frame()
    kept.read("text")
    kept.read("items")
    loaded = set(kept.state.loaded)
    kept.recent("items", 3)
    kept.state.forget()
    assert set(kept.state.loaded) == loaded


# compared with a model

Model = dict[str, Any]

scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8)
values = scalars | st.just("big" * 6000) | st.lists(scalars, max_size=3)
lists = st.lists(values, max_size=4)
books = st.dictionaries(st.sampled_from(("a", "b", "$set", "$tuple", "$", 'q"uote', "ü")), values, max_size=3)
inner = st.fixed_dictionaries({"note": values, "items": lists})
box = st.fixed_dictionaries({"label": values, "items": lists, "book": books, "inner": inner})
places: dict[str, st.SearchStrategy[Any]] = {
    "n": values, "items": lists, "book": books, "box": box, "box.label": values, "box.items": lists,
    "box.book": books, "box.inner": inner, "box.inner.items": lists, "box.inner.note": values,
}  # fmt: skip
LISTS = ("items", "box.items", "box.inner.items")
writes = st.sampled_from(sorted(places)).flatmap(
    lambda path: st.tuples(
        st.just(path),
        st.sampled_from(
            ("set", "append") if path.endswith("items") else ("set", "merge") if path.endswith("book") else ("set",)
        ),
        places[path],
    )
)
acts = st.lists(
    writes
    | st.just(("seal",))
    | st.just(("key frame",))
    | st.just(("copy",))
    | st.tuples(st.just("read"), st.sampled_from(sorted(places)))
    | st.tuples(st.just("recent"), st.sampled_from(LISTS), st.integers(1, 6)),
    max_size=25,
)


def model_write(model: Model, path: str, act: str, value: Any) -> None:
    *way, last = path.split(".")
    for name in way:
        model = model[name]
    if act == "append":
        value = model[last] + value
    elif act == "merge":
        value = model[last] | value
    model[last] = deepcopy(value)


def model_read(model: Model, path: str) -> Any:
    value: Any = model
    for name in path.split("."):
        value = value[name]
    return value


@pytest.mark.long
@given(start=st.fixed_dictionaries({"n": values, "items": lists, "book": books, "box": box}), acts=acts)
@settings(max_examples=150)
def test_a_state_folded_from_changes_is_what_plain_python_makes_of_them(start: Model, acts: list[Any]) -> None:
    kept, model = Kept(**start), deepcopy(start)
    for act in acts:
        if act[0] == "seal":
            kept.seal()
        elif act[0] == "key frame":
            kept.through_key_frame()
        elif act[0] == "copy":
            kept.state = kept.state.copy()
        elif act[0] == "read":
            assert kept.read(act[1]) == model_read(model, act[1])
        elif act[0] == "recent":
            assert kept.recent(act[1], act[2]) == model_read(model, act[1])[-act[2] :]
        else:
            kept.change(*act)
            model_write(model, *act)
    for path in places:
        assert kept.read(path) == model_read(model, path)


@given(sizes=st.lists(st.integers(0, 50_000), max_size=30), frames=st.sets(st.integers(0, 30)), merge=st.booleans())
@settings(max_examples=40)
def test_sealing_never_loses_and_stays_linear(sizes: list[int], frames: set[int], merge: bool) -> None:
    kept = Kept(field={} if merge else [])
    written = 0
    for n, size in enumerate(sizes):
        text = f"{n}:" + "x" * size
        kept.change("field", "merge" if merge else "append", {str(n): text} if merge else [text])
        if n in frames:
            written += sum(len(data) for _, data in kept.through_key_frame())
            assert kept.state.weight() < SEGMENT_BYTES + 200 * (n + 2)
    texts = [f"{n}:" + "x" * size for n, size in enumerate(sizes)]
    assert kept.read("field") == ({str(n): text for n, text in enumerate(texts)} if merge else texts)
    assert written <= sum(map(len, texts)) + 20 * len(texts)
