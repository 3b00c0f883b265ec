"""Form A: real client traffic in large segments, all codecs, recorded from loopback."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.mock_cluster import MockCluster

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS: Final = 3
LARGE_BATCH: Final = 900_000
"""Bytes of a batch before compression, at most."""
ZSTD_BATCH: Final = 110_000
"""tshark 4.0 goes wrong in the second block of a zstd frame (128 KiB each), takes records for what they are not and
spends much time on saying so; in what is compared with it there is one block only."""

SECONDS: Final = 300
"""Recording ends after this time, whatever the size by then."""


def values(seed: int, size: int = 1000) -> Iterator[bytes]:
    """Records that look like JSON and compress about as well."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 10))) for _ in range(2000)]
    number = 0
    while True:
        number += 1
        text = " ".join(rng.choices(words, k=size // 7))
        yield f'{{"id":{number},"amount":{rng.random():.6f},"text":"{text}"}}'.encode()


def record(path: Path, megabytes: int, seed: int = 1) -> list[int]:
    """Record `megabytes` of traffic to `path`; returns the brokers' ports. Needs the right to capture on loopback."""
    tcpdump = shutil.which("tcpdump", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if tcpdump is None:
        raise SystemExit("recording needs tcpdump")
    with MockCluster() as cluster:
        for codec in CODECS:
            cluster.create_topic(f"bench-{codec}", PARTITIONS)
        ports = " or ".join(f"port {port}" for port in cluster.ports)
        command = [
            tcpdump,
            "-i",
            "lo",
            "-n",
            "-U",
            "-B",
            "65536",
            "-s",
            "262144",
            "-w",
            str(path),
            f"tcp and ({ports})",
        ]
        recorder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert recorder.stderr is not None
        reported = recorder.stderr.readline()
        while reported and "listening on" not in reported:
            reported = recorder.stderr.readline()
        try:
            if not reported:
                raise SystemExit("tcpdump did not start: capturing on loopback needs root")
            _talk(cluster.bootstraps, path, megabytes << 20, seed)
        finally:
            recorder.terminate()
            rest = recorder.communicate(timeout=60)[1]
    for line in rest.splitlines():
        if "dropped by kernel" in line and not line.startswith("0 "):
            print(f"note: {line}")
    return cluster.ports


def _talk(bootstraps: str, path: Path, size: int, seed: int) -> None:
    # tshark 4.0 does not know the APIs of client metrics (KIP-714).
    common = {"bootstrap.servers": bootstraps, "log_level": 3, "enable.metrics.push": False}
    producers = {
        codec: Producer(
            {
                **common,
                "client.id": f"producer-{codec}",
                "compression.type": codec,
                "linger.ms": 20,
                "batch.size": ZSTD_BATCH if codec == "zstd" else LARGE_BATCH,
                "queue.buffering.max.kbytes": 20_000,
            }
        )
        for codec in CODECS
    }
    consumer = Consumer(
        {
            **common,
            "client.id": "consumer",
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 1_000_000,
        }
    )
    topics = [f"bench-{codec}" for codec in CODECS]
    # Without a group: tshark 4.0 goes wrong in JoinGroup and SyncGroup, whatever the version.
    consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)])
    source = values(seed)
    deadline = time.monotonic() + SECONDS
    try:
        while path.stat().st_size < size and time.monotonic() < deadline:
            for codec, producer in producers.items():
                for _ in range(500):
                    producer.produce(f"bench-{codec}", value=next(source), key=codec, partition=-1)
                producer.poll(0)
            # The mock cluster keeps a few megabytes of each partition: producing waits for consuming.
            for producer in producers.values():
                producer.flush(10)
            consumer.consume(2500, timeout=1.0)
    finally:
        consumer.close()
