"""Shipping the package to the workers of a cluster: a zip of it and an archive with the native kernel.

Workers unpickle our functions by name, so they must be able to import kafkasniff. Python imports it from the zip. The
library cannot be loaded from a zip, so Spark unpacks the archive next to it (`kafkasniff.native.library` looks there).
The dependencies (NumPy, pyarrow, codecs …) are not shipped and must be installed on the workers.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import io
import os
import pkgutil
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkasniff.errors import UsageError
from kafkasniff.kafka.schema.codes import added_folders, data_folder, files_of
from kafkasniff.native.library import PLATFORM, library_path
from kafkasniff.spark.session import get_session, is_connect, runs_elsewhere

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from pyspark.sql import SparkSession

SOURCE_MODULE: Final = "pyspark_kafkasniff"
"""The module by whose name Spark finds the data source."""
_LEFT_OUT: Final = (".pyc", ".pyo", "~", ".so", ".dylib")
"""Caches, and the library, which is in the archive. The kernel's sources are kept: the library must match them."""

_WHEEL: Final = re.compile(r"-py3-none-(?:\w+\.)*(?:(?:many|musl)linux|macosx)\w*?_(x86_64|aarch64|arm64)\.whl")
_LIBRARIES: Final = {"kafkasniff/native/kernel.so": "linux", "kafkasniff/native/kernel.dylib": "darwin"}
"""The library's name in a wheel and the platform that it is for."""


def ship(spark: SparkSession, *, wheels: Iterable[str | Path] = ()) -> Path:
    """Make kafkasniff importable for the workers of a session, and register the data source.

    Works with classic Spark and Spark Connect; repeated calls for a session do nothing. Call it before the first query
    that needs kafkasniff: a worker that has imported another version keeps that one. The workers need kafkasniff's
    dependencies. Returns the added zip, which is deleted when this process ends.

    Workers get the native kernel of this installation, and those of `wheels`: wheels of the same kafkasniff for other
    platforms. A task on a worker without a kernel for its platform fails with MissingKernelError.

    The planner of a stream does not see shipped files: streams of the data source need kafkasniff installed (or on the
    PYTHONPATH) where queries are planned. Batch queries do not.

    Raises UsageError for a wheel without a kernel, OSError if a file cannot be read or written, and Spark's errors if
    it cannot take the files.
    """
    from kafkasniff.spark.data_source import DefaultSource

    package, native = package_zip(), native_archive(wheels)
    # The name contains a hash of the content: a file must not change after it was added.
    name = f"kafkasniff-{hashlib.sha256(package + native).hexdigest()[:16]}"
    path = _written(f"{name}.zip", package)
    spark.addArtifacts(str(path), pyfile=True)
    if native and not _is_unpacked(spark, f"{name}-native"):
        # The part after # is the name of the folder that Spark unpacks it to.
        spark.addArtifacts(f"{_written(f'{name}-native.zip', native)}#{name}-native", archive=True)
    # Spark looks for data sources only in the planner's process, not in files added to sessions.
    spark.dataSource.register(DefaultSource)
    return path


def ready_session(master: str | None = None, **conf: str) -> SparkSession:
    """A session of a command (see `get_session`) whose workers have kafkasniff: it is shipped if it may be missing."""
    spark = get_session(master, quick_start=True, **conf)
    if runs_elsewhere(spark):
        ship(spark)
    return spark


def package_zip() -> bytes:
    """The package, its dissectors and the data source's module as an importable zip: same code, same bytes."""
    package = files("kafkasniff")
    content = {f"kafkasniff/{name}": file.read_bytes() for name, file in _walk(package)}
    # Next to the package in a checkout, within it if installed.
    content |= {f"kafkasniff/dissectors/{name}": file.read_bytes() for name, file in _walk(data_folder())}
    for folder in added_folders():
        for key, (_, file) in files_of(folder).items():
            content.pop(f"kafkasniff/dissectors/{files_of(data_folder()).get(key, ('', file))[1].name}", None)
            content[f"kafkasniff/dissectors/{file.name}"] = file.read_bytes()
    module = pkgutil.get_data(SOURCE_MODULE, f"{SOURCE_MODULE}.py")
    assert module is not None
    content[f"{SOURCE_MODULE}.py"] = module
    return _zipped(content)


def native_archive(wheels: Iterable[str | Path] = ()) -> bytes:
    """The native kernel of this installation and those of wheels, each in the folder of its platform.

    Empty if there is none. Raises UsageError for a wheel without a kernel.
    """
    own = library_path()
    content = {f"{PLATFORM}/{own.name}": own.read_bytes()} if own.is_file() else {}
    for wheel in map(Path, wheels):
        machine = _WHEEL.search(wheel.name)
        try:
            with zipfile.ZipFile(wheel) as archive:
                found = [name for name in _LIBRARIES if name in archive.namelist()]
                if machine is None or not found:
                    raise UsageError(f"{wheel}: this wheel has no native kernel")
                content[f"{_LIBRARIES[found[0]]}-{machine[1]}/{Path(found[0]).name}"] = archive.read(found[0])
        except zipfile.BadZipFile as error:
            raise UsageError(f"{wheel}: not a wheel: {error}") from error
    return _zipped(content) if content else b""


def _zipped(content: Mapping[str, bytes]) -> bytes:
    """A zip of these files: same files, same bytes."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(content):
            # Without a given time it is 1980-01-01.
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content[name])
    return written.getvalue()


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """All files below a folder with their relative names, except caches and editor files."""
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name.endswith(_LEFT_OUT) or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry


def _written(name: str, content: bytes) -> Path:
    """A file of this process with that content."""
    path = _folder() / name
    if not path.is_file():
        path.write_bytes(content)
    return path


def _is_unpacked(spark: SparkSession, name: str) -> bool:
    """Whether an archive was added before: Spark warns about adding it again, a Spark Connect server does not."""
    if is_connect(spark):
        return False
    from pyspark import SparkFiles

    return os.path.exists(SparkFiles.get(name))


@functools.cache
def _folder() -> Path:
    """A folder for the lifetime of this process: executors fetch the file from the driver when they start."""
    folder = tempfile.mkdtemp(prefix="kafkasniff-ship-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
