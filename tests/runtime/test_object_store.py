"""Objects in a store that moto plays, addresses and their options, and files read in blocks."""

from __future__ import annotations

import random
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkasniff.errors import UsageError
from kafkasniff.runtime import object_store
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.object_store import ChangedObjectError, ObjectStore, RemoteFile
from tests.object_store import boto3_client
from tests.tables.exports.stored import bucket, memory, place

__all__ = ["bucket", "memory", "place"]


def test_writes_without_a_version(place: str) -> None:
    store: Any = ObjectStore(Location.of(place.format("versions")))
    first = store.put_if("a", b"1", None)
    with pytest.raises(ChangedObjectError):
        store.put_if("a", b"2", None)
    second = store.put_if("a", b"2", first)
    with pytest.raises(ChangedObjectError):
        store.put_if("a", b"3", first)
    assert store.get("a") == (b"2", second)
    with pytest.raises(OSError, match="more than 0"):
        store.get("a", 0)
    with pytest.raises(FileNotFoundError):
        store.get("b")
    with pytest.raises(FileNotFoundError):
        store.open("b")
    store.put_all([("c/one", lambda: BytesIO(bytes(range(256)) * 5_000)), ("c/two", lambda: BytesIO(b"2"))])
    assert sorted(store.names("c/")) == ["c/one", "c/two"]
    file = store.open("c/one")
    assert (file.size, file.read(100, 1_048_570)) == (1_280_000, (bytes(range(256)) * 5_000)[1_048_570:1_048_670])
    store.check_writing()
    store.check_conditions()
    store.remove(["a", "b", "c/one", "c/two"])
    assert list(store.names("")) == []


def test_old_probes_are_removed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(Location.of(place.format("probes")))
    store.put(".probe/0123456789abcdef", b"1")
    store.put("other", b"1")
    store.remove_old_probes()
    assert sorted(store.names("")) == [".probe/0123456789abcdef", "other"]
    monkeypatch.setattr(object_store, "PROBE_AGE", timedelta(0))
    store.remove_old_probes()
    assert list(store.names("")) == ["other"]


@pytest.mark.extended
def test_a_large_object_is_written_in_parts(bucket: str, tmp_path: Path) -> None:
    content = random.Random(1).randbytes((2 * object_store.PART_BYTES) + 5)
    (tmp_path / "large").write_bytes(content)
    store = ObjectStore(Location.of(bucket.format("large")))
    store.put_all([("a", lambda: (tmp_path / "large").open("rb"))])
    assert store.get("a").data == content
    key = boto3_client(bucket).head_object(Bucket="captures", Key="large/a")
    # The ETag of S3 says how many parts there were.
    assert key["ETag"].endswith('-3"')


def test_what_an_address_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, endpoint and region; TLS unless the address says otherwise."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    store: Any = ObjectStore(Location.of("s3://k%2F1:se%3Acret@b/p?endpoint_override=host:9&region=eu-west-1"))
    config = store._client.config
    assert config["endpoint"] == "https://host:9"
    assert (config["access_key_id"], config["secret_access_key"]) == ("k/1", "se:cret")
    assert (config["region"], config["bucket"]) == ("eu-west-1", "b")
    assert store._client.client_options["allow_http"] == "false"
    plain: Any = ObjectStore(Location.of("s3://k:s@b/p?endpoint_override=host:9&region=r&scheme=http"))
    assert plain._client.client_options["allow_http"] == "true"
    azure: Any = ObjectStore(Location.of("abfss://box@account.dfs.core.windows.net/p"))
    assert azure._client.config["account_name"] == "account"
    for address in ("s3://b/p?speed=1", "abfss://box@account/p?region=r"):
        with pytest.raises(UsageError, match="is not an option of such an address"):
            ObjectStore(Location.of(address))
    with pytest.raises(UsageError, match="hdfs:// is not an object store that exports can be in"):
        ObjectStore(Location.of("hdfs://host/p"))


CONTENT = bytes(range(256)) * 5


class Store:
    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.requests: list[tuple[int, int]] = []

    def fetch(self, start: int, end: int) -> bytes:
        self.requests.append((start, end))
        return self.content[start:end]

    def file(self) -> RemoteFile:
        return RemoteFile(len(self.content), self.fetch)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "BLOCK_BYTES", 100)
    monkeypatch.setattr(object_store, "MAX_BLOCKS", 4)


@given(st.lists(st.tuples(st.integers(0, 1400), st.integers(0, 1400)), min_size=1, max_size=20))
def test_any_reads(reads: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_store, "BLOCK_BYTES", 100)
        patch.setattr(object_store, "MAX_BLOCKS", 4)
        file = Store().file()
        for offset, size in reads:
            assert file.read(size, offset) == CONTENT[offset : offset + size]
            target = bytearray(size)
            count = file.read_into(memoryview(target), offset)
            assert target[:count] == CONTENT[offset : offset + size]
            assert len(file._blocks) <= 4


def test_a_block_is_fetched_once_while_it_is_kept() -> None:
    store = Store()
    file = store.file()
    file.read(10, 250)
    file.read(100, 210)
    assert store.requests == [(200, 300), (300, 400)]
    file.read(500, 100)
    # All that is missing, in one request.
    assert store.requests[2:] == [(100, 600)]
    file.read(1, 550)
    assert len(store.requests) == 3


def test_a_short_answer_is_an_error() -> None:
    file = RemoteFile(1000, lambda start, end: b"x" * (end - start - 1))
    with pytest.raises(OSError, match="99 bytes instead of 100 were read"):
        file.read(1, 0)
