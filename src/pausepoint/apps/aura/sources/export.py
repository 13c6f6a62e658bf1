"""A Google Classroom export: a folder with the JSON of the public API, page by page.

The folder contains ``courses.json``, ``courseWork.json`` and ``studentSubmissions.json``, and optionally
``students.json`` or ``userProfiles.json`` with e-mail addresses. Each may have several pages (``courseWork-2.json``) or
a folder of pages (``courseWork/mathematics.json``). If a folder has no courses, each of its subfolders is an account.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import msgspec
from pydantic_core import from_json

from pausepoint.apps.aura.models import Assignment, Course, Doubt
from pausepoint.apps.aura.sources.shapes import (
    CourseShape,
    CourseWork,
    Shape,
    Student,
    StudentSubmission,
    UserProfile,
    as_assignments,
    decoder,
    problem,
)
from pausepoint.apps.input import BadInput

S = TypeVar("S", bound=Shape)


class ExportFolder:
    """One or several accounts in a folder."""

    def __init__(self, path: Path, zone: ZoneInfo) -> None:
        self.place = str(path)
        self.is_file = True
        self.path = path
        self.zone = zone
        self._known: dict[str, Account] | None = None

    @property
    def accounts(self) -> dict[str, Account]:
        """The accounts by folder name. They are read once."""
        if self._known is None:
            folders = [self.path] if _pages(self.path, "courses") else sorted(_folders(self.path))
            self._known = {folder.name or "classroom": Account(folder) for folder in folders}
        if not self._known:
            raise BadInput(
                f"data: Neither {self.place} nor its subfolders contain courses.json. Name the folder of an export."
            )
        return self._known

    def students(self) -> list[str]:
        """Return the students of all accounts."""
        return sorted({name for account in self.accounts.values() for name in account.students()})

    def name(self, student: str) -> str:
        """Return the student's full name, if a profile has it."""
        found = (account.names.get(account.people.get(student.casefold(), "")) for account in self.accounts.values())
        return next(filter(None, found), "")

    def courses(self, student: str) -> list[Course]:
        """Return the active courses of a student in all accounts."""
        return [
            Course(account=name, course_id=each.id, name=each.name, user_id=user)
            for name, account in self.accounts.items()
            if (user := account.people.get(student.casefold())) is not None
            for each in account.courses_of(user)
        ]

    def doubts(self, student: str) -> list[Doubt]:
        """Return an empty list, because the states of the API are all known."""
        return []

    def assignments(self, course: Course) -> list[Assignment]:
        """Return all assignments of one course."""
        account = self.accounts[course.account]
        work, done = account.work.get(course.course_id, []), account.done.get(course.course_id, [])
        return as_assignments(course, work, done, self.zone)


class Account:
    """The export of one account. All files are read in the constructor, so a broken file is refused early."""

    def __init__(self, folder: Path) -> None:
        self.courses = _resources(folder, "courses", CourseShape)
        self.submissions = _resources(folder, "studentSubmissions", StudentSubmission)
        self.work: dict[str, list[CourseWork]] = defaultdict(list)
        self.done: dict[str, list[StudentSubmission]] = defaultdict(list)
        for work in _resources(folder, "courseWork", CourseWork):
            self.work[work.course_id].append(work)
        for done in self.submissions:
            self.done[done.course_id].append(done)
        self.enrolled = _resources(folder, "students", Student)
        self.profiles = _resources(folder, "userProfiles", UserProfile)
        profiles = [*self.profiles, *(each.profile for each in self.enrolled if each.profile is not None)]
        self.names = {each.id: each.name.full_name for each in profiles if each.name}
        self.addresses = {each.id: each.email_address for each in profiles if each.email_address}
        self.ids = {each.user_id for each in self.submissions} | {each.user_id for each in self.enrolled}
        self.ids |= {each.id for each in self.profiles}
        self.people = self._people()

    def _people(self) -> dict[str, str]:
        """Return the student ids by id, by e-mail address, and by name if only one student has the name."""
        names = [(name.casefold(), user) for user, name in self.names.items()]
        counted = Counter(name for name, _ in names)
        unique = {name: user for name, user in names if counted[name] == 1}
        addresses = {address.casefold(): user for user, address in self.addresses.items()}
        return unique | addresses | {user.casefold(): user for user in self.ids}

    def students(self) -> list[str]:
        """Return each student once: the e-mail address, the name or the id."""
        return [self.addresses.get(user) or self.names.get(user) or user for user in self.ids]

    def courses_of(self, user: str) -> list[CourseShape]:
        """Return a student's active courses: those that an enrolment or a submission names.

        Without an enrolment list, these are all active courses.
        """
        mine = {each.course_id for each in self.enrolled if each.user_id == user}
        mine |= {each.course_id for each in self.submissions if each.user_id == user}
        known = {each.id: each for each in self.courses if each.course_state == "ACTIVE"}
        return [each for each in known.values() if not self.enrolled or each.id in mine]


def _folders(path: Path) -> list[Path]:
    return [folder for folder in path.iterdir() if folder.is_dir() and _pages(folder, "courses")]


def _pages(folder: Path, name: str) -> list[Path]:
    """Return the files of one kind of resource. ``courseWork-10.json`` comes after ``courseWork-2.json``."""
    inside = folder / name
    pages = [page for page in folder.glob(f"{name}*.json") if page.stem.removeprefix(name).lstrip("-_.").isdigit()]
    whole = [folder / f"{name}.json"] if (folder / f"{name}.json").is_file() else []
    return [*whole, *sorted(pages, key=lambda page: (len(page.name), page.name)), *sorted(inside.glob("*.json"))]


def _resources(folder: Path, name: str, shape: type[S]) -> list[S]:
    found: list[S] = []
    promised: Path | None = None
    for page in _pages(folder, name):
        items, more = _page(page, name, shape)
        found += items
        promised = page if more else None
    if promised is not None:
        raise BadInput(f"{promised}: Its nextPageToken announces another page of {name}. Add that page to the export.")
    return found


@cache
def _page_of(name: str, shape: Any) -> Any:
    return msgspec.defstruct("Page", [(name, list[shape], msgspec.UNSET), ("nextPageToken", str | None, None)])


def _page(page: Path, name: str, shape: type[S]) -> tuple[list[S], str | None]:
    """Return the items of one page and its next page token. An empty page is an empty object."""
    content = _read(page)
    is_list = content.startswith(b"[")
    kind: Any = shape
    try:
        found = decoder(list[kind] if is_list else _page_of(name, kind)).decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refusal(page, name, content, error) from None
    if is_list:
        return found, None
    items = getattr(found, name)
    if items is msgspec.UNSET and from_json(content):
        raise BadInput(_WRONG_PAGE.format(page=page, name=name))
    return ([] if items is msgspec.UNSET else items), found.nextPageToken


_WRONG_PAGE = '{page}: The page must be {{"{name}": […]}}, as the API returns it.'


def _read(page: Path) -> bytes:
    try:
        content = page.read_bytes().removeprefix(b"\xef\xbb\xbf").strip()
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{page}, byte {error.start}: This is not UTF-8 text. Save it as UTF-8.") from None
    except OSError as error:
        raise BadInput(f"{page} cannot be read: {error.strerror}. Check its permissions.") from None
    return content


def _refusal(page: Path, name: str, content: bytes, error: Exception) -> BadInput:
    """Return the refusal of a page, with the place of the mistake."""
    try:
        found = from_json(content, allow_inf_nan=False)
    except ValueError as invalid:
        why, _, place = str(invalid).rpartition(" at ")
        where = f"{page}, {place.replace(' column', ', column')}"
        return BadInput(f"{where}: This is not valid JSON: {why}. Correct the file, or export it again.")
    if isinstance(found, list):
        return BadInput(f"{page}: {name}{problem(error)}")
    if not isinstance(found, dict):
        return BadInput(_WRONG_PAGE.format(page=page, name=name))
    return BadInput(f"{page}: {problem(error).removeprefix('.')}")
