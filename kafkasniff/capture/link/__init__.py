"""From link layer to TCP: link types, VLANs, tunnels, IP fragments, as columns of segments."""
