"""A program for tests to kill: `python -m tests.spark.follow_stream CAPTURES TABLES BYTES` follows a folder of captures
into tables, as `follow` in test_streaming.py does."""

from __future__ import annotations

import sys

from kafkasniff.spark.session import get_session
from kafkasniff.spark.streaming import decode_stream
from tests.spark.conftest import FAST


def main(captures: str, tables: str, size: str) -> None:
    """`size`: bytes of a micro-batch."""
    spark = get_session("local[2]", **FAST)
    packets = spark.readStream.format("kafkasniff").option("maxbytespertrigger", size).load(captures)
    query = decode_stream(packets, tables, trigger={"availableNow": True}, shards=2)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
