"""Definitions, the layouts that they give, and the decoders of layouts: the walker and the kernel's programs."""
