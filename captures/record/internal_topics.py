"""The scenario of a client that reads the topics in which coordinators keep the state of groups and transactions."""

from __future__ import annotations

from .distribution import DEFAULT_VERSION
from .journal import java_log
from .programs import QUICK_GROUPS, SHARE_GROUPS, java_program
from .scenario import BrokerOptions, Scenario

SCENARIOS = [
    Scenario(
        "java-internal-topics.pcap",
        "a reader of __consumer_offsets, __transaction_state and __share_group_state, after groups of three kinds and "
        "transactions; followed by a response that names the topics",
        # The broker's release, for its classes read what the broker wrote.
        java_program("InternalTopics", version=DEFAULT_VERSION, sources="java-4.4"),
        java_log,
        broker=BrokerOptions(properties={**QUICK_GROUPS, **SHARE_GROUPS}),
    ),
]
