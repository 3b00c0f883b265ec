"""Real TLS between two OpenSSL endpoints in memory: the bytes that they send, and the key log that one of them
writes."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import datetime
import functools
import shutil
import ssl
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.craft.conversation import Conversation, Side
from tests.craft.kafka_bytes import (
    api_versions_request,
    api_versions_response,
    metadata_request,
    metadata_response,
    produce_request,
    produce_response,
    record,
    record_batch,
)
from tests.craft.packet import Packet

NO_ENCRYPT_THEN_MAC = 1 << 19
"""SSL_OP_NO_ENCRYPT_THEN_MAC, which Python's ssl does not name."""

Flight = tuple[Side, bytes]


@functools.cache
def _root() -> Path:
    root = Path(tempfile.mkdtemp(prefix="kafkasniff-tls-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def new_folder() -> Path:
    """An empty folder that is deleted after the tests."""
    return Path(tempfile.mkdtemp(dir=_root()))


@functools.cache
def certificate(kind: str) -> tuple[Path, Path]:
    """A self-signed certificate and its key, in PEM files; `kind` is rsa or ecdsa."""
    key = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Crafted"),
            x509.NameAttribute(NameOID.COMMON_NAME, "broker.example"),
        ]
    )
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36_500))
        .sign(key, SHA256())
    )
    folder = new_folder()
    (folder / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


@dataclasses.dataclass
class Talk:
    """A connection as both sides sent it, and its secrets."""

    flights: list[Flight]
    """Flights, in order: what one side sent at a time."""
    key_log: bytes
    version: str
    suite: str
    clear: list[Flight]
    """The clear bytes inside."""
    session: ssl.SSLSession | None = None
    resumed: bool = False


def kafka_talk(count: int = 3, value: bytes = b"value") -> list[Flight]:
    """A short dialogue of a client and a broker, in clear."""
    said: list[Flight] = [
        ("client", api_versions_request(1, 3)),
        ("broker", api_versions_response(1, 3)),
        ("client", metadata_request(2, ["orders"])),
        ("broker", metadata_response(2, "broker.example", 9093, ["orders"])),
    ]
    for number in range(count):
        batch = record_batch([record(0, f"key-{number}".encode(), value)])
        said.append(("client", produce_request(3 + number, "orders", batch)))
        said.append(("broker", produce_response(3 + number, "orders", number)))
    return said


class Pair:
    """A client and a server context that can talk to each other."""

    def __init__(
        self,
        *,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        ciphers: str | None = None,
        kind: str = "rsa",
        options: int = 0,
        alpn: Sequence[str] = (),
        log: bool = True,
    ) -> None:
        self.folder = new_folder()
        self.log = self.folder / "keys.log"
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.client.check_hostname = False
        self.client.verify_mode = ssl.CERT_NONE
        self.server.load_cert_chain(*certificate(kind))
        for context in (self.server, self.client):
            context.minimum_version = context.maximum_version = version
            if ciphers is not None:
                context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
            context.options |= options
            if alpn:
                context.set_alpn_protocols(list(alpn))
        if log:
            self.client.keylog_filename = str(self.log)

    def talk(
        self,
        said: Iterable[Flight],
        *,
        server_name: str | None = "broker.example",
        session: ssl.SSLSession | None = None,
        pieces: int = 16_384,
        ends: bool = True,
        refuses: bool = False,
    ) -> Talk:
        """A connection with this dialogue; `pieces`: bytes that an endpoint writes at once.

        `refuses`: the client meets a damaged record at the end, and says so in an alert.
        """
        before = self.log.stat().st_size if self.log.exists() else 0
        wires = {"client": ssl.MemoryBIO(), "broker": ssl.MemoryBIO()}  # what each has received
        outs = {"client": ssl.MemoryBIO(), "broker": ssl.MemoryBIO()}
        ends_of = {
            "client": self.client.wrap_bio(
                wires["client"], outs["client"], server_hostname=server_name, session=session
            ),
            "broker": self.server.wrap_bio(wires["broker"], outs["broker"], server_side=True),
        }
        flights: list[Flight] = []

        def carry(side: Side) -> None:
            data = outs[side].read()
            if data:
                flights.append((side, data))
                wires["broker" if side == "client" else "client"].write(data)

        def until_done(step: Callable[[], object]) -> bool:
            try:
                step()
            except ssl.SSLWantReadError:
                return False
            return True

        sides: tuple[Side, Side] = ("client", "broker")
        done = {"client": False, "broker": False}
        while not all(done.values()):
            for side in sides:
                done[side] = done[side] or until_done(ends_of[side].do_handshake)
                carry(side)
        clear: list[Flight] = []
        for side, data in said:
            peer: Side = "broker" if side == "client" else "client"
            clear.append((side, data))
            for start in range(0, len(data), pieces):
                ends_of[side].write(data[start : start + pieces])
            carry(side)
            got = b""
            while len(got) < len(data):
                got += ends_of[peer].read(len(data))
            assert got == data
        if refuses:
            wires["client"].write(b"\x17\x03\x03\0\x20" + bytes(32))
            with contextlib.suppress(ssl.SSLError):
                ends_of["client"].read()
            carry("client")
        elif ends:
            for side in sides:
                until_done(ends_of[side].unwrap)
                carry(side)
        cipher = ends_of["client"].cipher()
        assert cipher is not None
        log = self.log.read_bytes()[before:] if self.log.exists() else b""
        return Talk(
            flights,
            log,
            ends_of["client"].version() or "",
            cipher[0],
            clear,
            ends_of["client"].session,
            bool(ends_of["client"].session_reused),
        )


def packets_of(
    flights: Iterable[Flight],
    *,
    sizes: int | Sequence[int] = 1448,
    port: int = 9093,
    client_port: int = 51_334,
    closes: bool = True,
) -> list[Packet]:
    """A TCP connection that carries these flights."""
    conversation = Conversation(client=("10.0.0.5", client_port), broker=("10.0.0.9", port))
    conversation.handshake()
    for side, data in flights:
        conversation.send(side, data, sizes)
    if closes:
        conversation.close()
    return conversation.packets
