"""Writing captures: pcapng, rotation."""
