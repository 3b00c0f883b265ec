"""Structures embedded in messages: group protocols, envelopes, metrics, records of Kafka's own topics."""
