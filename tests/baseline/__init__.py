"""Hashes of all outputs for all captures, to show that a change changes nothing else (`python -m tests.baseline`)."""
