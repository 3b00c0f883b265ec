"""TCP: packets in, the bytes of both streams of each connection out; gaps are events, bytes are never invented."""

from kafkasniff.tcp.connection import TcpConnection
from kafkasniff.tcp.reassembly import Reassembler

__all__ = ["Reassembler", "TcpConnection"]
