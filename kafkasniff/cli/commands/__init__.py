"""The commands: one module each, with its options and what it runs."""
