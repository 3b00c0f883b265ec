"""What proves which version: the lines of proven.txt, and the counts by release."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis import coverage
from kafkasniff.kafka.apis.coverage import (
    Proof,
    Proven,
    defined_data,
    defined_pairs,
    proven,
)


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of proven versions, instead of the checkout's; the definitions, which are read once, stay."""
    assert defined_pairs()
    assert defined_data()
    (tmp_path / "dissectors").mkdir()
    monkeypatch.setattr(coverage, "data_folder", lambda: tmp_path / "dissectors")
    monkeypatch.setattr("kafkasniff.kafka.schema.data_files.data_folder", lambda: tmp_path / "dissectors")
    return tmp_path / "dissectors" / "proven.txt"


def test_lines(listed: Path) -> None:
    assert proven() == Proven({}, {}, {}), "nothing is proven without the file"
    listed.write_text(
        "# Head.\n"
        "Produce 9 captures 4.4.0 a.pcap b.pcap\n"
        "Produce 9 captures 3.9.2 c.pcap a.pcap\n"
        "\n"
        "Produce 9 vectors 4.4.0\n"
        "Vote 2 vectors 4.0.2 4.4.0\n"
        "data ConfigRecord 0 vectors 4.4.0\n"
        "batches 1 captures 3.9.2 c.pcap\n"
    )
    assert proven() == Proven(
        {(0, 9): Proof(("4.4.0",), ("a.pcap", "b.pcap", "c.pcap")), (52, 2): Proof(("4.0.2", "4.4.0"))},
        {("ConfigRecord", 0): Proof(("4.4.0",))},
        {1: Proof(captures=("c.pcap",))},
    )


def test_lines_that_prove_nothing(listed: Path) -> None:
    for line in (
        *("Produce", "Produce 9", "Produce 9 vectors", "Produce 9 captures 4.4.0", "Produce 9 hearsay 4.4.0"),
        *("Produce 99 vectors 4.4.0", "Produce nine vectors 4.4.0", "Product 9 vectors 4.4.0", "data"),
        *("data ConfigRecord 7 vectors 4.4.0", "data NoSuchRecord 0 vectors 4.4.0", "ConfigRecord 0 vectors 4.4.0"),
        "batches two vectors 4.4.0",
    ):
        listed.write_text(f"# Head.\n{line}\n")
        with pytest.raises(DefinitionError, match=r"proven\.txt:2: "):
            proven()
