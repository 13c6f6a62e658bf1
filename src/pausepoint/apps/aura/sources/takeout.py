"""A Google Takeout of Classroom: the archive that Google sends to a student or a teacher, zipped or unpacked.

Each class is one JSON file with its posts. A post with course work has the submissions: the student's own one, or in a
teacher's archive those of all students. Files that are not a class are ignored. Google does not document the archive,
so the names and shapes of the API are understood as well, empty values count as missing, and ids may be numbers.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path, PurePath
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace
from pydantic_core import from_json

from pausepoint.apps.aura.models import Assignment, Course, Doubt, key_of
from pausepoint.apps.aura.sources.shapes import (
    CourseWork,
    Day,
    History,
    Instant,
    Name,
    Points,
    Shape,
    StudentSubmission,
    TimeOfDay,
    as_assignments,
    check_year,
    parsed,
)
from pausepoint.apps.input import BadInput
from pausepoint.apps.words import one_line

OWNER = "me"
"""The student of submissions that name none: the person whose archive it is."""


class Person(Shape, frozen=True):
    """A student. Any of the three may be missing."""

    id: str = ""
    email_address: str = ""
    name: Name | None = None

    @property
    def full_name(self) -> str:
        """The name, or an empty string."""
        return self.name.full_name if self.name else ""

    def is_called(self, student: str) -> bool:
        """Return whether the student is meant by an id, an e-mail address or a name, ignoring case."""
        known = {self.id.casefold(), self.email_address.casefold(), self.full_name.casefold()}
        return bool(student) and student.casefold() in known


class TakeoutStudent(Shape, frozen=True):
    """A student of a submission."""

    id: str = ""
    profile: Person | None = None


class TakeoutSubmission(Shape, frozen=True):
    """A submission inside its course work. It names the student, and not the course or the work."""

    user_id: str = ""
    state: str = "NEW"
    late: bool = False
    assigned_grade: Points | None = None
    grade: Any = None
    update_time: Instant | None = None
    submission_history: tuple[History, ...] = ()
    student: TakeoutStudent | None = None

    @property
    def points(self) -> float | None:
        """The grade, which may be a number, a text or an object. Any other form counts as no grade."""
        if self.assigned_grade is not None:
            return self.assigned_grade
        found = self.grade
        if isinstance(found, dict):
            found = next((found[key] for key in ("pointsEarned", "points", "value") if key in found), None)
        try:
            return msgspec.convert(found, Points, strict=False)
        except msgspec.ValidationError:
            return None

    @property
    def person(self) -> Person:
        """The student, or the archive's owner if the submission names none."""
        profile = (self.student.profile if self.student else None) or Person()
        known = self.user_id or (self.student.id if self.student else "")
        own = known or profile.id or profile.email_address or profile.full_name or OWNER
        return Person(own, profile.email_address, profile.name)

    def of(self, course: Course, work: str) -> StudentSubmission:
        """Return the submission as the API has it."""
        return StudentSubmission(
            course.course_id, work, course.user_id, self.state, self.late, self.points, self.update_time,
            self.submission_history,
        )  # fmt: skip


class TakeoutWork(Shape, frozen=True):
    """The course work of a post. ``dueTime`` is a whole time, or as in the API the time of day of ``dueDate``."""

    id: str = ""
    title: str = ""
    work_type: str = "ASSIGNMENT"
    due_date: Day | None = None
    due_time: Instant | TimeOfDay | None = None
    max_points: Points | None = None
    submissions: tuple[TakeoutSubmission, ...] = ()
    student_submissions: tuple[TakeoutSubmission, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.due_time, datetime):
            check_year(self.due_time, "dueTime")

    @property
    def due_day(self) -> date | None:
        """The day on which the work is due, in UTC, or None if it has none or an impossible one."""
        if isinstance(self.due_time, datetime):
            return self.due_time.astimezone(UTC).date()
        try:
            return None if self.due_date is None else date(self.due_date.year, self.due_date.month, self.due_date.day)
        except ValueError:
            return None

    @property
    def done(self) -> tuple[TakeoutSubmission, ...]:
        """The submissions, under either name."""
        return self.submissions or self.student_submissions

    def of(self, course: Course, key: str) -> CourseWork:
        """Return the work as the API has it."""
        day, time = self.due_date, self.due_time
        if isinstance(time, datetime):
            due = time.astimezone(UTC)
            day, time = Day(due.year, due.month, due.day), TimeOfDay(due.hour, due.minute, due.second)
        return CourseWork(
            course.course_id, key, self.title, work_type=self.work_type, max_points=self.max_points, due_date=day,
            due_time=time,
        )  # fmt: skip


class Post(Shape, frozen=True):
    """One post of a class."""

    id: str = ""
    state: str = "PUBLISHED"
    creation_time: Any = None
    course_work: TakeoutWork | None = None


class TakeoutClass(Shape, frozen=True):
    """The file of one class."""

    posts: tuple[Post, ...]
    id: str = ""
    name: str = ""
    section: str = ""
    course_state: str = "ACTIVE"

    @property
    def key(self) -> str:
        """What identifies the class in every archive: its id, or else its name and section."""
        return self.id or " ".join(filter(None, (self.name, self.section))) or "Classroom"


class Takeout:
    """One account: an unpacked archive, or the .zip file itself."""

    def __init__(self, path: Path, zone: ZoneInfo) -> None:
        self.place = str(path)
        self.is_file = True
        self.path = path
        self.zone = zone
        self._known: dict[str, TakeoutClass] | None = None

    @property
    def classes(self) -> dict[str, TakeoutClass]:
        """The active classes by id, or else by name and section. They are read once."""
        if self._known is None:
            found: list[TakeoutClass] = []
            for where, content in _classes(self.path):
                found += parsed(TakeoutClass, [_tidy(content)], where)
            if not found:
                raise BadInput(
                    f"data: {self.place} contains no class of Google Classroom. Order a Takeout with “Classroom”"
                    " selected, or name the folder of an export."
                )
            self._known = _merged(each for each in found if each.course_state == "ACTIVE")
        return self._known

    def students(self) -> list[str]:
        """Return the students by e-mail address, name or id."""
        return sorted({each.email_address or each.full_name or each.id for each in self._people()})

    def name(self, student: str) -> str:
        """Return the student's full name, if the archive has it."""
        return next((each.full_name for each in self._people() if each.is_called(student)), "")

    def courses(self, student: str) -> list[Course]:
        """Return the classes of a student. An archive with one student is theirs, with all its classes."""
        people = {each.id: each for each in self._people()}
        user = next((each.id for each in people.values() if each.is_called(student)), None)
        if user is None:
            return []
        return [
            Course(account=self.path.stem, course_id=key, name=each.name or key, user_id=user)
            for key, each in self.classes.items()
            if len(people) == 1 or any(one.person.id == user for _, work in _work(each) for one in work.done)
        ]

    def doubts(self, student: str) -> list[Doubt]:
        """Return an empty list, because the states of the API are all known."""
        return []

    def assignments(self, course: Course) -> list[Assignment]:
        """Return all assignments of one class."""
        work: list[CourseWork] = []
        done: list[StudentSubmission] = []
        for key, each in _work(self.classes[course.course_id]):
            work.append(each.of(course, key))
            done += [one.of(course, key) for one in each.done if one.person.id == course.user_id]
        return as_assignments(course, work, done, self.zone)

    def _people(self) -> Iterator[Person]:
        for each in self.classes.values():
            for _, work in _work(each):
                yield from (one.person for one in work.done)


def holds_takeout(folder: Path) -> bool:
    """Return whether a folder is an unpacked archive: its name, or a folder in it, is that of Google's archive."""
    return any((folder / name).is_dir() for name in ("Takeout", "Classroom")) or folder.name in ("Takeout", "Classroom")


def _merged(classes: Iterable[TakeoutClass]) -> dict[str, TakeoutClass]:
    """Return the classes by key. Without ids, two files of one name and section are one class."""
    merged: dict[str, TakeoutClass] = {}
    for each in classes:
        before = merged.get(each.key)
        merged[each.key] = each if before is None else replace(before, posts=before.posts + each.posts)
    return merged


def _work(found: TakeoutClass) -> Iterator[tuple[str, TakeoutWork]]:
    """Yield the published course work with a key: its id, or its title and due date.

    Work that shares its key is numbered from the oldest post on, so that a new post does not change the numbers.
    """
    seen: dict[str, int] = {}
    for post in sorted(found.posts, key=lambda post: str(post.creation_time or "")):
        work = post.course_work
        if work is None or post.state != "PUBLISHED":
            continue
        key = work.id or post.id or key_of(one_line(work.title), work.due_day)
        seen[key] = seen.get(key, 0) + 1
        yield key if seen[key] == 1 else f"{key} ({seen[key]})", work


def _tidy(found: Any) -> Any:
    """Return the content of a class without empty values, and with ids as texts."""
    if isinstance(found, list):
        return [_tidy(each) for each in found]
    if not isinstance(found, dict):
        return found
    kept = {key: _tidy(each) for key, each in found.items() if each is not None}
    return kept | {key: str(kept[key]) for key in ("id", "userId") if key in kept}


def _classes(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the content of each file that is a class, with its place."""
    for where, content in _files(path):
        try:
            found = from_json(content, allow_inf_nan=False)
        except ValueError as error:
            raise BadInput(f"{where}: This is not valid JSON: {error}. Unpack or order the archive again.") from None
        if isinstance(found, dict) and isinstance(found.get("posts"), list):
            yield where, found


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if path.is_dir():
            for name in _of_classroom(sorted(map(str, path.rglob("*.json")))):
                yield name, Path(name).read_bytes()
            return
        with zipfile.ZipFile(path) as archive:
            for name in _of_classroom(sorted(name for name in archive.namelist() if name.endswith(".json"))):
                yield f"{path}/{name}", archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise BadInput(f"data: {path} is not a whole .zip file. Download it again.") from None
    except OSError as error:
        raise BadInput(f"data: {path} cannot be read: {error.strerror}. Check its permissions.") from None


def _of_classroom(pages: Sequence[str]) -> Sequence[str]:
    """Return the files in the folder `Classroom`, or all if there is no such folder. A Takeout has other products."""
    return [name for name in pages if "Classroom" in PurePath(name).parts] or pages
