from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.console import kafkasniff
from tests.conftest import ROOT


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a real capture; those who want it run in one worker (the group `browser`)."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    capture = ROOT / "captures" / "java-group-classic.pcap"
    result = kafkasniff("report", capture, "-o", path, "-q")
    assert (result.code, result.err) == (0, "")
    return path
