"""Captures that cost most per byte, and tests that their cost is linear and bounded."""
