"""pytest plugin (`-p tests.mutation.recording`): which test files run which lines of the package, and for how long.

Each process writes a file into the folder `KAFKASNIFF_MUTATION_RECORD`; `python -m tests.mutation record` merges them.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = Path(os.environ["KAFKASNIFF_MUTATION_RECORD"])

_coverage = coverage.Coverage(source=[str(ROOT / "kafkasniff")], data_file=None, config_file=False)
_seconds: dict[str, float] = defaultdict(float)
# Before any module of the package is imported.
_coverage.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    name = item.nodeid.partition("::")[0]
    _coverage.switch_context(name)
    begin = time.perf_counter()
    try:
        return (yield)
    finally:
        _seconds[name] += time.perf_counter() - begin
        _coverage.switch_context("")


def pytest_sessionfinish() -> None:
    _coverage.stop()
    data = _coverage.get_data()
    lines = {}
    for file in data.measured_files():
        by_line = data.contexts_by_lineno(file)
        found = {str(line): sorted(set(names) - {""}) for line, names in by_line.items()}
        lines[Path(file).relative_to(ROOT).as_posix()] = {line: names for line, names in found.items() if names}
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{os.getpid()}.json").write_text(json.dumps({"lines": lines, "seconds": _seconds}))
