"""What `make release-check` reports. The build itself takes minutes: `.ci/check_kernel` and a release do it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import hatch_build
from tests import release
from tests.conftest import ROOT

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


def problems(version: str, changelog: str = RELEASED, asked: str | None = None, citation: str = CITATION) -> list[str]:
    return list(release.version_problems(version, changelog, asked, citation))


def test_versions_that_agree() -> None:
    assert problems("1.1.0") == []
    assert problems("1.1.0", asked="1.1.0") == []
    assert problems("1.2.0.dev0", CHANGELOG) == []


@pytest.mark.parametrize(
    ("version", "changelog", "asked", "expected"),
    [
        ("1.1.0", RELEASED, "1.2.0", "has version 1.1.0, not 1.2.0"),
        ("1.2.0.dev0", CHANGELOG, "1.2.0", "has version 1.2.0.dev0, not 1.2.0"),
        ("1.2.0", RELEASED, None, "lacks the section [1.2.0] after [Unreleased]"),
        ("1.0.0", RELEASED, None, "lacks the section [1.0.0] after [Unreleased]"),
        ("1.1.0", CHANGELOG, None, "has changes under [Unreleased], which are in 1.1.0"),
        (
            "1.1.0",
            RELEASED.replace("Something else", "There has been no release yet"),
            None,
            "no release yet, but 1.1.0",
        ),
        ("1.1.0", RELEASED.replace("### Fixed\n\n- Something else.\n", ""), None, "[1.1.0] of CHANGELOG.md is empty"),
        ("1.1.0", RELEASED.replace("## [Unreleased]\n", ""), None, "does not begin with the section [Unreleased]"),
        ("1.2.0.dev0", RELEASED, None, "no changes under [Unreleased]"),
    ],
)
def test_versions_that_disagree(version: str, changelog: str, asked: str | None, expected: str) -> None:
    (problem,) = problems(version, changelog, asked)
    assert expected in problem


def test_a_release_has_a_date() -> None:
    missing, differs = problems("1.1.0", RELEASED.replace(" - 2026-12-01", ""))
    assert "the section [1.1.0] of CHANGELOG.md lacks its date" in missing
    assert differs.startswith("CITATION.cff lacks the line date-released: ")


def test_the_citation_of_an_earlier_release() -> None:
    assert problems("1.1.0", citation=CITATION.replace("1.1.0", "1.0.0").replace("12-01", "11-27")) == [
        "CITATION.cff lacks the line version: 1.1.0",
        "CITATION.cff lacks the line date-released: 2026-12-01",
    ]
    assert problems("1.2.0.dev0", CHANGELOG) == [], "it may stay until the next one"


def test_this_checkout_agrees() -> None:
    changelog, citation = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    assert list(release.version_problems(release.kafkasniff.__version__, changelog, None, citation)) == []


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


def wheel(folder: Path, change: Callable[[dict[str, bytes]], None] = lambda files: None, name: str = PLATFORM) -> Path:
    """A wheel in small, changed before or after its RECORD is made."""
    files = {f"{HOME}/licenses/{text}": (ROOT / text).read_bytes() for text in release.LICENSES}
    files[f"{HOME}/METADATA"] = METADATA.encode()
    files[KERNEL] = b"\x7fELF " + hatch_build.source_checksum().encode()
    change(files)
    if f"{HOME}/RECORD" not in files:
        files[f"{HOME}/RECORD"] = record(files)
    path = folder / name
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
    pure = wheel(tmp_path, lambda files: files.pop(KERNEL) and None, name="kafkasniff-1.1.0-py3-none-any.whl")
    assert list(release.wheel_problems(pure)) == []


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


def test_a_file_that_record_does_not_list(tmp_path: Path) -> None:
    path = wheel(tmp_path, lambda files: _after_record(files, "kafkasniff/extra.py", b"pass"))
    assert "RECORD and the files differ: kafkasniff/extra.py" in list(release.wheel_problems(path))


def sdist(folder: Path, *more: str) -> Path:
    path = folder / "kafkasniff-1.1.0.tar.gz"
    files = {text: (ROOT / text).read_bytes() for text in release.LICENSES}
    files |= {"PKG-INFO": METADATA.encode(), **dict.fromkeys(more, b"")}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"kafkasniff-1.1.0/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_sdists(tmp_path: Path) -> None:
    assert list(release.sdist_problems(sdist(tmp_path))) == []
    (problem,) = release.sdist_problems(sdist(tmp_path, KERNEL))
    assert problem == f"kafkasniff-1.1.0/{KERNEL} was compiled"
    (problem,) = release.sdist_problems(sdist(tmp_path, "LICENSE"))
    assert problem == "the licence text LICENSE is missing or differs"


def test_builds_that_differ(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "same").write_bytes(b"same")
        (folder / "different").write_bytes(folder.name.encode())
    (one / "missing").touch()
    assert release.differing(one, other) == ["different", "missing"]


def test_names_of_a_release() -> None:
    names = release.artifact_names("1.1.0")
    assert {"kafkasniff-1.1.0.tar.gz", "kafkasniff-1.1.0-py3-none-any.whl"} < names
    assert len(names) == 2 + len(hatch_build.PLATFORMS)


@pytest.mark.parametrize("text", release.LICENSES)
def test_licences_of_what_is_bundled(text: str) -> None:
    assert "Permission is hereby granted" in (ROOT / text).read_text()


INSTALLED = [
    {
        "metadata": {
            "name": "kafkasniff",
            "version": "1.1.0",
            "license_expression": "MIT",
            "requires_dist": [
                "Needed_One>=1",
                "absent>=2",
                'extra-only; extra == "x"',
                "extra-only2; python_version<'3'",
            ],
        },
        "download_info": {"archive_info": {"hashes": {"sha256": "0" * 64}}},
    },
    {
        "metadata": {
            "name": "needed-one",
            "version": "1.5",
            "classifier": ["License :: OSI Approved :: BSD License"],
            "requires_dist": ["deeper"],
        },
        "download_info": {"archive_info": {"hashes": {"sha256": "1" * 64}}, "url": "https://example.org/x.whl"},
    },
    {
        "metadata": {"name": "deeper", "version": "3", "license": "Apache-2.0\n\nwhole text"},
        "download_info": {"archive_info": {"hashes": {"sha256": "2" * 64}}},
    },
]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"license_expression": "MIT OR Apache-2.0", "license": "see there"}, "MIT OR Apache-2.0"),
        ({"license": "MIT\n\nPermission is hereby granted"}, "MIT"),
        ({"classifier": ["Topic :: X", "License :: OSI Approved :: MIT License"]}, "MIT License"),
        ({"classifier": ["Topic :: X"], "license": ""}, None),
    ],
)
def test_stated_licences(metadata: dict[str, object], expected: str | None) -> None:
    assert release.license_of(metadata) == expected


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


@pytest.mark.parametrize("points_at", ["", "v0.0.0"])
def test_a_tag_of_this_version(points_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the day of the release it is made after the check, and points to what was checked."""
    commits = iter(["before", "after"])
    answers = {"--points-at": points_at, "tag": "v0.0.0"}

    def run(*command: str, **_: object) -> str:
        return (
            next(commits) if "rev-parse" in command else next((answers[one] for one in answers if one in command), "")
        )

    monkeypatch.setattr(release, "_run", run)
    monkeypatch.setattr(release, "_build", lambda *_: None)
    tag = f"the tag v{release.kafkasniff.__version__} exists, at another commit"
    assert (tag in release.check_release(tmp_path / "out")) == (not points_at)


def test_a_commit_during_the_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second clone has other files then, and so has the checkout that the kernel is compared with."""
    commits = iter(["before", "after"])
    monkeypatch.setattr(release, "_run", lambda *command, **_: next(commits) if "rev-parse" in command else "")
    monkeypatch.setattr(release, "_build", lambda *_: None)
    assert list(release.check_release(tmp_path / "out")) == ["there was a commit during the builds: run it again"]
