"""The description of the API in OpenAPI 3.1, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

import msgspec

from pausepoint.name import NAME
from pausepoint.server.calls import JSON, KEY_PATTERN, Route
from pausepoint.server.problems import PROBLEM, TITLES

_SCHEMAS = "#/components/schemas/"

ANY = (400, 403, 421, 429, 500, 503, 507)
"""The refusals that every route can answer with. Those with a role can answer with 401 too."""


def openapi(routes: Sequence[Route], base: str = "/api/v1") -> dict[str, Any]:
    """Return the description of the API. ``base`` is the address below which the routes are."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(template(route.path), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pausepoint",
            "version": _version(),
            "description": "Sessions, questions and the pause button.",
        },
        "servers": [{"url": base}],
        "paths": paths,
        "components": {"schemas": schemas(routes), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def template(path: str) -> str:
    """Return a path in the notation of OpenAPI, which names the part and not how it is matched.

    >>> template("/sessions/{session_id}/artifacts/{path:path}")
    '/sessions/{session_id}/artifacts/{path}'
    """
    return re.sub(r"{(\w+):\w+}", r"{\1}", path)


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.handler.__module__.rpartition('.')[2]}_{route.handler.__name__}",
        "summary": route.summary,
        "security": [] if route.role is None else [{"token": []}],
        "x-role": route.role,
        "x-verb": route.verb,
        "parameters": [*_in_path(route), *_in_query(route), *_in_headers(route)],
        "responses": _responses(route),
    }
    if route.body is not None:
        content: dict[str, Any] = {"schema": {"$ref": f"{_SCHEMAS}{route.body.__name__}"}}
        if route.example is not None:
            content["example"] = route.example
        operation["requestBody"] = {"required": True, "content": {JSON: content}}
    if route.uploads:
        operation["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return operation


def _in_path(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", template(route.path))
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    _, found = msgspec.json.schema_components([route.query], ref_template=_SCHEMAS + "{name}")
    schema = found[route.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": given, "explode": False}
        for name, given in schema.get("properties", {}).items()
    ]


def _in_headers(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if 428 in route.errors and route.path.startswith("/sessions"):
        found.append({"name": "If-Match", "in": "header", "required": True, "schema": {"type": "string"}})
    if route.takes_key:
        found.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "Send the same one with a repeated request, and it has one effect.",
                "schema": {"type": "string", "pattern": KEY_PATTERN},
            }
        )
    return found


def _responses(route: Route) -> dict[str, Any]:
    said = {str(route.status): _success(route)}
    if route.method == "POST" and route.uploads:
        said["200"] = said[str(route.status)]  # the session already had the content
    some = ([] if route.role is None else [401]) + ([409, 422] if route.takes_key else [])
    for status in sorted({*ANY, *route.errors, *some, *_of_body(route)}):
        content = {PROBLEM: {"schema": {"$ref": f"{_SCHEMAS}problem"}}}
        said[str(status)] = {"description": TITLES[status], "content": content}
    return said


def _of_body(route: Route) -> tuple[int, ...]:
    return (408,) if route.uploads else () if route.body is None else (408, 413, 415)


def _success(route: Route) -> dict[str, Any]:
    if route.answer:
        return {"description": "Done", "content": {JSON: {"schema": {"$ref": f"{_SCHEMAS}{route.answer}"}}}}
    if route.status == 204:
        return {"description": "Done"}
    if route.streams:
        return {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    return {"description": "The content", "content": {route.content: {}}}


def schemas(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the schemas of all documents: those of the engine, of the server, and of the bodies."""
    given = [each.body for each in routes if each.body is not None]
    _, made = msgspec.json.schema_components(given, ref_template=_SCHEMAS + "{name}")
    return {**_stored("pausepoint.engine"), **_stored("pausepoint.server"), **made}


@cache
def _stored(package: str) -> dict[str, Any]:
    text = files(package).joinpath("schema.json").read_text("utf-8").replace("#/$defs/", _SCHEMAS)
    found: dict[str, Any] = msgspec.json.decode(text)["$defs"]
    return found


def _version() -> str:
    try:
        return version(NAME)
    except PackageNotFoundError:  # the source is used without being installed
        return "0"
