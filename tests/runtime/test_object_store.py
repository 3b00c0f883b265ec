"""Objects in a store that moto plays: conditional writes, probes, addresses and their options."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.errors import UsageError
from kafkasniff.runtime import object_store
from kafkasniff.runtime.addresses import Location
from kafkasniff.runtime.object_store import ChangedObjectError, ObjectStore, is_object_store
from tests.object_store import boto3_client, bucket

__all__ = ["bucket"]


def test_writes_without_a_version(bucket: str) -> None:
    store: Any = ObjectStore(Location.of(bucket.format("versions")))
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
    store.remove(["a", "b"])
    assert list(store.names("")) == []


def test_old_probes_are_removed(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(Location.of(bucket.format("probes")))
    store.put(".probe/0123456789abcdef", b"1")
    store.put("other", b"1")
    store.remove_old_probes()
    assert sorted(store.names("")) == [".probe/0123456789abcdef", "other"]
    monkeypatch.setattr(object_store, "PROBE_AGE", timedelta(0))
    store.remove_old_probes()
    assert list(store.names("")) == ["other"]


def test_a_large_object_is_written_in_parts(bucket: str, tmp_path: Path) -> None:
    content = random.Random(1).randbytes((2 * object_store.PART_BYTES) + 5)
    (tmp_path / "large").write_bytes(content)
    store = ObjectStore(Location.of(bucket.format("large")))
    store.put_all([("a", lambda: (tmp_path / "large").open("rb"))])
    assert store.get("a").data == content
    key = boto3_client(bucket).head_object(Bucket="captures", Key="large/a")
    # The ETag of S3 says how many parts there were.
    assert key["ETag"].endswith('-3"')


def test_parts_of_an_object(bucket: str) -> None:
    store = ObjectStore(Location.of(bucket.format("parts")))
    content = bytes(range(256)) * 5_000
    store.put("a", content)
    file = store.open("a")
    assert file.size == len(content)
    assert file.read(100, 1_048_570) == content[1_048_570:1_048_670]
    with pytest.raises(FileNotFoundError):
        store.open("b")


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("s3://bucket/out", True),
        ("S3A://bucket/out", True),
        ("abfss://box@account.dfs.core.windows.net/out", True),
        ("az://box/out", True),
        ("hdfs://host/out", False),
        ("gs://bucket/out", False),
        ("file:///out", False),
        ("out", False),
    ],
)
def test_addresses(address: str, is_one: bool) -> None:
    assert is_object_store(address) == is_one


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
