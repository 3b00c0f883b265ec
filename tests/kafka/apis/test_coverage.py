"""What proves which version: the lines of proven.txt, and the counts by release."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.errors import DefinitionError
from kafkasniff.kafka.apis import coverage
from kafkasniff.kafka.apis.coverage import (
    PairCount,
    Proof,
    Proven,
    count_by_release,
    defined_data,
    defined_pairs,
    proven,
)
from kafkasniff.kafka.apis.coverage import version_ranges as ranges
from kafkasniff.kafka.apis.releases import releases
from kafkasniff.kafka.schema.data_files import read_data


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of proven versions, instead of the checkout's."""
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


def test_counts_by_release() -> None:
    # Envelope 0 came with 2.8, TxnOffsetCommit 6 with 4.4, BrokerRegistration 5 with no release.
    pairs = {(58, 0): Proof(("4.4.0",), ("a.pcap",)), (28, 6): Proof(captures=("a.pcap",)), (62, 5): Proof(("x",))}
    counts = {count.since: count for count in count_by_release(pairs)}
    assert counts["2.0-2.8"][2:] == (1, 1, 1)
    assert counts["4.4"] == PairCount("4.4", 7, 1, 0, 1)
    assert counts["none"] == PairCount("none", 1, 1, 1, 0)
    assert counts["all"] == PairCount("all", len(defined_pairs()), 3, 2, 2)
    *parts, whole = count_by_release(pairs)
    assert [sum(numbers) for numbers in zip(*(part[1:] for part in parts), strict=True)] == list(whole[1:])
    # Up to 4.3, including versions that were never released: the 362 pairs of the first set of definitions.
    assert whole.defined - counts["4.4"].defined == 362
    newest = releases()[-1].split(".")[0]
    assert [since for since in counts if since.startswith(f"{newest}.")] == [
        release for release in releases() if release.startswith(f"{newest}.") and release in counts
    ]


def test_the_file_of_the_checkout() -> None:
    found = proven()
    assert found.pairs.keys() <= defined_pairs()
    assert found.data.keys() <= defined_data()
    assert all(proof.vectors or proof.captures for table in found for proof in table.values())
    assert [ranges(each) for each in ([], [3], [0, 1, 3, 4, 5, 9])] == ["", "3", "0-1, 3-5, 9"]
    assert len(read_data("proven.txt")[1]) >= len(found.pairs) + len(found.data) + len(found.batches)
