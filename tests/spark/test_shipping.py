"""The zip for workers that have the dependencies only: what is in it, and that it works.

That it gets there: test_local_cluster.py, test_connect.py.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from kafkasniff.spark.shipping import package_zip
from tests.conftest import ROOT

pytest.importorskip("pyspark")


def zipped(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere.zip"
    path.write_bytes(package_zip())
    return path


def run_from(path: Path, code: str, folder: Path) -> str:
    """What a Python prints that has kafkasniff from a zip or folder, and otherwise the dependencies only."""
    start = f"import sys; sys.path[:0] = [{str(path)!r}]; sys.path.append({sysconfig.get_paths()['purelib']!r})\n"
    # -S: no path files, so that an editable install is not seen.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + code],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_in_it() -> None:
    with zipfile.ZipFile(io.BytesIO(package_zip())) as archive:
        assert archive.testzip() is None
        found = {name: archive.read(name) for name in archive.namelist()}
    package = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "kafkasniff").rglob("*") if path.is_file()}
    # A library within a zip cannot be loaded.
    native = {".so", ".dylib", ".zig"}
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


def test_the_same_code_gives_the_same_bytes(tmp_path: Path) -> None:
    path = zipped(tmp_path)
    assert path.read_bytes() == package_zip()
    # On a driver that has it from such a zip, too.
    code = (
        "from pathlib import Path; from kafkasniff.spark import shipping\n"
        f"assert '.zip' in shipping.__file__; print(shipping.package_zip() == Path({str(path)!r}).read_bytes())"
    )
    assert run_from(path, code, tmp_path) == "True\n"


def test_it_works_from_the_zip(tmp_path: Path) -> None:
    """Commands that read captures, definitions, and what of them is proven."""
    commands = [
        ("decode", "--format", "json", str(ROOT / "captures" / "sarama.pcap")),
        ("api", "Produce", "9"),
        ("api", "--coverage"),
    ]
    code = (
        "import kafkasniff; from kafkasniff.cli.main import main\n"
        f"for sys.argv[1:] in {[list(words) for words in commands]!r}:\n"
        "    try: main()\n"
        "    except SystemExit as ended: print('ended with', ended.code, flush=True)\n"
    )
    printed = run_from(zipped(tmp_path), code, tmp_path)
    assert printed == run_from(ROOT, code, tmp_path)
    outputs = printed.split("ended with 0\n")
    assert len(outputs) == len(commands) + 1
    assert all(len(output) > 200 for output in outputs[:-1])


def test_a_file_that_is_missing_there(tmp_path: Path) -> None:
    code = (
        "from kafkasniff.errors import DefinitionError; from kafkasniff.kafka.data_files import read_data\n"
        "try: read_data('nothing.txt')\n"
        "except DefinitionError as error: print(error)"
    )
    told = run_from(zipped(tmp_path), code, tmp_path)
    assert told.endswith("elsewhere.zip/kafkasniff/dissectors/nothing.txt: there is no such file\n")


def test_every_module_can_be_imported_from_it(tmp_path: Path) -> None:
    code = (
        "import json, pkgutil, kafkasniff\n"
        "names = [one.name for one in pkgutil.walk_packages(kafkasniff.__path__, 'kafkasniff.')]\n"
        "failed = {}\n"
        "for name in names:\n"
        "    try: __import__(name)\n"
        "    except ImportError as error: failed[name] = str(error)\n"
        "print(json.dumps([len(names), failed]))"
    )
    count, failed = json.loads(run_from(zipped(tmp_path), code, tmp_path))
    assert count > 150
    # Extras that may be missing.
    assert {name for name in failed if "scapy" not in name} == set()


def test_what_workers_need_is_documented() -> None:
    """All dependencies but those of the command line, and pandas, which pyspark's workers use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split("[<>=]", name)[0] for name in project["dependencies"]} | {"pandas"}
    needed -= {"click", "rich", "prometheus-client"}
    section = (ROOT / "docs" / "spark.md").read_text().partition("## On a cluster")[2]
    listed = re.search(r"^pip install (.*)$", section, re.M)
    assert listed is not None
    assert {re.split("[<>=]", name)[0] for name in shlex.split(listed[1])} == needed
    code = (
        "import importlib, pkgutil, kafkasniff.spark as package\n"
        "for one in pkgutil.iter_modules(package.__path__): importlib.import_module(f'kafkasniff.spark.{one.name}')\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'click', 'rich'})"
    )
    assert run_from(ROOT, code, ROOT) == "set()\n"
