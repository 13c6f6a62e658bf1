"""The description of the API in OpenAPI 3.1, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from pausepoint.engine.store_documents import CleanUpDocument, VerificationDocument
from pausepoint.model.documents import definitions, document_name
from pausepoint.name import NAME
from pausepoint.server.calls import JSON, KEY_PATTERN, Route
from pausepoint.server.problems import PROBLEM, TITLES, ProblemDocument

_SCHEMAS = "#/components/schemas/"

JOBS = (VerificationDocument, CleanUpDocument)
"""What the result of a job may be."""

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
    _, schemas = msgspec.json.schema_components([route.query], ref_template=_SCHEMAS + "{name}")
    schema = schemas[route.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": kind, "explode": False}
        for name, kind in schema.get("properties", {}).items()
    ]


def _in_headers(route: Route) -> list[dict[str, Any]]:
    headers: list[dict[str, Any]] = []
    if 428 in route.errors and route.path.startswith("/sessions"):
        headers.append({"name": "If-Match", "in": "header", "required": True, "schema": {"type": "string"}})
    if route.takes_key:
        headers.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "Send the same one with a repeated request, and it has one effect.",
                "schema": {"type": "string", "pattern": KEY_PATTERN},
            }
        )
    return headers


def _responses(route: Route) -> dict[str, Any]:
    responses = {str(route.status): _success(route)}
    if route.uploads and route.verb == "files":
        responses["200"] = responses[str(route.status)]  # the session already had the content
    common = ([] if route.role is None else [401]) + ([409, 422] if route.takes_key else [])
    for status in sorted({*ANY, *route.errors, *common, *_of_body(route)}):
        content = {PROBLEM: {"schema": {"$ref": f"{_SCHEMAS}problem"}}}
        responses[str(status)] = {"description": TITLES[status], "content": content}
    return responses


def _of_body(route: Route) -> tuple[int, ...]:
    return (408,) if route.uploads else () if route.body is None else (408, 413, 415)


def _success(route: Route) -> dict[str, Any]:
    if route.answer is not None:
        schema = {"$ref": f"{_SCHEMAS}{document_name(route.answer.__name__)}"}
        return {"description": "Done", "content": {JSON: {"schema": schema}}}
    if route.status == 204:
        return {"description": "Done"}
    if route.streams:
        return {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    return {"description": "The content", "content": {route.content: {}}}


def schemas(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the schemas of all documents, of problems, and of the bodies."""
    answers = [route.answer for route in routes if route.answer is not None]
    bodies = [route.body for route in routes if route.body is not None]
    _, of_bodies = msgspec.json.schema_components(bodies, ref_template=_SCHEMAS + "{name}")
    of_documents = definitions([*answers, *JOBS, ProblemDocument], _SCHEMAS)
    if both := of_documents.keys() & of_bodies.keys():
        raise ValueError(f"A document and a body have the same name: {', '.join(sorted(both))}. Rename one of them.")
    return of_documents | of_bodies


def _version() -> str:
    try:
        return version(NAME)
    except PackageNotFoundError:  # the source is used without being installed
        return "0"
