"""What `kafkasniff wireshark` writes."""
