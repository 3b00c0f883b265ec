"""Results as text for a terminal, and as JSON objects."""
