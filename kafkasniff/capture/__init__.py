"""Readers of capture files, stdin and interfaces: bytes in, `PacketBatch` out.

compressed, bytestream   sources of bytes: files and pipes, plain or compressed
pcap, pcapng, resync     the formats, and recovery after corrupt places
reader, cursor, source   one capture; its position in a merge; several captures as one timeline
links, internet, tunnels, segments, fragments      headers by columns, layer by layer (walk), composed in decode
live, ring, bpf          the same from an interface
"""

from kafkasniff.capture.timeline.source import CHUNK_SIZE, CaptureSource, open_captures

__all__ = ["CHUNK_SIZE", "CaptureSource", "open_captures"]
