"""The API as an ASGI application: takes requests in, has them answered, and sends what comes of it.

For each request: who asks (`gate.py`); is this Nimbus the one to do it, or where is the leader; is what was sent of the
form that the table says; then the handler, in a thread of the pool. Whatever goes wrong becomes the JSON of an error.
Must not know: what requests mean, sockets.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nimbus.files import FileMissing, FileTooLarge, too_large
from nimbus.http import metrics, openapi
from nimbus.http.desk import Call, Desk
from nimbus.http.errors import RETRY_AFTER, NoSpace, NoSuchPage, Unauthorized, WrongMethod, answer_of
from nimbus.http.gate import NIMBUS, Caller, Gate
from nimbus.http.handlers import has_reports
from nimbus.http.table import ANYBODY, OPERATORS, TABLE, Endpoint, Parameter
from nimbus.submission import BadRequest, TooLarge
from nimbus.views import NoSuchPart

_log = logging.getLogger(__name__)

#: Bytes of a file that are written at a time.
_PIECE: Final = 1024 * 1024
#: Objects and lists within each other in a body; configurations may have half as many. Far below where Python ends.
_MOST_LEVELS: Final = 100
_NOBODY: Final = Caller("anybody")


def make_app(desk: Desk, gate: Gate) -> ASGIApp:
    """The application."""
    pages = Pages(desk, gate)
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in TABLE:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [
        Route(path, partial(pages.answer, methods), methods=list(methods))
        for path, methods in by_path.items()
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_page})
    app.router.redirect_slashes = False

    async def with_quoted_path(scope: Scope, receive: Receive, send: Send) -> None:
        # Matched as it was sent, so that a name with a slash in it (%2F) is one name.
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await app(scope, receive, send)

    return with_quoted_path


class Pages:
    """Answers requests for one desk."""

    def __init__(self, desk: Desk, gate: Gate) -> None:
        self._desk = desk
        self._gate = gate
        self._own: Mapping[str, Callable[[Request, Call], Awaitable[Response]]] = {
            "put_file": self._put_file,
            "get_file": self._get_file,
            "has_file": self._has_file,
            "openapi": self._openapi,
            "health": self._health,
            "metrics": self._metrics,
        }

    async def answer(self, methods: Mapping[str, Endpoint], request: Request) -> Response:
        """The answer to a request, whatever happens."""
        endpoint = methods.get(request.method) or methods["GET"]  # HEAD is a GET whose body is not sent
        try:
            return await self._answer(endpoint, request)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except Exception as error:
            status, body = answer_of(error)
            if status == 500:
                _log.error("%s %s failed", request.method, request.scope["path"], exc_info=error)
            return _error(status, body)

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        caller = await self._admit(endpoint, request)
        # Another Nimbus asks what this one has, whoever leads.
        if endpoint.leads == "always" and caller.kind != NIMBUS and not self._desk.control.leading:
            return await self._redirect(request)
        path = {name: unquote(value) for name, value in request.path_params.items()}
        query = read_query(endpoint, request.query_params.multi_items())
        body = await _read_json(request, endpoint.body_limit) if endpoint.method == "POST" else None
        if endpoint.leads == "reports" and not self._desk.control.leading and has_reports(body):
            return await self._redirect(request)
        call = Call(caller, path, query, body)
        if endpoint.handler is None:
            return await self._own[endpoint.name](request, call)
        status, value = await run_in_threadpool(endpoint.handler, self._desk, call)
        return _json(status, value)

    async def _admit(self, endpoint: Endpoint, request: Request) -> Caller:
        if endpoint.who == ANYBODY:
            return _NOBODY
        shown = request.headers.getlist("authorization")
        if len(shown) > 1:  # whoever stands between may have looked at the other one
            raise Unauthorized("there are several Authorization headers: send one")
        header = shown[0] if shown else None
        caller = self._gate.operator(header)
        if caller is None:
            if endpoint.who == OPERATORS:
                raise self._gate.refusal()
            caller = await run_in_threadpool(self._gate.daemon, header)
        if caller.kind not in endpoint.who:
            raise Unauthorized(f"this is not for {caller.kind}s")
        return caller

    async def _redirect(self, request: Request) -> Response:
        """To the leader, with the path as it was sent."""
        url = await run_in_threadpool(self._desk.leader_url)
        query = request.scope["query_string"].decode("ascii", "replace")
        location = f"{url}{request.scope['path']}{'?' if query else ''}{query}"
        return Response(status_code=307, headers={"Location": location})

    # What needs no thread, or streams

    async def _put_file(self, request: Request, call: Call) -> Response:
        files, sha256 = self._desk.files, call.path["sha256"]
        size = request.headers.get("content-length", "")
        with suppress(FileMissing):
            path = await run_in_threadpool(files.path, sha256)
            return _json(200, {"sha256": sha256, "size": path.stat().st_size})
        if size.isdigit() and int(size) > files.limit:
            raise FileTooLarge(too_large(files.limit))
        try:
            incoming = await run_in_threadpool(files.receive, sha256)
            try:
                waiting = bytearray()
                async for chunk in request.stream():
                    waiting += chunk
                    if len(waiting) >= _PIECE:
                        await run_in_threadpool(incoming.write, bytes(waiting))
                        waiting.clear()
                await run_in_threadpool(incoming.write, bytes(waiting))
                written = await run_in_threadpool(incoming.finish)
            finally:
                incoming.abandon()
        except OSError as error:
            raise NoSpace(
                f"Nimbus on {self._desk.me.host} cannot keep the file: {error.strerror or error}"
            ) from error
        return _json(201, {"sha256": sha256, "size": written})

    async def _get_file(self, request: Request, call: Call) -> Response:
        try:
            path = await run_in_threadpool(self._desk.files.path, call.path["sha256"])
        except FileMissing as error:
            # One that stands by may not have it yet; whoever leads should.
            if not self._desk.control.leading and call.caller.kind != NIMBUS:
                return await self._redirect(request)
            raise NoSuchPart(str(error)) from None
        return FileResponse(path, media_type="application/octet-stream")

    async def _has_file(self, request: Request, call: Call) -> Response:
        try:
            await run_in_threadpool(self._desk.files.path, call.path["sha256"])
        except FileMissing as error:
            raise NoSuchPart(str(error)) from None
        return Response(status_code=200)

    async def _openapi(self, request: Request, call: Call) -> Response:
        return _json(200, openapi.document())

    async def _health(self, request: Request, call: Call) -> Response:
        healthy = self._desk.healthy()
        body = {
            "status": "ok" if healthy else "unavailable",
            "leading": self._desk.control.leading,
            "store": dict(self._desk.store_state()),
        }
        return _json(200 if healthy else 503, body)

    async def _metrics(self, request: Request, call: Call) -> Response:
        leading, connected = self._desk.control.leading, self._desk.connected()
        text = await run_in_threadpool(metrics.text_of, self._desk.views, leading, connected)
        return Response(text, media_type=metrics.CONTENT_TYPE)


# What a request holds


def read_query(endpoint: Endpoint, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The query as the table describes it; `BadRequest` with all problems."""
    known = {each.name: each for each in endpoint.query}
    values: dict[str, Any] = {each.name: each.default for each in endpoint.query}
    problems = []
    for name, text in pairs:
        if name not in known:
            problems.append(f"there is no {name!r:.80} in the query")
            continue
        try:
            values[name] = _value(known[name], text)
        except ValueError as error:
            problems.append(f"{name!r} in the query {error}")
    if problems:
        raise BadRequest(problems)
    return values


def _value(parameter: Parameter, text: str) -> object:
    if parameter.kind == "text":
        if parameter.choices and text not in parameter.choices:
            raise ValueError(f"is {text!r:.80}: give {' or '.join(map(repr, parameter.choices))}")
        return text
    try:
        number = int(text) if parameter.kind == "whole number" else float(text)
    except ValueError:
        raise ValueError(f"is {text!r:.80}: give a {parameter.kind}") from None
    least = -math.inf if parameter.least is None else parameter.least
    most = math.inf if parameter.most is None else parameter.most
    if not least <= number <= most:  # nan is in no order
        limits = f"{least:,.0f} or more" if most == math.inf else f"{least:,.0f} to {most:,.0f}"
        raise ValueError(f"is {text:.80}: give a {parameter.kind}, {limits}")
    return number


async def _read_json(request: Request, limit: int) -> Any:
    """The JSON of a body, None when there is none."""
    size = request.headers.get("content-length", "")
    over = TooLarge(f"the request is longer than the {limit:,} bytes that are taken here")
    if size.isdigit() and int(size) > limit:
        raise over
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise over
    if not data:
        return None
    return await run_in_threadpool(_parsed, bytes(data))


def _parsed(data: bytes) -> Any:
    """JSON that is not nested so deeply that it could not be written again."""
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except ValueError as error:
        raise BadRequest([f"the body is not JSON: {error}"]) from None
    except RecursionError:
        raise _too_deep() from None
    level = _nested([value])
    for _ in range(_MOST_LEVELS):
        level = _nested(
            inner for each in level for inner in (each.values() if isinstance(each, dict) else each)
        )
    if level:
        raise _too_deep()
    return value


def _nested(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, (dict, list))]


def _too_deep() -> BadRequest:
    return BadRequest([f"the body is nested more than {_MOST_LEVELS} levels deep"])


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


# What is sent


def _json(status: int, value: Any) -> Response:
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a user's gauge may be anything
        text = json.dumps(_finite(value), separators=(",", ":"))
    return Response(text, status, media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value


def _error(status: int, body: Mapping[str, Any]) -> Response:
    response = _json(status, body)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        response.headers["Retry-After"] = str(RETRY_AFTER)
    return response


async def _no_page(request: Request, error: Exception) -> Response:
    path = request.scope["path"]
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        wrong = WrongMethod(f"{path} does not take {request.method} (but {allowed})")
        response = _error(*answer_of(wrong))
        response.headers["Allow"] = allowed
        return response
    return _error(*answer_of(NoSuchPage(f"there is nothing at {path:.200}; the API is below /api/v1")))
