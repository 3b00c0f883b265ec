"""The readable specification of the kernel's stream engine: Python follows connections, one packet after the other.

No code of the package uses it. `tests.kernel`, `tests.engine` and the fuzzers compare the kernel with it.
"""
