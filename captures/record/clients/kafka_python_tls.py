"""kafka-python over TLS: a record at each listener, then all of them read back.

Arguments: a word for each listener (plain, mutual: with a certificate of the client, scram, large: more and longer
records), then their addresses. The key log is that of Python's ssl, named by SSLKEYLOGFILE.
"""

from __future__ import annotations

import logging
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from reporting import report
from sample_records import timestamp

words, addresses = sys.argv[1].split(","), sys.argv[2:]
certificates = Path(os.environ["CERTIFICATES"])
TOPIC = "encrypted"

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
logging.getLogger("kafka.net.connection").setLevel(logging.DEBUG)


def settings(word: str, address: str, client_id: str) -> dict[str, Any]:
    # By name, so that the client sends SNI; the broker then advertises an address.
    found: dict[str, Any] = {"bootstrap_servers": address.replace("127.0.0.1", "localhost"), "client_id": client_id}
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    context.set_ciphers("DEFAULT")  # Python omits those without forward secrecy
    if word == "mutual":
        context.load_cert_chain(certificates / "client.pem")
    found |= {"security_protocol": "SASL_SSL" if word == "scram" else "SSL", "ssl_context": context}
    if word == "scram":
        found |= {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "bob", "sasl_plain_password": "bob-secret"}
    return found


def produce(word: str, address: str, number: int) -> int:
    """Returns how many records."""
    client_id = f"python-{word}-{number}"
    values = [f"sent by {client_id}".encode()]
    if word == "large":
        values = [value + bytes(range(256)) * 8 for value in values * 4]
    producer = KafkaProducer(enable_idempotence=False, **settings(word, address, client_id))
    for index, value in enumerate(values):
        key = f"key-{number}-{index}".encode()
        done = producer.send(TOPIC, value, key, partition=0, timestamp_ms=timestamp(number)).get(20)
        report("produced", client_id=client_id, topic=done.topic, partition=done.partition, offset=done.offset,
               timestamp=done.timestamp, key=key, value=value, headers=[], codec="none", error=None)  # fmt: skip
    producer.close()
    return len(values)


report("client", name="kafka-python", version=kafka.__version__)
admin = KafkaAdminClient(**settings(words[0], addresses[0], "python-admin"))
admin.create_topics([NewTopic(TOPIC, 1, 1)])
report("created", topic=TOPIC, partitions=1)
admin.close()
count = sum(produce(*each) for each in zip(words, addresses, range(len(words)), strict=True))
consumer = KafkaConsumer(auto_offset_reset="earliest", **settings(words[-1], addresses[-1], "python-reader"))
consumer.assign([TopicPartition(TOPIC, 0)])
for _ in range(count):
    message = next(consumer)
    report("consumed", client_id="python-reader", topic=message.topic, partition=message.partition,
           offset=message.offset, timestamp=message.timestamp, key=message.key, value=message.value,
           headers=list(message.headers))  # fmt: skip
consumer.close()
