"""The family `costs`: long inputs, each made of two or three quantities, that climb towards CPU time and memory.

The other families make short inputs in great numbers. What a megabyte costs shows only in a megabyte, and mostly where
two quantities meet: requests that wait, and gaps that look at each of them. `pairs` has these quantities and the
captures that are made of them, `trial` runs a command over one in a process of its own, within limits, and `family`
looks for the most that a byte costs and writes the table of benchmarks/COSTS.md.
"""

from typing import Final

__all__ = ["NAME"]

NAME: Final = "costs"
