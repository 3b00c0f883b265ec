"""One TCP connection as Kafka: frames, search, verdict, requests paired with their responses."""
