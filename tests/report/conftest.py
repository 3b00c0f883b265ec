from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.report.reviewed import make


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of real captures, made once, beside the specifications of its charts (`charts.txt`).

    Tests that request it run in one worker (the group `browser`).
    """
    path = tmp_path_factory.mktemp("page") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        path.with_name("charts.txt").write_text(make(path), encoding="utf-8")
    return path
