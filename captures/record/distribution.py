"""Kafka's own jars from Maven Central, kept in a cache folder per release."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

DEFAULT_VERSION = "4.4.0"
"""Release of the broker that most captures are recorded with."""

COVERED_VERSION = "4.4.0"
"""The newest release whose every request the dissectors know: Kafka's classes in the tests' vectors and evidence are of
it. It may be older than the broker's."""

CLIENT_VERSION = "4.3.1"
"""Release of the Java client, Kafka Streams and Kafka Connect in most captures; Kafka Streams 4.4 is not published."""

OLD_VERSION = "3.9.2"
"""Last release line that serves what KIP-896 removed: produce v0-v2, fetch v0-v3, message sets, SaslHandshake v0."""

POM = Path(__file__).with_name("kafka-pom.xml")
APPLICATIONS_POM = Path(__file__).with_name("applications-pom.xml")
"""Kafka Streams and Kafka Connect."""

DOWNLOAD_TIMEOUT_S = 600


class SetupError(RuntimeError):
    """Something that recording needs is missing or did not start; the message says what."""


def cache_directory() -> Path:
    """Folder for downloads that survive between runs (``XDG_CACHE_HOME`` or ``~/.cache``, then ``kafkasniff``)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kafkasniff"


def kafka_jars(version: str = DEFAULT_VERSION, pom: Path = POM) -> Path:
    """Folder with those jars of one Kafka release that ``pom`` names (see ``maven_jars``)."""
    return maven_jars(pom, "kafka.version", version)


def maven_jars(pom: Path, variable: str, version: str) -> Path:
    """Folder with the jars that ``pom`` names when its property ``variable`` is ``version``, fetched on first use.

    The folder appears whole (fetched aside, then renamed), so a killed download leaves nothing half-made.
    Raises ``SetupError`` without Maven or when the release cannot be fetched.
    """
    name = f"{pom.stem.removesuffix('-pom')}-{version}"
    target = cache_directory() / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    try:
        command = ["mvn", "-q", "-B", "-f", str(pom), f"-D{variable}={version}", "dependency:copy-dependencies"]
        _run([*command, "-DincludeScope=runtime", f"-DoutputDirectory={aside}"])
        if target.is_dir():  # another process was quicker
            return target
        aside.chmod(0o755)
        aside.rename(target)
    finally:
        if aside.is_dir():
            shutil.rmtree(aside)
    return target


def java() -> str:
    """Path of a Java 17+ launcher: ``JAVA_HOME``, else ``java`` on the PATH. Raises ``SetupError`` if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise SetupError("Java 17 or newer is needed to run a broker")
    return found


def class_path(version: str = DEFAULT_VERSION, pom: Path = POM) -> str:
    """Class path of everything that ``pom`` names of one Kafka release: broker and client, if nothing else is said."""
    return str(kafka_jars(version, pom) / "*")


def python_with(*requirements: str) -> str:
    """Path of a Python in a virtual environment that holds the given pinned packages, made on first use.

    Raises ``SetupError`` if they cannot be installed.
    """
    target = _environment(*requirements)
    python = target / "bin" / "python"
    if not (target / "complete").exists():
        _run([sys.executable, "-m", "venv", "--clear", str(target)])
        _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])
        (target / "complete").write_text("\n".join(requirements) + "\n", encoding="utf-8")
    return str(python)


def has_python_with(*requirements: str) -> bool:
    """Whether ``python_with`` needs no download."""
    return (_environment(*requirements) / "complete").exists()


def is_cached(version: str, *environments: Sequence[str], modules: Sequence[Path] = ()) -> bool:
    """Whether a release's jars, environments with these packages and Go programs are there without a download."""
    jars = cache_directory() / f"kafka-{version}"
    complete = all(has_python_with(*one) for one in environments)
    return jars.is_dir() and complete and all(_program_of(module).exists() for module in modules)


def node_modules(package: Path) -> Path:
    """The ``node_modules`` that a folder's ``package-lock.json`` asks for, installed on first use.

    Raises ``SetupError`` if they cannot be installed.
    """
    lock = package / "package-lock.json"
    target = cache_directory() / f"node-{_short_hash(lock.read_text(encoding='utf-8'))}"
    if not (target / "complete").exists():
        target.mkdir(parents=True, exist_ok=True)
        for file in (package / "package.json", lock):
            shutil.copyfile(file, target / file.name)
        _run(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--prefix", str(target)])
        (target / "complete").touch()
    return target / "node_modules"


def go_program(module: Path) -> str:
    """Path of a folder's Go program, built if its sources are new. Raises ``SetupError`` if it cannot be built."""
    target = _program_of(module)
    if not target.exists():
        _run(["go", "build", "-C", str(module), "-o", str(target), "."])
    return str(target)


def _program_of(module: Path) -> Path:
    sources = [file.read_text(encoding="utf-8") for file in sorted(module.iterdir()) if file.is_file()]
    return cache_directory() / f"{module.name}-{_short_hash(*sources)}"


def _environment(*requirements: str) -> Path:
    return cache_directory() / f"venv-{_short_hash(sys.version, *requirements)}"


def _short_hash(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise SetupError(f"{command[0]} is needed") from error
    if done.returncode != 0:
        raise SetupError(f"{' '.join(command)} failed: {done.stdout[-800:]}{done.stderr[-800:]}")
