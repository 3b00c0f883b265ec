"""The text of `follow`: what is missing, many repetitions, and names that would act on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkasniff.cli.environment import Exit
from kafkasniff.text.printable import printable
from tests.analysis.exports import write_export
from tests.analysis.follow.test_follow import commit, exchange, fetch, fetched, partition, produce, produced
from tests.analysis.tables import Row
from tests.choice import one_in
from tests.cli.console import kafkasniff
from tests.test_hostile_strings import EVIL, harmless


def text(folder: Path, exchanges: list[Row], records: list[Row], *arguments: str, width: int = 120) -> str:
    export = write_export(folder / "export", exchanges=exchanges, records=records)
    result = kafkasniff("follow", "--key", "k", *arguments, export, width=width)
    assert (result.code, result.err) == (Exit.OK, "")
    return result.text


def test_what_is_missing(tmp_path: Path) -> None:
    lost = text(tmp_path / "lost", [produce(1, 0)], [produced(1, 0)])
    assert "orders-0  key k, value 5 B" in lost
    assert "no response: the connection ended  1/1" in lost
    assert lost.splitlines()[-2:] == [
        "  offset unknown: no acknowledgement and no delivery show it",
        "  not delivered by the end of the capture",
    ]
    exchanges = [
        produce(1, 0, 17),
        fetch(1, 1, 12, "early"),
        fetch(2, 1, 20, "late"),
        *(fetch(number, number, offset, "passing") for number, offset in ((3, 16), (4, 18))),
        commit(2, 4, 0, "passing", "g"),
        commit(3, 4, 18, "elsewhere", "h"),
    ]
    found = text(tmp_path / "absent", exchanges, [produced(1, 0)])
    assert "committed by group h: 18, its delivery is not in the capture  3/3" in found
    assert found.splitlines()[-4:] == [
        "  not delivered by the end of the capture",
        "  group g: fetches on both sides of it, but no response has it: compacted, deleted, or not captured",
        "  early (10.0.0.5): not delivered by the end, it fetches from offset 12",
        "  late (10.0.0.5): fetches only later offsets, at the end 20",
    ]


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
