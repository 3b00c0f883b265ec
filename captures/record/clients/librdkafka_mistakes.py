"""librdkafka at listeners where it cannot get through: a word for each on the command line, then their addresses.

plaintext: without TLS; trusting: with TLS and the right authority; distrusting: with another; cbc: with ciphers that
the listener does not take.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from reporting import report

words, addresses = sys.argv[1].split(","), sys.argv[2:]
certificates = Path(os.environ["CERTIFICATES"])

SECURE: dict[str, Any] = {"security.protocol": "ssl", "ssl.ca.location": str(certificates / "ca.pem")}
SETTINGS: dict[str, dict[str, Any]] = {
    "plaintext": {},
    "trusting": SECURE,
    "distrusting": SECURE | {"ssl.ca.location": str(certificates / "other-ca.pem")},
    "cbc": SECURE | {"ssl.cipher.suites": "ECDHE-ECDSA-AES256-SHA384"},
}

report("client", name="librdkafka", version=confluent_kafka.libversion()[0])
for number, (word, address) in enumerate(zip(words, addresses, strict=True)):
    errors: list[str] = []
    common = {
        "bootstrap.servers": address.replace("127.0.0.1", "localhost"),
        "client.id": f"rdkafka-{word}-{number}",
        "debug": "protocol",
        "broker.address.family": "v4",
        "reconnect.backoff.ms": 4000,  # few attempts
        "reconnect.backoff.max.ms": 4000,
        "error_cb": lambda error, told=errors: told.append(f"{error.name()}: {error.str()}"),
    }
    client = AdminClient(common | SETTINGS[word])
    try:
        client.list_topics(timeout=2)
    except KafkaException as failure:
        client.poll(0.2)
        report("failed", operation=f"{word} at {address}", error=failure.args[0].name(), told=errors)
    else:
        sys.exit(f"{word} got through at {address}")
