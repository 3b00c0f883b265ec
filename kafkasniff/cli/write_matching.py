"""`--write-matching FILE`: the packets of the connections whose exchanges were selected, as a capture of their own."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.errors import UsageError
from kafkasniff.model import Connection, Message, SaslToken

if TYPE_CHECKING:
    from kafkasniff.blanking import Written
    from kafkasniff.cli.pipeline import Event, Sink
    from kafkasniff.enrich import Catalog
    from kafkasniff.model import Endpoint
    from kafkasniff.payload import Payload

__all__ = ["Selected", "check_writing", "packed", "write_matching_option", "write_selected", "written_line"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_COMPRESSED: Final = (".gz", ".zst", ".lz4")
_MAPPED: Final = 0xFFFF_0000_0000
"""Of an IPv4 address within the low half of its IPv6 form (packets.PacketBatch)."""


def write_matching_option(command: _Command) -> _Command:
    """The option."""
    return click.option(
        "--write-matching",
        metavar="FILE",
        help="Write the packets of all connections with a message that is shown to FILE: pcapng, or pcap if it is "
        "named so. Secrets are removed, and so is payload with --no-payload. With -q, messages are printed only if "
        "-o is given.",
    )(command)


def check_writing(path: str, captures: Sequence[str], payload: Payload) -> None:
    """Raise UsageError where the option makes no sense."""
    from kafkasniff.library import can_be_read_twice

    once = next((name for name in captures if not can_be_read_twice(name)), None)
    if once is not None:
        raise UsageError(
            f"--write-matching reads captures twice, and {'stdin' if once == '-' else once} can be read only once"
        )
    if payload.form == "hashed":
        raise UsageError(
            "--write-matching keeps the length of everything, and hashes have another: --no-payload blanks"
        )
    if path == "-":
        raise UsageError("--write-matching needs the name of a file")
    if path.lower().endswith(_COMPRESSED):
        raise UsageError(f"--write-matching does not compress: name the file without {Path(path).suffix}")
    for name in captures:
        try:
            same = Path(name).samefile(path)
        except OSError:
            continue  # one of them does not exist
        if same:
            raise UsageError(f"{path} is a capture to be read; name another file")


class Selected:
    """A sink in front of another one: it notes whose messages were selected, all of them.

    `limit`: so many messages go on to `sink`; None of that: none does.
    """

    def __init__(self, sink: Sink | None, limit: int | None) -> None:
        self._sink = sink
        self._limit = limit
        self._numbers: set[int] = set()
        """Of the connections that are not over."""
        self.connections: list[tuple[Endpoint, Endpoint, int]] = []
        """Both ends and `connection_id` of those that are."""
        self.shown = 0
        """Messages that went on."""

    def write(self, event: Event) -> None:
        """Take one."""
        if isinstance(event, Message | SaslToken) and event.connection is not None:
            self._numbers.add(event.connection)
        if self._limit is not None and self.shown >= self._limit:
            return
        self.shown += isinstance(event, Message)
        if self._sink is not None:
            self._sink.write(event)

    def ended(self, connection: Connection) -> None:
        """A connection is over, and everything of it was written."""
        if connection.connection in self._numbers:
            self._numbers.remove(connection.connection)
            self.connections.append((connection.client, connection.broker, connection.connection_id))

    def close(self) -> None:
        """There are no more."""
        if self._sink is not None:
            self._sink.close()


def write_selected(
    environment: Environment,
    path: str,
    captures: Sequence[str],
    selected: Selected,
    framing: Mapping[str, Any],
    *,
    catalog: Catalog,
    secrets: bool,
    payload: bool,
    memory: int,
    progress: bool,
) -> Written:
    """Read the captures once more, and write. Raises CaptureError, OutputError, Interrupted; then there is no file.

    `framing`: what says which bytes are messages, as arguments of `Inspector`; `catalog`: names of topics; `secrets`,
    `payload`: these are shown; `memory`: the budget in bytes.
    """
    from kafkasniff.blanking import Blanker, Matching, Wanted
    from kafkasniff.capture import open_captures
    from kafkasniff.capture.capture_writer import CaptureWriter, form_of
    from kafkasniff.capture.patched_file import PatchedFile
    from kafkasniff.cli.pipeline import Parts
    from kafkasniff.cli.progress import Progress

    wanted = Wanted()
    for client, broker, identity in selected.connections:
        one, other = sorted((packed(client), packed(broker)))
        wanted.add((one, other), identity)
    blanker = None if secrets and payload else Blanker(secrets=secrets, payload=payload, topic=catalog.topic)
    with PatchedFile(path) as file, open_captures(captures) as source:
        matching = Matching(
            file,
            CaptureWriter(file, form_of(path), source.interface),
            wanted,
            blanker=blanker,
            memory=memory,
            **framing,
        )
        shown = Progress(environment, source) if progress else None
        parts = Parts()
        try:
            for batch in source:
                first = batch.end_order - batch.packets
                for part in parts.of(batch):
                    with environment.interrupts.held():
                        matching.feed(part, source.packets, first, source.fragments)
                    if shown is not None:
                        shown.update()
        finally:
            if shown is not None:
                shown.clear()
        with environment.interrupts.held():
            return matching.close()


def written_line(environment: Environment, written: Written, path: str) -> str:
    """What is in the file, in words; says what is not, or stays as it was, if anything."""
    if written.fragments:
        environment.say(
            f"{written.fragments:,} packets are not in {path}: they came in IP fragments, which cannot be blanked"
        )
    if written.missing:
        environment.say(
            f"{written.missing:,} of the connections were not found again, and are not in {path}: "
            "the captures have changed, or were more than could be kept in memory"
        )
    if written.encrypted:
        what = "connection is" if written.encrypted == 1 else "connections are"
        environment.say(f"{written.encrypted:,} {what} encrypted in {path} as on the wire: the keys are not in it")
    if written.given_up:
        environment.say(f"of {written.given_up:,} connections more is blank in {path} than has to be: too much to keep")
    packets = f"{written.packets:,} packet{'' if written.packets == 1 else 's'}"
    return f"{packets} of {written.connections:,} connection{'' if written.connections == 1 else 's'} in {path}"


def packed(endpoint: Endpoint) -> tuple[int, int, int]:
    """Address, as two halves of 64 bits, and port."""
    address = ipaddress.ip_address(endpoint.address)
    if address.version == 4:
        return 0, _MAPPED | int(address), endpoint.port
    return int(address) >> 64, int(address) & (1 << 64) - 1, endpoint.port
