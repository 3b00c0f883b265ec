"""Pages of figures: what they are taken on, tables, and the sections of `RESULTS.md`."""

from __future__ import annotations

import compileall
import datetime
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import kafkasniff

PAGE: Final = Path(__file__).parent / "RESULTS.md"
HEAD: Final = """# Results

Each section is written by the benchmark that it names; [README.md](README.md) says how they measure.
"""


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replace the section `name` with `text`, or append it if there is none yet."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    section = f"{begin}\n\n{text.strip()}\n\n{end}"
    before = page.read_text() if page.exists() else HEAD
    found = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    after, count = found.subn(lambda _: section, before, count=1)
    page.write_text(after if count else f"{before.rstrip()}\n\n{section}\n")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def today() -> str:
    return f"{datetime.datetime.now(tz=datetime.UTC):%-d %B %Y}"


def load_average() -> float:
    """The load average over the last minute."""
    return os.getloadavg()[0]


def hardware() -> str:
    """Cores, memory and system."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    memory = next((int(line.split()[1]) * 1024 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return (
        f"{os.cpu_count()} cores, {cpu or platform.machine()}, {memory / 1e9:.0f} GB of memory, {platform.system()} "
        f"{platform.release()}"
    )


def compile_package() -> None:
    """Write the package's bytecode, which whatever installs it does.

    Where nobody has, and Python may not (PYTHONDONTWRITEBYTECODE), each run compiles what it imports: a quarter of a
    second.
    """
    compileall.compile_dir(Path(kafkasniff.__file__).parent, quiet=2)


def versions() -> str:
    """Versions of the measured software."""
    return f"kafkasniff {kafkasniff.__version__}, Python {platform.python_version()}"


def tshark_version() -> str:
    """Raises FileNotFoundError where there is none."""
    program = shutil.which("tshark")
    if program is None:
        raise FileNotFoundError("tshark is not installed")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()[0].rstrip(".")


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except FileNotFoundError:
        return []
