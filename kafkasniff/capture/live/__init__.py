"""Packets from an interface: sockets, rings, privileges."""
