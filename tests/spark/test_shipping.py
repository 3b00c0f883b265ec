"""What workers get that have the dependencies only: the zip and the archive beside it, and that both work. That it gets
there: test_cluster.py, test_connect.py."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from kafkasniff.errors import UsageError
from kafkasniff.native import kernel_note
from kafkasniff.native.library import FILE, PLATFORM
from kafkasniff.spark.shipping import native_archive, package_zip
from tests.conftest import ROOT, ran

pytest.importorskip("pyspark")

NOTE = "from kafkasniff.native import kernel_note; print(kernel_note())"


def zipped(tmp_path: Path, *, native: bool = True) -> Path:
    """The zip, and the archive unpacked beside it as Spark does it."""
    path = tmp_path / "elsewhere.zip"
    path.write_bytes(package_zip())
    if native:
        with zipfile.ZipFile(io.BytesIO(native_archive())) as archive:
            archive.extractall(tmp_path / "elsewhere-native")
    return path


def run_from(path: Path, code: str, folder: Path) -> str:
    """What a Python prints that has kafkasniff from a zip or folder, and otherwise the dependencies only."""
    start = f"import sys; sys.path[:0] = [{str(path)!r}]; sys.path.append({sysconfig.get_paths()['purelib']!r})\n"
    # -S: no path files, so that an editable install is not seen.
    done = ran([sys.executable, "-I", "-S", "-c", start + code], cwd=folder, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_in_it() -> None:
    with zipfile.ZipFile(io.BytesIO(package_zip())) as archive:
        assert archive.testzip() is None
        found = {name: archive.read(name) for name in archive.namelist()}
    package = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "kafkasniff").rglob("*") if path.is_file()}
    # The library is in the archive.
    native = {".so", ".dylib"}
    should = {name: path for name, path in package.items() if "__pycache__" not in name and path.suffix not in native}
    should |= {
        f"kafkasniff/{path.relative_to(ROOT).as_posix()}": path
        for path in (ROOT / "dissectors").rglob("*")
        if path.is_file()
    }
    should["pyspark_kafkasniff.py"] = ROOT / "pyspark_kafkasniff.py"
    assert sorted(found) == sorted(should)
    assert all(found[name] == path.read_bytes() for name, path in should.items())
    assert list(found) == sorted(found)


@pytest.mark.extended
def test_it_works_from_the_zip(tmp_path: Path) -> None:
    """All modules, what they read, and the same zip again on a driver that has it from such a zip."""
    path = zipped(tmp_path)
    code = (
        "import hashlib, json, pkgutil, kafkasniff; from pathlib import Path\n"
        "failed = {}\n"
        "for one in pkgutil.walk_packages(kafkasniff.__path__, 'kafkasniff.'):\n"
        "    try: __import__(one.name)\n"
        "    except ImportError as error: failed[one.name] = str(error)\n"
        "from kafkasniff.spark import shipping; assert '.zip' in shipping.__file__\n"
        "digests = [hashlib.sha256(data).hexdigest() for data in (shipping.package_zip(), shipping.native_archive())]\n"
        "from kafkasniff.errors import DefinitionError; from kafkasniff.kafka.schema.codes import read_data\n"
        "try: read_data('nothing.txt')\n"
        "except DefinitionError as error: print(json.dumps([failed, digests, str(error)]))"
    )
    failed, digests, error = json.loads(run_from(path, code, tmp_path))
    # Extras that may be missing.
    assert {name for name in failed if "scapy" not in name} == set()
    assert digests == [hashlib.sha256(data).hexdigest() for data in (package_zip(), native_archive())]
    assert error.endswith("elsewhere.zip/kafkasniff/dissectors/nothing.txt: there is no such file")


@pytest.mark.extended
def test_the_kernel_is_found_beside_the_zip(tmp_path: Path) -> None:
    """Also if the zip is a link to a cache, as YARN has it. One of other sources is not used."""
    path = zipped(tmp_path)
    assert run_from(path, NOTE, tmp_path) == f"{kernel_note()}\n"
    (tmp_path / "cache").mkdir()
    path.rename(tmp_path / "cache" / "10.zip")
    path.symlink_to(tmp_path / "cache" / "10.zip")
    assert run_from(path, NOTE, tmp_path) == f"{kernel_note()}\n"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("kafkasniff/kernel/zzz.zig", b"// another source")
    assert run_from(path, NOTE, tmp_path) == "no native kernel: built from other sources\n"


def test_a_worker_without_a_kernel_says_what_to_ship(tmp_path: Path) -> None:
    code = (
        "import kafkasniff\n"
        "try: kafkasniff.Inspector()\n"
        "except kafkasniff.MissingPartError as error: print(type(error).__name__, error)"
    )
    reason = f"no native kernel: none was shipped for {PLATFORM}; ship a wheel of that platform, too (docs/spark.md)"
    assert run_from(zipped(tmp_path, native=False), code, tmp_path) == f"MissingKernelError {reason}\n"


WHEELS = {
    "kafkasniff-1-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl": (
        "kernel.so",
        "linux-aarch64/kernel.so",
    ),
    "kafkasniff-1-py3-none-macosx_11_0_arm64.whl": ("kernel.dylib", "darwin-arm64/kernel.dylib"),
    "kafkasniff-1-py3-none-macosx_11_0_x86_64.whl": ("kernel.dylib", "darwin-x86_64/kernel.dylib"),
}


def test_kernels_for_other_platforms_come_from_wheels(tmp_path: Path) -> None:
    wheels = [tmp_path / name for name in WHEELS]
    for wheel, (name, _) in zip(wheels, WHEELS.values(), strict=True):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"kafkasniff/native/{name}", wheel.name)
    with zipfile.ZipFile(io.BytesIO(native_archive(wheels))) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    library = ROOT / "kafkasniff" / "native" / FILE
    own = {f"{PLATFORM}/{FILE}": library.read_bytes()} if library.exists() else {}
    assert found == own | {place: name.encode() for name, (_, place) in WHEELS.items()}
    pure = tmp_path / "kafkasniff-1-py3-none-any.whl"
    with zipfile.ZipFile(pure, "w") as archive:
        archive.writestr("kafkasniff/__init__.py", "")
    with pytest.raises(UsageError, match=r"any\.whl: this wheel has no native kernel$"):
        native_archive([pure])
    pure.write_bytes(b"no zip")
    with pytest.raises(UsageError, match="not a wheel"):
        native_archive([pure])


@pytest.mark.extended
def test_what_workers_need_is_documented() -> None:
    """All dependencies but those of the command line and DuckDB, and pandas, which pyspark's workers use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies = [*project["dependencies"], *project["optional-dependencies"]["tables"], "pandas"]
    needed = {re.split("[<>=]", name)[0] for name in dependencies}
    needed -= {"click", "rich", "prometheus-client", "protobuf", "duckdb"}
    section = (ROOT / "docs" / "spark.md").read_text().partition("## On a cluster")[2]
    listed = re.search(r"^pip install (.*)$", section, re.M)
    assert {re.split("[<>=]", name)[0] for name in shlex.split(listed[1])} == needed
    # No module of Spark's needs what the command line needs.
    code = (
        "import importlib, pkgutil, kafkasniff.spark as package\n"
        "for one in pkgutil.iter_modules(package.__path__): importlib.import_module(f'kafkasniff.spark.{one.name}')\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'click', 'rich'})"
    )
    assert run_from(ROOT, code, ROOT) == "set()\n"
