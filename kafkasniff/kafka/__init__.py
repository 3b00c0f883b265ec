"""The Kafka protocol: framing, exchanges, dissectors, records. Knows nothing of packets."""
