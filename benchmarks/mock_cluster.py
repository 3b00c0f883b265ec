"""librdkafka's mock cluster, as the confluent-kafka wheel carries it, with API versions capped to what tshark decodes.

It answers nearly as a broker does (librdkafka 2.16, `rdkafka_mock_handlers.c`). ApiVersions in the version that clients
ask for first is answered with error 35 and an array whose compact length is one too low, in neither the layout of that
version nor in that of version 0 (KIP-511). And most responses in flexible versions end with one byte too much: the
handler writes the last, empty tag section, and `rd_kafka_mock_connection_send_response0` writes it again. kafkasniff
reports both (`array-too-long`, `trailing-bytes`), tshark says of both that the message does not end where it should,
and clients bear with them.

The Python client starts a mock cluster by a setting of its own (`test.mock.num.brokers`), but gives no way to cap
versions; so the library is called directly. See `rdkafka_mock.h`.
"""

from __future__ import annotations

import ctypes
import glob
from pathlib import Path
from typing import Final

import confluent_kafka

TSHARK_KNOWS: Final = {0: 7, 1: 11, 2: 5, 3: 8, 8: 7}
"""API key → highest version whose body tshark 4.0 dissects, of those in which the mock cluster goes beyond that.

Metadata would be known up to version 9, in which the cluster's answers have a byte too much. Caps must not be raised
above what the cluster implements: it would answer in a layout that it does not have.
"""

PRODUCER: Final = 0
"""RD_KAFKA_PRODUCER."""


class MockCluster:
    """A context manager; `bootstraps` and `ports` of its brokers on loopback."""

    def __init__(self, brokers: int = 3) -> None:
        folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
        # The wheel's name of the file holds a hash.
        names = glob.glob(str(folder / "librdkafka*"))
        if not names:
            raise SystemExit(f"no librdkafka in {folder}: this needs confluent-kafka as a wheel")
        library = ctypes.CDLL(names[0])
        library.rd_kafka_conf_new.restype = ctypes.c_void_p
        library.rd_kafka_conf_set.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
        ]
        library.rd_kafka_new.restype = ctypes.c_void_p
        library.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        library.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
        library.rd_kafka_mock_cluster_destroy.argtypes = [ctypes.c_void_p]
        library.rd_kafka_mock_cluster_destroy.restype = None
        library.rd_kafka_destroy.argtypes = [ctypes.c_void_p]
        library.rd_kafka_destroy.restype = None
        library.rd_kafka_mock_set_apiversion.argtypes = [ctypes.c_void_p, *[ctypes.c_int16] * 3]
        library.rd_kafka_mock_topic_create.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
        self._library = library
        error = ctypes.create_string_buffer(512)
        settings = library.rd_kafka_conf_new()
        # Else it warns that this client, which only carries the cluster, has no brokers to talk to.
        library.rd_kafka_conf_set(settings, b"log_level", b"3", error, len(error))
        self._handle = library.rd_kafka_new(PRODUCER, settings, error, len(error))
        if not self._handle:
            raise SystemExit(error.value.decode())
        self._cluster = library.rd_kafka_mock_cluster_new(self._handle, brokers)
        for key, highest in TSHARK_KNOWS.items():
            library.rd_kafka_mock_set_apiversion(self._cluster, key, 0, highest)
        self.bootstraps: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self.ports = [int(broker.rpartition(":")[2]) for broker in self.bootstraps.split(",")]

    def create_topic(self, name: str, partitions: int) -> None:
        if error := self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1):
            raise SystemExit(f"topic {name}: librdkafka error {error}")

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)
