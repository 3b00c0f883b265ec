"""Interpreters for records of any API: secrets of Kafka Connect, schema ids, and the metadata log.

The definitions determine which fields have records (`kafkasniff.kafka.apis.record_fields`).
"""

from __future__ import annotations

from kafkasniff.kafka.apis.record_fields import each_records, record_fields
from kafkasniff.kafka.embedded.metadata_records import interpret_metadata
from kafkasniff.kafka.record_facts.schema_registry import add_schema_ids
from kafkasniff.kafka.schema.connect_configs import withhold_secrets
from kafkasniff.kafka.schema.context import DecodeContext
from kafkasniff.model import Body, Direction

__all__ = ["read_records"]


def read_records(api_key: int, direction: Direction, body: Body, version: int, context: DecodeContext) -> None:
    """Interpret the decoded records of a body, and withhold secrets in them. Hot."""
    fields = record_fields(api_key, version, direction)
    if fields is None:
        return
    for records, topic in each_records(fields, body):
        withhold_secrets(records, context)
        add_schema_ids(records, topic)
    for records, _ in each_records(fields, body, secret=True):
        interpret_metadata(records, context)
