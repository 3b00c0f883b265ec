"""Privileges: what opening an interface needs, giving up all rights after that, and confinement (Landlock)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import stat
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kafkasniff.errors import MissingPartError, UsageError
from kafkasniff.kafka.schema.codes import added_folders, data_folder

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
    return sum(1 << capability for capability in set(capabilities))


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


# How to get the missing right to capture, in one line that suits the machine.

CAP_NET_RAW: Final = 13
PROC_STATUS: Final = "/proc/self/status"
"""Linux's; other systems have no capabilities."""

LASTING: Final = (
    ("darwin", "Wireshark's ChmodBPF does that at every start"),
    ("freebsd", "own and perm in /etc/devfs.conf do that at every start"),
)
"""How device permissions become permanent, by the beginning of `sys.platform`."""


class ProcessRights(msgspec.Struct, frozen=True):
    """The ways in which a process could get the right."""

    root: bool
    bounded: bool
    """The right is outside of what this process and its children may ever have: a container without it."""
    no_new: bool
    """No program that it starts may have more rights than it has (no_new_privs)."""
    sudo: bool
    """There is a sudo."""
    program: str
    """How kafkasniff was invoked."""
    python: str
    """The file whose capabilities count."""
    platform: str = "linux"
    """`sys.platform`."""


def process_rights(status: str | None = None) -> ProcessRights:
    """Those of this process; `status`: the text of PROC_STATUS."""
    if status is None:
        try:
            with open(PROC_STATUS, "rb") as file:
                status = file.read().decode("utf-8", "replace")
        except OSError:
            status = ""
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())}
    bounding = fields.get("CapBnd", "")
    program = shutil.which(sys.argv[0]) or f"{sys.executable} -m kafkasniff"
    return ProcessRights(
        root=os.geteuid() == 0,
        bounded=_is_hex(bounding) and not int(bounding, 16) >> CAP_NET_RAW & 1,
        no_new=fields.get("NoNewPrivs") == "1",
        sudo=shutil.which("sudo") is not None,
        program=os.path.abspath(program) if os.sep in program and " " not in program else program,
        python=os.path.realpath(sys.executable),
        platform=sys.platform,
    )


def advice(interface: str, at: ProcessRights) -> str:
    """One line for the user: how to run it here, and an alternative that works elsewhere."""
    pipe = f"tcpdump -i {interface} -U -w - | kafkasniff decode -"
    if at.platform != "linux":
        return _of_devices(interface, at, pipe)
    needs = f"capturing on {interface} needs the capability CAP_NET_RAW"
    if at.bounded:
        return (
            f"{needs}, which this container or service can never have: start it with this capability (docker run "
            "--cap-add NET_RAW, securityContext.capabilities.add, CapabilityBoundingSet=), or capture outside of it: "
            f"sudo {pipe}"
        )
    if at.no_new or at.root:
        reason = "may not gain (no_new_privs)" if at.no_new else "lacks although it is root"
        return (
            f"{needs}, which this process {reason}: let the program that starts it grant it (systemd: "
            f"AmbientCapabilities=CAP_NET_RAW), or capture elsewhere: sudo {pipe}"
        )
    setcap = f"setcap cap_net_raw,cap_net_admin=eip {shlex.quote(at.python)}"
    if at.sudo:
        return (
            f"{needs}: sudo {at.program} live -i {interface}; or once, for everything that this Python runs: sudo "
            f"{setcap}; or: sudo {pipe}"
        )
    return (
        f"{needs}, and there is no sudo here: as root, {at.program} live -i {interface}, or once, for everything that "
        f"this Python runs: {setcap}; or, as root: {pipe}"
    )


def _of_devices(interface: str, at: ProcessRights, pipe: str) -> str:
    """The BSDs and macOS: users who may read the devices may capture."""
    needs = f"capturing on {interface} needs the right to read /dev/bpf*"
    if at.root:
        return (
            f"{needs}, which this process lacks although it is root (a jail, a sandbox): capture outside of it: {pipe}"
        )
    lasting = "".join(f"; {how}" for system, how in LASTING if at.platform.startswith(system))
    group = f"give /dev/bpf* to a group of yours (chgrp, chmod g+r{lasting})"
    if at.sudo:
        return f"{needs}: sudo {at.program} live -i {interface}; or, as root, {group}; or: sudo {pipe}"
    return f"{needs}, and there is no sudo here: as root, {at.program} live -i {interface}, or {group}, or: {pipe}"


def _is_hex(text: str) -> bool:
    try:
        int(text, 16)
    except ValueError:
        return False
    return True


# Dropping privileges: after the interfaces are open, the process continues as an ordinary user, for good.
#
# Opening interfaces requires privileges, reading them does not. The data may come from anyone, so none of it is
# examined before the process has dropped everything: root, capabilities, and any way back (no_new_privs). A process
# that stays root has no capabilities either, except those for its own files.

MAX_ID: Final = (1 << 32) - 2
"""The highest user or group; one more stands for `none` in system calls."""
NOBODY: Final = "nobody"
NOBODY_ID: Final = 65534
"""Linux's user and group of files that nobody owns (/proc/sys/kernel/overflowuid), if there is no entry."""


class Identity(msgspec.Struct, frozen=True):
    """The user that a process continues as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    """Supplementary groups."""
    name: str
    """Name for messages."""


def is_root() -> bool:
    """Whether this process may become another user."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def named_identity(text: str) -> Identity:
    """Parse `NAME` or `UID`; `:GROUP` replaces the user's groups with a single one. Raises UsageError."""
    import grp
    import pwd

    name, colon, group = text.partition(":")
    entry: pwd.struct_passwd | None
    try:
        # As in POSIX for chown: a name may consist of digits.
        entry = pwd.getpwnam(name)
        uid = entry.pw_uid
    except (KeyError, ValueError):
        given = _number(name)
        if given is None:
            raise UsageError(f"--user: there is no user {name!r}") from None
        uid = given
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            entry = None
    if entry is not None:
        name = entry.pw_name
    if not colon:
        if entry is None:
            raise UsageError(f"--user: {name} has no entry, so add the group: {name}:GROUP")
        return Identity(uid, entry.pw_gid, tuple(os.getgrouplist(name, entry.pw_gid)), name)
    try:
        gid = grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        number = _number(group)
        if number is None:
            raise UsageError(f"--user: there is no group {group!r}") from None
        gid = number
    return Identity(uid, gid, (gid,), name)


def sudo_caller(environ: Mapping[str, str]) -> Identity | None:
    """The user who called sudo, by its variables; None if nobody did, or root."""
    import pwd

    uid, gid = _number(environ.get("SUDO_UID", "")), _number(environ.get("SUDO_GID", ""))
    if not uid or gid is None:
        return None
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return Identity(uid, gid, (gid,), str(uid))
    return Identity(uid, gid, tuple(os.getgrouplist(name, gid)), name)


def nobody() -> Identity:
    """The unprivileged user that every system has."""
    import pwd

    try:
        entry = pwd.getpwnam(NOBODY)
    except KeyError:
        return Identity(NOBODY_ID, NOBODY_ID, (NOBODY_ID,), NOBODY)
    # The rights of its groups are not needed: they are for others of that name.
    return Identity(entry.pw_uid, entry.pw_gid, (entry.pw_gid,), NOBODY)


def may_become_others() -> bool:
    """Whether root has the necessary capabilities: in containers it often lacks them."""
    found = effective()
    needed = mask(CAP_SETUID, CAP_SETGID)
    return found is None or found & needed == needed


def _number(text: str) -> int | None:
    # Longer numbers are not valid for users.
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    return number if (number := int(text)) <= MAX_ID else None


@contextlib.contextmanager
def acting_as(identity: Identity) -> Iterator[None]:
    """Within the block files are opened and created with the rights of `identity`; root's return after it.

    Raises MissingPartError if that is not allowed.
    """
    before = os.getgroups(), os.getegid(), os.geteuid()
    with _allowed(identity):
        os.setgroups(_groups(identity))
        os.setegid(identity.gid)
        os.seteuid(identity.uid)
    try:
        yield
    finally:
        os.seteuid(before[2])
        os.setegid(before[1])
        os.setgroups(before[0])


def become(identity: Identity | None, *, keep: int = 0) -> None:
    """Continue as `identity` (None: unchanged), without a way back, and without capabilities except `keep`.

    Call it before there are threads: capabilities belong to a thread. If the new user may not enter the working
    directory, it becomes `/`. Raises MissingPartError on failure, including for other threads; the process must not
    continue then.
    """
    drop_bounding_set()
    if identity is not None:
        with _allowed(identity):
            os.setgroups(_groups(identity))
            # For root these also set the saved ids.
            os.setgid(identity.gid)
            os.setuid(identity.uid)
    drop_all_but(keep)
    if identity is not None:
        _check(identity)
        _leave_closed_folder()


def _leave_closed_folder() -> None:
    # A path below it could not be used anyway, and child processes begin by entering it.
    try:
        os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        os.chdir(".")
    except PermissionError:
        os.chdir("/")


@contextlib.contextmanager
def _allowed(identity: Identity) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MissingPartError(f"cannot continue as {identity.name}: {error.strerror or error}") from error


def _groups(identity: Identity) -> list[int]:
    return list(identity.groups[: os.sysconf("SC_NGROUPS_MAX")])


def _check(identity: Identity) -> None:
    """Check that nothing of root is left or can be regained."""
    if (os.getuid(), os.geteuid(), os.getgid(), os.getegid()) != (*(identity.uid,) * 2, *(identity.gid,) * 2):
        raise MissingPartError(f"cannot continue as {identity.name}: the process has another user")
    setters: list[Callable[[int], None]] = [os.seteuid, os.setuid]
    if identity.gid:
        setters += [os.setegid, os.setgid]
    for back in setters:
        try:
            back(0)
        except PermissionError:
            continue
        raise MissingPartError(f"cannot continue as {identity.name}: the process could become root again")


_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_MACHINES: Final = frozenset({"x86_64", "aarch64", "armv7l", "i686", "loongarch64", "ppc64le", "riscv64", "s390x"})
"""Architectures on which the calls have these numbers."""
_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1
_RULE_NET_PORT: Final = 2
_MIN_VERSION: Final = 3
"""Earlier ones cannot prevent truncation of files (2), or renaming out of folders (1). Linux 6.2 has it."""
_TCP_VERSION: Final = 4

_WRITE_FILE: Final = 1 << 1
_TRUNCATE: Final = 1 << 14
_FILE: Final = _WRITE_FILE | _TRUNCATE
"""Changes to an existing file."""
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER: Final = 1 << 13
_OUTPUT: Final = _FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER
"""Changes in a folder of ours: files and folders are created, renamed and removed."""
_HANDLED: Final = _OUTPUT | _MAKE_CHAR | _MAKE_SOCK | _MAKE_FIFO | _MAKE_BLOCK | _MAKE_SYM
"""All changes to a file system: refused unless a rule allows them."""
_BIND_AND_CONNECT_TCP: Final = 0b11
_CONNECT_TCP: Final = 0b10
_DEVICES: Final = ("/dev/null", "/dev/tty")
"""Files that Python or a terminal's library writes to by name."""


def landlock_version() -> int:
    """The kernel's version of Landlock; 0 if it has none."""
    if sys.platform != "linux" or os.uname().machine not in _MACHINES:
        return 0
    found = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_RULESET_VERSION))
    return max(int(found), 0)


def confine(folders: Iterable[str], ports: Iterable[int] = ()) -> bool:
    """Let this thread, and threads and processes that it starts, change nothing outside of `folders`, nor use TCP.

    `ports`: those that it may still connect to.

    Open files stay open. Call it with no_new_privs set, and before there are threads. Returns whether it succeeded: not
    if the kernel lacks it, or the parent process has forbidden it.
    """
    found = landlock_version()
    if found < _MIN_VERSION:
        return False
    libc = _libc()
    tcp = _BIND_AND_CONNECT_TCP if found >= _TCP_VERSION else 0
    attributes = struct.pack("=QQ", _HANDLED, tcp)[: 16 if tcp else 8]
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for path in (*folders, *_DEVICES):
            if not _allow(libc, ruleset, path):
                return False
        for port in ports if tcp else ():
            rule = struct.pack("=QQ", _CONNECT_TCP, port)
            words = ctypes.c_int(ruleset), ctypes.c_int(_RULE_NET_PORT), rule, ctypes.c_uint32(0)
            if libc.syscall(_ADD_RULE, *words):
                return False
        return not libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> bool:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # Unreachable paths cannot be written to either.
        return True
    try:
        rights = _OUTPUT if stat.S_ISDIR(os.fstat(place).st_mode) else _FILE
        rule = struct.pack("=Qi", rights, place)
        words = ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint32(0)
        return not libc.syscall(_ADD_RULE, *words)
    finally:
        os.close(place)


# The files that a run must be able to read later: kafkasniff, its data, its packages, Python.
#
# Modules, extension modules with their libraries, and definitions are read when they are first needed: in the middle of
# a capture, possibly by another user than the one that started it.

PARTS: Final = (
    "_cffi_backend",
    "certifi",
    "charset_normalizer",
    "click",
    "cramjam",
    "crc32c",
    "cryptography",
    "google.protobuf",
    "grpc",
    "idna",
    "isal",
    "lz4",
    "msgspec",
    "numpy",
    "obstore",
    "opentelemetry",
    "orjson",
    "prometheus_client",
    "pyarrow",
    "requests",
    "rich",
    "scapy",
    "urllib3",
    "zstandard",
)
"""Packages that `live` imports; missing ones do not matter."""
_NEVER_READ: Final = frozenset({"__pycache__", "include", "site-packages", "test", "tests"})
"""Folders of packages and of Python without needed files; without a cache a module is recompiled."""
DEFINITION: Final = ".txt"
"""A file of dissectors/."""
_LIBRARIES: Final = ".libs"
"""Folder next to a package installed from a wheel: the libraries of its extension modules."""


def unreadable(paths: Iterable[str]) -> str | None:
    """A file or folder, or one below it, that this process cannot read now; None if there is none."""
    for path in paths:
        found = _unreadable_below(path)
        if found is not None:
            return found
    return None


def own_files() -> list[str]:
    """Files, and folders with everything in them. Some may be missing."""
    return list(dict.fromkeys(_places()))


def _places() -> Iterator[str]:
    yield sys.executable
    # In a virtual environment the program is a link, and this file marks it.
    yield os.path.join(sys.prefix, "pyvenv.cfg")
    yield str(data_folder())
    yield from map(str, added_folders())
    for name in ("kafkasniff", *PARTS):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # of a package within another
            continue
        if found is None:
            continue
        if found.submodule_search_locations is None:
            if found.origin is not None:
                yield found.origin
            continue
        for place in found.submodule_search_locations:
            yield place
            yield place + _LIBRARIES
    # Including those of the Python that a virtual environment is based on.
    yield os.path.dirname(os.__file__)
    yield sysconfig.get_path("platstdlib")


def _unreadable_below(path: str) -> str | None:
    """`path`, or the unreadable part of it; missing paths (in a zip, say) are not needed."""
    try:
        entries = list(os.scandir(path))
    except NotADirectoryError:
        return None if _is_readable(path) else path
    except PermissionError:
        return path
    except OSError:
        return None
    suffixes = (*importlib.machinery.all_suffixes(), DEFINITION)
    for entry in entries:
        if entry.is_dir():
            found = None if entry.name in _NEVER_READ else _unreadable_below(entry.path)
            if found is not None:
                return found
        # Names of libraries have their version at the end.
        elif (entry.name.endswith(suffixes) or ".so." in entry.name) and not _is_readable(entry.path):
            return entry.path
    return None


def _is_readable(path: str) -> bool:
    try:
        # Not access(2), which uses the real user.
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except PermissionError:
        return False
    except OSError:
        return True
    return True
