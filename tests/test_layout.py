"""Tests mirror the modules: `tests/a/test_b.py` tests `kafkasniff/a/b.py`. Exceptions are listed here."""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePosixPath

import pytest

from tests.conftest import ROOT

LONG = 100
"""Lines of a module that needs tests of its own."""

ROOTS = {"benchmarks": "benchmarks", "captures": "captures/record", "": "kafkasniff"}
"""Where the modules are that a folder of tests mirrors; "": all other folders."""

TOPICS = {
    "laws that hold for all of a packet's way": """
        test_boundaries test_connection_ends test_disturbed test_lost_segments test_mid_connection
        test_snap_length test_line_names tables/exports/test_goes_on tables/exports/test_killed
        tables/exports/test_columns tables/exports/test_headers kafka/test_acks""",
    "bad input, secrets and bounds, for all modules at once": """
        test_hostile test_hostile_strings test_secrets test_linear_work test_memory_bounds
        test_memory_of_processes capture/test_read_errors
        tables/exports/test_hostile_folder kafka/test_linear_connection fuzz/test_families fuzz/costs/test_costs
        fuzz/costs/test_work browse/screen/test_hostile_captures""",
    "shipped captures, and what somebody else says of them or of Kafka's bytes": """
        test_evidence test_evidence_clients test_golden test_tshark test_vectors analysis/test_captures
        captures/test_manifest analysis/detectors/test_captures analysis/detectors/test_faults
        enrich/test_captures tables/exports/test_logged kafka/embedded/test_group_captures
        kafka/embedded/test_internal_captures kafka/test_kafka_python kafka/records/test_record_sets_vectors
        native/test_captures tables/rows/test_waits sinks/test_summaries_kraft tls/test_captures
        tls/test_openssl tls/test_tshark""",
    "pages, the package as it is installed, and rules about its sources": """
        test_api_numbers test_containerfile test_coverage_page test_docs test_key_pages test_layout test_package
        test_reference
        test_security_page test_github test_release test_systemd_unit test_vocabulary cli/test_messages
        analysis/detectors/test_quoted_causes""",
    "a definition that Kafka does not have, through all modules": "test_invented_api test_invented_flags",
    "options and promises of several commands": """
        cli/commands/test_analyze_captures cli/test_full_disk cli/test_jobs
        cli/commands/test_live_files cli/test_names cli/test_numbers cli/test_remote cli/test_screens cli/test_trace_ids
        cli/options/test_shared_options cli/test_user cli/test_without_tables sinks/test_rate tls/test_commands""",
    "one kind of input for several modules": """
        native/test_control_records native/test_message_sets native/test_odd_bodies native/test_payload
        native/test_record_facts native/test_record_rows native/test_records sinks/test_templates""",
    "programs that are started: brokers, Spark, browsers": """
        integration/test_compare integration/test_kills integration/test_real_broker integration/test_secured
        integration/test_tls
        report/test_browser spark/test_command spark/test_connect spark/test_following spark/test_local_cluster
        spark/test_tls spark/test_notebook spark/test_object_store spark/test_standalone""",
    "tools of the tests": "test_choice craft/test_craft craft/test_generators",
}
"""Modules of tests that mirror none, by what they are about."""

TESTS = sorted(path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py"))


def mirrored(test: PurePosixPath) -> PurePosixPath:
    """The module that a test module covers by its name, from the checkout's root and without a suffix."""
    root = ROOTS.get(test.parts[0], ROOTS[""])
    inside = test.parent if root == ROOTS[""] else test.parent.relative_to(test.parts[0])
    return PurePosixPath(root) / inside / test.stem.removeprefix("test_")


def is_module(path: PurePosixPath) -> bool:
    return (ROOT / f"{path}.py").is_file() or (ROOT / path / "__init__.py").is_file()


def listed(lists: dict[str, str]) -> list[str]:
    return [name for names in lists.values() for name in names.split()]


def test_tests_mirror_modules_or_have_a_reason() -> None:
    without = [test.with_suffix("").as_posix() for test in TESTS if not is_module(mirrored(PurePosixPath(test)))]
    topics = listed(TOPICS)
    assert len(topics) == len(set(topics))
    assert set(without) - set(topics) == set(), "mirror a module, or list what these are about"
    assert set(topics) - set(without) == set(), "these are gone, or mirror a module"


def long_modules() -> dict[PurePosixPath, Path]:
    """Modules with more than `LONG` lines, by the names that `mirrored` gives them."""
    paths = [path for path in (ROOT / "kafkasniff").rglob("*.py") if path.read_bytes().count(b"\n") > LONG]
    names = [PurePosixPath(path.relative_to(ROOT).with_suffix("")) for path in paths]
    found = {name.parent if name.name == "__init__" else name: path for name, path in zip(names, paths, strict=True)}
    return {name: path for name, path in found.items() if name != PurePosixPath("kafkasniff")}


def only_declares(path: Path) -> bool:
    """Whether a module is constants and classes of fields: its functions do no more than set attributes."""
    functions = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.FunctionDef)]
    return all(
        isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Attribute) and isinstance(one.value, ast.Name)
        for function in functions
        for one in function.body
    )


def test_modules_have_tests_of_their_own() -> None:
    have = {mirrored(PurePosixPath(test)) for test in TESTS}
    # Tests of a package cover its modules.
    without = {name: path for name, path in long_modules().items() if name not in have and name.parent not in have}
    missing = {name for name, path in without.items() if not only_declares(path)}
    assert missing == set(), "write tests that mirror these modules"


@pytest.mark.parametrize(
    ("test", "module"),
    [
        ("filters/test_time_parsing.py", "kafkasniff/filters/time_parsing"),
        ("kafka/embedded/test_otlp.py", "kafkasniff/kafka/embedded/otlp"),
        ("benchmarks/test_scale.py", "benchmarks/scale"),
        ("captures/test_server.py", "captures/record/server"),
    ],
)
def test_mirrored_names(test: str, module: str) -> None:
    assert mirrored(PurePosixPath(test)).as_posix() == module


def test_public_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "kafkasniff").rglob("*.py")):
        for name in re.findall(r"^ *class ([A-Za-z]\w*)(?:\(.*|:)$", path.read_text(encoding="utf-8"), re.M):
            places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert len(places) > 100
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
