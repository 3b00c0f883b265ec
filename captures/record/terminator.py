"""A proxy that ends TLS in front of a broker and writes a key log, for clients that write none.

    python -m captures.record.terminator --listen 127.0.0.1:9094 --broker 127.0.0.1:9092 \
        --certificate broker.pem --keylog keys.log

A capture of its port has the clients' traffic, which the key log decrypts. The broker has to advertise the proxy's
address on the listener that the proxy connects to, or clients bypass it. Bytes are forwarded unchanged.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

from .broker import free_ports
from .server import ServerProcess

PIECE = 65_536
"""Bytes that are passed on at a time; what a side does not take in time holds the other side up."""
LISTENING = "listening on "


class TlsTerminator(ServerProcess):
    """This program as a process of the recorder's, in front of a plaintext listener on loopback."""

    def __init__(self, directory: Path, broker_port: int, certificate: Path, key_log: Path) -> None:
        super().__init__("the TLS terminator", directory)
        self.port = free_ports({"TLS": "127.0.0.1"})["TLS"]
        """Where clients connect."""
        self._options = ["--broker", f"127.0.0.1:{broker_port}", "--certificate", str(certificate)]
        self._options += ["--keylog", str(key_log)]

    def _prepare(self) -> list[str]:
        listen = ["--listen", f"127.0.0.1:{self.port}"]
        return [sys.executable, "-m", "captures.record.terminator", *listen, *self._options]

    def _is_ready(self) -> bool:
        return LISTENING.encode() in self._said_since_launch()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until it ends, then end the connection that it goes to."""
    with contextlib.suppress(OSError):  # either side may be gone at any time; ssl's errors are OSErrors, too
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(listen: tuple[str, int], broker: tuple[str, int], inner: ssl.SSLContext, outer: bool) -> None:
    """Accept connections until it is cancelled; ``outer``: the broker's listener is TLS as well."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            behind = await asyncio.open_connection(*broker, ssl=ssl.create_default_context() if outer else None)
        except OSError as error:
            print(f"the broker cannot be reached: {error}", file=sys.stderr, flush=True)
            writer.close()
            return
        await asyncio.gather(pass_on(reader, behind[1]), pass_on(behind[0], writer))

    server = await asyncio.start_server(accept, *listen, ssl=inner)
    async with server:
        print(f"{LISTENING}{listen[0]}:{listen[1]}", flush=True)
        await server.serve_forever()


def context(certificate: Path, key_log: Path) -> ssl.SSLContext:
    """What clients are answered with; ``certificate`` holds the private key, too."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate)
    made.keylog_filename = str(key_log)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until it is ended by a signal."""
    parser = argparse.ArgumentParser(prog="python -m captures.record.terminator", description=__doc__.split("\n")[0])
    parser.add_argument("--listen", required=True, type=_address, metavar="HOST:PORT")
    parser.add_argument("--broker", required=True, type=_address, metavar="HOST:PORT", help="a listener of the broker")
    parser.add_argument("--broker-tls", action="store_true", help="that listener is TLS, too (SSL_CERT_FILE: its CA)")
    parser.add_argument("--certificate", required=True, type=Path, metavar="FILE", help="PEM, with the private key")
    parser.add_argument("--keylog", required=True, type=Path, metavar="FILE", help="secrets are added to it")
    options = parser.parse_args(arguments)
    os.umask(0o077)  # anyone who can read the key log can read everything
    inner = context(options.certificate, options.keylog)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options.listen, options.broker, inner, options.broker_tls))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    main()
