"""librdkafka that sends a record every 200 ms: SECONDS BOOTSTRAP TOPIC [NAME=VALUE…]. Failures do not end it.

`every=SECONDS` and `size=BYTES` are the records' pace and size, `ahead=SECONDS` how far their timestamps are in the
future. `token.life=SECONDS` makes unsigned tokens for OAUTHBEARER, `token.kept=yes` always presents the first one. All
other names are settings.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import time
from typing import Any

from confluent_kafka import KafkaException, Producer

seconds, bootstrap, topic = float(sys.argv[1]), sys.argv[2], sys.argv[3]
settings = dict(one.split("=", 1) for one in sys.argv[4:])
every, size = float(settings.pop("every", ".2")), int(settings.pop("size", "7"))
ahead, life = float(settings.pop("ahead", "0")), int(settings.pop("token.life", "0"))
kept, begin = settings.pop("token.kept", "") == "yes", time.time()


def token(_config: str) -> tuple[str, float, str, dict[str, str]]:
    """A JSON web token without a signature (RFC 7519, section 6); the client believes that it is new."""
    issued = begin if kept else time.time()
    claims = {"sub": "alice", "iat": int(issued), "exp": int(issued) + life}
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in ({"alg": "none"}, claims)]
    return b".".join([*parts, b""]).decode(), time.time() + life, "alice", {}


login: dict[str, Any] = {"oauth_cb": token} if life else {}
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "client.id": "rdkafka",
        "broker.address.family": "v4",
        "message.timeout.ms": 60_000,
        "logger": None,
        **login,
        **settings,
    }
)
deadline = time.monotonic() + seconds
while time.monotonic() < deadline:
    # What goes wrong is in the packets.
    with contextlib.suppress(BufferError, KafkaException):
        stamp = int(1000 * (time.time() + ahead)) if ahead else 0
        producer.produce(topic, (b"made up" * size)[:size], timestamp=stamp)
    producer.poll(0)
    time.sleep(every)
