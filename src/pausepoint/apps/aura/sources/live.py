"""The live Google Classroom API, through its official client (the extra ``pausepoint[classroom]``).

``classroom:TOKEN.json`` names the token file that Google's sign-in writes for an authorised user. Temporary errors
raise `Unreachable`, and the engine waits and retries the operation. A refusal raises `BadInput`.
``PAUSEPOINT_CLASSROOM_URL`` sets another address of the API.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from pausepoint.apps.aura.models import LIVE, Assignment, Course, Doubt
from pausepoint.apps.aura.sources.shapes import (
    CourseShape,
    CourseWork,
    Shape,
    StudentSubmission,
    UserProfile,
    as_assignments,
    parsed,
)
from pausepoint.apps.input import BadInput

S = TypeVar("S", bound=Shape)

URL = "PAUSEPOINT_CLASSROOM_URL"
PASSING = (408, 429, 500, 502, 503, 504)
_REFUSED = object()


class Unreachable(ConnectionError):
    """The API did not answer or asks to retry later. ``retry_after`` is the wait in seconds, if known."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LiveClassroom:
    """One account on the live API. Every call opens its own connection, because the client is not thread-safe."""

    def __init__(self, place: str, zone: ZoneInfo) -> None:
        self.place = place
        self.is_file = False
        self.token = Path(place.removeprefix(LIVE)).expanduser()
        self.zone = zone
        self._answers: dict[str, Any] = {}

    def students(self) -> list[str]:
        """Return an empty list, because students cannot see who else is in their courses."""
        return []

    def name(self, student: str) -> str:
        """Return the full name in the student's profile."""
        with self._service() as service:
            found = self._answer(service.userProfiles().get(userId=student), missing=None)
            profile = None if found is None else parsed(UserProfile, [found], "userProfiles.get")[0]
            return profile.name.full_name if profile and profile.name else ""

    def courses(self, student: str) -> list[Course]:
        """Return the active courses of a student. Empty for an unknown student."""
        with self._service() as service:
            found = self._answer(service.userProfiles().get(userId=student), missing=None)
            if found is None:
                return []
            profile = parsed(UserProfile, [found], "userProfiles.get")[0]
            listing = service.courses()
            pages = self._pages(listing, "courses", studentId=profile.id, courseStates=["ACTIVE"])
            return [
                Course(account=self.token.stem, course_id=each.id, name=each.name, user_id=profile.id)
                for each in _gathered(CourseShape, pages, "courses.list")
            ]

    def doubts(self, student: str) -> list[Doubt]:
        """Return an empty list, because the states of the API are all known."""
        return []

    def assignments(self, course: Course) -> list[Assignment]:
        """Return all assignments of one course."""
        with self._service() as service:
            listing = service.courses().courseWork()
            work = self._pages(listing, "courseWork", courseId=course.course_id)
            mine = {"courseId": course.course_id, "courseWorkId": "-", "userId": course.user_id}
            done = self._pages(listing.studentSubmissions(), "studentSubmissions", **mine)
            found = as_assignments(
                course,
                _gathered(CourseWork, work, "courseWork.list"),
                _gathered(StudentSubmission, done, "studentSubmissions.list"),
                self.zone,
            )
            self._forget(f"/courses/{course.course_id}/")
            return found

    def _pages(self, listing: Any, name: str, **asked: Any) -> Iterator[list[Any]]:
        """Yield the pages of a list method."""
        request = listing.list(**asked)
        while request is not None:
            answer = self._answer(request)
            yield answer.get(name, [])
            request = listing.list_next(request, answer)

    def _answer(self, request: Any, missing: Any = _REFUSED) -> Any:
        """Return the answer to a request. A retry begins with the page that failed."""
        if request.uri not in self._answers:
            self._answers[request.uri] = _sent(request, missing)
        return self._answers[request.uri]

    def _forget(self, part: str) -> None:
        """Forget the answers that are complete: a large course takes memory."""
        for uri in [uri for uri in list(self._answers) if part in uri]:
            del self._answers[uri]

    @contextmanager
    def _service(self) -> Iterator[Any]:
        build, Credentials = _client()
        options = {"api_endpoint": os.environ[URL]} if os.environ.get(URL) else None
        with build(
            "classroom", "v1", credentials=self._credentials(Credentials), client_options=options,
            static_discovery=True, cache_discovery=False,
        ) as service:  # fmt: skip
            yield service

    def _credentials(self, Credentials: Any) -> Any:
        """Return the credentials in the file. Unlike Google's own reader, this uses the file's ``token_uri``."""
        try:
            info = json.loads(self.token.read_text("utf-8"))
            read = Credentials.from_authorized_user_info(info)
            return Credentials(
                read.token, refresh_token=read.refresh_token, token_uri=info.get("token_uri", read.token_uri),
                client_id=read.client_id, client_secret=read.client_secret, scopes=read.scopes, expiry=read.expiry,
            )  # fmt: skip
        except OSError as error:
            raise BadInput(f"data: The token {self.token} cannot be read: {error.strerror}. Check the path.") from None
        except (ValueError, AttributeError, TypeError) as error:  # not JSON, or not a token of Google's sign-in
            raise BadInput(
                f"data: {self.token} is not the token of an authorised user. Sign in again with the command sign-in."
                f" The reason: {error}"
            ) from None


def _client() -> tuple[Callable[..., Any], Any]:
    """Return Google's client. It is imported only when it is used."""
    try:
        from google.oauth2.credentials import Credentials
        from googleapiclient.discovery import build
    except ImportError as error:
        raise BadInput(
            f"data: {LIVE} needs Google's client. Install it: pip install 'pausepoint[classroom]' ({error})"
        ) from None
    return build, Credentials


def _gathered(shape: type[S], pages: Iterator[list[Any]], where: str) -> list[S]:
    return [each for page in pages for each in parsed(shape, page, where)]


def _sent(request: Any, missing: Any) -> Any:
    """Send a request. Return ``missing`` for a 404 if it is given; otherwise a 404 is an error."""
    from google.auth.exceptions import RefreshError, TransportError
    from googleapiclient.errors import HttpError
    from httplib2 import HttpLib2Error

    try:
        return request.execute()
    except HttpError as error:
        if error.status_code == 404 and missing is not _REFUSED:
            return missing
        status = 429 if b"ateLimitExceeded" in error.content else error.status_code  # Google also says so with a 403
        raise _failure(status, error.reason, error.resp.get("retry-after"), request.uri) from error
    except RefreshError as error:
        if error.retryable:
            raise Unreachable(f"Google did not renew the token: {error}. Try again later.") from error
        raise BadInput(
            f"data: Google refuses the token. Sign in again with the command sign-in. The reason: {error}"
        ) from error
    except (HttpLib2Error, TransportError, OSError) as error:
        raise Unreachable(f"{request.uri} did not answer: {error}. Try again later.") from error


def _failure(status: int, reason: str, after: str | None, uri: str) -> Exception:
    if status in PASSING:
        seconds = float(after) if after and after.isdigit() else None
        return Unreachable(f"{uri} answered with status {status}: {reason}. Try again later.", seconds)
    return BadInput(f"data: {uri} answered with status {status}: {reason}. Check the account and its permissions.")
