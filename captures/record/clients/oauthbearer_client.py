"""librdkafka with SASL OAUTHBEARER (RFC 7628): an unsecured token, one with extensions (KIP-342), one that is over."""

from __future__ import annotations

import base64
import json
import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from reporting import report

bootstrap = sys.argv[1]
LIFE_S = 3600


def token(user: str, issued: int) -> str:
    """A JSON web token without a signature (RFC 7519, section 6)."""
    claims = {"sub": user, "iat": issued, "exp": issued + LIFE_S}
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in ({"alg": "none"}, claims)]
    return b".".join([*parts, b""]).decode()


def log_in(client_id: str, user: str, issued: int, extensions: dict[str, str]) -> None:
    made = token(user, issued)
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "debug": "protocol",
        "broker.address.family": "any",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        # The client believes that the token holds.
        "oauth_cb": lambda _: (made, time.time() + LIFE_S, user, extensions),
        "reconnect.backoff.ms": 1500,
        "reconnect.backoff.max.ms": 3000,
    }
    admin = AdminClient(settings)
    admin.poll(1)  # the token is asked for here
    try:
        metadata = admin.list_topics(timeout=5)
    except KafkaException as error:
        report("failed", operation=f"log in as {user} with an old token", mechanism="OAUTHBEARER",
               error=error.args[0].name(), token=made)  # fmt: skip
    else:
        report("authenticated", client_id=client_id, mechanism="OAUTHBEARER", user=user, token=made,
               extensions=extensions, cluster_id=metadata.cluster_id)  # fmt: skip


report("client", name="librdkafka", version=confluent_kafka.libversion()[0])
now = int(time.time())
log_in("oauth-alice", "alice", now, {})
log_in("oauth-bob", "bob", now, {"traceId": "123", "logicalCluster": "lkc-blue"})
log_in("oauth-late", "alice", now - 2 * LIFE_S, {})
