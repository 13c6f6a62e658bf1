"""A Google Classroom export: a folder with the JSON of the public API, page by page.

The folder contains ``courses.json``, ``courseWork.json`` and ``studentSubmissions.json``, and optionally
``students.json`` or ``userProfiles.json`` with e-mail addresses. Each may have several pages (``courseWork-2.json``) or
a folder of pages (``courseWork/mathematics.json``). If a folder has no courses, each of its subfolders is an account.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from pydantic_core import from_json

from pausepoint.apps.aura.models import Assignment, Course
from pausepoint.apps.aura.sources.shapes import (
    CourseShape,
    CourseWork,
    Shape,
    Student,
    StudentSubmission,
    UserProfile,
    as_assignments,
    parsed,
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
        return sorted({name for account in self.accounts.values() for name in account.people})

    def courses(self, student: str) -> list[Course]:
        """Return the active courses of a student in all accounts."""
        return [
            Course(account=name, course_id=each.id, name=each.name, user_id=user)
            for name, account in self.accounts.items()
            if (user := account.people.get(student.casefold())) is not None
            for each in account.courses_of(user)
        ]

    def assignments(self, course: Course) -> list[Assignment]:
        """Return all assignments of one course."""
        account = self.accounts[course.account]
        work = [each for each in account.work if each.course_id == course.course_id]
        done = [each for each in account.submissions if each.course_id == course.course_id]
        return as_assignments(course, work, done, self.zone)


class Account:
    """The export of one account. All files are read in the constructor, so a broken file is refused early."""

    def __init__(self, folder: Path) -> None:
        self.courses = _resources(folder, "courses", CourseShape)
        self.work = _resources(folder, "courseWork", CourseWork)
        self.submissions = _resources(folder, "studentSubmissions", StudentSubmission)
        self.enrolled = _resources(folder, "students", Student)
        self.profiles = _resources(folder, "userProfiles", UserProfile)
        self.people = self._people()

    def _people(self) -> dict[str, str]:
        """Return the student ids by name: the id itself or an e-mail address."""
        ids = {each.user_id for each in self.submissions} | {each.user_id for each in self.enrolled}
        ids |= {each.id for each in self.profiles}
        profiles = [*self.profiles, *(each.profile for each in self.enrolled if each.profile is not None)]
        addresses = {each.email_address.casefold(): each.id for each in profiles if each.email_address}
        return addresses | {each.casefold(): each for each in ids}

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
        content = _read(page)
        items, more = (content, None) if isinstance(content, list) else _page(content, name, page)
        found += parsed(shape, items, f"{page}: {name}")
        promised = page if more else None
    if promised is not None:
        raise BadInput(f"{promised}: Its nextPageToken announces another page of {name}. Add that page to the export.")
    return found


def _page(content: Any, name: str, page: Path) -> tuple[Any, object]:
    """Return the items of one page and its next page token. An empty page is an empty object."""
    if not isinstance(content, dict) or (content and name not in content):
        raise BadInput(f'{page}: The page must be {{"{name}": […]}}, as the API returns it.')
    return content.get(name, []), content.get("nextPageToken")


def _read(page: Path) -> Any:
    try:
        return from_json(page.read_text("utf-8-sig"), allow_inf_nan=False)
    except UnicodeDecodeError as error:
        raise BadInput(f"{page}, byte {error.start}: This is not UTF-8 text. Save it as UTF-8.") from None
    except ValueError as error:
        why, _, place = str(error).rpartition(" at ")
        where = f"{page}, {place.replace(' column', ', column')}"
        raise BadInput(f"{where}: This is not valid JSON: {why}. Correct the file, or export it again.") from None
    except OSError as error:
        raise BadInput(f"{page} cannot be read: {error.strerror}. Check its permissions.") from None
