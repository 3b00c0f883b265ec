"""Readers of capture files, stdin and interfaces: bytes in, `PacketBatch` out.

formats    pcap and pcapng, from files and pipes; compressed files and files of brokers are converted first
link       headers by columns, layer by layer, composed in decode
timeline   several captures as one (source), where they are (locations), parts of one for other machines (splits, parts)
live       the same from an interface, and giving up the rights that opening it needs
write      captures written, and their files
"""

from kafkasniff.capture.timeline.source import CHUNK_SIZE, CaptureSource, open_captures

__all__ = ["CHUNK_SIZE", "CaptureSource", "open_captures"]
