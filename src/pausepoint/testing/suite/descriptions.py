"""Tests of the descriptions of workflows."""

from __future__ import annotations

from hashlib import sha256

from pausepoint.model.descriptions import MOST_DESCRIPTIONS, StoredDescription
from pausepoint.testing.suite.base import Place, Suite, created, on_loop


def described(workflow: str = "brief", version: int = 1, text: str = "{}", seen_at: int = 1000) -> StoredDescription:
    """Return a description to store."""
    document = f'{{"of": "{workflow} {version}", "text": "{text}"}}'.encode()
    return StoredDescription(workflow, version, sha256(document).digest(), document, seen_at)


class DescriptionTests(Suite):
    """Tests of `keep_description`, `description_seen`, `descriptions` and `forget_descriptions`."""

    @on_loop
    async def test_a_description_is_stored_once(self, place: Place) -> None:
        async with place.store() as store:
            first = described(seen_at=5000)
            assert await store.description_seen(first.digest) is None
            for at in (5000, 7000, 6000):
                await store.keep_description(described(seen_at=at))
            assert await store.description_seen(first.digest) == 7000, "the time never falls"
            assert await store.descriptions("brief") == [described(seen_at=7000)]
            assert await store.descriptions("other") == []

    @on_loop
    async def test_descriptions_are_listed_newest_first(self, place: Place) -> None:
        async with place.store() as store:
            old, new, later = described(), described(version=2, text="a"), described(version=2, text="b", seen_at=2000)
            other = described("another")
            for each in (later, old, other, new):
                await store.keep_description(each)
            assert await store.descriptions("brief") == [later, new, old]
            assert await store.descriptions() == [other, later], "the newest of each workflow"

    @on_loop
    async def test_only_the_last_ones_of_a_version_are_kept(self, place: Place) -> None:
        async with place.store() as store:
            await store.keep_description(described(version=2))
            for n in range(MOST_DESCRIPTIONS + 3):
                await store.keep_description(described(text=str(n), seen_at=1000 + n))
            found = await store.descriptions("brief")
            assert [each.seen_at for each in found] == [1000, *range(1000 + MOST_DESCRIPTIONS + 2, 1002, -1)]

    @on_loop
    async def test_descriptions_of_workflows_without_sessions_are_forgotten(self, place: Place) -> None:
        async with place.store() as store:
            await created(store, workflow="used")
            for name in ("used", "unused", "young"):
                await store.keep_description(described(name, seen_at=9000 if name == "young" else 1000))
            await store.keep_description(described("unused", version=2))
            assert await store.forget_descriptions(1000, 10) == 0
            assert await store.forget_descriptions(9000, 1) == 1
            assert await store.forget_descriptions(9000, 10) == 1
            assert [each.workflow for each in await store.descriptions()] == ["used", "young"]
