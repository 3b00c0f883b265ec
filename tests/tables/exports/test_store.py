"""Exports in an object store: the rows of a folder, one writer wins, killed runs leave nothing that counts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.errors import MissingPartError, OutputError, UsageError
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.object_store import ChangedObjectError, ObjectStore, ObjectVersion
from kafkasniff.tables.exports.live import LiveExport
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.store import ExportStore
from tests.choice import ALL, DEEP
from tests.cli.console import kafkasniff
from tests.object_store import boto3_client, bucket
from tests.tables.exports.exported import CAPTURES, by_partition, cut, files, manifest, named_files, run, tables
from tests.tables.exports.stored import KilledError, copy_objects, fetched, killed_after, objects
from tests.tables.exports.test_live import Clock, _at_once, batches

__all__ = ["_at_once", "bucket"]

CAPTURE = CAPTURES / "java-codecs.pcap"


def test_the_rows_are_those_of_a_folder(bucket: str, tmp_path: Path) -> None:
    """Run by run, including connections that are open between runs."""
    parts = cut(CAPTURES / "kraft-two-brokers.pcap", (0.3, 0.6), tmp_path)
    address = bucket.format("equal")
    for number in range(1, len(parts) + 1):
        stored, local = run(parts[:number], address), run(parts[:number], tmp_path / "local")
        assert (stored.new, stored.rows, stored.summary) == (1, local.rows, local.summary)
        copy = fetched(bucket, "equal", tmp_path / f"copy-{number}")
        assert by_partition(copy) == by_partition(tmp_path / "local")
        assert files(copy) == named_files(copy)
    assert run(parts, address).new == 0
    # A copy of either one can be continued.
    assert run(parts, copy).new == 0
    client = boto3_client(bucket)
    run(parts[:2], tmp_path / "two")
    for path in files(tmp_path / "two"):
        client.put_object(Bucket="captures", Key=f"put/{path}", Body=(tmp_path / "two" / path).read_bytes())
    run(parts, bucket.format("put"))
    copy = fetched(bucket, "put", tmp_path / "put")
    assert tables(copy) == tables(tmp_path / "local")
    assert files(copy) == named_files(copy)


@pytest.mark.parametrize("answered", [False, True])
def test_killed_at_any_request(bucket: str, answered: bool, tmp_path: Path) -> None:
    """Before the store has it, or before its answer is there."""
    parts = cut(CAPTURE, (0.5,), tmp_path)
    run(parts[:1], tmp_path / "first")
    run(parts, tmp_path / "both")
    wanted = tables(tmp_path / "first"), tables(tmp_path / "both")
    place, seen = 0 if ALL else 7 * answered, set()
    begun = f"killed-{answered}"
    run(parts[:1], bucket.format(begun))
    while True:
        name = f"{begun}-{place}"
        copy_objects(bucket, begun, name)
        with killed_after(place, answered=answered) as left:
            try:
                run(parts, bucket.format(name))
            except KilledError:
                assert left() < 0
        copy = fetched(bucket, name, tmp_path / name)
        found = wanted.index(tables(copy))
        seen.add(found)
        run(parts, bucket.format(name))
        after = fetched(bucket, name, tmp_path / f"{name}-after")
        assert tables(after) == wanted[1]
        # Probes are removed after a day. A run that is in place already has nothing to do; its leftovers wait for the
        # next one.
        left_over = {path for path in files(after) - named_files(after) if not path.startswith(".probe/")}
        assert not left_over or found == 1
        if left() >= 0:
            break
        place += 1 if DEEP or (ALL and place < 6) else 3 if ALL else 14
    assert place > 15
    assert seen == {0, 1}


def test_leftovers_are_removed_by_the_next_run(bucket: str, tmp_path: Path) -> None:
    parts = cut(CAPTURE, (0.4, 0.7), tmp_path)
    address = bucket.format("left")
    run(parts[:1], address)
    client = boto3_client(bucket)
    folder = "left/exchanges/date=2026-11-21"
    dead = f"{folder}/part-00002-0123456789ab-00000.parquet"
    later = f"{folder}/part-00003-0123456789ab-open-00007-00000.parquet"
    foreign = f"{folder}/notes.txt"
    for key in (dead, later, foreign, "left/state/run-00001-0123456789ab.state"):
        client.put_object(Bucket="captures", Key=key, Body=b"left")
    run(parts[:2], address)
    found = {f"left/{path}" for path in objects(bucket, "left")}
    # A run with a higher number may still be writing: it began after this one was published.
    assert (dead in found, later in found, foreign in found) == (False, True, True)
    run(parts, address)
    copy = fetched(bucket, "left", tmp_path / "copy")
    assert files(copy) - named_files(copy) == {foreign.removeprefix("left/")}


def test_of_two_writers_the_first_one_wins(bucket: str, tmp_path: Path) -> None:
    parts = cut(CAPTURE, (0.5,), tmp_path)
    for name, before in (("two-new", 0), ("two-old", 1)):
        address = bucket.format(name)
        if before:
            run(parts[:1], address)
        looks = 0

        def part(address: str = address, before: int = before) -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                run(parts[: before + 1], address)

        from kafkasniff.tables.exports.shard import Hooks

        message = rf"another export has written into s3://captures/{name} meanwhile, so that this run was not added"
        with pytest.raises(UsageError, match=message):
            run([*parts[: before + 1], CAPTURES / "sarama.pcap"], address, hooks=Hooks(part=part))
        assert looks
        copy = fetched(bucket, name, tmp_path / name)
        run(parts[: before + 1], tmp_path / f"{name}-wanted")
        assert tables(copy) == tables(tmp_path / f"{name}-wanted")
        assert files(copy) == named_files(copy)
        # Repeated, it is added.
        assert run([*parts[: before + 1], CAPTURES / "sarama.pcap"], address).new == 1


def test_an_answer_that_was_lost(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    run(parts[:1], bucket.format("lost"))
    run(parts, bucket.format("lost"))
    assert not errors
    run(parts, tmp_path / "wanted")
    copy = fetched(bucket, "lost", tmp_path / "copy")
    assert tables(copy) == tables(tmp_path / "wanted")
    assert files(copy) == named_files(copy)
    assert manifest(copy)["runs"] == 2


def test_an_unknown_outcome(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is removed then: the request may still arrive."""
    real = ObjectStore.put_if

    def put_if(self: ObjectStore, path: str, data: bytes, version: ObjectVersion | None) -> ObjectVersion:
        if path == "manifest.json":
            raise OSError(5, "timed out")
        return real(self, path, data, version)

    address = bucket.format("unknown")
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "put_if", put_if)
        with pytest.raises(OutputError, match="timed out; whether the run was added is unknown, running it again adds"):
            run([CAPTURE], address)
    assert any(path.startswith("exchanges/") for path in objects(bucket, "unknown"))
    run([CAPTURE], address)
    copy = fetched(bucket, "unknown", tmp_path / "copy")
    assert files(copy) == named_files(copy)


def test_leftovers_that_cannot_be_removed(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is there, and the message says so."""
    parts = cut(CAPTURE, (0.5,), tmp_path)
    address = bucket.format("kept")
    run(parts[:1], address)

    def refuses(self: ObjectStore, path: str) -> None:
        raise PermissionError(13, "Forbidden")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "names", refuses)
        with pytest.raises(OutputError, match="Forbidden; the run was added, but files that it replaces are left"):
            run(parts, address)
    assert run(parts, address).new == 0
    run([*parts, CAPTURES / "sarama.pcap"], address)
    copy = fetched(bucket, "kept", tmp_path / "copy")
    assert files(copy) == named_files(copy)


@pytest.mark.parametrize("ignored", ["create", "replace"])
def test_a_store_that_ignores_conditions(bucket: str, ignored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ObjectStore.put_if

    def put_if(self: ObjectStore, path: str, data: bytes, version: ObjectVersion | None) -> ObjectVersion:
        if (version is None) == (ignored == "create"):
            self.put(path, data)
            return self.get(path).version
        return real(self, path, data, version)

    monkeypatch.setattr(ObjectStore, "put_if", put_if)
    with pytest.raises(UsageError, match="this store does not honour conditions of writes"):
        run([CAPTURE], bucket.format(f"ignores-{ignored}"))
    assert objects(bucket, f"ignores-{ignored}") == {}


def test_something_else_is_there(bucket: str) -> None:
    client = boto3_client(bucket)
    client.put_object(Bucket="captures", Key="foreign/exchanges/data.parquet", Body=b"mine")
    with pytest.raises(UsageError, match=r"s3://captures/foreign/exchanges/data.parquet is not part of an export"):
        run([CAPTURE], bucket.format("foreign"))
    client.put_object(Bucket="captures", Key="other/manifest.json", Body=b"{}")
    with pytest.raises(UsageError, match=r"s3://captures/other/manifest.json is not a manifest of an export"):
        run([CAPTURE], bucket.format("other"))
    run([CAPTURE], bucket.format("options"))
    with pytest.raises(UsageError, match="s3://captures/options was exported with other options"):
        run([CAPTURE], bucket.format("options"), ExportOptions(bodies=False))


def test_a_damaged_state(bucket: str, tmp_path: Path) -> None:
    parts = cut(CAPTURE, (0.5,), tmp_path)
    address = bucket.format("damaged")
    state = run(parts[:1], address).manifest.state
    client = boto3_client(bucket)
    client.delete_object(Bucket="captures", Key=f"damaged/{state}")
    with pytest.raises(OutputError, match=f"cannot read s3://captures/damaged/{state}: "):
        run(parts, address)
    assert run(parts, address, discard_state=True).new == 1


def test_the_command_line(bucket: str, tmp_path: Path) -> None:
    """Commands that read exports read them at an address, and say the same."""
    address = bucket.format("commands").replace("s3a://", "s3://key:pass4711@")
    done = kafkasniff("export", CAPTURE, "-o", address)
    local = kafkasniff("export", CAPTURE, "-o", tmp_path / "out")
    assert done.code == Exit.OK
    assert done.err == local.err.replace(str(tmp_path / "out"), "s3://captures/commands")
    shown = [done]
    for command in (
        ("stats",),
        ("check",),
        ("timing",),
        ("audit", "--target", "4.0"),
        ("analyze", "latency"),
        ("analyze", "batching", "--format", "json", "--since", "+1s"),
        ("diff", tmp_path / "out"),
    ):
        found, wanted = kafkasniff(*command, address), kafkasniff(*command, tmp_path / "out")
        assert found.code == wanted.code, found.err
        assert b"pass4711" not in found.out
        shown_as = found.out.replace(b"s3://captures/commands", str(tmp_path / "out").encode())
        assert shown_as == wanted.out != b""
        shown.append(found)
    wrong = kafkasniff("decode", address)
    assert wrong.code != Exit.OK
    assert "is an export" in wrong.err
    for one in (*shown[:1], wrong):
        assert "pass4711" not in one.err
    stored = b"".join(objects(bucket, "commands").values())
    assert b"pass4711" not in stored
    assert b"endpoint_override" not in stored


@pytest.mark.usefixtures("_at_once")
def test_a_live_capture(bucket: str, tmp_path: Path) -> None:
    found = []
    for directory in (bucket.format("live"), str(tmp_path / "local")):
        clock = Clock()
        with LiveExport(directory, ExportOptions(), "eth7", every_seconds=60, clock=clock) as export:
            for part in batches(CAPTURE, 24):
                export.feed(part)
                clock.now += 40
            result = export.close()
        assert result.commits > 3
        found.append((result.commits, result.rows))
    assert found[0] == found[1]
    copy = fetched(bucket, "live", tmp_path / "copy")
    wanted, rows = tables(tmp_path / "local"), tables(copy)
    assert wanted["exchanges"] == rows["exchanges"]
    assert wanted == rows
    assert files(copy) == named_files(copy)


def test_without_the_package(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(MissingPartError, match=r"pip install 'kafkasniff\[object-store\]'"):
        run([CAPTURE], bucket.format("missing"))
    # Captures are read without it, even from what may be an export.
    assert kafkasniff("decode", "-c", "1", bucket.format("day-1")).code == Exit.OK


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (lambda address: address + "&speed=9", Exit.USAGE, "speed is not an option of such an address"),
        (
            lambda address: address.replace("s3a://captures", "s3://none"),
            Exit.UNAVAILABLE,
            "cannot write s3://none/wrong: ",
        ),
    ],
)
def test_addresses_that_do_not_work(bucket: str, change: Callable[[str], str], code: int, message: str) -> None:
    done = kafkasniff("export", CAPTURE, "-o", change(bucket.format("wrong")))
    assert (done.code, done.err.count("\n")) == (code, 1), done.err
    assert message in done.err


def test_what_is_removed_is_its_own(bucket: str) -> None:
    """The temporary folder of a run is removed."""
    with ExportStore(Location.of(bucket.format("folder"))) as target:
        folder = Path(target._folder.name)
        target.partial.make_folder()
        assert folder.exists()
    assert not folder.exists()
