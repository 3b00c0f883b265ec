"""The output folder as executors see it: refused within seconds where they do not share it, before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.errors import OutputError
from kafkasniff.runtime.confined_files import open_own_folder
from kafkasniff.spark.tasks import share


def test_a_task_sees_the_folder_of_the_driver(tmp_path: Path) -> None:
    shared = share(open_own_folder(tmp_path / "out", make=True) / ".partial")
    assert shared.refusal() is None
    assert shared.open(open_own_folder(tmp_path)) == open_own_folder(tmp_path / "out" / ".partial")
    # Its attempt to write leaves nothing.
    assert len(list((tmp_path / "out" / ".partial").iterdir())) == 1


@pytest.mark.parametrize(
    ("there", "said"),
    [(False, r"does not exist on \S+: the driver and all executors need"), (True, "is another folder on ")],
    ids=["none", "such as /tmp/out, which an earlier run has left there"],
)
def test_another_machine(there: bool, said: str, tmp_path: Path) -> None:
    shared = share(open_own_folder(tmp_path / "out", make=True) / ".partial")
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    if there:
        share(open_own_folder(tmp_path / "out", make=True) / ".partial")
    with pytest.raises(OutputError, match=f"out: it {said}"):
        shared.open(open_own_folder(tmp_path))
    assert (tmp_path / "out").exists() == there


def test_a_folder_that_leads_elsewhere(tmp_path: Path) -> None:
    shared = share(open_own_folder(tmp_path / "out", make=True) / ".partial")
    (tmp_path / "out" / ".partial").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / ".partial").write_text("")
    with pytest.raises(OutputError, match=r"out: it cannot be (written|used) \("):
        shared.open(open_own_folder(tmp_path))
