"""``python -m tests.release build FOLDER``: a release, built twice from the last commit and checked (`make
release-check`). ``check WHEEL…`` checks wheels that exist. The checks read the artifacts only."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.metadata import InvalidMetadata, Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hatch_build
import kafkasniff

ROOT = Path(__file__).resolve().parent.parent
LICENSES = ("LICENSE", "licenses/zig.txt")
"""The texts for what a wheel contains: kafkasniff, and parts of Zig's standard library in the kernel."""

STABLE = "Development Status :: 5 - Production/Stable"


def version_problems(version: str, changelog: str, release: str | None, citation: str = "") -> Iterator[str]:
    """Disagreements of version, changelog, CITATION.cff and the version that is to be released, if there is one."""
    if release is not None and version != release:
        yield f"kafkasniff/__init__.py has version {version}, not {release}"
    sections = re.findall(r"^## \[([^\]]+)\]([^\n]*)\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    heads = [name for name, _, _ in sections]
    if heads[:1] != ["Unreleased"]:
        yield "CHANGELOG.md does not begin with the section [Unreleased]"
        return
    if "dev" in version:
        if not any(name == "Unreleased" and body.strip() for name, _, body in sections):
            yield f"CHANGELOG.md has no changes under [Unreleased], but {version} is a development version"
        return
    if heads[1:2] != [version]:
        yield f"CHANGELOG.md lacks the section [{version}] after [Unreleased]"
        return
    _, date, body = sections[1]
    if not re.fullmatch(r" - \d{4}-\d\d-\d\d", date):
        yield f"the section [{version}] of CHANGELOG.md lacks its date: ## [{version}] - YYYY-MM-DD"
    if not body.strip():
        yield f"the section [{version}] of CHANGELOG.md is empty"
    if sections[0][2].strip():
        yield f"CHANGELOG.md has changes under [Unreleased], which are in {version}"
    if "no release yet" in changelog:
        yield f"CHANGELOG.md says that there is no release yet, but {version} is one"
    for line in (f"version: {version}", f"date-released: {date.removeprefix(' - ')}"):
        if line not in citation.splitlines():
            yield f"CITATION.cff lacks the line {line}"


def artifact_names(version: str) -> set[str]:
    tags = [target.tag for target in hatch_build.PLATFORMS.values()]
    return {f"kafkasniff-{version}.tar.gz", *(f"kafkasniff-{version}-py3-none-{tag}.whl" for tag in tags)}


def wheel_problems(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Faults of one wheel: metadata, licence texts, checksums of its files, sources of its kernel."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    home = f"kafkasniff-{path.name.split('-')[1]}.dist-info"
    yield from _metadata_problems(files[f"{home}/METADATA"], path.name.split("-")[1])
    for name in LICENSES:
        if files.get(f"{home}/licenses/{name}") != (root / name).read_bytes():
            yield f"the licence text {name} is missing or differs"
    record = {row[0]: row[1] for row in csv.reader(io.StringIO(files[f"{home}/RECORD"].decode()))}
    if record.keys() != files.keys():
        yield f"RECORD and the files differ: {', '.join(sorted(record.keys() ^ files.keys()))}"
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        if name != f"{home}/RECORD" and record.get(name) != f"sha256={digest}":
            yield f"{name} does not have the checksum of RECORD"
    kernels = {name: content for name, content in files.items() if re.search(r"/kernel\.(so|dylib)$", name)}
    if len(kernels) != 1:
        yield f"{len(kernels)} native kernels"
    for name, content in kernels.items():
        if hatch_build.source_checksum().encode() not in content:
            yield f"{name} was compiled from other sources"


def sdist_problems(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Faults of the sdist: metadata, licence texts, compiled files."""
    top = path.name.removesuffix(".tar.gz")
    with tarfile.open(path) as archive:
        names = set(archive.getnames())
        yield from _metadata_problems(_member(archive, f"{top}/PKG-INFO"), top.removeprefix("kafkasniff-"))
        for name in LICENSES:
            if f"{top}/{name}" not in names or _member(archive, f"{top}/{name}") != (root / name).read_bytes():
                yield f"the licence text {name} is missing or differs"
    yield from (f"{name} was compiled" for name in sorted(names) if name.endswith((".so", ".dylib", ".pyc")))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(name)
    return found.read()


def _metadata_problems(text: bytes, version: str) -> Iterator[str]:
    # The same validation as PyPI's on upload.
    try:
        metadata = Metadata.from_email(text)
    except ExceptionGroup as group:
        yield from (f"metadata: {fault}" for fault in group.exceptions)
        return
    except InvalidMetadata as fault:
        yield f"metadata: {fault}"
        return
    if (metadata.name, str(metadata.version)) != ("kafkasniff", version):
        yield f"metadata of {metadata.name} {metadata.version}"
    if metadata.license_expression != "MIT" or set(metadata.license_files or ()) != set(LICENSES):
        yield f"metadata: licence {metadata.license_expression} with the texts {metadata.license_files}"
    if not metadata.version.is_prerelease and STABLE not in (metadata.classifiers or ()):
        yield f"metadata: the classifier {STABLE} is missing"
    if metadata.description_content_type != "text/markdown" or not metadata.description:
        yield "metadata: README.md is not the description"


def resolved(wheel: Path) -> list[dict[str, Any]]:
    """What pip would install for a wheel of this platform, the wheel included (pip's installation report)."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    installed: list[dict[str, Any]] = json.loads(_run(*pip, "--dry-run", "--ignore-installed", "--report", "-", wheel))[
        "install"
    ]
    return installed


def bill_of_materials(wheel: Path, installed: list[dict[str, Any]], commit_time: int) -> str:
    """The SBOM of a wheel in CycloneDX 1.6: what is compiled into it, and what pip installs with it."""
    licenses = LicenseFactory()
    by_name: dict[str, Component] = {}
    for item in installed:
        metadata = item["metadata"]
        name = canonicalize_name(metadata["name"])
        stated = license_of(metadata)
        digests = item["download_info"]["archive_info"]["hashes"]
        by_name[name] = Component(
            type=ComponentType.APPLICATION if name == "kafkasniff" else ComponentType.LIBRARY,
            name=metadata["name"],
            version=metadata["version"],
            description=metadata.get("summary"),
            purl=PackageURL("pypi", None, name, metadata["version"]),
            bom_ref=f"pypi:{name}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digests["sha256"])],
            licenses=[licenses.make_from_string(stated)] if stated else [],
        )
    main = by_name.pop("kafkasniff")
    main.hashes = [HashType(alg=HashAlgorithm.SHA_256, content=_sha256(wheel))]
    zig = Component(
        type=ComponentType.LIBRARY,
        name="zig",
        version=hatch_build.ZIG.partition("==")[2],
        description="Parts of the standard library and of compiler_rt, compiled into the native kernel",
        bom_ref="compiled:zig",
        licenses=[licenses.make_from_string("MIT")],
    )
    bom = Bom(
        components=[zig, *by_name.values()],
        metadata=BomMetaData(component=main, timestamp=datetime.fromtimestamp(commit_time, UTC)),
        # The same wheel gets the same number.
        serial_number=uuid5(NAMESPACE_URL, _sha256(wheel)),
    )
    bom.register_dependency(main, [zig])
    for item in installed:
        name = canonicalize_name(item["metadata"]["name"])
        needs = [Requirement(one) for one in item["metadata"].get("requires_dist", ())]
        needed = {canonicalize_name(one.name) for one in needs if "extra ==" not in str(one.marker)} & by_name.keys()
        bom.register_dependency(by_name.get(name, main), [by_name[one] for one in sorted(needed)])
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def license_of(metadata: dict[str, Any]) -> str | None:
    """The licence that a package states, by any of the three ways of its time."""
    classes = [one.rpartition(" :: ")[2] for one in metadata.get("classifier", ()) if one.startswith("License :: ")]
    stated = metadata.get("license_expression") or metadata.get("license") or " AND ".join(classes)
    # Some packages give the whole text.
    return str(stated).strip().splitlines()[0] if stated else None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def differing(first: Path, second: Path) -> list[str]:
    """Names of the artifacts that are not the same bytes in two folders, or are only in one."""
    content = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (first, second)]
    return sorted(
        name for name in content[0].keys() | content[1].keys() if content[0].get(name) != content[1].get(name)
    )


def _run(*command: str | Path, **options: Any) -> str:
    """Run a command; its standard output. Its failure ends the check."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\nrelease-check: {' '.join(map(str, command))} failed")
    return done.stdout


def _build(clone: Path, output: Path, umask: int) -> None:
    """Build the artifacts of a clone by the project's own commands."""
    # The environment is this one: make need not install it from the clone.
    venv = Path(sys.prefix)
    _run("make", "-C", clone, "-o", venv / ".installed-dev", f"VENV={venv}", f"DIST={output}", "wheels", umask=umask)
    _run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", output, clone, umask=umask)


def _wheel_of_sdist(sdist: Path, work: Path) -> Path:
    """The wheel for this platform, built from the sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    unpacked = work / sdist.name.removesuffix(".tar.gz")
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", work / "wheel", unpacked)
    _run(*command)
    return next((work / "wheel").iterdir())


def _last_commit() -> str:
    return _run("git", "-C", ROOT, "rev-parse", "HEAD")


def check_release(output: Path, release: str | None = None) -> Iterator[str]:
    """Build the last commit into a folder, with its SBOM and checksums; yields each problem."""
    if changed := _run("git", "-C", ROOT, "status", "--porcelain"):
        raise SystemExit(f"release-check: commit or remove these first, they would not be in the release:\n{changed}")
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()):
        raise SystemExit(f"release-check: {output} is not empty")
    version, commit = kafkasniff.__version__, _last_commit()
    texts = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    yield from version_problems(version, next(texts), release, next(texts))
    tag = ("git", "-C", ROOT, "tag", "--list", f"v{version}")
    if _run(*tag) and not _run(*tag, "--points-at", "HEAD"):
        yield f"the tag v{version} exists, at another commit"
    with tempfile.TemporaryDirectory(prefix="kafkasniff-release-") as name:
        again = Path(name, "artifacts")
        # Neither the folder's name nor permissions may matter.
        for clone, into, umask in ((Path(name, "a"), output, 0o022), (Path(name, "another, longer"), again, 0o077)):
            _run("git", "clone", "--quiet", ROOT, clone, umask=umask)
            _build(clone, into.resolve(), umask)
        if _last_commit() != commit:
            yield "there was a commit during the builds: run it again"
            return
        yield from (f"two builds of {different} differ" for different in differing(output, again))
        if missing := artifact_names(version) ^ {path.name for path in output.iterdir()}:
            yield f"missing or unexpected: {', '.join(sorted(missing))}"
            return
        sdist = output / f"kafkasniff-{version}.tar.gz"
        wheel = _wheel_of_sdist(sdist, Path(name, "unpacked"))
        if wheel.read_bytes() != (output / wheel.name).read_bytes():
            yield f"the sdist and the checkout make different wheels {wheel.name}"
    yield from (f"{sdist.name}: {problem}" for problem in sdist_problems(sdist))
    yield from check_wheels(sorted(output.glob("*.whl")))
    sums = [f"{_sha256(path)}  {path.name}\n" for path in sorted(output.iterdir())]
    (output / "SHA256SUMS").write_text("".join(sums))


def check_wheels(wheels: list[Path]) -> Iterator[str]:
    """Problems of wheels. Writes the SBOM beside the one for this platform."""
    for wheel in wheels:
        yield from (f"{wheel.name}: {problem}" for problem in wheel_problems(wheel))
        here = hatch_build.this_platform()
        if here is not None and wheel.name.endswith(f"-{hatch_build.PLATFORMS[here].tag}.whl"):
            commit_time = int(_run("git", "-C", ROOT, "log", "-1", "--format=%ct"))
            bill = wheel.with_name(f"kafkasniff-{wheel.name.split('-')[1]}.cdx.json")
            installed = resolved(wheel)
            bill.write_text(bill_of_materials(wheel, installed, commit_time))
            unknown = [one["metadata"]["name"] for one in installed if license_of(one["metadata"]) is None]
            yield from (f"{bill.name}: {name} states no licence" for name in unknown)


def main(arguments: list[str]) -> int:
    """``build FOLDER [VERSION]`` or ``check WHEEL…``; returns the exit code."""
    what, *rest = arguments
    problems = list(
        check_release(Path(rest[0]), *rest[1:]) if what == "build" else check_wheels([Path(one) for one in rest])
    )
    for problem in problems:
        print(f"release-check: {problem}", file=sys.stderr)
    print(f"kafkasniff {kafkasniff.__version__}: {f'{len(problems)} problems' if problems else 'passed'}")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
