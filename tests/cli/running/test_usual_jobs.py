"""The default number of processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkasniff.cli.running import sources as module
from kafkasniff.cli.running.sources import JOB_BYTES, MAX_USUAL_JOBS, usual_jobs


def sparse(path: Path, size: int) -> str:
    """A sparse file of that size."""
    with path.open("wb") as file:
        file.truncate(size)
    return str(path)


@pytest.mark.parametrize(
    ("cores", "sizes", "expected"),
    [
        (4, [], 1),
        (4, [JOB_BYTES - 1], 1),
        (4, [2 * JOB_BYTES - 1], 1),
        (4, [2 * JOB_BYTES], 2),
        (4, [JOB_BYTES] * 3, 3),
        (4, [100 * JOB_BYTES], 4),
        (1, [100 * JOB_BYTES], 1),
        (64, [100 * JOB_BYTES], MAX_USUAL_JOBS),
    ],
)
def test_by_size_and_cores(
    cores: int, sizes: list[int], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_cores", lambda: cores)
    assert usual_jobs([sparse(tmp_path / str(number), size) for number, size in enumerate(sizes)]) == expected


def test_inputs_that_are_not_files_are_read_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cores", lambda: 4)
    large = sparse(tmp_path / "large", 100 * JOB_BYTES)
    os.mkfifo(tmp_path / "pipe")
    for other in ("-", str(tmp_path / "pipe"), str(tmp_path / "none"), str(tmp_path)):
        assert usual_jobs([large, other]) == 1
    assert usual_jobs([large]) == 4
