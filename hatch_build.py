"""Builds the native kernel (`kafkasniff/kernel/*.zig`) into wheels and editable installs; a build hook of hatchling.

The compiler comes as a wheel (`ziglang`) that pip installs into the build environment, so no C compiler is needed. On
platforms without that wheel, a pure-Python wheel is built, and kafkasniff does everything in Python.

`python hatch_build.py` compiles into the checkout, for developers who change the sources. It needs the package that
`python hatch_build.py --compiler` prints.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:
    # Run as a script: only builds of wheels bring hatchling.
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "kafkasniff" / "kernel"
NATIVE = ROOT / "kafkasniff" / "native"
INSIDE = "kafkasniff/native"
ZIG = "ziglang==0.17.1"
"""Exact: Zig's language and standard library change from release to release."""

PLATFORM_VARIABLE = "KAFKASNIFF_BUILD_PLATFORM"
"""Names another platform than this one (`PLATFORMS`), to cross-compile for; "none" builds without the library."""


class Target(NamedTuple):
    """A platform that the library is compiled for."""

    zig: tuple[str, ...]
    """Compiler options."""
    tag: str
    """Platform tag of the wheel."""
    file: str


def _linux(machine: str, cpu: str, musl: str) -> Target:
    # The library links to nothing, neither glibc nor musl.
    tag = f"manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_{musl}_{machine}"
    return Target(("-target", f"{machine}-linux-gnu.2.17", f"-mcpu={cpu}"), tag, "kernel.so")


def _macos(machine: str, zig: str, cpu: str, release: str) -> Target:
    # Without an install name of its own, the library records the path that it was compiled at.
    install_name = ("-install_name", "@rpath/kernel.dylib")
    return Target(
        ("-target", f"{zig}-macos.{release}.0", f"-mcpu={cpu}", *install_name),
        f"macosx_{release}_0_{machine}",
        "kernel.dylib",
    )


PLATFORMS = {
    "linux-x86_64": _linux("x86_64", "x86_64_v2", "1_1"),
    "linux-aarch64": _linux("aarch64", "baseline", "1_1"),
    "macos-arm64": _macos("arm64", "aarch64", "apple_m1", "11"),
    "macos-x86_64": _macos("x86_64", "x86_64", "x86_64_v2", "11"),
}
"""By system and machine."""


def this_platform() -> str | None:
    """The name of this platform; None where the compiler has no wheel for it."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if sys.platform == "linux" and sys.maxsize > 1 << 32:
        name = f"linux-{machine}"
    elif sys.platform == "darwin" and int(platform.mac_ver()[0].partition(".")[0] or 0) >= 13:
        name = f"macos-{'arm64' if machine == 'aarch64' else machine}"
    else:
        return None
    return name if name in PLATFORMS else None


def wanted_platform() -> str | None:
    """The platform to build for; None for a wheel without the library."""
    asked = os.environ.get(PLATFORM_VARIABLE)
    if asked is None:
        return this_platform()
    if asked == "none":
        return None
    if asked not in PLATFORMS:
        raise SystemExit(f"{PLATFORM_VARIABLE}={asked}: it is one of none, {', '.join(PLATFORMS)}")
    return asked


def source_checksum() -> str:
    """Checksum of all sources and their names, which `kafkasniff.native.library` compares."""
    found = 0
    for path in sorted(SOURCES.glob("*.zig")):
        text = path.read_bytes()
        found = zlib.crc32(f"{path.name} {len(text)}\n".encode() + text, found)
    return f"{found:08x}"


def compile_kernel(target: Target, output: Path) -> None:
    """Compile the library; the same sources make the same bytes. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="kafkasniff-kernel-") as name:
        work = Path(name)
        facts = work / "build_facts.zig"
        facts.write_text(f'pub const sources = "{source_checksum()}";\n')
        made = work / output.name
        command = [
            *(sys.executable, "-m", "ziglang", "build-lib", "-dynamic", "-OReleaseSafe"),
            *("-fstrip", "-fsingle-threaded", "-fno-stack-check", *target.zig, "--name", "kafkasniff_kernel"),
            *("--dep", "build_facts", f"-Mroot={SOURCES / 'kernel.zig'}", f"-Mbuild_facts={facts}"),
            f"-femit-bin={made}",
        ]
        # Uses nothing of earlier builds, and leaves no files in the home directory.
        caches = {"ZIG_GLOBAL_CACHE_DIR": str(work / "global"), "ZIG_LOCAL_CACHE_DIR": str(work / "local")}
        subprocess.run(command, cwd=work, env={**os.environ, **caches}, check=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        # Aside and renamed: a process that has the old one mapped keeps it.
        aside = output.with_name(f".{output.name}.{os.getpid()}")
        aside.write_bytes(made.read_bytes())
        aside.chmod(0o755)
        aside.replace(output)


class KernelBuildHook(BuildHookInterface):
    """Adds the library to a wheel, or puts it into the checkout that an editable install leads to."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The compiler, where there is one for this machine."""
        return [ZIG] if this_platform() is not None and wanted_platform() is not None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile for the wanted platform."""
        name = wanted_platform()
        if name is None:
            return
        if importlib.util.find_spec("ziglang") is None:
            if os.environ.get(PLATFORM_VARIABLE) is not None or this_platform() is not None:
                raise RuntimeError(f"the native kernel is compiled by {ZIG}, which is not installed")
            return
        target = PLATFORMS[name]
        if version == "editable":
            compile_kernel(target, NATIVE / target.file)
            return
        self._work = tempfile.TemporaryDirectory(prefix="kafkasniff-wheel-")
        library = Path(self._work.name) / target.file
        compile_kernel(target, library)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{target.tag}"
        build_data["force_include"][str(library)] = f"{INSIDE}/{target.file}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: the library is in it."""
        work = getattr(self, "_work", None)
        if work is not None:
            work.cleanup()


if __name__ == "__main__":
    if sys.argv[1:] == ["--compiler"]:
        print(ZIG)
        raise SystemExit
    here = wanted_platform()
    if here is None:
        raise SystemExit("there is no compiler for this platform")
    compile_kernel(PLATFORMS[here], NATIVE / PLATFORMS[here].file)
