from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import scale, shapes
from benchmarks.scale_captures import Form
from benchmarks.scale_report import Measurement
from benchmarks.scale_traffic import HOT_SHARE
from benchmarks.shapes import Shaped, main, section
from tests.benchmarks.test_scale_report import run


def test_the_section_has_speed_ups_and_the_longest_tasks() -> None:
    one, two = run("spark", 1, 90.0, cores=1), run("spark", 1, 60.0)
    assert two.log is not None
    for stage, longest in zip(two.log.stages, (2_500, 4_000), strict=True):
        stage.longest_ms = longest
    text = section([Shaped("long", one), Shaped("long", two), Shaped("other", two)], ["a machine"], "python")
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("| ")]
    assert [row[7] for row in rows] == ["speed-up", "---", "", "1.50", ""]
    assert rows[3][13] == "6.5"
    assert "- a machine" in text


@pytest.fixture
def local_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "ENGINES", ("local",))
    monkeypatch.setattr(shapes, "CORES", (1,))


@pytest.mark.usefixtures("local_only")
def test_all_shapes_are_measured(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    assert main(["--mb", "1", "--data", str(tmp_path / "data"), "--report", str(page)]) == 0
    text = page.read_text()
    for shape in shapes.shapes(1_000_000):
        assert f"| {shape.name} | 1 | {shape.file_parts} | local | 1 |" in text
    assert str(tmp_path) not in text


def test_other_rows_are_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unlike(*_: object) -> Iterator[Measurement]:
        yield run("local", 1, 1.0)
        yield run("spark", 2, 1.0)

    monkeypatch.setattr(shapes, "runs_over", unlike)
    assert main(["--mb", "1", "--data", str(tmp_path), "--report", str(tmp_path / "page")]) == 1
    assert "not the same rows as local" in capsys.readouterr().out
    assert not (tmp_path / "page").exists()


def test_large_captures_repeat_their_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handshakes of more traffic would not fit into the first of many small files."""
    forms: list[Form] = []

    def made(folder: Path, count: int, form: Form) -> list[Path]:
        forms.append(form)
        return [folder / str(number) for number in range(count)]

    monkeypatch.setattr(shapes, "captures", made)
    monkeypatch.setattr(scale, "run", lambda *_: None)
    options = shapes.parser().parse_args(["--data", str(tmp_path)])
    for shape in shapes.shapes(2_000_000_000)[:3]:
        list(shapes.runs_over(shape, 2_000_000_000, options))
    assert [(form.file_bytes, form.base_bytes) for form in forms] == [
        (500_000_000, shapes.BASE_BYTES),
        (100_000, shapes.BASE_BYTES),
        (500_000_000, shapes.BASE_BYTES),
    ]
    assert [form.hot_share for form in forms] == [HOT_SHARE, HOT_SHARE, 0.9]
