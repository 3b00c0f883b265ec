"""`kafkasniff report`: where the page is written, and how the command ends. `tests/report` checks the page."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from kafkasniff.analysis.detectors import Detectors
from kafkasniff.cli.environment import Exit
from kafkasniff.cli.output import WholeFile
from kafkasniff.errors import OutputError, UsageError
from tests.analysis.exports import write_export
from tests.analysis.tables import exchange
from tests.cli.console import kafkasniff

pytest.importorskip("vl_convert")
pytest.importorskip("jinja2")


@pytest.fixture(autouse=True)
def without_slow_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts and most detectors take most of the time and are not tested here."""
    monkeypatch.setattr(
        "kafkasniff.report.contents.Detectors", partial(Detectors, ["unanswered-requests", "plaintext-credentials"])
    )
    monkeypatch.setattr("kafkasniff.report.charts.svg_of", lambda spec, label, width: "")


def test_a_page_private_to_its_owner(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    result = kafkasniff("report", capture, "-o", path)
    assert (result.code, result.out, result.err) == (Exit.OK, b"", "")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    # The second time, it replaces an existing page.
    path.write_text("old")
    path.chmod(0o644)
    assert kafkasniff("report", capture, "-o", path).code == Exit.OK
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_name_it_says_where_the_page_is(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = kafkasniff("report", capture)
    assert (result.code, result.err) == (Exit.OK, "kafkasniff: wrote report.html\n")
    page = Path("report.html")
    page.write_text("somebody's")
    result = kafkasniff("report", capture)
    assert (result.code, page.read_text()) == (Exit.USAGE, "somebody's")
    assert result.err.startswith("kafkasniff: report.html exists: to replace it")


def test_names_of_addresses(capture: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.5 <billing>\n10.0.0.9:9092 broker-1 rack=eu-1a\n")
    text = kafkasniff("report", capture, "-o", "-", "--hosts", hosts).text
    assert "&lt;billing&gt; (10.0.0.5:51334)" in text
    assert "<td>broker-1</td><td>eu-1a</td>" in text


def test_missing_parts_of_an_export_are_reported(tmp_path: Path) -> None:
    folder = write_export(tmp_path / "out", exchanges=[exchange(at=place, exchange_id=place) for place in range(3)])
    result = kafkasniff("report", folder, "-o", tmp_path / "report.html")
    assert result.code == Exit.OK
    assert "there is no table connections" in result.err
    assert "there is no table connections" in (tmp_path / "report.html").read_text()
    without = write_export(tmp_path / "other", connections=[])
    assert kafkasniff("report", without, "-o", "-").code == Exit.USAGE


def test_a_truncated_capture(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(capture.read_bytes()[:-100])
    result = kafkasniff("report", path, "-o", "-", "-q")
    assert result.code == Exit.BROKEN
    assert "A capture is truncated or damaged" in result.text


def test_complete_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page"
    path.write_text("old")
    file = WholeFile(str(path))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            file.write(b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    file.write(b"new")
    assert path.read_bytes() == b"new"


def test_links_and_devices(tmp_path: Path) -> None:
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    WholeFile(str(link)).write(b"page")
    assert (target.read_bytes(), link.is_symlink()) == (b"page", True)
    WholeFile(os.devnull).write(b"page")
    assert not Path(os.devnull).is_file()
    with pytest.raises(UsageError, match="is a capture"):
        WholeFile(str(link), inputs=["-", str(target)])
