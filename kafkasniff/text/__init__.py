"""Text for people: times, escaped bytes, colours."""
