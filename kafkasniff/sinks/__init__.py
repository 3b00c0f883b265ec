"""Sinks: the output of events. Only here bytes become text or JSON."""
