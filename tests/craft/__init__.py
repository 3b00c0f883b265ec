"""Captures made to measure: crafted conversations, disturbed ones, and the files that hold them.

`packet` is the currency: a capture is a list of `Packet`, whatever file format or link layer it came from or goes to.

    conversation.py   a TCP connection that carries given bytes        kafka_bytes.py   the bytes of Kafka messages
    disturb.py        list of packets → list of packets, no byte lost  damage.py           … some bytes lost
    intrude.py        … with packets that do not belong                read.py, write.py   pcap and pcapng
    batches.py        packets as a PacketBatch, without a file         streams.py          the plain reassembly
    outcome.py        our lines, comparable                            samples.py          crafted captures
"""
