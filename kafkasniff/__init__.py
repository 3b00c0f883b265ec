"""kafkasniff: wire-traffic inspector and packet decoder for Apache Kafka."""

__version__ = "0.1.0.dev0"
