"""Running the service: a socket that is ours before anything is loaded, and a stop that finishes what was begun."""

import asyncio
import ipaddress
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable

import uvicorn

from zentence.errors import ZentenceError
from zentence.web.api import create_app
from zentence.web.guard import LOOPBACK, Guard
from zentence.web.service import Service

PORT = 8642
GRACE = 5  # seconds for requests at hand when the service stops


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; of a port in use, say which one is free."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ZentenceError(f"Unknown host '{host}': {getattr(error, 'strerror', None) or error}") from None
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(address)
        opened.listen(512)
    except OSError as error:
        opened.close()
        if port == 0 or error.errno not in (98, 48, 10048):  # in use: Linux, macOS, Windows
            raise ZentenceError(f"Cannot listen on {host}, port {port}: {error.strerror}") from None
        with bind(host, 0) as other:
            free = other.getsockname()[1]
        raise ZentenceError(f"Port {port} is in use: pass --port {free}, which is free") from None
    return opened


def address_of(opened: socket.socket, host: str) -> str:
    """Return where a browser finds a socket."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{opened.getsockname()[1]}/"


def open_browser(address: str) -> bool:
    """Open a browser window; False if there is none, or only one that would take this terminal."""
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))):
        return False
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False


def run(
    service: Service,
    opened: socket.socket,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    page: bool = True,
    started: Callable[[], None] | None = None,
) -> None:
    """Answer requests until Ctrl-C or SIGTERM; what was begun is finished, within some seconds."""
    hosts = LOOPBACK | {host, f"[{host}]"} if is_loopback(host) else None
    app = Guard(create_app(service, page=page), token=token, hosts=hosts)
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=1 << 16,
        lifespan="on",
    )
    server = uvicorn.Server(config)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        asyncio.run(_serve(server, opened, started))
    finally:  # uvicorn raises the signal that stopped it once more: it has done its work, and was ignored
        for number, handler in before.items():
            signal.signal(number, handler)


async def _serve(server: uvicorn.Server, opened: socket.socket, started: Callable[[], None] | None) -> None:
    serving = asyncio.create_task(server.serve(sockets=[opened]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started and started is not None:
        await asyncio.to_thread(started)
    await serving
