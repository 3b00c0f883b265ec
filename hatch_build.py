"""Builds the native kernel (`kafkasniff/kernel/*.zig`) into wheels and editable installs; a build hook of hatchling.

The compiler comes as a wheel (`ziglang`) that pip installs into the build environment, so no C compiler is needed.
Builds on platforms without that wheel end with one line.

`python hatch_build.py` compiles into the checkout, for developers who change the sources. It needs the package that
`python hatch_build.py --compiler` prints.
"""

from __future__ import annotations

import hashlib
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

COMPILERS = {
    "linux-x86_64": "bc9860d231e08c25c8c1ba66feffa42ba90f5f1439ceb2508ec6342cbd62cb6a",
    "linux-aarch64": "8352a4c5e465a14b68aa5e259a7789310f0ac39ac082951b758b9b219156eeb8",
    "macos-arm64": "719340774c29ae9e77bca625c523d46c25c3b0dd9bf9f918961cb85265b79f6f",
    "macos-x86_64": "5434d2b515693e3226ab868e89d8520abb4dd02e32c539e06438d89b1602324b",
}
"""`tree_digest` of the package in the wheels of that version.

The compiler is checked where it is used, since requirements of builds (PEP 517, PEP 508) cannot contain hashes. So it
does not matter whether pip got it from an index, a mirror or a folder, or whether it was installed before the build.
"""

PLATFORM_VARIABLE = "KAFKASNIFF_BUILD_PLATFORM"
"""Names another platform than this one (`PLATFORMS`), to cross-compile for."""


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


def wanted_platform() -> str:
    """The platform to build for. Raises SystemExit if it is unknown, or if this one has no compiler."""
    here, known = this_platform(), ", ".join(PLATFORMS)
    if here is None:
        machine = f"{sys.platform} on {platform.machine()}"
        raise SystemExit(f"kafkasniff: {ZIG} compiles the native kernel, for which it needs {known}; this is {machine}")
    asked = os.environ.get(PLATFORM_VARIABLE, here)
    if asked not in PLATFORMS:
        raise SystemExit(f"{PLATFORM_VARIABLE}={asked}: it is one of {known}")
    return asked


def source_checksum() -> str:
    """Checksum of all sources and their names, which `kafkasniff.native.library` compares."""
    found = 0
    for path in sorted(SOURCES.glob("*.zig")):
        text = path.read_bytes()
        found = zlib.crc32(f"{path.name} {len(text)}\n".encode() + text, found)
    return f"{found:08x}"


def tree_digest(folder: Path) -> str:
    """SHA-256 of the names and SHA-256 of all files below a folder, except those that Python compiles there."""
    lines = [
        f"{path.relative_to(folder).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for path in folder.rglob("*")
        if not path.is_dir() and "__pycache__" not in path.parts
    ]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def compiler() -> Path:
    """The program of the installed compiler. Raises SystemExit if there is none, or if it is not the published one."""
    found = importlib.util.find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"kafkasniff: {ZIG} compiles the native kernel, and is not installed")
    folder = Path(found.submodule_search_locations[0])
    host = this_platform()
    if host is None or tree_digest(folder) != COMPILERS[host]:
        raise SystemExit(f"kafkasniff: the compiler in {folder} is not {ZIG} as published for this platform")
    # Not `python -m ziglang`: that might run a compiled file that the digest does not cover.
    return folder / "zig"


def compile_kernel(zig: Path, target: Target, output: Path) -> None:
    """Compile the library; the same sources make the same bytes. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="kafkasniff-kernel-") as name:
        work = Path(name)
        facts = work / "build_facts.zig"
        facts.write_text(f'pub const sources = "{source_checksum()}";\n')
        made = work / output.name
        command = [
            *(str(zig), "build-lib", "-dynamic", "-OReleaseSafe"),
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
        """The compiler."""
        wanted_platform()
        return [ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile for the wanted platform."""
        target = PLATFORMS[wanted_platform()]
        zig = compiler()
        if version == "editable":
            compile_kernel(zig, target, NATIVE / target.file)
            return
        self._work = tempfile.TemporaryDirectory(prefix="kafkasniff-wheel-")
        library = Path(self._work.name) / target.file
        compile_kernel(zig, target, library)
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
    here = PLATFORMS[wanted_platform()]
    compile_kernel(compiler(), here, NATIVE / here.file)
