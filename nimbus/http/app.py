"""The API as an ASGI application: read a request, call its handler, send the answer.

For each request, in this order: check the credentials (`auth.py`); redirect to the leader where only the leader may answer;
read query and body (`requests.py`); call the handler in a thread of the pool. Every exception becomes the JSON of an error.
Must not know: the meaning of requests, sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from msgspec import Struct, to_builtins
from msgspec.structs import asdict
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nimbus.files.stored_files import FileTooLarge, NoSuchFile, too_large
from nimbus.http import metrics, openapi
from nimbus.http.auth import NIMBUS, OPERATOR, SUPERVISOR, Authenticator, Caller
from nimbus.http.errors import RETRY_AFTER, NoSpace, NoSuchPage, Unauthorized, WrongMethod, answer_of
from nimbus.http.handlers import ApiCall, Services
from nimbus.http.requests import read_json, read_query
from nimbus.http.table import ANYBODY, OPERATORS, SMALL, TABLE, AnyEndpoint
from nimbus.http.views import NoSuchPart
from nimbus.security.changes import ChangeFiles
from nimbus.submission.parse import BadRequest
from squall.api.cluster_answers import FileAnswer, HealthAnswer
from squall.api.errors import ErrorAnswer
from squall.api.requests import NoFields
from squall.http.admission import Admission
from squall.http.connections import shows_credentials
from squall.http.json_app import json_text

_log = logging.getLogger(__name__)

#: How many bytes of a file are written at a time.
_PIECE: Final = 1024 * 1024
_NOBODY: Final = Caller("anybody")
_REDIRECTED: Final = 307
#: The methods of requests that change nothing.
_READING: Final = ("GET", "HEAD")

AnyCall = ApiCall[Any, Any]


def make_app(
    services: Services,
    authenticator: Authenticator,
    changes: ChangeFiles,
    admission: Admission | None = None,
) -> ASGIApp:
    """Return the application. `admission`: the connections of its server, for `/metrics`."""
    pages = Pages(services, authenticator, changes, admission)
    by_path: dict[str, dict[str, AnyEndpoint]] = {}
    for endpoint in TABLE:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes = [
        Route(path, partial(pages.answer, methods), methods=list(methods))
        for path, methods in by_path.items()
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_page})
    app.router.redirect_slashes = False

    async def with_quoted_path(scope: Scope, receive: Receive, send: Send) -> None:
        # Match the path as the client sent it, so that a name with a slash in it (%2F) remains one name.
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await app(scope, receive, send)

    return with_quoted_path


class Pages:
    """Answers requests with the services of one Nimbus."""

    def __init__(
        self,
        services: Services,
        authenticator: Authenticator,
        changes: ChangeFiles,
        admission: Admission | None,
    ) -> None:
        self._admission = admission
        self._services = services
        self._authenticator = authenticator
        self._changes = changes
        self._own: Mapping[str, Callable[[Request, AnyCall], Awaitable[Response]]] = {
            "put_file": self._put_file,
            "get_file": self._get_file,
            "has_file": self._has_file,
            "openapi": self._openapi,
            "health": self._health,
            "metrics": self._metrics,
        }

    async def answer(self, methods: Mapping[str, AnyEndpoint], request: Request) -> Response:
        """Return the answer to a request; every error becomes an answer. Record changes and refusals."""
        endpoint = methods.get(request.method) or methods["GET"]  # HEAD is a GET whose body is not sent
        address = "" if request.client is None else request.client.host
        change: dict[str, object] = {}
        try:
            response = await self._answer(endpoint, request, change)
        except ClientDisconnect:
            response = Response(status_code=400)  # the client is gone
        except Exception as error:
            status, body = answer_of(error)
            if status == 500:
                _log.error("%s %s failed", request.method, request.scope["path"], exc_info=error)
            if isinstance(error, Unauthorized):
                asked = f"{request.method} {request.scope['path']}"
                await run_in_threadpool(self._changes.refused, str(error), address, asked)
            response = _error(status, body)
            change.update({"error": body.error.kind} if change else {})
        if change and response.status_code != _REDIRECTED:
            await run_in_threadpool(self._changes.changed, endpoint.id, address, response.status_code, change)
        return response

    async def _answer(self, endpoint: AnyEndpoint, request: Request, change: dict[str, object]) -> Response:
        """`change` gets what is recorded, if an operator asks for a change."""
        caller = await self._admit(endpoint, request)
        changes = caller.kind == OPERATOR and endpoint.method not in _READING and not endpoint.reads
        if changes:
            change["who"] = caller.kind
        # Another Nimbus asks which files this Nimbus itself has, so its request is not redirected.
        if endpoint.leads == "always" and caller.kind != NIMBUS and not self._services.control.leading:
            return await self._redirect(request)
        path = {name: unquote(value) for name, value in request.path_params.items()}
        query = read_query(endpoint.query or NoFields, request.query_params.multi_items())
        body: Any = await read_json(request, endpoint.body_limit) if endpoint.method == "POST" else None
        if endpoint.method == "DELETE" and await read_json(request, SMALL):
            raise BadRequest(
                ["this request takes no body: its options are in the query, such as ?wait_secs=5"]
            )
        if endpoint.body is not None:
            body = await run_in_threadpool(endpoint.body.read, body)
        if endpoint.leads == "reports" and not self._services.control.leading and body.reports:
            return await self._redirect(request)
        if changes:
            change.update(
                path | _fields_of(query) | (_fields_of(body) if endpoint.body_limit == SMALL else {})
            )
        address = "" if request.client is None else request.client.host
        call = AnyCall(caller, path, query, body, address=address)
        if endpoint.handler is None:
            return await self._own[endpoint.name](request, call)
        status, answer = await run_in_threadpool(endpoint.handler, self._services, call)
        change.update(_fields_of(answer) if changes else {})
        return _json(status, answer)

    async def _admit(self, endpoint: AnyEndpoint, request: Request) -> Caller:
        if endpoint.who == ANYBODY:
            return _NOBODY
        shown = request.headers.getlist("authorization")
        if len(shown) > 1:  # a proxy may have checked a different header
            raise Unauthorized("there are several Authorization headers: send one")
        header = shown[0] if shown else None
        caller = self._authenticator.operator(header)
        if caller is None:
            if endpoint.who == OPERATORS:
                raise self._authenticator.refusal()
            caller = await run_in_threadpool(self._authenticator.daemon, header)
        shows_credentials(request.scope)
        if caller.kind not in endpoint.who:
            raise Unauthorized(f"this sender ({caller.kind}) may not make this request")
        return caller

    async def _redirect(self, request: Request) -> Response:
        """Redirect to the leader, with the path unchanged."""
        url = await run_in_threadpool(self._services.leader_url)
        query = request.scope["query_string"].decode("ascii", "replace")
        location = f"{url}{request.scope['path']}{'?' if query else ''}{query}"
        return Response(status_code=_REDIRECTED, headers={"Location": location})

    # Answers without a thread, or streamed

    async def _put_file(self, request: Request, call: AnyCall) -> Response:
        files, sha256 = self._services.files, call.path["sha256"]
        size = request.headers.get("content-length", "")
        with suppress(NoSuchFile):
            path = await run_in_threadpool(files.path, sha256)
            return _json(200, FileAnswer(sha256, path.stat().st_size))
        if size.isdigit() and int(size) > files.limit:
            raise FileTooLarge(too_large(files.limit))
        try:
            incoming = await run_in_threadpool(files.receive, sha256)
            with closing(incoming):
                waiting = bytearray()
                async for chunk in request.stream():
                    waiting += chunk
                    if len(waiting) >= _PIECE:
                        await run_in_threadpool(incoming.write, bytes(waiting))
                        waiting.clear()
                await run_in_threadpool(incoming.write, bytes(waiting))
                written = await run_in_threadpool(incoming.finish)
        except OSError as error:
            raise NoSpace(
                f"Nimbus on {self._services.control.me.host} cannot store the file: {error.strerror or error}"
            ) from error
        return _json(201, FileAnswer(sha256, written))

    async def _get_file(self, request: Request, call: AnyCall) -> Response:
        await self._check_need(call)
        try:
            path = await run_in_threadpool(self._services.files.path, call.path["sha256"])
        except NoSuchFile as error:
            # A standby may not have the file yet; the leader should.
            if not self._services.control.leading and call.caller.kind != NIMBUS:
                return await self._redirect(request)
            raise NoSuchPart(str(error)) from None
        return FileResponse(path, media_type="application/octet-stream")

    async def _check_need(self, call: AnyCall) -> None:
        """Raise `Unauthorized` if a supervisor asks for a file that none of its workers needs."""
        caller, sha256 = call.caller, call.path["sha256"]
        if caller.kind == SUPERVISOR and not await run_in_threadpool(
            self._services.views.may_fetch, sha256, caller.id
        ):
            raise Unauthorized(
                f"no topology with workers on supervisor {caller.id!r:.200} has the file {sha256:.16}...:"
                " read the assignment again"
            )

    async def _has_file(self, request: Request, call: AnyCall) -> Response:
        await self._check_need(call)
        try:
            await run_in_threadpool(self._services.files.path, call.path["sha256"])
        except NoSuchFile as error:
            raise NoSuchPart(str(error)) from None
        return Response(status_code=200)

    async def _openapi(self, request: Request, call: AnyCall) -> Response:
        return _json(200, openapi.document())

    async def _health(self, request: Request, call: AnyCall) -> Response:
        leading, store = self._services.control.leading, self._services.views.store_state()
        healthy = store.connected and self._services.driver.thread.is_alive()
        answer = HealthAnswer("ok" if healthy else "unavailable", leading, store)
        return _json(200 if healthy else 503, answer)

    async def _metrics(self, request: Request, call: AnyCall) -> Response:
        leading = self._services.control.leading
        text = await run_in_threadpool(metrics.text_of, self._services.views, leading, self._admission)
        return Response(text, media_type=metrics.CONTENT_TYPE)


# Answers


def _fields_of(struct: object) -> dict[str, object]:
    """Return the fields of a struct that are set, for the record of a change."""
    if not isinstance(struct, Struct):
        return {}
    return {name: to_builtins(value) for name, value in asdict(struct).items() if value not in (None, {})}


def _json(status: int, answer: object) -> Response:
    return Response(json_text(answer), status, media_type="application/json")


def _error(status: int, answer: ErrorAnswer) -> Response:
    response = _json(status, answer)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        response.headers["Retry-After"] = str(RETRY_AFTER)
    return response


async def _no_page(request: Request, error: Exception) -> Response:
    path = request.scope["path"]
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        wrong = WrongMethod(f"{path} does not allow {request.method} (only {allowed})")
        response = _error(*answer_of(wrong))
        response.headers["Allow"] = allowed
        return response
    return _error(*answer_of(NoSuchPage(f"there is nothing at {path:.200}; the API is below /api/v1")))
