"""Files and streams of packets: pcap, pcapng and compressed ones, as blocks of raw packets."""
