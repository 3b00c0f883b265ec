"""Taking the package to the workers of a cluster: a zip of it, added to a session.

Workers unpickle our functions by name, so that kafkasniff has to be importable where they run. It is pure Python and
small; what it stands on (NumPy, pyarrow, codecs …) is not, and has to be there already.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import io
import pkgutil
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkasniff.kafka.data_files import data_folder
from kafkasniff.spark.session import get_session, runs_elsewhere

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from pyspark.sql import SparkSession

__all__ = ["package_zip", "ready_session", "ship"]

SOURCE_MODULE: Final = "pyspark_kafkasniff"
"""The module by whose name Spark finds the data source."""
_LEFT_OUT: Final = (".pyc", ".pyo", "~", ".so", ".dylib", ".zig")
"""Caches, and the native kernel: a library within a zip cannot be loaded, and workers read by Python without it."""


def ship(spark: SparkSession) -> Path:
    """Make kafkasniff importable for the workers of a session, and the data source known to it.

    Classic and Spark Connect; once per session is enough, again does nothing. Call it before the first query that
    needs kafkasniff: a worker keeps what it has imported, if that is another version that is installed there. The
    dependencies of kafkasniff have to be there. Returns the zip that was added; it is gone when this process ends.

    What plans a stream does not see what was shipped: streams of the data source need kafkasniff installed (or on the
    PYTHONPATH) where queries are planned. Batch queries do not.

    Raises what Spark raises where it cannot take the file, and OSError where there is no place for it.
    """
    from kafkasniff.spark.data_source import DefaultSource

    content = package_zip()
    # A name for each content: a file that was added must not change any more.
    path = _folder() / f"kafkasniff-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not path.is_file():
        path.write_bytes(content)
    spark.addArtifacts(str(path), pyfile=True)
    # By itself Spark looks for data sources once, where it plans, and not in what sessions have added.
    spark.dataSource.register(DefaultSource)
    return path


def ready_session(master: str | None = None, **conf: str) -> SparkSession:
    """A session (see `get_session`) whose workers have kafkasniff: shipped to where it may be missing."""
    spark = get_session(master, **conf)
    if runs_elsewhere(spark):
        ship(spark)
    return spark


def package_zip() -> bytes:
    """The package, its dissectors and the data source's module as a zip to import from: same code, same bytes."""
    package = files("kafkasniff")
    content = {f"kafkasniff/{name}": file.read_bytes() for name, file in _walk(package)}
    # Beside the package in a checkout, within it where it is installed.
    content |= {f"kafkasniff/dissectors/{name}": file.read_bytes() for name, file in _walk(data_folder())}
    module = pkgutil.get_data(SOURCE_MODULE, f"{SOURCE_MODULE}.py")
    assert module is not None
    content[f"{SOURCE_MODULE}.py"] = module
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(content):
            # Without a time given it is 1980-01-01.
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content[name])
    return written.getvalue()


def _walk(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """All files below a folder with their names from there, but what Python and editors leave behind."""
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name.endswith(_LEFT_OUT) or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry


@functools.cache
def _folder() -> Path:
    """One folder of this process: executors fetch the file from the driver whenever they start."""
    folder = tempfile.mkdtemp(prefix="kafkasniff-ship-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
