"""What decrypts TLS in Spark's tasks: where it counts, what it costs nobody, and what is said where it cannot be used.

The tasks run one after the other in this process; tests/spark/test_tls.py has Spark itself.
"""

from __future__ import annotations

import functools
import pickle
import ssl
from pathlib import Path

import pytest

from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.capture.timeline.parts import Place
from kafkasniff.engine.inspector import Inspector
from kafkasniff.errors import MissingPartError, UsageError
from kafkasniff.spark import connections as module
from kafkasniff.spark.connections import TaskKeys
from kafkasniff.tls.keylog import KeyLog
from tests.choice import one_in
from tests.craft.packet import Packet
from tests.craft.write import pcapng_bytes
from tests.spark.both_stages import by_stages
from tests.tables.exports.exported import Rows, run, tables
from tests.tls.endpoints import Pair, Talk, kafka_talk, packets_of
from tests.tls.test_commands import many, with_secrets

HOUR = 3_600 * 10**9
EMPTY = b"# a key log in which there is nothing yet\n"
HEAD = 3
"""Blocks of a pcapng file in front of its packets."""


PLACES = (0, 38, None)
"""After how many packets there are secrets; None: after all."""


def same(
    captures: list[Path], folder: Path, *, shards: int = 3, size: int = 7, keylog: Path | None = None
) -> dict[str, Rows]:
    """The rows of both engines, which are the same."""
    path = None if keylog is None else str(keylog)
    run(captures, folder / "local", keylog=path)
    wanted = tables(folder / "local")
    keys = None if keylog is None else open_key_log(keylog)
    assert by_stages(captures, folder / "stages", keys=keys, shards=shards, size=size) == wanted
    return wanted


def secret_count(found: dict[str, Rows]) -> tuple[int, int]:
    """Exchanges, and connections that were not decrypted."""
    kinds = [row["kind"] for row in found["problems"]]
    return len(found["exchanges"]), kinds.count("tls-not-decrypted")


@pytest.mark.parametrize(("behind", "waits"), one_in(4, [(at, waits) for at in PLACES for waits in (True, False)]))
def test_secrets_count_from_their_place_on(tmp_path: Path, behind: int | None, waits: bool) -> None:
    """After this many packets, or all; with a block in front of all, connections wait for another one."""
    packets, log = many()
    data = with_secrets(pcapng_bytes(packets), log, blocks=HEAD + (len(packets) if behind is None else behind))
    capture = tmp_path / "capture.pcapng"
    capture.write_bytes(with_secrets(data, EMPTY, blocks=HEAD) if waits else data)
    exchanges, rejected = secret_count(same([capture], tmp_path))
    if behind == 0:
        assert (exchanges, rejected) == (45, 0)
    elif behind is None:
        assert (exchanges, rejected) == (0, 6)  # they are closed by then
    elif waits:
        assert exchanges > 0


def test_one_of_several_captures_holds_them(tmp_path: Path) -> None:
    """As it rotates: all are in the first one; and two that were captured side by side."""
    packets, log = many()
    third = len(packets) // 3
    rotated = [tmp_path / f"rotated-{number}.pcapng" for number in range(3)]
    for number, path in enumerate(rotated):
        path.write_bytes(pcapng_bytes(packets[number * third : None if number == 2 else (number + 1) * third]))
    rotated[0].write_bytes(with_secrets(rotated[0].read_bytes(), log, blocks=HEAD))
    assert secret_count(same(rotated, tmp_path / "rotated")) == (45, 0)
    beside = [tmp_path / "clients.pcapng", tmp_path / "others.pcapng"]
    for path, wanted in zip(beside, (True, False), strict=True):
        ours = [packet for packet in packets if (min(packet.sport, packet.dport, key=abs) == 9093) == wanted]
        path.write_bytes(pcapng_bytes(ours or packets[:1]))
    beside[1].write_bytes(with_secrets(beside[1].read_bytes(), log, blocks=HEAD))
    same(beside, tmp_path / "beside")


@functools.cache
def sleeper() -> tuple[Talk, list[Packet]]:
    """A connection that sends nothing more after some exchanges, and never ends; its last packet is a request's."""
    made = Pair(version=ssl.TLSVersion.TLSv1_2).talk(kafka_talk(3), ends=False)
    return made, packets_of(made.flights, client_port=50_123, closes=False)


@pytest.mark.parametrize("hours", one_in(3, [0, 0.9, 1.1], 1))
def test_a_connection_that_sleeps_hears_of_no_secret(tmp_path: Path, hours: float) -> None:
    """The connection is over after an hour. Which packet shows that depends on the reader; the rows must not."""
    made, packets = sleeper()
    every, behind = list(packets), len(packets)
    for number, at in enumerate((0.5, 0.9, 1.1, 1.5)):
        tick = Pair(version=ssl.TLSVersion.TLSv1_2).talk(kafka_talk(1))
        for packet in packets_of(tick.flights, client_port=51_000 + 4 * number):
            every.append(packet._replace(time_ns=packet.time_ns + int(at * HOUR)))
        behind = len(every) if hours == at else behind
    data = with_secrets(pcapng_bytes(every), made.key_log, blocks=HEAD + behind)
    capture = tmp_path / "capture.pcapng"
    capture.write_bytes(with_secrets(data, EMPTY, blocks=HEAD))
    # So many shards that none has two of the connections.
    assert secret_count(same([capture], tmp_path, shards=61)) == (0, 5)


def test_lines_that_are_none_are_reported_once(tmp_path: Path) -> None:
    """In the file and in captures, whatever the number of tasks, and not more of them than of one key log."""
    packets, log = many()
    bad = b"".join(b"line %d\n" % number for number in range(15))
    capture, keylog = tmp_path / "capture.pcapng", tmp_path / "keys.log"
    capture.write_bytes(with_secrets(pcapng_bytes(packets), bad + log, blocks=HEAD + 40))
    keylog.write_bytes(bad + log)
    for shards in (1, 3):
        found = same([capture], tmp_path / f"{shards}", shards=shards, keylog=keylog)
    details = [row["detail"] for row in found["problems"] if row["kind"] == "tls-key-log"]
    assert len(details) == 2
    assert sum(detail.count("is not LABEL CLIENT_RANDOM SECRET") for detail in details) == 20


# -- what is said ------------------------------------------------------------------------------------------------------


def key_log(data: bytes) -> KeyLog:
    parts = [data]
    return KeyLog(lambda: parts.pop() if parts else b"")


def test_nothing_shows_secrets() -> None:
    _, log = many()
    keys = TaskKeys(key_log(log), [(Place(0, 0, 1), log)])
    secrets = [line.split()[2].decode() for line in log.splitlines()]
    for shown in (repr(keys), str(keys), repr(vars(keys)["_file"]), repr(key_log(log))):
        assert not any(secret in shown or repr(bytes.fromhex(secret)) in shown for secret in secrets)


def test_a_worker_that_cannot_decrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = many()
    place = Place(0, 0, 1)
    given = [TaskKeys(key_log(log)), TaskKeys(captured=[(place, log)])]
    without = TaskKeys()
    sent = [pickle.dumps(one) for one in (*given, without)]
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    for one in sent[:2]:
        with pytest.raises(
            MissingPartError, match="Spark's workers cannot decrypt TLS: their Python lacks the package cryptography"
        ):
            pickle.loads(one).begin(Inspector(), 0)
    pickle.loads(sent[2]).begin(Inspector(), 0)
    with pytest.raises(MissingPartError, match="a key log needs the package cryptography"):
        TaskKeys(key_log(log))
    # Nowhere: then each connection says so.
    TaskKeys(captured=[(place, log)]).begin(Inspector(), 0)


def test_the_secrets_of_captures_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CAPTURED", 1 << 20)
    TaskKeys(captured=[(Place(0, 0, 1), bytes(1 << 20))])
    with pytest.raises(UsageError, match="more than 1 MiB of decryption secrets: use --engine local"):
        TaskKeys(captured=[(Place(0, 0, 1), bytes(1 << 20)), (Place(0, 0, 2), b"#")])
