"""ClassroomSync on the live API, through Google's client and over HTTP, against a local server of the same shapes."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import pytest
from msgspec.structs import replace

from pausepoint import Engine, Outcome, Workflow, step
from pausepoint.apps import model
from pausepoint.apps.aura import classroom_sync, run_aura_orchestrator
from pausepoint.apps.aura.__main__ import main
from pausepoint.apps.aura.models import Assignment, AuraState
from pausepoint.apps.aura.settings import starting
from pausepoint.apps.aura.sources import Source, open_source
from pausepoint.apps.aura.sources.sign_in import SCOPES, sign_in
from pausepoint.apps.aura.workflow import EVENTS, aura, sync
from pausepoint.apps.input import BadInput
from pausepoint.model import Event
from tests.apps.calls import Call, calling
from tests.apps.classroom import NOW, STUDENT, Classroom, course, export, handed_in, put, submission, token, work
from tests.support import loop
from tests.support.servers import serving

SYNC = Workflow("sync", state=AuraState, steps=[step(sync.fn, writes=["assignments", "name", "notes"])], events=EVENTS)

call = calling(main)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait between the attempts."""
    monkeypatch.setattr(classroom_sync, "OUTAGE", replace(classroom_sync.OUTAGE, first=0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three courses, so two pages of them; five pieces of work in the first, so three pages."""
    return export(
        tmp_path / "school",
        courses=[course("c1", "Botany"), course("c2", "Zoology"), course("c3", "Empty")],
        courseWork=[work(f"w{number}", due=NOW + timedelta(days=number)) for number in range(5)] + [work("z1", "c2")],
        studentSubmissions=[submission("w0"), handed_in("w1", NOW, 7), submission("z1", "c2")],
    )


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Classroom]:
    with serving(Classroom(folder)) as found:
        monkeypatch.setenv("PAUSEPOINT_CLASSROOM_URL", found.url)
        yield found


@pytest.fixture
def place(tmp_path: Path, server: Classroom) -> str:
    return f"classroom:{token(tmp_path / 'school.json', server)}"


def ran(place: str) -> tuple[Outcome[AuraState], list[Event]]:
    """One sync as a session."""

    async def main() -> tuple[Outcome[AuraState], list[Event]]:
        async with Engine(":memory:") as engine:
            session = await engine.start(SYNC, student_id=STUDENT, data=[place])
            return await session.outcome(), [event async for event in session.events()]

    return asyncio.run(main())


def test_the_live_api_gives_what_the_export_gives_page_by_page(server: Classroom, folder: Path, place: str) -> None:
    source, exported = open_source(place, "UTC"), open_source(str(folder), "UTC")

    def gathered(source: Source) -> list[Assignment]:
        return [each for one in source.courses(STUDENT) for each in source.assignments(one)]

    assert gathered(source) == gathered(exported)
    assert len(gathered(exported)) == 6
    assert server.asked.count("/v1/courses") == 2
    assert server.asked.count("/v1/courses/c1/courseWork") == 3
    assert server.asked.count("/v1/courses/c1/courseWork/-/studentSubmissions") == 1


def test_an_unknown_student_is_refused_by_the_live_api_too(server: Classroom, place: str) -> None:
    with pytest.raises(BadInput, match=r"^student_id: 'student-9' has no course in classroom:.*school\.json\. Check"):
        starting("student-9", data=[place])
    assert server.asked == ["/v1/userProfiles/student-9"]


CUT: list[tuple[int, dict[str, str]]] = [(0, {}), (0, {})]  # the client itself tries a second time


@pytest.mark.parametrize("faults", [[(429, {"Retry-After": "0"})], [(503, {})], CUT], ids=["429", "503", "cut"])
def test_trouble_that_passes_is_tried_again(
    server: Classroom, place: str, quick: None, faults: list[tuple[int, dict[str, str]]]
) -> None:
    server.faults = list(faults)
    outcome, events = ran(place)
    assert server.faults == []
    assert (outcome.status, len(outcome.state.assignments)) == ("completed", 6)
    assert [event.event_type for event in events].count("operation.retried") == 1


def test_a_page_that_was_fetched_is_not_fetched_again_when_another_one_fails(
    server: Classroom, place: str, quick: None
) -> None:
    server.broken = "/v1/courses/c2/courseWork"
    outcome, events = ran(place)
    assert outcome.status == "completed"
    assert [event.event_type for event in events].count("operation.retried") == 1
    assert server.asked.count("/v1/userProfiles/student-1") == 1  # for the courses and for the name
    assert server.asked.count("/v1/courses/c1/courseWork") == 3  # three pages, once
    assert server.asked.count("/v1/courses/c2/courseWork") == 2


@pytest.mark.long
def test_the_wait_that_the_api_asks_for_is_honoured(server: Classroom, place: str) -> None:
    server.faults = [(429, {"Retry-After": "1"})]
    _, events = ran(place)
    (retried,) = [event for event in events if event.event_type == "operation.retried"]
    assert retried.data["delay"] >= 1.0
    assert "answered with status 429" in retried.data["error"]


def test_a_refusal_is_not_tried_again_and_says_what_it_was(server: Classroom, place: str) -> None:
    server.faults = [(403, {})]
    outcome, events = ran(place)
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert "answered with status 403: as the test wants it" in outcome.failure.message
    assert "operation.retried" not in [event.event_type for event in events]
    assert len(server.asked) == 1


def test_a_token_that_google_refuses_is_told_before_anything_is_stored(server: Classroom, tmp_path: Path) -> None:
    wrong = token(tmp_path / "wrong.json", server, "guess")
    with pytest.raises(BadInput, match=r"^data: Google refuses the token. Sign in again with .*invalid_grant"):
        starting(STUDENT, data=[f"classroom:{wrong}"])


def test_a_token_that_has_expired_is_renewed(server: Classroom, tmp_path: Path) -> None:
    old = token(tmp_path / "old.json", server, "old", renewal="right", hours=-1)
    assert len(open_source(f"classroom:{old}", "UTC").courses(STUDENT)) == 3
    assert server.asked[0] == "/token"


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: No such file"), ("{", "is not the token"), ({"token": "x"}, "is not the token")],
)
def test_a_file_that_is_no_token_is_refused_by_its_name(tmp_path: Path, content: object, said: str) -> None:
    path = tmp_path / "token.json"
    if content is not None:
        put(path, content)
    with pytest.raises(BadInput, match=said) as refused:
        starting(STUDENT, data=[f"classroom:{path}"])
    assert str(path) in str(refused.value)


def test_google_is_waited_for_without_an_end(monkeypatch: pytest.MonkeyPatch, quick: None, place: str) -> None:
    assert classroom_sync.OUTAGE.attempts == model.OUTAGE.attempts
    monkeypatch.setattr(classroom_sync, "OUTAGE", replace(classroom_sync.OUTAGE, attempts=8))  # so that this test ends
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PAUSEPOINT_CLASSROOM_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        outcome, events = ran(place)
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert "did not answer" in outcome.failure.message
    assert [event.event_type for event in events].count("operation.retried") == 7


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_thirty_percent_of_errors_end_in_the_same_report(
    server: Classroom, place: str, quick: None, tmp_path: Path, seed: int
) -> None:
    def report(folder: str) -> str:
        done = run_aura_orchestrator(
            STUDENT, store=tmp_path / f"{folder}.db", data=place, now=NOW, time_zone="UTC", reports=tmp_path / folder
        )
        assert (done.status, done.error) == ("completed", None)
        assert (done.name, done.notes) == ("Sample Student", [])
        assert done.report is not None
        return done.report.markdown.read_text("utf-8")

    calm = report("calm")
    server.share_of_errors, server.chance = 0.3, random.Random(seed)
    for number in range(5):
        assert report(f"{number}") == calm
    assert server.failed > 10


@pytest.mark.long
def test_google_that_does_not_answer_at_the_start_is_waited_for_by_the_session(
    here: Path, server: Classroom, place: str, call: Call, quick: None
) -> None:
    server.faults = [(503, {})]
    done = call("--student", "me", "--data", place, "--now", "2030-03-04", "--time-zone", "UTC")
    assert done.code == 0, done.err
    assert "aura: Google does not answer now, so Aura waits for it. The reason: http://127.0.0.1:" in done.err
    assert "Sample Student has 5 open assignments." in done.out
    assert "Traceback" not in done.err


def test_a_quota_that_google_reports_as_forbidden_is_waited_for(server: Classroom, place: str, quick: None) -> None:
    server.message, server.faults = "rateLimitExceeded", [(403, {})]
    outcome, events = ran(place)
    assert (outcome.status, len(outcome.state.assignments)) == ("completed", 6)
    assert [event.event_type for event in events].count("operation.retried") == 1


@pytest.mark.long
def test_several_accounts_are_gathered_in_one_session(server: Classroom, place: str, tmp_path: Path) -> None:
    table = put(tmp_path / "club.csv", "student,course,title\nstudent-1,Chess,Openings\n")
    state = starting(STUDENT, data=[place, table], now=NOW, reports=tmp_path / "reports", time_zone="UTC")

    async def main() -> Outcome[AuraState]:
        async with Engine(":memory:") as engine:
            return await (await engine.start(aura, state)).outcome()

    outcome = asyncio.run(main())
    assert outcome.status == "completed"
    assert {each.account for each in outcome.state.assignments} == {"school", "club"}
    profile = outcome.state.skill_profile
    assert profile is not None
    assert {each.subject for each in profile.subjects} == {"Botany", "Zoology", "Chess"}


# sign-in


def consenting(refuses: bool = False) -> Any:
    """A browser whose person allows the access, or does not."""

    class Browser:
        def open(self, url: str, **_: object) -> bool:
            asked = parse_qs(urlsplit(url).query)
            answer = {"error": "access_denied"} if refuses else {"code": "c", "scope": " ".join(SCOPES)}
            back = f"{asked['redirect_uri'][0]}?{urlencode({'state': asked['state'][0], **answer})}"
            threading.Thread(target=lambda: urlopen(back, timeout=loop.PATIENCE).read()).start()
            return True

    return Browser()


@pytest.fixture
def client(tmp_path: Path, server: Classroom, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # the local server has no certificate
    known = {
        "client_id": "c",
        "client_secret": "s",
        "auth_uri": f"{server.url}/auth",
        "token_uri": f"{server.url}/token",
    }
    return put(tmp_path / "client.json", {"installed": known})


def test_a_sign_in_in_a_browser_leaves_a_token_that_only_its_owner_reads(
    server: Classroom, client: Path, tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "get", lambda *_: consenting())
    with pytest.raises(SystemExit) as ended:
        main(["sign-in", "--client", str(client), "--token", "mine.json"])
    assert not ended.value.code
    token = here / "mine.json"
    assert token.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("PAUSEPOINT_CLASSROOM_URL", server.url)
    assert len(open_source(f"classroom:{token}", "UTC").courses(STUDENT)) == 3


def test_a_sign_in_that_fails_says_why_and_leaves_nothing(
    client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "get", lambda *_: consenting(refuses=True))
    with pytest.raises(BadInput, match=r"^client: Google gave no token \(access_denied\)\. Sign in again"):
        sign_in(client, tmp_path / "token.json")
    for place, said in (
        (tmp_path / "nowhere.json", "cannot be read: No such file.*desktop app"),
        (put(tmp_path / "wrong.json", {}), "is not the file of an OAuth client"),
    ):
        with pytest.raises(BadInput, match=said):
            sign_in(place, tmp_path / "token.json")
    monkeypatch.setitem(sys.modules, "google_auth_oauthlib.flow", None)
    with pytest.raises(BadInput, match=r"needs google-auth-oauthlib\. Install it: pip install 'pausepoint\[cl"):
        sign_in(client, tmp_path / "token.json")
    assert not (tmp_path / "token.json").exists()
