"""Producers and a consumer of librdkafka that run at full speed or at a rate, and report what they sent.

Run by `benchmarks.live_loads` in an environment with confluent-kafka. It says `{"ports": …}` when there is a broker,
waits for a line, makes its clients (so that a capture sees their connections from the start), says `{"over": …}`
when the last record is delivered, and then how many requests the mock cluster got. A real broker does not report it:
there it is what the clients' statistics have counted, which is less, since they forget the first connection of each.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import random
import sys
import threading
import time
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.mock_cluster import MockCluster

TOPIC: Final = "load"
PARTITIONS: Final = 3
BROKERS: Final = 3
"""Brokers of the mock cluster."""

PRODUCERS: Final[dict[str, list[dict[str, Any]]]] = {
    # One request for each record.
    "small": [{"linger.ms": 0, "batch.num.messages": 1, "max.in.flight": 5, "queue.buffering.max.messages": 500}] * 4,
    "large": [
        {"linger.ms": 20, "batch.size": 900_000, "queue.buffering.max.kbytes": 8_000, "compression.type": codec}
        for codec in ("none", "lz4")
    ],
}
RECORD_BYTES: Final = {"small": 100, "large": 1000}
RECORDS: Final = 2000
"""Different records; then they are repeated."""

AT_ONCE: Final = 200
"""Records handed over before looking at the clock."""

TICK_S: Final = 0.01
"""At a rate, interval between batches of records, in seconds."""

FLUSH_S: Final = 15.0
STATISTICS_MS: Final = 500
SETTLE_S: Final = 15.0
"""Longest time until two consecutive statistics agree."""


@dataclasses.dataclass
class Counts:
    """librdkafka's counts for a client, over all its brokers."""

    tx: int = 0
    rx: int = 0
    settled: bool = False
    """Equal to the previous statistics, both from when nothing was left to send."""

    def take(self, text: str, *, over: bool) -> None:
        """Statistics in librdkafka's JSON (see its STATISTICS.md)."""
        brokers = json.loads(text)["brokers"].values()
        tx, rx = (sum(broker[name] for broker in brokers) for name in ("tx", "rx"))
        self.settled = over and (tx, rx) == (self.tx, self.rx)
        self.tx, self.rx = tx, rx


class Clients:
    """All clients of a load."""

    def __init__(self, form: str, bootstrap: str) -> None:
        self.over = False
        self.records = self.delivered = self.failed = 0
        self.counts: list[Counts] = []
        common = {
            "bootstrap.servers": bootstrap,
            "log_level": 3,
            "statistics.interval.ms": STATISTICS_MS,
            # Requests that nobody asked for would continue after the load.
            "topic.metadata.refresh.interval.ms": -1,
            "enable.metrics.push": False,
        }
        self._producers = [
            Producer({**common, **own, "client.id": f"{form}-{number}", "stats_cb": self._counting()})
            for number, own in enumerate(PRODUCERS[form])
        ]
        self._consumer = Consumer(
            {
                **common,
                "client.id": "consumer",
                "group.id": "load",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "stats_cb": self._counting(),
            }
        )
        self._pausing = threading.Event()
        self._partitions = [TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        rng = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz     "
        self._values = ["".join(rng.choices(letters, k=RECORD_BYTES[form])).encode() for _ in range(RECORDS)]

    def _counting(self) -> Any:
        counts = Counts()
        self.counts.append(counts)
        return lambda text: counts.take(text, over=self.over)

    def push(self, seconds: float, rate: float | None) -> None:
        """Produce and consume for this long; `rate`: records per second, None: as many as possible."""
        self._consumer.assign(self._partitions)
        reading = threading.Thread(target=self._read, daemon=True)
        reading.start()
        begin = time.monotonic()
        while (now := time.monotonic()) < begin + seconds:
            if rate is None:
                self._produce(AT_ONCE)
            else:
                self._produce(int((now - begin) * rate) - self.records)
                time.sleep(TICK_S)
        for producer in self._producers:
            producer.flush(FLUSH_S)
        self._pausing.set()

    def settle(self) -> bool:
        """Whether everything that was sent has been counted."""
        self.over = True
        deadline = time.monotonic() + SETTLE_S
        while not all(one.settled for one in self.counts) and time.monotonic() < deadline:
            for producer in self._producers:
                producer.poll(0.05)
        return all(one.settled for one in self.counts)

    def _read(self) -> None:
        # To the end of the process: its statistics come this way, too.
        paused = False
        while True:
            if self._pausing.is_set() and not paused:
                # Here: while another thread is in `consume` it would wait for ever.
                self._consumer.pause(self._partitions)
                paused = True
            self._consumer.consume(1000, timeout=0.1)

    def _produce(self, count: int) -> None:
        for _ in range(count):
            producer = self._producers[self.records % len(self._producers)]
            try:
                producer.produce(TOPIC, self._values[self.records % RECORDS], on_delivery=self._delivered)
            except BufferError:
                producer.poll(TICK_S)
                break
            self.records += 1
        for producer in self._producers:
            producer.poll(0)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=sorted(PRODUCERS))
    parser.add_argument("--bootstrap", help="a broker's address (default: librdkafka's mock cluster, in this process)")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, help="records a second (default: as many as go)")
    options = parser.parse_args()
    cluster: MockCluster | None = None
    with contextlib.ExitStack() as stack:
        if options.bootstrap is None:
            cluster = stack.enter_context(MockCluster(BROKERS))
            cluster.create_topic(TOPIC, PARTITIONS)
            cluster.start_counting()
            bootstrap, ports = cluster.bootstraps, cluster.ports
        else:
            bootstrap, ports = options.bootstrap, [int(options.bootstrap.rpartition(":")[2])]
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
                made.result(timeout=30)
            del admin, made
            gc.collect()  # closes its connections, which nobody who listens later would understand
        say(ports=ports)
        if not sys.stdin.readline():
            return
        begin = time.monotonic()
        clients = Clients(options.form, bootstrap)
        clients.push(options.seconds, options.rate)
        say(over=time.monotonic() - begin)
        settled = clients.settle()
        requests, responses = (sum(getattr(one, name) for one in clients.counts) for name in ("tx", "rx"))
        settled = settled and requests == responses
        if cluster is not None:
            requests = responses = cluster.requests()
        say(
            requests=requests,
            responses=responses,
            exact=settled and cluster is not None,
            records=clients.records,
            delivered=clients.delivered,
            failed=clients.failed,
        )
        sys.stdout.flush()
        # Not in order: clients that say good-bye send requests that nobody has counted.
        os._exit(0)


if __name__ == "__main__":
    main()
