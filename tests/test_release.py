"""What `make release-check` reports. The build itself takes minutes: `.ci/check_kernel` and a release do it."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import hatch_build
from tests import release
from tests.conftest import ROOT

pytestmark = pytest.mark.extended

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- Something.

## [1.1.0] - 2026-12-01

### Fixed

- Something else.

## [1.0.0] - 2026-11-27

- The first release.
"""
RELEASED = CHANGELOG.replace("### Added\n\n- Something.\n\n", "")


CITATION = "cff-version: 1.2.0\nversion: 1.1.0\ndate-released: 2026-12-01\n"
UNDATED = RELEASED.replace(" - 2026-12-01", "")
PENDING = RELEASED.replace("Something else", "There has been no release yet")
EMPTY = RELEASED.replace("### Fixed\n\n- Something else.\n", "")
HEADLESS = RELEASED.replace("## [Unreleased]\n", "")
EARLIER = CITATION.replace("1.1.0", "1.0.0").replace("12-01", "11-27")


@pytest.mark.parametrize(
    ("version", "changelog", "asked", "citation", "expected"),
    [
        ("1.1.0", RELEASED, None, CITATION, []),
        ("1.1.0", RELEASED, "1.1.0", CITATION, []),
        ("1.2.0.dev0", CHANGELOG, None, CITATION, []),
        # The citation of an earlier release may stay until the next one.
        ("1.2.0.dev0", CHANGELOG, None, EARLIER, []),
        ("1.1.0", RELEASED, None, EARLIER, ["lacks the line version: 1.1.0", "date-released: 2026-12-01"]),
        ("1.1.0", RELEASED, "1.2.0", CITATION, ["has version 1.1.0, not 1.2.0"]),
        ("1.2.0", RELEASED, None, CITATION, ["lacks the section [1.2.0] after [Unreleased]"]),
        ("1.1.0", CHANGELOG, None, CITATION, ["has changes under [Unreleased], which are in 1.1.0"]),
        ("1.1.0", PENDING, None, CITATION, ["no release yet, but 1.1.0"]),
        ("1.1.0", EMPTY, None, CITATION, ["[1.1.0] of CHANGELOG.md is empty"]),
        ("1.1.0", HEADLESS, None, CITATION, ["not begin with the section [Unreleased]"]),
        ("1.2.0.dev0", RELEASED, None, CITATION, ["no changes under [Unreleased]"]),
        ("1.1.0", UNDATED, None, CITATION, ["lacks its date", "lacks the line date-released: "]),
    ],
)
def test_versions(version: str, changelog: str, asked: str | None, citation: str, expected: list[str]) -> None:
    found = list(release.version_problems(version, changelog, asked, citation))
    assert len(found) == len(expected)
    assert all(part in problem for part, problem in zip(expected, found, strict=True))


METADATA = """Metadata-Version: 2.4
Name: kafkasniff
Version: 1.1.0
Classifier: Development Status :: 5 - Production/Stable
License-Expression: MIT
License-File: LICENSE
License-File: licenses/zig.txt
Description-Content-Type: text/markdown

# kafkasniff
"""
HOME = "kafkasniff-1.1.0.dist-info"
KERNEL = "kafkasniff/native/kernel.so"
PLATFORM = "kafkasniff-1.1.0-py3-none-manylinux_2_17_x86_64.whl"


def wheel(folder: Path, change: Callable[[dict[str, bytes]], None] = lambda files: None) -> Path:
    """A wheel in small, changed before or after its RECORD is made."""
    files = {f"{HOME}/licenses/{text}": (ROOT / text).read_bytes() for text in release.LICENSES}
    files[f"{HOME}/METADATA"] = METADATA.encode()
    files[KERNEL] = b"\x7fELF " + hatch_build.source_checksum().encode()
    change(files)
    if f"{HOME}/RECORD" not in files:
        files[f"{HOME}/RECORD"] = record(files)
    path = folder / PLATFORM
    with zipfile.ZipFile(path, "w") as archive:
        for inside, content in files.items():
            archive.writestr(inside, content)
    return path


def record(files: dict[str, bytes]) -> bytes:
    sums = {name: base64.urlsafe_b64encode(hashlib.sha256(content).digest()) for name, content in files.items()}
    lines = [f"{name},sha256={digest.decode().rstrip('=')},{len(files[name])}" for name, digest in sums.items()]
    return "\n".join([*lines, f"{HOME}/RECORD,,"]).encode()


def _metadata(old: str, new: str) -> Callable[[dict[str, bytes]], None]:
    assert old in METADATA
    return lambda files: files.update({f"{HOME}/METADATA": METADATA.replace(old, new).encode()})


def _after_record(files: dict[str, bytes], name: str, content: bytes) -> None:
    files[f"{HOME}/RECORD"] = record(files)
    files[name] = content


def test_a_good_wheel(tmp_path: Path) -> None:
    assert list(release.wheel_problems(wheel(tmp_path))) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_metadata("Version: 1.1.0", "Version: 1.1.1"), "metadata of kafkasniff 1.1.1"),
        (_metadata("Expression: MIT", "Expression: Apache-2.0"), "licence Apache-2.0"),
        (_metadata("License-File: licenses/zig.txt\n", ""), "with the texts ['LICENSE']"),
        (_metadata("Version: 1.1.0", "Version: 1.1.0+x y"), "metadata: '1.1.0+x y' is invalid for 'version'"),
        (_metadata("text/markdown", "text/html"), "text/html"),
        (_metadata("5 - Production/Stable", "3 - Alpha"), "the classifier Development Status :: 5"),
        (lambda files: files.pop(f"{HOME}/licenses/licenses/zig.txt") and None, "licence text licenses/zig.txt"),
        (lambda files: files.update({f"{HOME}/licenses/LICENSE": b"All rights reserved"}), "licence text LICENSE"),
        (lambda files: files.pop(KERNEL) and None, "0 native kernels"),
        (lambda files: files.update({KERNEL: b"\x7fELF 00000000"}), "was compiled from other sources"),
        (lambda files: _after_record(files, KERNEL, files[KERNEL] + b"\0"), "not have the checksum of RECORD"),
    ],
)
def test_bad_wheels(tmp_path: Path, change: Callable[[dict[str, bytes]], None], expected: str) -> None:
    (problem,) = release.wheel_problems(wheel(tmp_path, change))
    assert expected in problem


def installed(name: str, version: str, **metadata: object) -> dict[str, object]:
    """An entry of pip's installation report."""
    archive = {"archive_info": {"hashes": {"sha256": "0" * 64}}, "url": "https://example.org/x.whl"}
    return {"metadata": {"name": name, "version": version, **metadata}, "download_info": archive}


NEEDS = ["Needed_One>=1", "absent>=2", 'extra-only; extra == "x"', "extra-only2; python_version<'3'"]
INSTALLED = [
    installed("kafkasniff", "1.1.0", license_expression="MIT", requires_dist=NEEDS),
    installed("needed-one", "1.5", classifier=["License :: OSI Approved :: BSD License"], requires_dist=["deeper"]),
    installed("deeper", "3", license="Apache-2.0\n\nwhole text"),
]


def test_the_sbom(tmp_path: Path) -> None:
    path = wheel(tmp_path)
    text = release.bill_of_materials(path, INSTALLED, 1_795_000_000)
    assert text == release.bill_of_materials(path, INSTALLED, 1_795_000_000), "the same wheel, the same bytes"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found = json.loads(text)
    main = found["metadata"]["component"]
    assert main["purl"] == "pkg:pypi/kafkasniff@1.1.0"
    assert main["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]
    parts = {part["name"]: part for part in found["components"]}
    assert parts.keys() == {"zig", "needed-one", "deeper"}
    assert parts["zig"]["version"] == hatch_build.ZIG.partition("==")[2]
    assert parts["needed-one"]["licenses"] == [{"license": {"name": "BSD License"}}]
    assert parts["deeper"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert {one["ref"]: one.get("dependsOn", []) for one in found["dependencies"]} == {
        "pypi:kafkasniff": ["compiled:zig", "pypi:needed-one"],
        "pypi:needed-one": ["pypi:deeper"],
        "pypi:deeper": [],
        "compiled:zig": [],
    }
    assert "example.org" not in text, "an SBOM names packages, not the index that this machine uses"
