"""Where schemas come from: a registry with Confluent's REST API, or a folder with its answers.

Paths are those of the API (`schemas/ids/17`), so a folder is a copy that any web server could serve (`copy_registry`).
Every schema is asked for once.
"""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from kafkasniff.errors import CaptureError, OutputError, UsageError
from kafkasniff.values.schemas import MAX_SCHEMA, RegisteredSchema, SchemaError

TIMEOUT_SECONDS: Final = 10
"""For an answer to begin, and then for all of it."""
PART: Final = 1 << 16
PAUSE_SECONDS: Final = 30
"""How long a registry that does not answer is not asked again: each question holds up the output."""
MAX_ANSWER: Final = 4 * MAX_SCHEMA
"""Bytes of an answer: JSON in JSON, with its escapes, and references."""
MAX_NAME: Final = 240
"""Characters of a file's name without its ending."""
SERIALIZED: Final = "?format=serialized"
"""Protobuf as a descriptor, not as text."""

USER_INFO: Final = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"
TOKEN: Final = "SCHEMA_REGISTRY_BEARER_AUTH_TOKEN"
CA_FILE: Final = "SCHEMA_REGISTRY_SSL_CA_LOCATION"


class RegistryError(Exception):
    """A registry does not answer as it should; `str()` of it is one line without credentials."""


class Registry(Protocol):
    """Answers of a schema registry."""

    @property
    def name(self) -> str:
        """Its name in messages, without credentials."""

    @property
    def port(self) -> int | None:
        """The TCP port that is connected to."""

    def get(self, path: str) -> bytes | None:
        """The answer for a path of the API; None: there is no such thing. Raises RegistryError."""


def open_registry(place: str, environ: Mapping[str, str]) -> Registry:
    """The registry at a URL, or in a folder. Raises UsageError."""
    scheme, separator, _ = place.partition("://")
    if not separator:
        if not os.path.isdir(place):
            raise UsageError(f"--registry: {place} is neither a URL nor a folder")
        return FolderRegistry(Path(place))
    if scheme not in ("http", "https"):
        raise UsageError("--registry: the URL of a registry begins with http:// or https://")
    return HttpRegistry(place, environ)


def schema_at(registry: Registry, path: str) -> RegisteredSchema | None:
    """The schema at a path of a registry; None if there is none. Raises RegistryError, SchemaError."""
    registered_schema = _schema(registry.get(path))
    if registered_schema is not None and registered_schema.schema_type == "PROTOBUF":
        registered_schema = _schema(registry.get(path + SERIALIZED))
    return registered_schema


def _schema(answer: bytes | None) -> RegisteredSchema | None:
    if answer is None:
        return None
    try:
        return msgspec.json.decode(answer, type=RegisteredSchema)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SchemaError(f"the registry's answer is not a schema: {error}") from None


def path_of(subject: str, version: int) -> str:
    """The path of a version of a subject."""
    return f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"


def file_of(folder: Path, path: str) -> Path | None:
    """The file of a path of the API; None if it cannot have one."""
    # A folder has one form of each schema.
    parts = path.removesuffix(SERIALIZED).split("/")
    if any(not part.strip(".") or len(part) > MAX_NAME for part in parts):
        return None
    return folder.joinpath(*parts[:-1], f"{parts[-1]}.json")


class FolderRegistry:
    """Answers in the files of a folder: `schemas/ids/17.json`."""

    port = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = str(folder)

    def get(self, path: str) -> bytes | None:
        """The contents of a file. Raises RegistryError."""
        file = file_of(self._folder, path)
        if file is None:
            return None
        try:
            with file.open("rb") as stream:
                answer = stream.read(MAX_ANSWER + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise RegistryError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
        return _bounded(answer)


class HttpRegistry:
    """A registry at a URL, with the credentials of the URL or of the environment."""

    def __init__(self, url: str, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            self.port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise UsageError(f"--registry: {error}") from None
        if not parts.hostname:
            raise UsageError("--registry: the URL has no host")
        host = parts.netloc.rpartition("@")[2]
        self._base = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self.name = self._base
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        user = environ.get(USER_INFO)
        if parts.username:
            user = urllib.parse.unquote(f"{parts.username}:{parts.password or ''}")
        token = environ.get(TOKEN)
        if user:
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        elif token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._opener = urllib.request.build_opener(*_handlers(parts.scheme, environ.get(CA_FILE)))
        self._clock = clock
        self._failure: tuple[float, str] | None = None
        """The last question had no answer: when, and why."""

    def get(self, path: str) -> bytes | None:
        """Ask for a path. Raises RegistryError."""
        if self._failure is not None and self._clock() < self._failure[0] + PAUSE_SECONDS:
            raise RegistryError(self._failure[1])
        try:
            answer = self._ask(path)
        except RegistryError as error:
            self._failure = self._clock(), str(error)
            raise
        self._failure = None
        return answer

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        """An answer, or too much of one. Raises OSError if it takes too long."""
        data, deadline = bytearray(), self._clock() + TIMEOUT_SECONDS
        while len(data) <= MAX_ANSWER and (part := answer.read1(PART)):
            data += part
            if self._clock() > deadline:
                raise TimeoutError("timed out")
        return bytes(data)

    def _ask(self, path: str) -> bytes | None:
        request = urllib.request.Request(f"{self._base}/{path}", headers=self._headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                data = self._read(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == http.HTTPStatus.NOT_FOUND and _is_answer(error):
                    return None
            raise RegistryError(f"{self.name} answers {error.code} to /{path}{_advice(error.code)}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or str(reason) or type(error).__name__
            raise RegistryError(f"{self.name} does not answer: {text}") from None
        return _bounded(data)


def _handlers(scheme: str, ca_file: str | None) -> list[urllib.request.BaseHandler]:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if scheme == "https":
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ValueError) as error:
            raise UsageError(f"{CA_FILE}: cannot read {ca_file}: {error}") from error
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return handlers


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: credentials are for the registry that was named."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


class _ErrorAnswer(msgspec.Struct):
    error_code: int
    """40401 to 40403: there is no such subject, version or schema."""


def _is_answer(error: urllib.error.HTTPError) -> bool:
    """Whether "not found" is a registry's own: any web server says so for paths that it does not know."""
    try:
        answer = msgspec.json.decode(error.read(MAX_ANSWER), type=_ErrorAnswer)
        return answer.error_code // 100 == http.HTTPStatus.NOT_FOUND
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _advice(code: int) -> str:
    if code in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        return f"; credentials are in {USER_INFO} (user:password) or {TOKEN}"
    return "; is this the URL of a registry?" if code == http.HTTPStatus.NOT_FOUND else ""


def _bounded(answer: bytes) -> bytes:
    if len(answer) > MAX_ANSWER:
        raise RegistryError(f"an answer is larger than {MAX_ANSWER >> 20} MiB")
    return answer


MAX_VERSIONS: Final = 1_000_000
"""Versions of all subjects."""


def copy_registry(registry: Registry, folder: Path) -> int:
    """Copy all versions of all subjects; returns their number. Raises CaptureError, OutputError."""
    count = 0
    try:
        for subject in _listed(registry, "subjects", str):
            for version in _listed(registry, f"subjects/{urllib.parse.quote(subject, safe='')}/versions", int):
                count += 1
                if count > MAX_VERSIONS:
                    raise RegistryError(f"{registry.name} has more than {MAX_VERSIONS:,} versions")
                _copy(registry, folder, path_of(subject, version))
    except RegistryError as error:
        raise CaptureError(str(error)) from error
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}") from error
    return count


def _listed(registry: Registry, path: str, kind: type[Any]) -> Iterator[Any]:
    """The elements of a list of the API."""
    try:
        yield from msgspec.json.decode(registry.get(path) or b"[]", type=list[kind])  # type: ignore[valid-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RegistryError(f"{registry.name}: the answer to /{path} is not a list") from None


def _copy(registry: Registry, folder: Path, path: str) -> None:
    """Copy a version, which is also the answer for its id and its GUID."""
    answer = _answer(registry, path)
    if answer is not None and answer.get("schemaType") == "PROTOBUF":
        answer = _answer(registry, path + SERIALIZED)
    if answer is None:
        return  # deleted meanwhile
    paths = [path, f"schemas/ids/{int(answer['id'])}"]
    if isinstance(answer.get("guid"), str):
        paths.append(f"schemas/guids/{urllib.parse.quote(answer['guid'], safe='')}")
    for one in paths:
        write_answer(folder, one, answer)


def write_answer(folder: Path, path: str, answer: dict[str, Any]) -> None:
    """Write an answer to the file of its path, if it can have one. Raises OSError."""
    file = file_of(folder, path)
    if file is not None:
        _write(file, msgspec.json.format(msgspec.json.encode(answer)))


def _answer(registry: Registry, path: str) -> dict[str, Any] | None:
    data = registry.get(path)
    try:
        found = None if data is None else msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RegistryError(f"{registry.name}: the answer to /{path} is not a schema") from None
    if found is not None and not isinstance(found.get("id"), int):
        raise RegistryError(f"{registry.name}: the answer to /{path} has no id")
    return found


def _write(file: Path, data: bytes) -> None:
    """Write a file that appears whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(prefix=".", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data + b"\n")
        os.chmod(aside, 0o644)
        os.replace(aside, file)
    except BaseException:
        os.unlink(aside)
        raise
