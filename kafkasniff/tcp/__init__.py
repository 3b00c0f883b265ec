"""TCP: packets in, the bytes of both streams of each connection out; gaps are events, bytes are never invented."""
