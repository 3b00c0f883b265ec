"""Serves the explorer to browsers on this machine. textual-serve runs an explorer for each page, as a process.

Every address has a secret token in it; all others are refused. The pages load nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import shlex
import socket
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve.server import Server

from kafkasniff.browse.commands import program
from kafkasniff.errors import OutputError

__all__ = ["MAX_PAGES", "ExplorerServer"]

ADDRESS: Final = "127.0.0.1"
MAX_PAGES: Final = 4
"""Maximum number of open pages: each one's explorer has an index of the captures of its own."""
TOKEN_BYTES: Final = 32
END_SECONDS: Final = 2.0
"""How long the server waits for the explorers of open pages when it ends."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    # The page of textual-serve contains scripts and styles. It also asks for a font from the internet: refused.
    "Content-Security-Policy": (
        "default-src 'none'; connect-src ws://127.0.0.1:*; font-src 'self'; img-src 'self' data:; "
        "script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ExplorerServer(Server):
    """`command`: of kafkasniff, shows the explorer. `port` 0: a free one. Raises OutputError."""

    def __init__(self, command: list[str], *, title: str, port: int = 0) -> None:
        try:
            self._listening = socket.create_server((ADDRESS, port))
        except OSError as error:
            raise OutputError(f"cannot listen on {ADDRESS}:{port}: {error.strerror}") from error
        # textual-serve has a shell start it. `exec` replaces the shell, so ending the process ends the explorer.
        words = f"exec {shlex.join(program(command))}"
        super().__init__(words, ADDRESS, self._listening.getsockname()[1], title)
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._pages = 0
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.port}/{self._token}/"

    def run(self) -> None:
        """Serve until `stop` is called. The explorers of open pages end with it."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    def stop(self) -> None:
        """End `run`; signal handlers and other threads may call it."""
        self._loop.call_soon_threadsafe(self._ended.set)

    async def _run(self) -> None:
        app = web.Application(middlewares=[self._check])
        app.on_response_prepare.append(self._protect)
        app.add_subapp(f"/{self._token}", await self._make_app())
        # No access log: it would contain the token.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=END_SECONDS)
        await runner.setup()
        await web.SockSite(runner, self._listening).start()
        await self._ended.wait()
        await runner.cleanup()

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.path.split("/", 2)[1]
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode()):
            raise web.HTTPForbidden(text="the address lacks the token that `browse --serve` has printed\n")
        return await handler(request)

    async def _protect(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing, unlike the base class."""

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run an explorer for a page, until one of them ends."""
        if self._pages >= MAX_PAGES:
            raise web.HTTPServiceUnavailable(text=f"{MAX_PAGES} pages are open already\n")
        self._pages += 1
        try:
            return await super().handle_websocket(request)
        finally:
            self._pages -= 1
