"""Serves the explorer to browsers on this machine. textual-serve runs an explorer for each page, as a process.

Every address has a secret token in it; all others are refused. The pages load nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import shlex
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Final

import msgspec
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from textual_serve.app_service import AppService
from textual_serve.server import Server

from kafkasniff.browse.commands import program
from kafkasniff.errors import OutputError
from kafkasniff.text.printable import printable

ADDRESS: Final = "127.0.0.1"
MAX_PAGES: Final = 4
"""Maximum number of open pages: each one's explorer has an index of the captures of its own."""
MAX_CELLS: Final = 2_000
"""Maximum width and height of a page in characters: the explorer draws all of them."""
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


_Side = Annotated[int, msgspec.Meta(ge=0, le=MAX_CELLS)]


class _Message(msgspec.Struct, array_like=True, tag_field="kind"):
    """A message of a page: a list that begins with its kind."""


class _Stdin(_Message, tag="stdin"):
    keys: str


class _Size(msgspec.Struct):
    width: _Side
    height: _Side


class _Resize(_Message, tag="resize"):
    size: _Size


class _Ping(_Message, tag="ping"):
    data: Any


class _Blur(_Message, tag="blur"):
    """The page lost the focus."""


class _Focus(_Message, tag="focus"):
    """The page got the focus."""


_valid_message: Final = msgspec.json.Decoder(_Stdin | _Resize | _Ping | _Blur | _Focus).decode
"""Raises ValueError for a message that pages do not send."""


class ExplorerServer(Server):
    """`command`: of kafkasniff, shows the explorer. `port` 0: a free one. Raises OutputError.

    `say` gets a line for each request or message that is malformed.
    """

    def __init__(
        self, command: list[str], *, title: str, port: int = 0, say: Callable[[str], None] = lambda _text: None
    ) -> None:
        try:
            self._listening = socket.create_server((ADDRESS, port))
        except OSError as error:
            raise OutputError(f"cannot listen on {ADDRESS}:{port}: {error.strerror}") from error
        # textual-serve has a shell start it. `exec` replaces the shell, so ending the process ends the explorer.
        words = f"exec {shlex.join(program(command))}"
        super().__init__(words, ADDRESS, self._listening.getsockname()[1], title)
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._say = say
        self._pages = 0
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.port}/{self._token}/"

    def run(self) -> None:
        """Serve until `stop` is called. The explorers of open pages end with it."""
        with _logged(self._say), asyncio.Runner(loop_factory=lambda: self._loop) as runner:
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
        given = f"{request.path}/".split("/", 2)[1]
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode()):
            raise web.HTTPForbidden(text="the address lacks the token that `browse --serve` has printed\n")
        return await handler(request)

    async def _protect(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing, unlike the base class."""

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Run an explorer for a page, until one of them ends."""
        # Browsers let any page open a WebSocket, and say which one did; other programs need not.
        if request.headers.get("Origin", self.public_url) != self.public_url:
            raise web.HTTPForbidden(text="only pages of this server may open the explorer\n")
        if not web.WebSocketResponse().can_prepare(request):
            raise web.HTTPBadRequest(text="this is the address of a WebSocket\n")
        for side in ("width", "height"):
            try:
                msgspec.convert(request.query.get(side, "80"), _Side, strict=False)
            except msgspec.ValidationError:
                raise web.HTTPBadRequest(text=f"{side}: 0 to {MAX_CELLS} characters\n") from None
        if self._pages >= MAX_PAGES:
            raise web.HTTPServiceUnavailable(text=f"{MAX_PAGES} pages are open already\n")
        self._pages += 1
        try:
            return await super().handle_websocket(request)
        finally:
            self._pages -= 1

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: AppService) -> None:
        page: Any = _CheckedPage(websocket, self._say)
        await super()._process_messages(page, app_service)


class _CheckedPage:
    """The messages of a page, up to the first malformed one, which ends the page."""

    def __init__(self, page: web.WebSocketResponse, say: Callable[[str], None]) -> None:
        self._page = page
        self._say = say
        self.send_json = page.send_json

    async def __aiter__(self) -> AsyncIterator[WSMessage]:
        async for message in self._page:
            if message.type == WSMsgType.TEXT:
                try:
                    _valid_message(message.data)
                except ValueError:
                    self._say("a page sent a malformed message and was closed")
                    await self._page.close(code=WSCloseCode.POLICY_VIOLATION)
                    return
            yield message


class _OneLine(logging.Handler):
    """Says each record in one line, without addresses, which contain the token."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            self._say(f"refused a malformed request ({type(error).__name__})")
        else:
            reason = repr(error) if error else record.getMessage()
            self._say(f"the server reports: {printable(reason)}")


@contextlib.contextmanager
def _logged(say: Callable[[str], None]) -> Iterator[None]:
    """Within the block, `say` gets what the libraries log."""
    handler = _OneLine(say)
    loggers = [logging.getLogger(name) for name in ("aiohttp", "asyncio", "textual-serve")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
