"""Made-up classrooms for Aura's tests: resources in the shapes of the API, as a folder or behind a local server."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pausepoint.apps.aura import run_aura_orchestrator
from pausepoint.apps.aura.models import Assignment
from pausepoint.apps.aura.sources import open_source

NOW = datetime(2030, 3, 4, 8, 0, tzinfo=UTC)  # a Monday
STUDENT = "student-1"
LISBON = "Europe/Lisbon"

Resource = dict[str, Any]


def course(number: str, name: str, **more: Any) -> Resource:
    return {"id": number, "name": name, "courseState": "ACTIVE", **more}


def work(number: str, of: str = "c1", due: datetime | None = None, **more: Any) -> Resource:
    """Course work; a part of the due time that is 0 is left out, as the API does."""
    found: Resource = {"courseId": of, "id": number, "title": f"Work {number}", "maxPoints": 10, **more}
    if due is not None:
        found["dueDate"] = {"year": due.year, "month": due.month, "day": due.day}
        found["dueTime"] = {
            key: value for key, value in (("hours", due.hour), ("minutes", due.minute)) if value
        }  # fmt: skip
    return found


def submission(number: str, of: str = "c1", by: str = STUDENT, **more: Any) -> Resource:
    return {"courseId": of, "courseWorkId": number, "id": f"{number}-{by}", "userId": by, "state": "NEW", **more}


def handed_in(number: str, at: datetime, grade: float | None = None, of: str = "c1", **more: Any) -> Resource:
    change = {"state": "TURNED_IN", "stateTimestamp": at.isoformat(), "actorUserId": STUDENT}
    graded = {} if grade is None else {"assignedGrade": grade, "state": "RETURNED"}
    return submission(
        number, of, state="TURNED_IN", submissionHistory=[{"stateHistory": change}], updateTime=at.isoformat()
    ) | {**graded, **more}  # fmt: skip


def put(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def export(folder: Path, **resources: list[Resource]) -> Path:
    """An export: one file for each kind of resource."""
    for kind, found in resources.items():
        put(folder / f"{kind}.json", {kind: found})
    return folder


def small_class(folder: Path) -> Path:
    """One course, one piece of graded work, one that is open."""
    return export(
        folder,
        courses=[course("c1", "Botany")],
        courseWork=[work("w1", due=NOW - timedelta(days=7)), work("w2", due=NOW + timedelta(days=3))],
        studentSubmissions=[handed_in("w1", NOW - timedelta(days=8), 8), submission("w2")],
    )


def big_class(folder: Path, accounts: int, courses: int, assignments: int) -> Path:
    """Accounts with courses of much work: graded, late, missing, open and undated in turns."""
    for account in range(accounts):
        ids = [f"c{account}-{number}" for number in range(courses)]
        put(
            folder / f"account-{account}" / "courses.json",
            {"courses": [course(each, f"Course {each}") for each in ids]},
        )
        for each in ids:
            made = [_nth(each, number) for number in range(assignments)]
            put(folder / f"account-{account}" / "courseWork" / f"{each}.json", {"courseWork": [one for one, _ in made]})
            done = [other for _, other in made]
            put(folder / f"account-{account}" / "studentSubmissions" / f"{each}.json", {"studentSubmissions": done})
    return folder


def _nth(of: str, number: int) -> tuple[Resource, Resource]:
    name, due = f"w{number}", NOW + timedelta(days=number % 120 - 100, hours=number % 24)
    if number % 10 == 9:
        return work(name, of), submission(name, of)
    if due > NOW or number % 7 == 0:
        return work(name, of, due), submission(name, of)
    return work(name, of, due), handed_in(name, due + timedelta(hours=number % 5 - 3), number % 11, of)


def gathered(place: Path, student: str = STUDENT, zone: str = LISBON) -> dict[str, Assignment]:
    source = open_source(str(place), zone)
    return {each.id: each for course in source.courses(student) for each in source.assignments(course)}


def new_since(tmp_path: Path, weeks: Sequence[Path], student: str = "student@example.com") -> str:
    """Return what the second week's report says has changed since the first week's."""
    texts = []
    for place, days in zip(weeks, (0, 7), strict=True):
        done = run_aura_orchestrator(
            student, store=tmp_path / "aura.db", data=place, now=NOW + timedelta(days=days), time_zone="UTC",
            reports=tmp_path / "reports",
        )  # fmt: skip
        assert done.report is not None
        texts.append(done.report.markdown.read_text("utf-8"))
    text = texts[-1]
    return text.partition("## Since the last report")[2].partition("**Levels**")[0].partition("## Grades")[0]


class Classroom(ThreadingHTTPServer):
    """A local server that speaks the shapes of the API, two resources a page.

    ``faults`` are answered first; ``broken`` is the path of a request that fails once. ``share_of_errors`` of the
    requests fail by chance. ``message`` is that of all errors.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.resources = {page.stem: json.loads(page.read_text())[page.stem] for page in folder.glob("*.json")}
        self.faults: list[tuple[int, dict[str, str]]] = []
        self.broken: str | None = None
        self.asked: list[str] = []
        self.share_of_errors = 0.0
        self.chance = random.Random(0)
        self.failed = 0
        self.message = "as the test wants it"
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    server: Classroom
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        query = parse_qs(place.query)
        with self.server.lock:
            self.server.asked.append(place.path)
            fault = self.server.faults.pop(0) if self.server.faults else None
            if place.path == self.server.broken:
                self.server.broken, fault = None, (500, {})
            if self.server.chance.random() < self.server.share_of_errors:
                self.server.failed += 1
                fault = self.server.chance.choice((429, 500, 503)), {}
        if fault is not None:
            self._fault(*fault)
        elif self.headers.get("Authorization") != "Bearer secret":
            self._answer(401, {"error": {"code": 401, "message": "who are you?"}})
        else:
            self._look(place.path, query)

    def do_POST(self) -> None:
        """Give a token for a consent, or renew one if the renewal token is the right one."""
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        with self.server.lock:
            self.server.asked.append(self.path)
        right = asked.get("refresh_token") == ["right"] or asked.get("code") == ["c"]
        granted = {"access_token": "secret", "refresh_token": "right", "expires_in": 3600, "token_type": "Bearer"}
        self._answer(200 if right else 400, granted if right else {"error": "invalid_grant"})

    def _fault(self, status: int, headers: dict[str, str]) -> None:
        if status == 0:  # the line is cut
            self.close_connection = True
            self.connection.close()
            return
        self._answer(status, {"error": {"code": status, "message": self.server.message}}, headers)

    def _look(self, path: str, query: dict[str, list[str]]) -> None:
        if found := re.fullmatch(r"/v1/userProfiles/(.+)", path):
            known = found[1].replace("%40", "@") in (STUDENT, "student@example.com", "me")
            profile = {"id": STUDENT, "emailAddress": "student@example.com", "name": {"fullName": "Sample Student"}}
            self._answer(200 if known else 404, profile if known else {"error": {"code": 404, "message": "unknown"}})
        elif path == "/v1/courses":
            assert query["studentId"] == [STUDENT]
            self._page("courses", self.server.resources["courses"], query)
        elif found := re.fullmatch(r"/v1/courses/(.+)/courseWork", path):
            self._of_course("courseWork", found[1], query)
        elif found := re.fullmatch(r"/v1/courses/(.+)/courseWork/-/studentSubmissions", path):
            assert query["userId"] == [STUDENT]
            self._of_course("studentSubmissions", found[1], query)
        else:
            self._answer(404, {"error": {"code": 404, "message": path}})

    def _of_course(self, kind: str, of: str, query: dict[str, list[str]]) -> None:
        self._page(kind, [each for each in self.server.resources[kind] if each["courseId"] == of], query)

    def _page(self, kind: str, found: list[Resource], query: dict[str, list[str]]) -> None:
        start = int(query.get("pageToken", ["0"])[0])
        page: Resource = {kind: found[start : start + 2]} if found else {}
        self._answer(200, page | ({"nextPageToken": str(start + 2)} if len(found) > start + 2 else {}))

    def _answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at what was asked instead."""


def token(path: Path, server: Classroom, secret: str = "secret", renewal: str = "wrong", hours: int = 1) -> Path:
    """What Google's sign-in leaves, made up. ``hours``: how long it is still valid."""
    expiry = datetime.now(UTC) + timedelta(hours=hours)
    known = {"client_id": "c", "client_secret": "s", "token_uri": f"{server.url}/token"}
    return put(path, {"token": secret, "refresh_token": renewal, "expiry": f"{expiry:%Y-%m-%dT%H:%M:%SZ}", **known})
