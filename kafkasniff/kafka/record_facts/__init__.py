"""Schema ids and trace ids in records."""
