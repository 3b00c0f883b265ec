"""Larger captures, and kafkasniff beside tshark on them. Not part of the package; run from the checkout's folder."""
