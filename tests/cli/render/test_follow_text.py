"""The text of `follow`: what is missing, many repetitions, and names that would act on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.text.printable import printable
from tests.analysis.exports import write_export
from tests.analysis.follow.test_follow import exchange, fetch, fetched, partition
from tests.analysis.tables import Row
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.test_hostile_strings import EVIL, harmless


def text(folder: Path, exchanges: list[Row], records: list[Row], *arguments: str, width: int = 120) -> str:
    export = write_export(folder / "export", exchanges=exchanges, records=records)
    result = kafkasniff("follow", "--key", "k", *arguments, export, width=width)
    assert (result.code, result.err) == (Exit.OK, "")
    return result.text


def test_many_deliveries(tmp_path: Path) -> None:
    exchanges = [fetch(number, number, 17) for number in range(1, 11)]
    found = text(tmp_path, exchanges, [fetched(number, number, 17) for number in range(1, 11)])
    assert found.count("delivered again to reader") == 3
    assert "  reader (10.0.0.5): 6 more deliveries\n" in found


@pytest.mark.parametrize("width", one_in(2, [60, 80]))
def test_names_from_the_wire(tmp_path: Path, width: int) -> None:
    everything = "".join(EVIL.values()) * 3
    exchanges, records = [], []
    for number, name in enumerate((*EVIL.values(), everything), 1):
        part = partition(name, offset=17, record_count=1)
        wire = {"client_id": name, "exchange_id": number, "partitions": [part], "connection_id": 2}
        exchanges += [
            exchange("Fetch", number, sender="client", **wire),
            exchange("OffsetCommit", number, **{**wire, "partitions": [{**part, "offset": 18}], "group_id": name}),
        ]
        records.append(fetched(number, number, 17, topic=name, key=name.encode("utf-8", "surrogatepass")))
    folder = write_export(tmp_path, exchanges=exchanges, records=records)
    for name in one_in(3, [*EVIL.values()]):
        for colours in ("never", "always"):
            result = kafkasniff("follow", "--key", name, "--color", colours, folder, width=width, stdout_tty=True)
            assert result.code == Exit.OK
            harmless(result.text)
            assert printable(name)[:6] in result.text
    result = kafkasniff("follow", "--key", everything, folder, width=width)
    harmless(result.text)
    harmless(kafkasniff("follow", "--key", f"{everything}x", folder).err)
