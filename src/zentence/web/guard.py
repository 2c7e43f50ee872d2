"""What stands before the service: who may ask, how much, how long; and what browsers are told with every answer."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any

from zentence.web.requests import BODY
from zentence.web.worker import DEADLINE, SECONDS

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

READING = 10.0  # seconds that a body may take to arrive
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class _RefusedError(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Guard:
    """An ASGI application around another.

    On loopback only loopback's names are answered: a page of another site whose name was made to point here (DNS
    rebinding) has its own name in `Host`. A page of another site also has another `Origin`. With a token, everything
    under /api needs it; the page itself holds nothing secret.
    """

    def __init__(self, app: App, *, token: str | None = None, hosts: frozenset[str] | None = LOOPBACK) -> None:
        self.app, self.hosts = app, hosts
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = False

        async def told(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        try:
            headers = {name.lower(): value for name, value in scope["headers"]}
            self._admit(scope["path"], headers)
            body = await _whole_body(headers, receive)
            DEADLINE.set(monotonic() + SECONDS)
            await self.app(scope, _replay(body, receive), told)
        except _RefusedError as refused:
            if not begun:
                await _refuse(refused, told)

    def _admit(self, path: str, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.hosts is not None and _without_port(host) not in self.hosts:
            raise _RefusedError(403, "This service answers on loopback only, by its own name")
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        foreign = headers.get(b"sec-fetch-site") == b"cross-site" and path.startswith("/api")  # an image's address, say
        if foreign or (origin and origin.partition("://")[2] != host):
            raise _RefusedError(403, "Pages of other sites may not ask this service")
        if self.token is not None and path.startswith("/api"):
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not secrets.compare_digest(given.strip(), self.token):
                raise _RefusedError(401, "A token is needed: Authorization: Bearer TOKEN")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


async def _whole_body(headers: dict[bytes, bytes], receive: Receive) -> bytes:
    """Return a request's body, within its limits of size and time."""
    length = headers.get(b"content-length", b"")
    too_large = _RefusedError(413, f"The request is too large: at most {BODY:,} bytes")
    if length.isdigit() and int(length) > BODY:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(READING):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _RefusedError(400, "The request ended early")
                part = message.get("body", b"")
                size += len(part)
                if size > BODY:
                    raise too_large
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise _RefusedError(408, f"The request did not arrive within {READING:g} seconds") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(refused: _RefusedError, send: Send) -> None:
    body = json.dumps({"detail": refused.detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
