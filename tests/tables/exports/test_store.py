"""Exports in an object store: the rows of a folder, one writer wins, killed runs leave nothing that counts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kafkasniff.analysis.compaction import compact
from kafkasniff.cli.environment import Exit
from kafkasniff.errors import MissingPartError, OutputError, UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.object_store import ChangedObjectError, ObjectStore, ObjectVersion
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.shard import Hooks
from kafkasniff.tables.exports.target import ExportStore
from tests.choice import ALL, one_in
from tests.cli.console import kafkasniff
from tests.tables.exports.exported import CAPTURES, TWO, by_partition, cut, files, manifest, named_files, run, tables
from tests.tables.exports.stored import KilledError, bucket, fetched, killed_after, memory, objects, place
from tests.tables.exports.test_live import _at_once

__all__ = ["_at_once", "bucket", "memory", "place"]

CAPTURE = CAPTURES / "java-group-share.pcap"
OTHER = CAPTURES / "kafkajs.pcap"


def put(address: str, data: dict[str, bytes]) -> None:
    store = ObjectStore(Location.of(address))
    for path, content in data.items():
        store.put(path, content)


def test_the_rows_are_those_of_a_folder(place: str, tmp_path: Path) -> None:
    """Run by run, including connections that are open between runs."""
    parts = cut(CAPTURE, (0.3, 0.6), tmp_path)
    address = place.format("equal")
    for number in range(1, len(parts) + 1):
        stored, local = run(parts[:number], address), run(parts[:number], tmp_path / "local")
        assert (stored.new, stored.rows, stored.summary) == (1, local.rows, local.summary)
        copy = fetched(address, tmp_path / f"copy-{number}")
        assert by_partition(copy) == by_partition(tmp_path / "local")
        assert files(copy) == named_files(copy)
        if number == 2:
            put(
                place.format("put"),
                {path: (tmp_path / "local" / path).read_bytes() for path in files(tmp_path / "local")},
            )
    # A copy of either one can be continued.
    assert run(parts, address).new == run(parts, copy).new == 0
    run(parts, place.format("put"))
    copy = fetched(place.format("put"), tmp_path / "put")
    assert tables(copy) == tables(tmp_path / "local")
    assert files(copy) == named_files(copy)


@pytest.mark.extended
@pytest.mark.parametrize("answered", one_in(2, [True, False]))
def test_killed_at_any_request(memory: str, answered: bool, tmp_path: Path) -> None:
    """Before the store has it, or before its answer is there."""
    parts = cut(CAPTURE, (0.5,), tmp_path)
    run(parts[:1], tmp_path / "first", TWO)
    run(parts, tmp_path / "both", TWO)
    wanted = tables(tmp_path / "first"), tables(tmp_path / "both")
    request, seen = 0 if ALL else 7 * answered, set()
    run(parts[:1], memory.format("begun"), TWO)
    begun = objects(memory.format("begun"))
    while True:
        address = memory.format(request)
        put(address, begun)
        with killed_after(request, answered=answered) as left:
            try:
                run(parts, address, TWO)
            except KilledError:
                assert left() < 0
        found = wanted.index(tables(fetched(address, tmp_path / f"{request}")))
        seen.add(found)
        run(parts, address, TWO)
        after = fetched(address, tmp_path / f"{request}-after")
        assert tables(after) == wanted[1]
        # Probes are removed after a day. A run that is in place already has nothing to do; its leftovers wait for the
        # next one.
        left_over = {path for path in files(after) - named_files(after) if not path.startswith(".probe/")}
        assert not left_over or found == 1
        if left() >= 0:
            break
        request += (1 if request < 6 else 3) if ALL else 14
    assert request > 15
    assert seen == {0, 1}


@pytest.mark.parametrize("before", one_in(2, [1, 0]))
def test_of_two_writers_the_first_one_wins(place: str, before: int, tmp_path: Path) -> None:
    parts = cut(CAPTURE, (0.5,), tmp_path)
    address = place.format(f"two-{before}")
    first, both = parts[: before + 1], [*parts[: before + 1], OTHER]
    if before:
        run(parts[:1], address)
    looks: list[int] = []

    def part() -> None:
        looks.append(1)
        if len(looks) == 1:
            run(first, address)

    message = rf"another export has written into s3://captures/two-{before} meanwhile, so that this run was not added"
    with pytest.raises(UsageError, match=message):
        run(both, address, hooks=Hooks(part=part))
    assert looks
    copy = fetched(address, tmp_path / "copy")
    run(first, tmp_path / "wanted")
    assert tables(copy) == tables(tmp_path / "wanted")
    assert files(copy) == named_files(copy)
    # Repeated, it is added.
    assert run(both, address).new == 1


@pytest.mark.extended
def test_an_answer_that_was_lost(memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest is there, whatever the request for it seemed to do: a repeated request finds its own result."""
    real = ObjectStore.put_if
    errors: list[Exception] = [OSError(5, "connection closed"), ChangedObjectError("412")]

    def put_if(self: ObjectStore, path: str, data: bytes, version: ObjectVersion | None) -> ObjectVersion:
        found = real(self, path, data, version)
        if path == "manifest.json" and errors:
            raise errors.pop()
        return found

    monkeypatch.setattr(ObjectStore, "put_if", put_if)
    parts = cut(CAPTURE, (0.5,), tmp_path)
    for some in (parts[:1], parts):
        run(some, memory.format("lost"))
        run(some, tmp_path / "wanted")
    assert not errors
    copy = fetched(memory.format("lost"), tmp_path / "copy")
    assert tables(copy) == tables(tmp_path / "wanted")
    assert files(copy) == named_files(copy)
    assert manifest(copy)["runs"] == 2


@pytest.mark.extended
def test_an_unknown_outcome(memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is removed then: the request may still arrive."""
    real = ObjectStore.put_if

    def put_if(self: ObjectStore, path: str, data: bytes, version: ObjectVersion | None) -> ObjectVersion:
        if path == "manifest.json":
            raise OSError(5, "timed out")
        return real(self, path, data, version)

    address = memory.format("unknown")
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "put_if", put_if)
        with pytest.raises(OutputError, match="timed out; whether the run was added is unknown, running it again adds"):
            run([CAPTURE], address)
    assert any(path.startswith("exchanges/") for path in objects(address))
    run([CAPTURE], address)
    copy = fetched(address, tmp_path / "copy")
    assert files(copy) == named_files(copy)


@pytest.mark.parametrize("ignored", ["create", "replace"])
def test_a_store_that_ignores_conditions(memory: str, ignored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ObjectStore.put_if

    def put_if(self: ObjectStore, path: str, data: bytes, version: ObjectVersion | None) -> ObjectVersion:
        if (version is None) == (ignored == "create"):
            self.put(path, data)
            return self.get(path).version
        return real(self, path, data, version)

    monkeypatch.setattr(ObjectStore, "put_if", put_if)
    with pytest.raises(UsageError, match="this store does not honour conditions of writes"):
        run([CAPTURE], memory.format("ignores"))
    assert objects(memory.format("ignores")) == {}


@pytest.mark.extended
def test_something_else_is_there(memory: str) -> None:
    """Data, a foreign manifest, other options, and an export whose state is lost."""
    place = memory.format("foreign")
    for path, reported in (
        ("exchanges/data.parquet", r"s3://captures/foreign/exchanges/data.parquet is not part of an export"),
        ("manifest.json", r"s3://captures/foreign/manifest.json is not a manifest of an export"),
    ):
        put(place, {path: b"{}"})
        with pytest.raises(UsageError, match=reported):
            run([CAPTURE], place)
    place = memory.format("damaged")
    state = run([CAPTURE], place).manifest.state
    with pytest.raises(UsageError, match="s3://captures/damaged was exported with other options"):
        run([CAPTURE], place, ExportOptions(bodies=False))
    ObjectStore(Location.of(place)).remove([state])
    with pytest.raises(OutputError, match=f"cannot read s3://captures/damaged/{state}: "):
        run([OTHER], place)
    assert run([OTHER], place, discard_state=True).new == 1


@pytest.mark.extended
def test_the_command_line(place: str, tmp_path: Path) -> None:
    """Commands that read exports read them at an address, and say the same."""
    address = re.sub("^s3a?://", "s3://key:pass4711@", place.format("commands"))
    done = kafkasniff("export", CAPTURE, "-o", address)
    local = kafkasniff("export", CAPTURE, "-o", tmp_path / "out")
    assert done.code == Exit.OK
    assert done.err == local.err.replace(str(tmp_path / "out"), "s3://captures/commands")
    for command in (("analyze", "latency", "--format", "json", "--since", "+1s"), ("diff", tmp_path / "out")):
        found, wanted = kafkasniff(*command, address), kafkasniff(*command, tmp_path / "out")
        assert found.code == wanted.code, found.err
        assert b"pass4711" not in found.out
        shown_as = found.out.replace(b"s3://captures/commands", str(tmp_path / "out").encode())
        assert shown_as == wanted.out != b""
    assert "pass4711" not in done.err
    if "endpoint_override" in address:
        wrong = kafkasniff("decode", address)
        assert wrong.code != Exit.OK
        assert "is an export" in wrong.err
        assert "pass4711" not in wrong.err
    stored = b"".join(objects(address).values())
    assert b"pass4711" not in stored
    assert b"endpoint_override" not in stored


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(MissingPartError, match=r"pip install 'kafkasniff\[object-store\]'"):
        run([CAPTURE], "s3://captures/missing?region=us-east-1")


@pytest.mark.extended
@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("us-east-1", "us-east-1&speed=9"), Exit.USAGE, "speed is not an option of such an address"),
        (("s3a://captures", "s3://none"), Exit.UNAVAILABLE, "cannot write s3://none/wrong: "),
    ],
    ids=["option", "bucket"],
)
def test_addresses_that_do_not_work(bucket: str, change: tuple[str, str], code: int, message: str) -> None:
    done = kafkasniff("export", CAPTURE, "-o", bucket.format("wrong").replace(*change))
    assert (done.code, done.err.count("\n")) == (code, 1), done.err
    assert message in done.err


def test_what_is_removed_is_its_own(memory: str) -> None:
    """The temporary folder of a run is removed."""
    with ExportStore(Location.of(memory.format("folder"))) as target:
        folder = Path(target._folder.name)
        target.partial.make_folder()
        assert folder.exists()
    assert not folder.exists()


def test_a_compaction_leaves_the_same_files(place: str, tmp_path: Path) -> None:
    address = place.format("compacted")
    for part in cut(OTHER, (0.5,), tmp_path / "parts"):
        run([part], address)
        run([part], tmp_path / "out")
    before = tables(fetched(address, tmp_path / "before"))
    assert compact(address).before == compact(tmp_path / "out").before > 0
    after = fetched(address, tmp_path / "after")
    assert tables(after) == before
    assert files(after) == named_files(after)
    assert len(files(after)) == len(files(tmp_path / "out"))
