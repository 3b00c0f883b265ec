"""What the messages of a connection mean for its later ones: waits for others and for quotas, and its counts."""

from __future__ import annotations

from kafkasniff.kafka.apis.dissectors import API_VERSIONS
from kafkasniff.kafka.connection.events import Frame
from kafkasniff.kafka.connection.waits import answers_at_once
from kafkasniff.kafka.messages.message import decode_response
from kafkasniff.kafka.messages.plausibility import AUTHENTICATION
from kafkasniff.kafka.schema.context import DecodeOptions
from tests.oracle.kafka.exchange import Pending

MAX_CLIENT_IDS = 16
_OPTIONS = DecodeOptions(records="skip")


class Turns:
    """The turns of one connection's requests: how long each waited for others, or for a muted connection.

    A broker processes the requests of a connection one by one. After a throttled response it reads nothing for the
    throttle time (KIP-219); brokers before Kafka 2.0 held the response back instead.
    """

    def __init__(self) -> None:
        self.answered: int | None = None
        """The last response was complete (ns since the epoch)."""
        self.muted_until: int | None = None
        """Time until which a response asked the client to send nothing."""
        self.requests = 0
        self.responses = 0
        self.served = False
        self.over = False
        """An exchange is over."""
        self.client_ids: list[str | bytes] = []

    def request(self, name: str | bytes | None) -> None:
        """Count a request with this client id."""
        self.requests += 1
        if name is not None and name not in self.client_ids and len(self.client_ids) < MAX_CLIENT_IDS:
            self.client_ids.append(name)

    def orphan(self, done: int | None) -> None:
        """Count a response without its request, for which later requests may have waited."""
        self.responses += 1
        if done is not None and (self.answered is None or done > self.answered):
            self.answered = done
        self.over = True

    def response(self, pending: Pending, frame: Frame, latency_ns: int | None) -> tuple[int, int] | tuple[None, None]:
        """Count a response; returns how long its request waited for others, and how long a quota delayed it."""
        self.responses += 1
        self.over = True
        self.served = self.served or (pending.api_key != API_VERSIONS and pending.api_key not in AUTHENTICATION)
        if latency_ns is None:
            return None, None
        key, version = pending.api_key, pending.api_version
        body = decode_response(frame.data, frame.start, frame.end, key, version, _OPTIONS).body or {}
        # A response in another version than asked for has an error code.
        throttle = 0 if key == API_VERSIONS and body.get("error_code") else body.get("throttle_time_ms", 0)
        at_once = answers_at_once(key, version)
        return self._answer(pending.time_ns, frame.time_ns, latency_ns, throttle * 1_000_000, at_once=at_once)

    def _answer(self, asked: int, done: int, latency_ns: int, throttle: int, *, at_once: bool) -> tuple[int, int]:
        behind = muted = 0
        answered = self.answered
        if answered is None or done > answered:
            self.answered = done
        if answered is not None and answered > asked:
            behind = max(min(answered, asked + latency_ns) - asked, 0)
        if self.muted_until is not None:
            muted = max(min(self.muted_until, asked + latency_ns) - asked - behind, 0)
        if throttle > 0 and not at_once and latency_ns - behind - muted >= throttle:
            muted += throttle
        elif throttle > 0:
            self.muted_until = max(self.muted_until or 0, asked + latency_ns + throttle)
        return behind, muted
