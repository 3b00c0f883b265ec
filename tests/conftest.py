"""Fixtures for what a test needs from the machine (with a skip, or a failure where KAFKASNIFF_REQUIRE_ALL is set), the
shipped captures, and the hypothesis profiles."""

from __future__ import annotations

import ast
import ctypes
import functools
import inspect
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.choice import ALL

ROOT = Path(__file__).resolve().parent.parent
CAPTURE_SUFFIXES = tuple(f".{form}{packed}" for form in ("pcap", "pcapng") for packed in ("", ".gz", ".zst", ".lz4"))
JAVA_NEEDED = 17
CHOICES = frozenset({"ALL", "DEEP", "examples", "fewer", "in_turn", "one_in", "some_pairs"})
ALL_EXTENDED = re.compile(r"^pytestmark = [^]]*?pytest\.mark\.extended\b", re.M)

# Let Python write bytecode even where the environment forbids it: the tests start hundreds of processes, each of which
# would compile kafkasniff again (a second), and every worker would compile the asserts of all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# glibc keeps freed memory once a large block was freed, which it takes as a sign of more to come: workers would grow to
# several GB. A fixed threshold (M_TRIM_THRESHOLD) prevents it. Not by its variable, which processes under test inherit.
if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
    mallopt(-1, 128 << 10)

# Processes started by tests would inherit from nohup that they ignore a hang-up, and tests would wait for their end.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Deadlines are off: the test machines are shared, and a slow example is not a wrong one.
EXAMPLES = 25 if ALL else 7
settings.register_profile("default", max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("deep", settings.get_profile("default"), max_examples=3000)
# `--hypothesis-profile NAME` on pytest's command line takes precedence.
settings.load_profile(os.environ.get("KAFKASNIFF_HYPOTHESIS") or ("ci" if os.environ.get("CI") else "default"))


def ran(command: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    """A process that has ended, however it did, with its output as text."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def missing(reason: str) -> NoReturn:
    """Skip the running test, or fail it where everything is required."""
    if os.environ.get("KAFKASNIFF_REQUIRE_ALL"):
        pytest.fail(f"{reason}, and KAFKASNIFF_REQUIRE_ALL is set", pytrace=False)
    pytest.skip(reason)


def fail_what_was_not_installed(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Where everything is required, turn a skip for a missing package into a failure."""
    if report.skipped and os.environ.get("KAFKASNIFF_REQUIRE_ALL") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if re.search("could not import|not installed", reason):
            report.outcome = "failed"
            report.longrepr = f"{reason}, and KAFKASNIFF_REQUIRE_ALL is set"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """`pytest.importorskip` within a test, and at the top of a module."""
    report = yield
    fail_what_was_not_installed(report)
    return report


pytest_make_collect_report = pytest_runtest_makereport


def shipped_captures() -> list[Path]:
    """All captures in `captures/`, sorted by name."""
    return sorted(path for path in (ROOT / "captures").iterdir() if path.name.endswith(CAPTURE_SUFFIXES))


@functools.cache
def capture_names() -> frozenset[str]:
    return frozenset(path.name for path in shipped_captures())


def group_of(item: pytest.Item) -> str:
    """Group of tests that one worker runs when the run is distributed with `--dist loadgroup`.

    Besides tests with a mark, these are tests that share the Spark session, tests of one module about one capture, and
    the other tests of a module. What they share is then made once, not by each worker.
    """
    marker = item.get_closest_marker("xdist_group")
    if marker is not None:
        return str(marker.args[0])
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    for value in item.callspec.params.values() if hasattr(item, "callspec") else ():
        name = value.get("file") if isinstance(value, dict) else getattr(value, "name", value)
        if isinstance(name, str) and name in capture_names():
            return f"{item.path.stem}-{name}"
    return item.nodeid.partition("::")[0]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Modules of which all tests are extended are not imported otherwise: some need packages of `test-all`."""
    if ALL or collection_path.suffix != ".py":
        return None
    return True if ALL_EXTENDED.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--passed", metavar="FILE", help="write the ids of tests that pass to FILE")
    parser.addoption("--beyond", metavar="FILE", help="omit tests of FILE, unless they do more with all tests")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("passed")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Passed(Path(path), grouped=config.getoption("dist", "no") == "loadgroup"))


class Passed:
    """Writes the ids of tests that pass, without the group that xdist adds."""

    def __init__(self, path: Path, *, grouped: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        self._grouped = grouped

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            print(report.nodeid.rpartition("@")[0] if self._grouped else report.nodeid, file=self._file)

    def pytest_sessionfinish(self) -> None:
        self._file.close()


def names_in(code: CodeType) -> set[str]:
    """The global names that a function and those within it use."""
    inner = (names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


@functools.cache
def names_of_choices(path: str) -> frozenset[str]:
    """Global names of a module of tests that differ if all tests run: those of `tests/choice.py`, and what uses them.

    Not parameters of tests: each set of them is a test with an id of its own.
    """
    found: set[str] = set()
    for node in ast.parse(Path(path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            place = ROOT.joinpath(*str(node.module).split("."))
            source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            known = CHOICES if node.module == "tests.choice" else names_of_choices(str(source))
            found |= {one.asname or one.name for one in node.names if one.name in known}
        parts = node.body if isinstance(node, ast.FunctionDef) else [node]
        used = {one.id for part in parts for one in ast.walk(part) if isinstance(one, ast.Name)}
        if used & found:
            defined = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
            found |= {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else defined
    return frozenset(found)


def does_more_with_all(item: pytest.Item) -> bool:
    """Whether a test of both tiers has more examples, places or members when all tests run (`tests/choice.py`)."""
    function = getattr(item, "obj", None)
    if function is None or hasattr(function, "hypothesis"):
        return True
    fixtures = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
    made = (one.func for defined in fixtures for one in defined if str(ROOT) in inspect.getfile(one.func))
    return any(names_in(one.__code__) & names_of_choices(one.__code__.co_filename) for one in (function, *made))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not wanted, and group the rest before xdist reads the marks."""
    beyond = config.getoption("beyond")
    passed = frozenset() if beyond is None else frozenset(Path(beyond).read_text(encoding="utf-8").splitlines())
    unwanted = {
        item
        for item in items
        if (not ALL and item.get_closest_marker("extended") is not None)
        or (item.nodeid in passed and not does_more_with_all(item))
    }
    if unwanted:
        config.hook.pytest_deselected(items=[*unwanted])
        items[:] = [item for item in items if item not in unwanted]
    if config.getoption("loadgroup", default=False):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))
        # The longest group: begun last, it would end alone.
        items.sort(key=lambda item: group_of(item) != "spark")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Long values by their size: workers send the ids of all tests, which would be 20 MB."""
    return f"{type(val).__name__} of {len(val):,}" if isinstance(val, str | bytes) and len(val) > 300 else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with an argument `capture_path` once per shipped capture."""
    if "capture_path" in metafunc.fixturenames:
        paths = shipped_captures()
        metafunc.parametrize("capture_path", paths, ids=[path.name for path in paths])


@pytest.fixture(scope="session")
def captures() -> list[Path]:
    """Paths of all shipped captures, at least one."""
    paths = shipped_captures()
    assert paths, "captures/ holds no capture"
    return paths


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """`require_tool("tshark")` returns the program's path, or skips (or fails) the test."""

    def require(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            # tcpdump and ip may be only on root's PATH.
            path = shutil.which(name, path="/usr/local/sbin:/usr/sbin:/sbin")
        if path is None:
            missing(f"{name} is not installed")
        return path

    return require


@pytest.fixture(scope="session")
def require_root() -> Callable[[], None]:
    """`require_root()` skips (or fails) the test where packet sockets are not allowed."""

    def require() -> None:
        if not hasattr(socket, "AF_PACKET"):
            missing("packet sockets are Linux only")
        try:
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
        except PermissionError:
            missing("packet sockets need root or CAP_NET_RAW")

    return require


@pytest.fixture(scope="session")
def require_java() -> Callable[[], str]:
    """`require_java()` returns the path of `java`, 17 or newer, or skips (or fails) the test."""

    def require() -> str:
        home = os.environ.get("JAVA_HOME")
        path = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
        if path is None:
            missing("java is not installed")
        reported = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
        found = re.search(r'version "(\d+)', reported)
        if found is None or int(found[1]) < JAVA_NEEDED:
            missing(f"{path} is not Java {JAVA_NEEDED} or newer")
        return path

    return require


@pytest.fixture(scope="session")
def require_kafka(require_java: Callable[[], str]) -> Callable[..., None]:
    """`require_kafka("4.3.1", environments=[PACKAGES])`: Java's compiler, a release's jars and Python clients, or a
    skip.

    They come from the cache of `captures.record`. They are downloaded (250 MB) only where everything is required, since
    running the tests does not ask for a download.
    """

    def require(*releases: str, environments: Sequence[Sequence[str]] = ()) -> None:
        from captures.record.distribution import SetupError, is_cached, java, kafka_jars, python_with

        require_java()
        if not Path(java()).with_name("javac").is_file():
            missing(f"{java()} has no compiler beside it (a JDK is needed)")
        if all(is_cached(release, *environments) for release in releases):
            return
        if not os.environ.get("KAFKASNIFF_REQUIRE_ALL"):
            missing("Kafka's jars or clients are not in the cache; `python -m tests.integration` fetches them")
        try:
            for release in releases:
                kafka_jars(release)
            for packages in environments:
                python_with(*packages)
        except SetupError as error:
            missing(str(error))

    return require
