"""Sinks: where events go. Bytes become text or JSON here, and only here."""
