"""Several captures as one: order, positions in files, planning of parts, key logs next to them."""
