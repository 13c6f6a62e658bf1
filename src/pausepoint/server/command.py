"""``pausepoint serve``: the server as a command, and the tokens and links of its users."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from pausepoint.cli.context import Cli, run_async
from pausepoint.cli.exits import DONE, NOT_FOUND, USAGE, Refused
from pausepoint.cli.host import STORE, command_line
from pausepoint.cli.options import PORT, QUESTIONS, TARGETS, OneOf, Whole, login_name
from pausepoint.cli.project import VARIABLE, check_exists
from pausepoint.cli.text import counted
from pausepoint.errors import StoreError
from pausepoint.name import DEFAULT_STORE, NAME
from pausepoint.server.listener import bound
from pausepoint.server.roles import ROLES, Role

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.server.sites import Site
    from pausepoint.server.tokens import Tokens

GRACE = 5
"""How many seconds requests get to end when the server is stopped."""

LOOK_EVERY, ROOM = 0.5, 100
"""Seconds between two searches for ready sessions, and how many sessions the server drives at a time."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Span(click.ParamType[int]):
    """A time span such as ``30m``, ``12h`` or ``7d``, in seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"([1-9]\d{0,5})([smhdw])", str(value), re.ASCII)
        if found is None:
            self.fail(f"{value!r} is not a time span. Write a number and a unit, such as 30m, 12h or 7d.", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


_store = click.option(
    "--store", metavar="PATH", help=f"The store. Default: {VARIABLE}, [tool.{NAME}], or {DEFAULT_STORE}."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def _cli(store: str | None, as_json: bool, targets: tuple[str, ...] = ()) -> Cli:
    return Cli(store or click.get_current_context().meta.get(STORE), targets, as_json, False)


@click.group(invoke_without_command=True)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", type=Whole(), default=PORT, show_default=True, help="The port; 0 for any free one.")
@click.option("--drive/--observe", default=None, help="Drive sessions of the known workflows, or only look and ask.")
@click.option("--target", multiple=True, metavar="TARGET", shell_complete=TARGETS,
              help="The code of a workflow: file.py, file.py:name or module:name.")  # fmt: skip
@click.option(
    "--tls-cert", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="A certificate, for HTTPS."
)
@click.option("--tls-key", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="Its private key.")
@click.option("--behind-proxy", is_flag=True, help="A proxy signs people in: X-Forwarded-User and -Groups.")
@click.option("--proxy-from", multiple=True, metavar="NETWORK",
              help="The addresses of the proxy; repeatable. Default: this machine.")  # fmt: skip
@click.option("--allow-host", multiple=True, metavar="NAME", help="Another name of this server; repeatable.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--new-token", is_flag=True, help="Replace the token, which signs everyone out.")
@_store
@_json
@click.pass_context
def serve(context: click.Context, /, **given: Any) -> int:
    """Serve the store over HTTP: an API and a web page, on this machine only by default.

    The printed address signs you in. Its token is in the file serve-token next to the store, and allows everything.
    Create tokens with fewer rights with `serve token create`.

    By default the server drives the sessions of the project's workflows, as `worker` does. With --observe, or without
    workflows, it drives nothing, and another process continues what you resume.
    """
    context.meta[STORE] = given.get("store") or context.meta.get(STORE)
    if context.invoked_subcommand is not None:
        return DONE
    for extra in ("starlette", "uvicorn"):
        if find_spec(extra) is None:
            raise Refused(f"The server needs {extra}. Install it with pip install '{NAME}[server]'.", USAGE)
    code: int = run_async(_Serving(_cli(given["store"], given["as_json"], given.get("target", ())), given).run())
    return code


class _Serving:
    """One run of the server."""

    def __init__(self, cli: Cli, given: dict[str, Any]) -> None:
        self.cli = cli
        self.given = given
        self.stopped_by: list[int] = []
        self.tls = bool(given["tls_cert"])
        if self.tls != bool(given["tls_key"]):
            raise Refused("HTTPS needs a certificate and its key. Give both --tls-cert and --tls-key.", USAGE)
        proxied = given["behind_proxy"]
        if not self.tls and not proxied and not _is_loopback(given["host"]):
            raise Refused(
                f"{given['host']} can be reached from other machines, and the token would cross the network in plain"
                " text. Give --tls-cert and --tls-key, or --behind-proxy, or leave out --host.",
                USAGE,
            )
        self.proxies = _networks(given["proxy_from"] or ("127.0.0.1", "::1")) if proxied else ()
        self.workflows = [workflow for _, workflow in cli.known().values()]
        self.drives = bool(self.workflows) if given["drive"] is None else given["drive"]
        if self.drives and not self.workflows:
            raise Refused(
                "The server has no workflow to drive. Add --target file.py:name, name workflows in"
                f" {cli.project.root / 'pyproject.toml'} under [tool.pausepoint.workflows], or use --observe.",
                USAGE,
            )
        self.tokens = tokens_of(cli, create=self.drives)
        self.sites: tuple[Site, ...] = () if cli.host.site is None else (cli.host.site(cli.start(), given),)

    async def run(self) -> int:
        from pausepoint.engine.engine import Engine

        drives = self.drives
        token = self.tokens.make(self.given["new_token"])
        with self._listening() as listener:
            async with Engine(
                self.cli.place.url, workflows=self.workflows, drives="all" if drives else "none", create=drives,
                signals=False,
            ) as engine:  # fmt: skip
                await self._announce(engine, drives, listener.getsockname()[1], token)
                await self._serve(engine, drives, listener)
        return 128 + self.stopped_by[0] if self.stopped_by else DONE

    @contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        host, port = self.given["host"], self.given["port"]
        try:
            listener = bound(host, port)
        except (OSError, OverflowError) as error:
            raise Refused(
                f"The server cannot listen on {host} port {port}: {error}. Choose another with --port, or --port 0 for"
                " any free one.",
                USAGE,
            ) from error
        try:
            yield listener
        finally:
            listener.close()

    async def _announce(self, engine: Engine, drives: bool, port: int, token: str) -> None:
        counts: dict[str, int] = {}
        for (_, status), count in (await engine.tally()).items():
            counts[status.value] = counts.get(status.value, 0) + count
        running = f", {counts['running']} running" if counts.get("running") else ""
        root = f"{'https' if self.tls else 'http'}://{_in_url(self.given['host'])}:{port}"
        address = f"{root}/#token={token}"
        place, token_file, total = self.cli.place.shown, self.tokens.file, sum(counts.values())
        if self.cli.out.as_json:  # on one line, for programs that read lines while the server runs
            from msgspec import UNSET

            from pausepoint.cli.documents import Serving

            sites = {site.name: f"{root}/{site.name}/" for site in self.sites}
            serving = Serving(address, str(token_file), place, total, drives, list(engine.workflows), sites or UNSET)
            self.cli.out.record(serving)
        self.cli.out.line(f"Pausepoint serves {place} ({counted(total, 'session')}{running}).")
        if self.proxies and not self.cli.out.terminal:  # the output may be kept in a log
            self.cli.out.line(f"  {root}/ is for the proxy, which signs people in. The token is in {token_file}.")
        else:
            self.cli.out.line(f"  {address}")
            self.cli.out.line(f"  The address signs you in. Its token is in {token_file}.")
        for site in self.sites:
            self.cli.out.line(
                f"  {root}/{site.name}/ is for people with a signed link: `link --url {root}` prints one."
            )
        what = (
            f"Drives {', '.join(engine.workflows)}. Pass --observe to drive nothing." if drives else "Drives nothing."
        )
        self.cli.out.line(f"  {what} Ctrl+C stops the server.")
        if self.given["opens"]:
            import webbrowser

            await asyncio.to_thread(webbrowser.open, address)

    async def _serve(self, engine: Engine, drives: bool, listener: socket.socket) -> None:
        import uvicorn

        from pausepoint.server.asgi import Settings, application
        from pausepoint.server.hub import hub_of

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                await hub_of(engine).close()  # streams do not end by themselves
                await super().shutdown(sockets)

        port = listener.getsockname()[1]
        names = {"127.0.0.1", "localhost", "[::1]", _in_url(self.given["host"])} - {"0.0.0.0", "[::]"}
        hosts = {f"{name}:{port}" for name in names} | set(self.given["allow_host"])
        if port == (443 if self.tls else 80):
            hosts |= names  # clients leave out the port of their scheme
        app = application(engine, Settings(
            hosts=hosts, drives=drives, tokens=self.tokens, name=login_name() or "admin", proxies=self.proxies,
            sites=self.sites,
        ))  # fmt: skip
        config = uvicorn.Config(
            app, lifespan="off", log_config=None, access_log=False, proxy_headers=False, server_header=False,
            timeout_graceful_shutdown=GRACE, ssl_certfile=self.given["tls_cert"], ssl_keyfile=self.given["tls_key"],
        )  # fmt: skip
        gc.freeze()  # modules stay: looking at them for garbage would stop all requests for 25 ms now and then
        works = [_pick_up(engine), *(_work_of(site, engine) for site in self.sites)] if drives else []
        running = [asyncio.create_task(work) for work in works]
        try:
            with self._signals():
                await Server(config).serve(sockets=[listener])
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let uvicorn end the requests first. It then raises the signal again, which must not end the engine midway."""
        former = {
            number: signal.signal(number, lambda given, frame: self.stopped_by.append(given))
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


async def _pick_up(engine: Engine) -> None:
    """Continue sessions that are ready, such as those of a process that was killed."""
    while True:
        began = time.monotonic()
        try:
            room = ROOM - len(engine.running)
            taken = await engine.take_ready(room, by="serve") if room > 0 else []
        except Exception as error:  # without this task, sessions of killed processes would stay ready
            from pausepoint.server.problems import log

            taken = []
            log.log(
                logging.ERROR,
                "Ready sessions cannot be picked up: %s",
                error,
                exc_info=not isinstance(error, StoreError),
            )
        searched = 0.0 if taken else time.monotonic() - began
        await asyncio.sleep(max(LOOK_EVERY, 20 * searched))  # searching must never become the main load


async def _work_of(site: Site, engine: Engine) -> None:
    """Run the work of a site, again after an error."""
    while site.work is not None:
        try:
            await site.work(engine)
        except Exception as error:
            from pausepoint.server.problems import log

            log.error("The work of %s failed and begins again: %s", site.name, error, exc_info=error)
            await asyncio.sleep(LOOK_EVERY)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _networks(given: tuple[str, ...]) -> tuple[str, ...]:
    for each in given:
        try:
            ipaddress.ip_network(each)
        except ValueError:
            raise Refused(f"--proxy-from: {each!r} is not a network. Write one such as 10.0.0.0/8.", USAGE) from None
    return given


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# tokens and links


def tokens_of(cli: Cli, create: bool = False) -> Tokens:
    """Return the tokens of the store, which must exist. ``create``: otherwise the default folder is made."""
    from pausepoint.server.tokens import Tokens  # the help of a command does not need it

    path = cli.place.path
    if not create or (path is not None and path.exists()):
        check_exists(cli.place)
    elif path is not None:
        if cli.place.explicit and not path.parent.is_dir():  # otherwise a slip of the pen would become a new store
            raise Refused(
                f"There is no folder {path.parent} for the store. Create the folder, or check --store and {VARIABLE}.",
                NOT_FOUND,
            )
        path.parent.mkdir(parents=True, exist_ok=True)
    return Tokens(cli.folder)


@serve.group()
def token() -> None:
    """Create, list and revoke tokens for people and programs."""


@token.command()
@click.option("--role", type=OneOf(ROLES), required=True, help="What it may do: " + ", ".join(ROLES) + ".")
@click.option("--owner", metavar="NAME", help="Only the sessions of this owner.")
@click.option("--name", metavar="NAME", help="The name for the history. Default: the owner, or the role.")
@click.option("--expires", type=Span(), metavar="SPAN", help="When it ends, such as 12h or 7d. Default: never.")
@_store
@_json
def create(
    role: Role, owner: str | None, name: str | None, expires: int | None, store: str | None, as_json: bool
) -> None:
    """Create a token and print it. It is stored as a hash, so it cannot be printed again."""
    cli = _cli(store, as_json)
    kept, secret = tokens_of(cli).create(name or owner or role, role, owner, time.time(), expires)
    if cli.out.as_json:
        cli.out.document(kept.created(secret))
    cli.out.line(secret)
    until = "" if kept.expires_at is None else f" until {_moment(kept.expires_at)}"
    cli.out.note(f"Token {kept.id} signs in as {kept.name} ({role}){until}. Revoke it with"
                 f" `{command_line('serve', 'token', 'revoke', kept.id)}`.", as_it_is=True)  # fmt: skip


@token.command(name="list")
@_store
@_json
def list_tokens(store: str | None, as_json: bool) -> None:
    """List the created tokens. Their secrets are not stored."""
    cli = _cli(store, as_json)
    tokens, now = tokens_of(cli).kept, time.time()
    if cli.out.as_json:
        from pausepoint.cli.documents import AccessTokens

        cli.out.document(AccessTokens([token.document() for token in tokens]))
    if not tokens:
        words = command_line("serve", "token", "create", "--role", "viewer")
        cli.out.line(f"There is no token. Create one with `{words}`.")
    for each in tokens:
        end = "never ends" if each.expires_at is None else f"until {_moment(each.expires_at)}"
        cli.out.line(f"{each.id}  {each.role:8}  {each.name}{f' (owner {each.owner})' if each.owner else ''}"
                     f"  {end if each.is_valid(now) else 'expired'}")  # fmt: skip


@token.command()
@click.argument("id")
@_store
@_json
def revoke(id: str, store: str | None, as_json: bool) -> None:
    """Delete a token. People who signed in with it are signed out."""
    cli = _cli(store, as_json)
    if not tokens_of(cli).revoke(id):
        raise Refused(
            f"There is no token {id!r}. List them with `{command_line('serve', 'token', 'list')}`.", NOT_FOUND
        )
    if cli.out.as_json:
        from pausepoint.cli.documents import RevokedToken

        cli.out.document(RevokedToken(id))
    cli.out.line(f"Token {id} was revoked.")


@serve.command()
@click.argument("question", shell_complete=QUESTIONS)
@click.option("--expires", type=Span(), default="7d", show_default=True, metavar="SPAN", help="When the link ends.")
@click.option("--name", metavar="NAME", default="answer link", show_default=True, help="The name for the history.")
@click.option("--url", metavar="URL", default=f"http://127.0.0.1:{PORT}", show_default=True,
              help="The address of the server, as the reader reaches it.")  # fmt: skip
@_store
@_json
def link(question: str, expires: int, name: str, url: str, store: str | None, as_json: bool) -> int:
    """Print an address that can see and answer one QUESTION, for mail and chat."""
    code: int = run_async(_link(_cli(store, as_json), question, expires, name, url))
    return code


async def _link(cli: Cli, question: str, expires: int, name: str, url: str) -> int:
    from pausepoint.server.links import Links

    async with cli.engine() as engine:
        questions = await engine.questions(prefix=question, limit=2)
    if len(questions) != 1:
        what = "No open question has" if not questions else "Several open questions have"
        raise Refused(
            f"{what} an id that begins with {question!r}. List them with `{command_line('inbox')}`.", NOT_FOUND
        )
    address, until = Links(tokens_of(cli), url, name, expires).link(questions[0])
    if cli.out.as_json:
        from pausepoint.cli.documents import AnswerLink

        cli.out.document(AnswerLink(address, questions[0].id, datetime.fromtimestamp(until, UTC).isoformat()))
    cli.out.line(address)
    cli.out.note(f"It answers question {questions[0].id} until {_moment(until)}.", as_it_is=True)
    return DONE


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
