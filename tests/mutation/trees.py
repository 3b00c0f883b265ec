"""Copies of a checkout in which faults are planted and tests are run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.faults import Fault

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """How a run of tests ended."""

    code: int | None
    """Exit code of pytest; None where time ran out."""
    failed: tuple[str, ...]
    """Tests that failed, or files that could not be collected."""
    output: str

    @property
    def found(self) -> bool:
        """Something failed, crashed or did not end."""
        return self.code not in (0, 5)


class Tree:
    """A copy of the files of a checkout, with the compiled kernel."""

    def __init__(self, checkout: Path, folder: Path, python: Path) -> None:
        self.checkout = checkout
        self.folder = folder
        self.python = python
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=checkout, capture_output=True, check=True
        ).stdout
        names = [name for name in os.fsdecode(listed).split("\0") if name]
        names += [path.relative_to(checkout).as_posix() for path in (checkout / "kafkasniff/native").glob("kernel.*")]
        for name in dict.fromkeys(names):
            source, target = checkout / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        where = self._run(["-c", "import kafkasniff; print(kafkasniff.__file__)"], 60, {})
        if Path(where.output.strip()) != folder / "kafkasniff" / "__init__.py":
            raise RuntimeError(f"tests would run another package: {where.output}")

    @contextlib.contextmanager
    def with_faults(self, faults: Sequence[Fault]) -> Iterator[bool]:
        """Plant faults for a while; yields whether the kernel could still be compiled."""
        sources = {fault.path: (self.folder / fault.path).read_bytes() for fault in faults}
        compiled = True
        # From the end, so that earlier places stay where they are.
        changed = dict(sources)
        for fault in sorted(faults, reverse=True):
            changed[fault.path] = fault.planted(changed[fault.path])
        libraries = {path: path.read_bytes() for path in (self.folder / "kafkasniff/native").glob("kernel.*")}
        try:
            for name, source in changed.items():
                (self.folder / name).write_bytes(source)
            if any(name.endswith(".zig") for name in changed):
                compiled = self._run(["hatch_build.py"], 600, {}).code == 0
            yield compiled
        finally:
            for name, source in sources.items():
                (self.folder / name).write_bytes(source)
            for path, library in libraries.items():
                path.unlink(missing_ok=True)
                path.write_bytes(library)
                path.chmod(0o755)

    def tests(
        self, names: Sequence[str], *options: str, seconds: float, environment: Mapping[str, str] | None = None
    ) -> Run:
        """Run tests by name (files, folders or single tests), for at most this many seconds."""
        arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", *options, *names]
        return self._run(arguments, seconds, environment or {})

    def _run(self, arguments: Sequence[str], seconds: float, environment: Mapping[str, str]) -> Run:
        process = subprocess.Popen(
            [str(self.python), *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder), "CI": "true", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            # Processes that a test started would otherwise continue.
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            code = None
        return Run(code, tuple(_FAILED.findall(output)), output)


def this_python() -> Path:
    """The interpreter that runs now, in its environment."""
    return Path(sys.executable)
