"""Options of `live` for capturing and for files, before anything is opened."""

from __future__ import annotations

from typing import Any, ClassVar

import click
import pytest

from kafkasniff.capture.write.rotation import Rotation
from kafkasniff.cli.options import capture_options
from kafkasniff.cli.options.capture_options import (
    Writing,
    interface_table,
    kept,
    kept_line,
    take_capturing,
    take_interfaces,
    take_writing,
)
from kafkasniff.errors import UsageError
from tests.cli.console import environment
from tests.craft.batches import batch
from tests.craft.samples import mixed

UNSET = {"write": None, "write_all": False, "rotate_size": None, "rotate_every": None, "rotate_files": None}


def writing(**given: Any) -> tuple[Writing | None, dict[str, Any]]:
    """What the options say, and the options that are left."""
    options = {**UNSET, "quiet": True, **given}
    return take_writing(options, lambda text: None if text is None else float(text)), options


def test_files_that_are_not_rotated() -> None:
    found, left = writing(write="out/kept.pcapng", write_all=True)
    assert found == Writing("out/kept.pcapng", Rotation(), every=True)
    assert (found.rotates, found.folder) == (False, "out")
    assert left == {"quiet": True}
    assert writing() == (None, {"quiet": True})


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("kept.pcapng", "."),
        ("/srv/kept", "/srv"),
        # A folder whose name has a time in it does not exist yet.
        ("/srv/%Y/kept-%H", "/srv"),
        ("day-%d/kept", "."),
    ],
)
def test_the_folder_is_the_part_before_the_first_time(name: str, folder: str) -> None:
    found, _ = writing(write=name)
    assert found is not None
    assert found.folder == folder


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5", 5_000_000),
        ("512k", 512 << 10),
        ("64M", 64 << 20),
        ("1g", 1 << 30),
        ("999999999999", 999_999_999_999 * 10**6),
    ],
)
def test_sizes_of_files(text: str, size: int) -> None:
    found, _ = writing(write="kept", rotate_size=text)
    assert found is not None
    assert found.rotation.size == size
    assert found.rotates


@pytest.mark.parametrize("text", ["", "0", "-1", "k", "1.5m", "1t", "١", "9999999999999"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="a size is a number of millions of bytes"):
        writing(write="kept", rotate_size=text)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"write_all": True}, "--write-all needs --write"),
        ({"rotate_size": "1"}, "-C needs --write"),
        ({"rotate_every": "60"}, "-G needs --write"),
        ({"rotate_files": 2}, "-W needs --write"),
        ({"write": ""}, "--write needs the name of a file"),
        ({"write": "-"}, "--write needs the name of a file"),
        ({"write": "kept-%S", "rotate_every": "0.5"}, "-G: at least 1 s"),
        ({"write": "kept", "rotate_every": "60"}, "-G needs a time in the name"),
        ({"write": "kept", "rotate_files": 2}, "-W needs -C or -G"),
    ],
)
def test_files_that_cannot_be_written(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        writing(**given)


def test_only_given_options_are_passed_to_the_capture() -> None:
    options = {"snaplen": 128, "buffer_size": None, "promiscuous": False, "quiet": True}
    assert take_capturing(options) == {"snaplen": 128}
    assert options == {"quiet": True}
    given = {"snaplen": None, "buffer_size": 8, "promiscuous": True}
    assert take_capturing(given) == {"buffer": 8, "promiscuous": True}


def test_interfaces_by_name_and_number() -> None:
    first = interface_table().splitlines()[0].split()
    options = {"interfaces": ("any", first[0])}
    assert take_interfaces(options) == ["any", first[1]]
    assert options == {}
    with click.Context(click.Command("live")), pytest.raises(click.UsageError, match="name an interface"):
        take_interfaces({"interfaces": ()})


def test_columns_of_the_table_of_interfaces_are_aligned() -> None:
    lines = interface_table().splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    starts = {len(line) - len(line.lstrip("0123456789 ")) for line in lines}
    assert len(starts) == 1
    assert lines == [line.rstrip() for line in lines]


class Files:
    packets, made, first = 1234, 1, "kept-1"


class Kept:
    """A keeper that notes what it takes, and whether signals are deferred meanwhile."""

    files: ClassVar[Any] = Files

    def __init__(self, world: Any, missing: int = 0) -> None:
        self.world, self.missing = world, missing
        self.taken: list[tuple[int, bool]] = []
        self.closed: list[bool] = []

    def take(self, _frames: object, _fragments: object, packets: Any) -> None:
        self.taken.append((len(packets), self.world.interrupts._held))

    def close(self) -> None:
        self.closed.append(self.world.interrupts._held)


class Source:
    frames = fragments = None


def test_each_batch_is_written_after_its_consumer() -> None:
    world, parts = environment(), batch(mixed()).split(5)
    keeper: Any = Kept(world)
    source: Any = Source()
    batches = kept(world, source, iter(parts), keeper)
    assert len(next(batches)) == 5
    assert keeper.taken == []
    assert len(next(batches)) == len(mixed()) - 5
    assert keeper.taken == [(5, True)]
    # The last one is written even if the run ends within it.
    batches.close()
    assert keeper.taken == [(5, True), (len(mixed()) - 5, True)]


@pytest.mark.parametrize(
    ("packets", "made", "missing", "said"),
    [
        (1234, 1, 0, "1,234 packets in kept-1"),
        (1, 1, 0, "1 packet in kept-1"),
        (2, 4, 0, "2 packets in kept-1 and 3 more"),
        (2, 1, 7, "2 packets in kept-1"),
    ],
)
def test_the_summary_of_the_files(
    packets: int, made: int, missing: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "packets", packets)
    monkeypatch.setattr(Files, "made", made)
    world = environment()
    keeper: Any = Kept(world, missing)
    assert kept_line(world, keeper, "kept") == said
    assert keeper.closed == [True]
    warned: str = world.stderr.getvalue()  # type: ignore[attr-defined]  # a StringIO in tests
    assert bool(warned) == bool(missing)
    assert not missing or "7 packets of Kafka connections are not in kept: " in warned


def test_help_names_the_largest_buffer_that_a_capture_takes() -> None:
    from kafkasniff.capture.live.interface_socket import DEFAULT_SNAPLEN, MAX_BUFFER

    command = capture_options.capture_options(click.command("live")(lambda: None))
    ranges = {option.name: option.type for option in command.params if isinstance(option.type, click.IntRange)}
    assert (ranges["buffer_size"].max, ranges["snaplen"].max) == (MAX_BUFFER, DEFAULT_SNAPLEN)
