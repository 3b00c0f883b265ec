"""A baseline of one build compared with itself, and with a planted difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.baseline.__main__ import main


@pytest.mark.extended
def test_a_difference_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "baseline")
    chosen = ["--inputs", "variant-*", "--variants", "3"]
    outputs = [argument for name in ("json", "tables", "check") for argument in ("--only", name)]
    assert main(["write", folder, "--keep", *chosen, *outputs]) == 0
    assert "27 outputs of 3 inputs" in capsys.readouterr().out

    assert main(["compare", folder, "--inputs", "variant-001-*"]) == 0
    assert capsys.readouterr().out == "9 outputs compared, 0 differ and are not intended\n"

    hashes = tmp_path / "baseline" / "hashes.json"
    rows = json.loads(hashes.read_text())
    name, output, chunk = rows[0][:3]
    rows[0][3] = "another"
    hashes.write_text(json.dumps(rows))
    assert main(["compare", folder]) == 1
    assert f"differs: {name} {output} {chunk}" in capsys.readouterr().out
