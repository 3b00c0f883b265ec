"""A schema registry: Apicurio, which also has Confluent's REST API, with its schemas in memory."""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .broker import free_ports
from .distribution import SetupError, cache_directory, java, maven_jars
from .journal import Entry
from .server import ServerProcess

REGISTRY_VERSION = "2.6.13.Final"
POM = Path(__file__).with_name("registry-pom.xml")
SERDES_POM = Path(__file__).with_name("serdes-pom.xml")
"""Apicurio's serializers."""
API = "apis/ccompat/v7"
"""Where it has Confluent's API."""
ANSWER_TIMEOUT_S = 20


def registry_program() -> Path:
    """Folder of the program, fetched and unpacked on first use. Raises ``SetupError``."""
    archives = maven_jars(POM, "registry.version", REGISTRY_VERSION)
    target = archives / "unpacked"
    if not target.is_dir():
        aside = Path(tempfile.mkdtemp(prefix=".unpacked-", dir=archives))
        try:
            with tarfile.open(next(archives.glob("*.tar.gz"))) as archive:
                archive.extractall(aside, filter="data")
            if not target.is_dir():  # another process was quicker
                aside.rename(target)
        finally:
            if aside.is_dir():
                shutil.rmtree(aside)
    return target


def is_fetched() -> bool:
    """Whether ``registry_program`` needs no download."""
    name = POM.stem.removesuffix("-pom")
    return (cache_directory() / f"{name}-{REGISTRY_VERSION}").is_dir()


class RealRegistry(ServerProcess):
    """One registry process; a context manager, or ``start()`` and ``stop()``."""

    def __init__(self, directory: Path) -> None:
        super().__init__("the registry", directory)
        self.port = free_ports({"REGISTRY": "127.0.0.1"})["REGISTRY"]

    @property
    def url(self) -> str:
        """Address of Confluent's API."""
        return f"http://127.0.0.1:{self.port}/{API}"

    @property
    def own_url(self) -> str:
        """Address of Apicurio's API."""
        return f"http://127.0.0.1:{self.port}/apis/registry/v2"

    def _prepare(self) -> list[str]:
        runner = next(registry_program().glob("*-runner.jar"))
        settings = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": self.port, "registry.ui.enabled": "false"}
        options = [f"-D{name}={value}" for name, value in settings.items()]
        return [java(), "-Xmx300m", "-XX:TieredStopAtLevel=1", *options, "-jar", str(runner)]

    def _is_ready(self) -> bool:
        return b"Listening on:" in self._said_since_launch()

    def answer(self, path: str) -> Any:
        """What it answers to a path of Confluent's API."""
        try:
            with urllib.request.urlopen(f"{self.url}/{path}", timeout=ANSWER_TIMEOUT_S) as stream:
                return json.load(stream)
        except (OSError, ValueError) as error:
            raise SetupError(f"the registry's answer to {path}: {error}") from error

    def register_again(self, folder: Path) -> None:
        """Register what ``write_schemas`` wrote, in the order of the ids, so that an empty registry gives the same."""
        files = sorted(folder.glob("subjects/*/versions/*.json"))
        answers = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        answers.sort(key=lambda one: (one["id"], one["version"]))
        first = {one["id"]: one for one in reversed(answers)}
        again = [one for one in answers if one is not first[one["id"]]]
        # A schema that another subject has already takes a number, too.
        numbers = range(1, max(first) + 1)
        for answer in [first[number] if number in first else again.pop(0) for number in numbers] + again:
            schema = {name: answer[name] for name in ("schema", "schemaType", "references") if answer.get(name)}
            subject = urllib.parse.quote(answer["subject"], safe="")
            request = urllib.request.Request(
                f"{self.url}/subjects/{subject}/versions",
                json.dumps(schema).encode(),
                {"Content-Type": "application/vnd.schemaregistry.v1+json"},
            )
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as stream:
                given = json.load(stream)["id"]
            if given != answer["id"]:
                raise SetupError(f"{answer['subject']} has the id {given}, not {answer['id']}")

    def schemas(self) -> Mapping[str, Any]:
        """Its answers for all versions of all subjects, by path: those of ids and those of versions."""
        found: dict[str, Any] = {}
        for subject in self.answer("subjects"):
            base = f"subjects/{urllib.parse.quote(subject, safe='')}/versions"
            for version in self.answer(base):
                answer = found[f"{base}/{version}"] = self.answer(f"{base}/{version}")
                found[f"schemas/ids/{answer['id']}"] = self.answer(f"schemas/ids/{answer['id']}")
        return found


def registered(entries: Sequence[Entry]) -> dict[str, Any]:
    """The same for schemas that a client program registered with a registry of its own, by its report."""
    found: dict[str, Any] = {}
    for one in entries:
        if one["kind"] == "registered":
            answer = {"schema": one["schema"], "schemaType": one["schema_type"], "guid": one["guid"]}
            found |= {f"schemas/ids/{one['schema_id']}": answer, f"schemas/guids/{one['guid']}": answer}
    return found


def write_schemas(folder: Path, schemas: Mapping[str, Any]) -> None:
    """Write answers to files at their paths, in place of what the folder has."""
    if folder.exists():
        shutil.rmtree(folder)
    for path, answer in schemas.items():
        file = folder / f"{path}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(answer, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
