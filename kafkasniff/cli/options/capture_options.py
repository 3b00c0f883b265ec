"""Options of `live` for capturing and for files of packets."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from kafkasniff.cli.environment import Environment
from kafkasniff.cli.options.shared_options import Command, stacked
from kafkasniff.errors import UsageError

if TYPE_CHECKING:
    from kafkasniff.capture.live.live import LiveSource
    from kafkasniff.capture.write.output_files import Rotation
    from kafkasniff.engine.inspector import Inspector
    from kafkasniff.live.packet_filter import Keeper
    from kafkasniff.packets import PacketBatch

MEGABYTE: Final = 1_000_000
"""Unit of a bare number for `-C`, as in tcpdump."""
SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
MIN_SECONDS: Final = 1.0
"""Minimum of `-G`: file names have seconds at best."""


def capture_options(command: Command) -> Command:
    """Where and how to listen."""
    return stacked(
        command,
        [
            click.option(
                "-i",
                "--interface",
                "interfaces",
                multiple=True,
                metavar="INTERFACE",
                help="Capture on eth0, lo, any, a number from -D, or ssh://HOST/eth0 (repeatable).",
            ),
            click.option("-D", "--list-interfaces", is_flag=True, help="List the interfaces and exit."),
            click.option(
                "-s",
                "--snaplen",
                type=click.IntRange(1, 262_144),
                metavar="BYTES",
                help="Capture at most this many bytes of each packet [default: all].",
            ),
            click.option(
                "--buffer-size",
                type=click.IntRange(1, 4096),
                metavar="MIB",
                help="Size of the operating system's capture buffer for each interface [default: 64 MiB].",
            ),
            click.option("--promiscuous", is_flag=True, help="Also capture packets for other machines."),
            click.option(
                "--reopen",
                metavar="DURATION",
                help="How long to wait for an interface that went down (seconds, or 5m; 0: not at all) [default: 60s].",
            ),
        ],
    )


def write_options(command: Command) -> Command:
    """Files of packets, and their rotation by tcpdump's options."""
    return stacked(
        command,
        [
            click.option(
                "-w",
                "--write",
                metavar="FILE",
                help="Write the packets of Kafka connections to FILE as pcapng. With -q, messages are printed only if "
                "-o is given.",
            ),
            click.option("--write-all", is_flag=True, help="With --write: write all packets."),
            click.option(
                "-C",
                "--rotate-size",
                metavar="SIZE",
                help="Start a new file when one exceeds SIZE: millions of bytes, or 512k, 64m, 1g (KiB, MiB, GiB).",
            ),
            click.option(
                "-G",
                "--rotate-every",
                metavar="DURATION",
                help="Start a new file after this time (seconds, or 10m, 1h); FILE contains a time (%Y%m%dT%H%M%S …).",
            ),
            click.option(
                "-W",
                "--rotate-files",
                type=click.IntRange(1, 1_000_000),
                metavar="N",
                help="Keep only the last N files.",
            ),
        ],
    )


class Writing(NamedTuple):
    """The files to write."""

    name: str
    rotation: Rotation
    every: bool
    """Write all packets, not only those of Kafka connections."""

    @property
    def rotates(self) -> bool:
        """There may be more than one file."""
        return self.rotation.size is not None or self.rotation.seconds is not None

    @property
    def folder(self) -> str:
        """The folder of the files: the part of the name before the first time placeholder."""
        return os.path.dirname(self.name.partition("%")[0]) or "."


def take_interfaces(options: dict[str, Any]) -> list[str]:
    """The names of the interfaces, removed from `options`. Raises UsageError, CaptureError."""
    from kafkasniff.capture.live.interface_socket import interface_name

    names = [interface_name(given) for given in options.pop("interfaces")]
    if not names:
        raise click.UsageError(
            "name an interface with '-i' / '--interface'; -D lists them", click.get_current_context()
        )
    return names


def take_capturing(options: dict[str, Any], seconds: Callable[[str | None], float | None]) -> dict[str, Any]:
    """The given arguments of `open_live`, removed from `options`. Raises UsageError."""
    names = {"snaplen": "snaplen", "buffer_size": "buffer", "promiscuous": "promiscuous"}
    given = {argument: options.pop(option) for option, argument in names.items()}
    reopen = seconds(options.pop("reopen"))
    waits = {} if reopen is None else {"reopen": reopen}
    return {argument: value for argument, value in given.items() if value} | waits


def take_writing(options: dict[str, Any], seconds: Callable[[str | None], float | None]) -> Writing | None:
    """The files of `write_options`, removed from `options`; None without any. Raises UsageError."""
    name, every = options.pop("write"), options.pop("write_all")
    size, time, files = (options.pop(f"rotate_{what}") for what in ("size", "every", "files"))
    if name is None:
        for letter, given in (("--write-all", every), ("-C", size), ("-G", time), ("-W", files)):
            if given:
                raise UsageError(f"{letter} needs --write")
        return None
    if name in {"", "-"}:
        raise UsageError("--write needs the name of a file")
    from kafkasniff.capture.write.output_files import Rotation

    period = seconds(time)
    if period is not None and period < MIN_SECONDS:
        raise UsageError(f"-G: at least {MIN_SECONDS:g} s")
    rotation = Rotation(None if size is None else _size(size), period, files)
    rotation.check(name)
    return Writing(name, rotation, every)


def _size(text: str) -> int:
    """Bytes of a size in the notation of tcpdump's -C. Raises UsageError."""
    unit = SIZES.get(text[-1:].lower(), MEGABYTE)
    digits = text[:-1] if text[-1:].lower() in SIZES else text
    # No disk holds more digits.
    if not digits.isascii() or not digits.isdigit() or len(digits) > 12 or not int(digits):
        raise UsageError(f"-C {text}: a size is a number of millions of bytes, or a number with the suffix k, m or g")
    return int(digits) * unit


def interface_table() -> str:
    """The output of `-D`: one line per interface."""
    from kafkasniff.capture.live.interface_socket import list_interfaces
    from kafkasniff.text.printable import printable

    rows = [
        (
            str(number),
            printable(network_interface.name),
            ", ".join(network_interface.state) or "down",
            ", ".join(network_interface.addresses),
        )
        for number, network_interface in enumerate(list_interfaces(), 1)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (
        "  ".join((row[0].rjust(widths[0]), row[1].ljust(widths[1]), row[2].ljust(widths[2]), row[3])) for row in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def make_keeper(
    environment: Environment, writing: Writing, source: LiveSource, inspector: Inspector, bpf: str | None
) -> Keeper:
    """Open the first file. Raises OutputError."""
    from kafkasniff.capture.write.output_files import CaptureFiles
    from kafkasniff.live.packet_filter import Keeper

    files = CaptureFiles(
        writing.name,
        source.interfaces,
        writing.rotation,
        bpf=bpf,
        counts=source.counts,
        failed=environment.say,
    )
    return Keeper(files, None if writing.every else inspector)


def kept(
    environment: Environment, source: LiveSource, batches: Iterator[PacketBatch], keeper: Keeper
) -> Generator[PacketBatch, None, None]:
    """The batches of a source; each is written once the consumer is done with it, the last one on close."""
    for batch in batches:
        try:
            yield batch
        finally:
            # Signals are deferred: no file ends in the middle of a packet.
            with environment.interrupts.held():
                keeper.take(source.frames, source.fragments, batch)


def kept_line(environment: Environment, keeper: Keeper, name: str) -> str:
    """Finish the files and summarize them; also reports packets that are missing."""
    with environment.interrupts.held():
        keeper.close()
    if keeper.missing:
        from kafkasniff.live.packet_filter import MAX_WAITING_BYTES

        environment.say(
            f"{keeper.missing:,} packets of Kafka connections are not in {name}: while their connections were still "
            f"unrecognized, more than {MAX_WAITING_BYTES >> 20} MiB were waiting (--write-all keeps all)"
        )
    from kafkasniff.capture.write.output_files import CaptureFiles

    files = keeper.files
    assert isinstance(files, CaptureFiles)
    count = "" if files.made == 1 else f" and {files.made - 1:,} more"
    return f"{files.packets:,} packet{'' if files.packets == 1 else 's'} in {files.first}{count}"
