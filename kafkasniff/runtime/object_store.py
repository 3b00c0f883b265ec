"""Objects in S3 and Azure: whole objects and conditional writes, with the package obstore; files read at any place.

Captures are read through pyarrow.fs (`capture.timeline.locations`), which has no conditional writes. Addresses are the
same, and so are the variables of the environment that hold credentials.

- `s3://bucket/path`, `s3a://…`; query: `region`, `endpoint_override`, `scheme`; credentials may precede the bucket
- `abfss://container@account.dfs.core.windows.net/path`, `abfs://…`, `az://container/path` (the account is
  `AZURE_STORAGE_ACCOUNT_NAME`); query: `endpoint_override`, `scheme`
"""

from __future__ import annotations

import errno
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote

from kafkasniff.errors import MissingExtraError, MissingPartError, UsageError
from kafkasniff.runtime.addresses import Location

BLOCK_BYTES: Final = 1 << 20
"""Remote files are read in blocks of this size, which takes a store about as long as a few bytes."""
MAX_BLOCKS: Final = 64
"""Blocks that are kept: pages of columns are read soon after their headers."""


class RandomFile(Protocol):
    """An open file. Reads raise OSError."""

    size: int
    """In bytes."""

    def read(self, size: int, offset: int) -> bytes:
        """Bytes from an offset; fewer at the end of the file."""

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill `target` from an offset; returns how many bytes were read, which may be fewer."""

    def close(self) -> None:
        """Nothing more will be read."""


class LocalFile:
    """A file of this machine."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def read(self, size: int, offset: int) -> bytes:
        """Bytes from an offset; fewer at the end of the file."""
        return os.pread(self._file.fileno(), size, offset)

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill `target` from an offset."""
        return os.preadv(self._file.fileno(), [target], offset)

    def close(self) -> None:
        """Nothing more will be read."""
        self._file.close()


class RemoteFile:
    """A file that is read in blocks; the last ones are kept. Any thread may read."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        """`fetch`: reads the bytes between two offsets, and raises OSError."""
        self.size = size
        self._fetch = fetch
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._lock = Lock()

    def read(self, size: int, offset: int) -> bytes:
        """Bytes from an offset; fewer at the end of the file."""
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        first, last = offset // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        with self._lock:
            data = b"".join(self._range(first, last))
        start = offset - first * BLOCK_BYTES
        return data[start : start + end - offset]

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill `target` from an offset."""
        data = self.read(len(target), offset)
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Nothing more will be read."""
        self._blocks.clear()

    def _range(self, first: int, last: int) -> list[bytes]:
        """Blocks, of which all that are missing are fetched together."""
        missing = [number for number in range(first, last + 1) if number not in self._blocks]
        fetched: dict[int, bytes] = {}
        if missing:
            start = missing[0] * BLOCK_BYTES
            end = min((missing[-1] + 1) * BLOCK_BYTES, self.size)
            data = self._fetch(start, end)
            if len(data) != end - start:
                raise OSError(f"{len(data)} bytes instead of {end - start} were read")
            for number in range(missing[0], missing[-1] + 1):
                index = number * BLOCK_BYTES - start
                fetched[number] = data[index : index + BLOCK_BYTES]
        blocks = [fetched[number] if number in fetched else self._blocks[number] for number in range(first, last + 1)]
        for number, block in zip(range(first, last + 1), blocks, strict=True):
            self._blocks[number] = block
            self._blocks.move_to_end(number)
        while len(self._blocks) > MAX_BLOCKS:
            self._blocks.popitem(last=False)
        return blocks


_S3: Final = frozenset({"s3"})
_AZURE: Final = frozenset({"abfs", "abfss", "az"})
SCHEMES: Final = ("s3", "abfss")
"""Schemes as messages name them."""

_QUERIES: Final = {"s3": {"region", "endpoint_override", "scheme"}, "other": {"endpoint_override", "scheme"}}

_S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

PROBES: Final = ".probe"
PROBE_AGE: Final = timedelta(days=1)

REMOVED_AT_ONCE: Final = 16
WRITTEN_AT_ONCE: Final = 4
"""Objects that are removed or written at the same time."""
PART_BYTES: Final = 8 << 20
PARTS_AT_ONCE: Final = 4
"""Large objects are written in parts. All parts of all objects that are being written take 128 MiB of memory."""
RETRY_SECONDS: Final = 60
REQUEST_SECONDS: Final = 120
CONNECT_SECONDS: Final = 10

_Result = TypeVar("_Result")


class ChangedObjectError(Exception):
    """An object is not in the state that a conditional write expects."""


class ObjectVersion(NamedTuple):
    """Identifies the content of an object; stores compare one or the other."""

    e_tag: str | None
    generation: str | None


class Object(NamedTuple):
    """An object's content."""

    data: bytes
    version: ObjectVersion


def is_object_store(address: str) -> bool:
    """Whether an address is one of an object store that this module can write to."""
    return _scheme(Location.of(address)) in _S3 | _AZURE


def _scheme(location: Location) -> str:
    return location.root.partition("://")[0]


class ObjectStore:
    """Objects below an address; paths are relative to it, with slashes.

    Methods raise OSError: FileNotFoundError, PermissionError, and others with the store's reason as `strerror`. The
    constructor raises UsageError if the address is invalid, MissingPartError if the package obstore is missing.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._client = _client(location)
        self._api = _obstore()
        base = location.path.strip("/")
        self._base = f"{base}/" if base else ""

    def get(self, path: str, limit: int | None = None) -> Object:
        """An object. One of more than `limit` bytes raises OSError."""

        def get() -> Object:
            found = self._api.get(self._client, self._base + path)
            size = found.meta["size"]
            if limit is not None and size > limit:
                raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {limit:,}")
            return Object(bytes(found.bytes()), ObjectVersion(found.meta["e_tag"], found.meta["version"]))

        return _translated(get)

    def open(self, path: str) -> RemoteFile:
        """An object, to read parts of it."""
        where = self._base + path
        found = _translated(lambda: self._api.head(self._client, where))

        def fetch(start: int, end: int) -> bytes:
            return bytes(_translated(lambda: self._api.get_range(self._client, where, start=start, end=end)))

        return RemoteFile(int(found["size"]), fetch)

    def put(self, path: str, content: bytes | Path | BinaryIO) -> None:
        """Write an object, whatever was there before; large ones in several parts."""
        _translated(
            lambda: self._api.put(
                self._client, self._base + path, content, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )
        )

    def put_if(self, path: str, data: bytes, version: ObjectVersion | None) -> ObjectVersion:
        """Write an object if it still has this version, or None if there is none yet; returns the new version.

        Raises ChangedObjectError if it has another one. Other exceptions do not say whether it was written.
        """
        mode: str | dict[str, str] = "create"
        if version is not None:
            named = {"e_tag": version.e_tag, "version": version.generation}
            mode = {name: value for name, value in named.items() if value is not None}

        def put() -> ObjectVersion:
            found = self._api.put(self._client, self._base + path, data, mode=mode)
            return ObjectVersion(found["e_tag"], found["version"])

        return _translated(put)

    def put_all(self, files: Sequence[tuple[str, Callable[[], BinaryIO]]]) -> None:
        """Write objects from files, several at the same time; each is given by its path and how to open it."""

        def put(file: tuple[str, Callable[[], BinaryIO]]) -> None:
            path, opened = file
            with opened() as content:
                self.put(path, content)

        with ThreadPoolExecutor(WRITTEN_AT_ONCE) as pool:
            list(pool.map(put, files))

    def remove(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are not there do not matter."""

        def remove(path: str) -> None:
            try:
                _translated(lambda: self._api.delete(self._client, self._base + path))
            except FileNotFoundError:
                return

        with ThreadPoolExecutor(REMOVED_AT_ONCE) as pool:
            list(pool.map(remove, paths))

    def names(self, folder: str) -> Iterator[str]:
        """Paths of all objects in a folder (with a slash at its end) and its subfolders, in no particular order."""
        return (path for path, _ in self._listed(folder))

    def _listed(self, folder: str) -> Iterator[tuple[str, datetime]]:
        """Paths, and when the objects were written."""
        stream = self._api.list(self._client, prefix=f"{self._base}{folder}")
        while True:
            found = _translated(lambda: next(stream, None))
            if found is None:
                return
            yield from ((one["path"][len(self._base) :], one["last_modified"]) for one in found)

    def remove_old_probes(self) -> None:
        """Remove what processes that were killed during `check_writing` or `check_conditions` have left."""
        now = datetime.now(UTC)
        found = self._listed(f"{PROBES}/")
        self.remove([path for path, changed in found if now - changed > PROBE_AGE])

    def check_writing(self) -> None:
        """Check that objects can be written and removed here, by one with a random name. Raises OSError."""
        path = _probe()
        self.put(path, b"")
        self.remove([path])

    def check_conditions(self) -> None:
        """Check that the store honours conditions of writes, by an object with a random name.

        Raises UsageError if it does not: stores that speak the protocol of S3 may ignore what they do not know.
        """
        path = _probe()
        try:
            first = self.put_if(path, b"1", None)
            honoured = self._writes(path, first) and not self._writes(path, None) and not self._writes(path, first)
        finally:
            self.remove([path])
        if not honoured:
            raise UsageError(
                f"{self.location.name}: this store does not honour conditions of writes (If-Match, If-None-Match),"
                " so that two runs could overwrite each other: write to a folder and copy it"
            )

    def _writes(self, path: str, version: ObjectVersion | None) -> bool:
        """Whether a write on this condition succeeds."""
        try:
            self.put_if(path, b"2", version)
        except ChangedObjectError:
            return False
        return True


def _probe() -> str:
    return f"{PROBES}/{secrets.token_hex(8)}"


def _translated(call: Callable[[], _Result]) -> _Result:
    """The result of a call, with obstore's exceptions turned into OSError and ChangedObjectError."""
    exceptions = _obstore().exceptions
    try:
        return call()
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise ChangedObjectError(_reason(error)) from None
    except exceptions.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, _reason(error)) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, _reason(error)) from None
    except exceptions.BaseError as error:
        raise OSError(errno.EIO, _reason(error)) from None


def _reason(error: Exception) -> str:
    """The first line of an exception: the rest is obstore's own account of it."""
    return str(error).split("\n", 1)[0].strip()


def _obstore() -> Any:
    """The package. Raises MissingExtraError."""
    try:
        import obstore.store
    except ImportError:
        raise MissingExtraError("writing to an object store", "obstore", "object-store") from None
    return obstore


def _client(location: Location) -> Any:
    """The client for a location. Raises UsageError and MissingPartError."""
    scheme, _, host = location.root.partition("://")
    given, _, bucket = host.rpartition("@")
    query = dict(parse_qsl(location.query.removeprefix("?"), keep_blank_values=True))
    unknown = sorted(query.keys() - _QUERIES.get(scheme, _QUERIES["other"]))
    if unknown:
        raise UsageError(f"{location.name}: {unknown[0]} is not an option of such an address")
    if scheme not in _S3 | _AZURE:
        raise UsageError(f"{location.name}: {scheme}:// is not an object store that exports can be in")
    stores, exceptions = _obstore().store, _obstore().exceptions
    endpoint = query.get("endpoint_override", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"{query.get('scheme', 'https')}://{endpoint}"
    common: dict[str, Any] = {
        "client_options": {
            "allow_http": _allows_http(scheme, endpoint),
            "connect_timeout": f"{CONNECT_SECONDS}s",
            "timeout": f"{REQUEST_SECONDS}s",
        },
        "retry_config": {"max_retries": 6, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    }
    try:
        if scheme in _S3:
            return stores.S3Store(bucket, **common, **_s3_options(bucket, given, query, endpoint))
        options = {"endpoint": endpoint} if endpoint else {}
        if given:
            # container@account.dfs.core.windows.net
            options["account_name"] = bucket.partition(".")[0]
            bucket = given
        return stores.AzureStore(bucket, **common, **options)
    except exceptions.BaseError as error:
        raise UsageError(f"{location.name}: {_reason(error)}") from None


def _allows_http(scheme: str, endpoint: str) -> bool:
    """Whether the endpoint, from the address or the environment, has no TLS."""
    names = _S3_ENDPOINTS if scheme in _S3 else ("AZURE_STORAGE_ENDPOINT",)
    return (endpoint or next(filter(None, map(os.environ.get, names)), "")).startswith("http://")


def _s3_options(bucket: str, given: str, query: dict[str, str], endpoint: str) -> dict[str, Any]:
    options: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    key, separator, secret = given.partition(":")
    if separator:
        options |= {"access_key_id": unquote(key), "secret_access_key": unquote(secret)}
    elif "AWS_ACCESS_KEY_ID" not in os.environ and _has_profile():
        options["credential_provider"] = _profile_credentials()
    region = query.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and not endpoint and not os.environ.get("AWS_ENDPOINT_URL"):
        region = _region_of(bucket)
    if region is not None:
        options["region"] = region
    return options


def _region_of(bucket: str) -> str | None:
    """The region of a bucket of Amazon; None if it does not say."""
    from pyarrow.fs import resolve_s3_region

    try:
        return str(resolve_s3_region(bucket))
    except OSError:
        return None


def _has_profile() -> bool:
    """Whether credentials come from a file of Amazon's tools, which obstore does not read."""
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    return "AWS_PROFILE" in os.environ or os.path.exists(os.path.expanduser(file))


def _profile_credentials() -> Any:
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise MissingPartError("credentials of a profile need the package boto3: pip install boto3") from None
    return Boto3CredentialProvider()
