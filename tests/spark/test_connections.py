"""Both stages without a session make the rows of the local engine."""

from __future__ import annotations

import functools
import pickle
import ssl
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from kafkasniff.capture.timeline.key_log_file import open_key_log
from kafkasniff.capture.timeline.parts import Place
from kafkasniff.engine.inspector import Inspector
from kafkasniff.enrich.sessions import SessionStep
from kafkasniff.errors import MissingPartError, UsageError
from kafkasniff.model import Endpoint
from kafkasniff.spark import connections as module
from kafkasniff.spark.connections import (
    BROKER_VALUES,
    HELD,
    SESSIONS,
    STEP,
    STEP_COLUMNS,
    BrokerSessions,
    TaskKeys,
    WalkSessions,
)
from kafkasniff.tables.checkpoint import dump
from kafkasniff.tables.rows.sessions import SessionContent, Sessions, encode_held
from kafkasniff.tls.keylog import KeyLog
from tests.choice import fewer, one_in
from tests.craft.packet import Packet
from tests.craft.write import pcapng_bytes
from tests.spark.both_stages import by_stages, decode
from tests.tables.exports.exported import CAPTURES, Rows, cut, run, tables
from tests.tls.endpoints import Pair, Talk, kafka_talk, packets_of
from tests.tls.test_commands import many, with_secrets

EVERY = sorted(path for path in CAPTURES.rglob("*.pcap*") if path.suffix in {".pcap", ".pcapng"})
LONG = CAPTURES / "java-codecs.pcap"


def damaged(path: Path, seed: int) -> Path:
    """`LONG` with bits of its later part changed."""
    random, data = Random(seed), bytearray(LONG.read_bytes())
    for _ in range(60):
        data[random.randrange(len(data) // 3, len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return path


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("capture", EVERY[fewer(7, 3) :: fewer(45, 15)], ids=lambda path: path.stem)
def test_stages_make_the_rows_of_the_local_engine(capture: Path, tmp_path: Path) -> None:
    run([capture], tmp_path / "local")
    assert by_stages([capture], tmp_path / "stages", shards=3, size=7) == tables(tmp_path / "local")


@pytest.mark.extended
@pytest.mark.usefixtures("small_bounds")
def test_rotated_captures_and_others_beside_them(tmp_path: Path) -> None:
    parts = cut(CAPTURES / "kraft-two-brokers.pcap", (0.3, 0.6), tmp_path / "parts")
    captures = [parts[0], LONG, *parts[1:]]
    run(captures, tmp_path / "local")
    wanted = tables(tmp_path / "local")
    assert by_stages(captures, tmp_path / "stages", shards=5, size=3) == wanted


@pytest.mark.usefixtures("small_bounds")
def test_damaged_records(tmp_path: Path) -> None:
    """Exchanges with flaws in their records take other ways; flaws are counted once."""
    for seed in range(fewer(1, 2)):
        capture = damaged(tmp_path / f"damaged-{seed}.pcap", seed)
        run([capture], tmp_path / f"local-{seed}")
        wanted = tables(tmp_path / f"local-{seed}")
        assert wanted["problems"]
        assert by_stages([capture], tmp_path / f"stages-{seed}", shards=2) == wanted


# -- TLS ---------------------------------------------------------------------------------------------------------------

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


def in_three(folder: Path, packets: Sequence[Packet]) -> list[Path]:
    """Packets in three files, as a capture rotates."""
    third = len(packets) // 3
    paths = [folder / f"part-{number}.pcapng" for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(pcapng_bytes(packets[number * third : None if number == 2 else (number + 1) * third]))
    return paths


def test_one_of_several_captures_holds_them(tmp_path: Path) -> None:
    """As it rotates: all are in the first one; and two that were captured side by side."""
    packets, log = many()
    rotated = in_three(tmp_path, packets)
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


# -- fetch sessions ----------------------------------------------------------------------------------------------------


FIRST, SECOND = Endpoint("10.0.0.1", 9092), Endpoint("fd00::2", 9093)


def fetch(broker: Endpoint, time_ns: int, epoch: int, *topics: str, open_: bool = False) -> dict[str, Any]:
    """An exchange in session 5; a broker answers epoch 0 with a new session."""
    added = {topic: [0] for topic in topics}
    step = SessionStep(5 if epoch else 0, epoch, added=added, answer_ns=time_ns + 1, answer_number=5)
    place = (f"{broker.address}/{broker.port}", open_, time_ns, 7, time_ns, 3, 5)
    return dict(zip(STEP_COLUMNS, (*place, msgspec.msgpack.encode(step)), strict=True))


def walked(
    fetches: Sequence[dict[str, Any]], carried: Sessions | None = None, size: int = 100
) -> tuple[dict[int, bytes], dict[Endpoint, Sessions]]:
    """What applies to each exchange, and the sessions of each broker afterwards."""
    schema = decode([CAPTURES / "java-0.8.2.pcap"]).rows[0].schema
    order = sorted(fetches, key=lambda one: (one["broker"], one["open"], one["time_ns"]))
    rows = [pa.RecordBatch.from_pylist(order[at : at + size], schema=schema) for at in range(0, len(order), size)]
    held: dict[int, bytes] = {}
    after: dict[Endpoint, Sessions] = {}
    for batch in WalkSessions(dump(carried or Sessions()))(rows):
        for found in batch.to_pylist():
            if found["kind"] == HELD:
                assert (found["connection_id"], found["shard"], found["number"]) == (7, 3, 5)
                held[found["exchange_id"]] = found["data"]
            else:
                assert found["kind"] == SESSIONS != STEP
                broker: BrokerSessions = BROKER_VALUES.load(found["data"])
                assert broker.broker not in after
                after[broker.broker] = broker.sessions()
    return held, after


def content(*topics: str) -> bytes:
    return encode_held(SessionContent(topics, False, len(topics), None))


def test_a_session_is_its_brokers_and_open_exchanges_are_no_part_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run processes open ones again: what it begins with is the state before them."""
    begun = [fetch(FIRST, 10, 0, "orders"), fetch(SECOND, 11, 0, "returns"), fetch(FIRST, 20, 1), fetch(SECOND, 21, 1)]
    opened = [fetch(FIRST, 30, 2, "payments", open_=True), fetch(FIRST, 40, 3, open_=True)]
    held, after = walked([*begun, *opened])
    assert (held[20], held[21], held[40]) == (content("orders"), content("returns"), content("orders", "payments"))
    assert after.keys() == {FIRST, SECOND}
    assert dump(after[FIRST]) == dump(walked(begun)[1][FIRST])
    carried = Sessions()
    carried.replace({FIRST}, after[FIRST])
    again, _ = walked([{**one, "open": False} for one in opened], carried)
    assert again == {number: held[number] for number in (30, 40)}
    assert walked([fetch(SECOND, 50, 2)], carried)[0] == {}, "nothing is known of this session"
    monkeypatch.setattr(module, "BATCH_ROWS", 1)
    assert walked([*begun, *opened], size=1)[0] == held
