"""The handshake of one TLS connection: its messages, and the resulting keys of each stream."""

from __future__ import annotations

from typing import Final

from kafkasniff.model import TlsHandshake
from kafkasniff.tls import handshake
from kafkasniff.tls.descriptions import describe
from kafkasniff.tls.half import Half
from kafkasniff.tls.handshake import TLS13, ClientHello, ServerHello
from kafkasniff.tls.protection import Epoch, Negotiated

__all__ = ["MAX_FOREIGN", "Negotiation"]

MAX_FOREIGN: Final = 64
"""Maximum number of records under other keys before the first that can be opened: early data that a server rejected, or
a handshake whose secrets are not in the key log.
"""


class Negotiation:
    """Takes the handshake messages of both streams, and switches the streams to the epochs that they announce."""

    __slots__ = (
        "_alpn",
        "_certificate",
        "_halves",
        "_hidden",
        "agreed",
        "client",
        "hello",
        "lacks_certificate",
        "retried",
        "server",
    )

    def __init__(self, halves: tuple[Half, Half]) -> None:
        self._halves = halves
        self.client: int | None = None
        """Direction of the stream with the ClientHello."""
        self.hello: ClientHello | None = None
        self.server: ServerHello | None = None
        self.retried = False
        """The server asked for another ClientHello, as of TLS 1.3 only."""
        self.agreed: Negotiated | None = None
        """The result of the two hellos."""
        self.lacks_certificate = False
        """The client was asked for a certificate and has none, as is visible up to TLS 1.2."""
        self._certificate: bytes | None = None
        self._hidden: dict[int, bytes] = {}
        """By direction, certificates that explain no failure: the client's, and the decrypted ones of TLS 1.3."""
        self._alpn: str | None = None

    def is_client(self, half: Half) -> bool:
        """Whether this is the client's stream."""
        return half.direction == self.client

    @property
    def is_13(self) -> bool:
        """TLS 1.3 was agreed on."""
        return self.agreed is not None and self.agreed.version == TLS13

    @property
    def resumed(self) -> bool:
        """It resumes a session of TLS 1.2: the server showed no certificate (RFC 5246, 7.3)."""
        return self.agreed is not None and not self.is_13 and self._certificate is None

    def describe(self, time_ns: int) -> str:
        """A description of what is visible of the connection at a time."""
        return describe(self.hello, self.server, self._certificate, self._alpn, time_ns)

    @property
    def handshake(self) -> TlsHandshake:
        """The visible part of the handshake."""
        hello, server = self.hello, self.server
        return TlsHandshake(
            version=None if server is None else server.version,
            suite=None if server is None else server.suite,
            offered=None if hello is None else hello.version,
            server_name=None if hello is None else hello.server_name,
            alpn=self._alpn,
            certificate=self._certificate or (self._hidden.get(1 - self.client) if self.client is not None else None),
            client_certificate=self._hidden.get(self.client) if self.client is not None else None,
            resumed=self.resumed,
            lacks_certificate=self.lacks_certificate,
        )

    def message(self, half: Half, kind: int, body: bytes, *, clear: bool) -> str | None:
        """Take a message; `clear`: it was not protected. Returns what is wrong with a hello."""
        if kind == handshake.CLIENT_HELLO and self.client in (None, half.direction):
            self.client = half.direction
            self.hello = handshake.client_hello(body)
            if self.hello is None:
                return "its ClientHello is invalid"
            if not clear:
                self.server = self.agreed = None  # renegotiation
            self._agree()
        elif kind == handshake.SERVER_HELLO and self.client in (None, 1 - half.direction):
            self.client = 1 - half.direction
            server = handshake.server_hello(body)
            if server is None:
                return "its ServerHello is invalid"
            if server.retry:
                self.retried = True
            else:
                self.server = server
                self._alpn = server.alpn
                self._agree()
        elif kind == handshake.CERTIFICATE and clear and not self.is_client(half):
            self._certificate = handshake.certificate_of(body)
        elif kind == handshake.CERTIFICATE and clear:
            self._keep(half, found := handshake.certificate_of(body))
            self.lacks_certificate = found is None
        elif not clear and half.epoch.phase not in ("clear", "tls12"):
            self._message13(half, kind, body)
        return None

    def change_cipher(self, half: Half) -> None:
        """ChangeCipherSpec, which has no meaning in TLS 1.3 (RFC 8446, D.4)."""
        if self.agreed is not None and not self.is_13:
            half.enter(Epoch("tls12"), self.agreed)

    def _agree(self) -> None:
        """Both hellos have been seen."""
        hello, server = self.hello, self.server
        if hello is None or server is None or self.agreed is not None:
            return
        agreed = self.agreed = Negotiated(
            hello.random,
            server.random,
            server.version,
            server.suite,
            server.compression,
            server.encrypt_then_mac,
            server.session_id,
        )
        for half in self._halves:
            if half.epoch.phase != "clear":
                continue
            half.negotiated = agreed
            if self.is_13:
                early = hello.early_data and self.is_client(half)
                half.enter(Epoch("open" if early else "handshake"), agreed)

    def _keep(self, half: Half, certificate: bytes | None) -> None:
        if certificate is not None:
            self._hidden[half.direction] = certificate

    def _message13(self, half: Half, kind: int, body: bytes) -> None:
        phase = half.epoch.phase
        if kind == handshake.CERTIFICATE:
            self._keep(half, handshake.certificate_of_13(body))
        if kind == handshake.ENCRYPTED_EXTENSIONS and not self.is_client(half):
            self._alpn, early = handshake.encrypted_extensions(body)
            client = self._halves[1 - half.direction]
            if client.epoch.phase == "open":
                client.skippable = 0 if early else MAX_FOREIGN
                client.enter(Epoch("early" if early else "handshake"))
        elif kind == handshake.END_OF_EARLY_DATA and phase == "early":
            half.enter(Epoch("handshake"))
        elif kind == handshake.FINISHED and phase == "handshake":
            half.enter(Epoch("application"))
        elif kind == handshake.KEY_UPDATE and phase == "application":
            half.enter(Epoch("application", half.epoch.generation + 1))
