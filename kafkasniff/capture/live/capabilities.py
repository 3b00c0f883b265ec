"""Linux capabilities: using permitted ones, dropping all or all but a few, in every set (capabilities(7)).

They belong to a thread, so they are dropped before other threads exist. Systems other than Linux have none.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterator
from typing import Final

from kafkasniff.errors import MissingPartError

__all__ = [
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_SETGID",
    "CAP_SETUID",
    "drop_all_but",
    "drop_bounding_set",
    "effective",
    "lowered",
    "make_effective",
    "mask",
]

CAP_DAC_OVERRIDE: Final = 1
"""Files may be read and written whatever their modes are."""
CAP_DAC_READ_SEARCH: Final = 2
"""Files may be read whatever their modes are."""
CAP_SETGID: Final = 6
CAP_SETUID: Final = 7

_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_VERSION: Final = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3: two times three words of 32 bits, effective, permitted and inheritable (capset(2))."""
_SETS: Final = struct.Struct("=6I")
_LAST: Final = 63
"""The highest that fits into the sets; the kernel refuses unknown ones."""
_TASKS: Final = "/proc/self/task"
"""A folder for each thread."""


def mask(*capabilities: int) -> int:
    """A set of capabilities as a bit mask."""
    return sum(1 << one for one in set(capabilities))


def effective() -> int | None:
    """The effective capabilities of this thread; None on systems without them."""
    return _get()[0] if sys.platform == "linux" else None


@contextlib.contextmanager
def lowered(keep: int) -> Iterator[None]:
    """Within the block only `keep` is effective, as after `drop_all_but`; the permitted ones return after it."""
    if sys.platform != "linux":
        yield
        return
    before = _get()
    _set(before[0] & keep, before[1], before[2])
    try:
        yield
    finally:
        _set(*before)


def make_effective(wanted: int) -> None:
    """Make capabilities effective that are only permitted.

    A program whose file permits them without this (`setcap cap_net_raw=p`) also starts where it cannot have them.
    """
    if sys.platform != "linux":
        return
    now, permitted, inheritable = _get()
    if permitted & wanted & ~now:
        _set(now | permitted & wanted, permitted, inheritable)


def drop_bounding_set() -> None:
    """Prevent executed programs from ever gaining capabilities, whatever user they run as.

    This requires CAP_SETPCAP. Without it, the set remains, and `no_new_privs` has the same effect: see `drop_all_but`.
    """
    if sys.platform != "linux":
        return
    libc = _libc()
    for capability in range(_LAST + 1):
        if libc.prctl(_PR_CAPBSET_DROP, *_words(capability, 0, 0, 0)) and ctypes.get_errno() == errno.EPERM:
            return


def drop_all_but(keep: int = 0) -> None:
    """No capability but `keep` in any set of this process, and none for executed programs (no_new_privs).

    Raises MissingPartError if that fails, or another thread would keep some.
    """
    if sys.platform != "linux":
        return
    libc = _libc()
    # Kernels before 3.5 have no no_new_privs, those before 4.3 no ambient set.
    libc.prctl(_PR_SET_NO_NEW_PRIVS, *_words(1, 0, 0, 0))
    libc.prctl(_PR_CAP_AMBIENT, *_words(_PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
    keep &= _get()[1]
    _set(keep, keep, 0)
    if _get() != (keep, keep, 0) or _some_thread_has_more(keep):
        raise MissingPartError("cannot drop capabilities: some are left")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _words(*values: int) -> tuple[ctypes.c_ulong, ...]:
    return tuple(ctypes.c_ulong(value) for value in values)


def _header() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("=Ii", _VERSION, 0), 8)


def _get() -> tuple[int, int, int]:
    """Effective, permitted and inheritable ones of this thread."""
    sets = ctypes.create_string_buffer(_SETS.size)
    if _libc().capget(_header(), sets):
        raise MissingPartError(f"cannot read capabilities: {os.strerror(ctypes.get_errno())}")
    words = _SETS.unpack(sets.raw)
    low, high = words[:3], words[3:]
    return (low[0] | high[0] << 32, low[1] | high[1] << 32, low[2] | high[2] << 32)


def _set(*sets: int) -> None:
    low, high = [one & 0xFFFFFFFF for one in sets], [one >> 32 for one in sets]
    if _libc().capset(_header(), _SETS.pack(*low, *high)):
        raise MissingPartError(f"cannot change capabilities: {os.strerror(ctypes.get_errno())}")


def _some_thread_has_more(keep: int) -> bool:
    try:
        threads = os.listdir(_TASKS)
    except OSError:
        return False  # no /proc, as in some chroots
    for thread in threads:
        with contextlib.suppress(FileNotFoundError), open(f"{_TASKS}/{thread}/status", "rb") as status:
            if any(line.startswith(b"CapPrm:") and int(line[7:], 16) & ~keep for line in status):
                return True
    return False
