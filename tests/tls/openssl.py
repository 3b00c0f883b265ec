"""OpenSSL's own client and server, for features that only they have, and a proxy that records what they send."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from tests.craft.conversation import Side
from tests.tls.endpoints import Flight, certificate

WAIT_SECONDS = 20.0


class Recorder:
    """Forwards one connection to a port, and records its data in order."""

    def __init__(self, target: int) -> None:
        self.flights: list[Flight] = []
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._listener:
            client, _ = self._listener.accept()
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            sides: dict[socket.socket, tuple[Side, socket.socket]] = {
                client: ("client", server),
                server: ("broker", client),
            }
            with contextlib.suppress(OSError):
                while True:
                    for ready in select.select(list(sides), [], [], WAIT_SECONDS)[0]:
                        side, peer = sides[ready]
                        data = ready.recv(65_536)
                        if not data:
                            return
                        self.flights.append((side, data))
                        peer.sendall(data)

    def wait_for(self, side: Side, since: int) -> None:
        """Wait until `side` has sent something after the existing flights, and nothing follows for a moment."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            count = len(self.flights)
            time.sleep(0.05)
            if count == len(self.flights) and any(sender == side for sender, _ in self.flights[since:]):
                return
        raise AssertionError(f"nothing came from the {side}")

    def close(self) -> None:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()


class Connection:
    """One connection between the two programs."""

    def __init__(self, recorder: Recorder, client: IO[bytes], server: IO[bytes]) -> None:
        self._recorder = recorder
        self._inputs: dict[Side, IO[bytes]] = {"client": client, "broker": server}

    @property
    def flights(self) -> list[Flight]:
        return list(self._recorder.flights)

    def say(self, side: Side, data: bytes) -> None:
        """Have `side` send `data`, or execute it as a command: K and k are key updates, with and without a response."""
        since = len(self._recorder.flights)
        stream = self._inputs[side]
        stream.write(data)
        stream.flush()
        self._recorder.wait_for(side, since)


class Endpoints:
    """`openssl s_server` and `openssl s_client`, controlled by their standard input."""

    def __init__(self, openssl: str, folder: Path, server: Sequence[str] = ()) -> None:
        self._openssl = openssl
        self.log = folder / "keys.log"
        cert, key = certificate("ecdsa")
        self._server = subprocess.Popen(
            [openssl, "s_server", "-accept", "127.0.0.1:0", "-cert", str(cert), "-key", str(key), *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._port = self._listening()

    def _listening(self) -> int:
        assert self._server.stdout is not None
        while line := self._server.stdout.readline():
            found = re.match(rb"ACCEPT .*:(\d+)$", line.strip())
            if found:
                # Later output must not fill the pipe.
                threading.Thread(target=_drain, args=(self._server.stdout,), daemon=True).start()
                return int(found[1])
        raise AssertionError("s_server does not listen")

    @contextlib.contextmanager
    def connection(self, *options: str) -> Iterator[Connection]:
        recorder = Recorder(self._port)
        address = f"127.0.0.1:{recorder.port}"
        client = subprocess.Popen(
            [self._openssl, "s_client", "-connect", address, "-keylogfile", str(self.log), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert client.stdin is not None
        assert self._server.stdin is not None
        try:
            connection = Connection(recorder, client.stdin, self._server.stdin)
            recorder.wait_for("broker", 0)
            yield connection
            client.stdin.close()
            client.wait(WAIT_SECONDS)
            recorder.close()
        finally:
            client.kill()
            client.wait()

    def close(self) -> None:
        self._server.kill()
        self._server.wait()
        for stream in (self._server.stdin, self._server.stdout):
            if stream is not None:
                stream.close()


def _drain(stream: IO[bytes]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while stream.read(65_536):
            pass
