"""From packets to messages and exchanges: merges connections, numbers messages, bounds memory, feeds the kernel."""
