"""`kafkasniff api`: a reference of the protocol, generated from the dissectors."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from kafkasniff.cli.environment import Environment, Exit
from kafkasniff.cli.options.help_sections import SectionedCommand
from kafkasniff.cli.options.shared_options import color_option, definitions_option, format_option, wide_option
from kafkasniff.cli.output import MIN_WIDTH, UNLIMITED
from kafkasniff.errors import UsageError
from kafkasniff.kafka.apis.dissectors import Api, api, api_by_name, api_keys, check_definitions, snake_case, unknown_api
from kafkasniff.kafka.apis.releases import (
    Proof,
    count_by_release,
    defined_data,
    find_release,
    first_release,
    proven,
    releases,
    removed_in,
    spoken_by,
)
from kafkasniff.kafka.schema.codes import KafkaError, definition_folder, error_by_name, vendors
from kafkasniff.kafka.schema.definition import DataDefinition
from kafkasniff.kafka.schema.schema import Schema, data_definitions, data_schema
from kafkasniff.text.printable import wrapped


@click.command("api", cls=SectionedCommand)
@click.argument("name", required=False, metavar="[NAME|KEY]")
@click.argument("version", required=False, type=click.IntRange(min=0), metavar="[VERSION]")
@definitions_option
@click.option("--check", metavar="DIR", help="Check the API definitions in this folder, and list them.")
@click.option("--release", metavar="RELEASE", help="APIs and versions of an Apache Kafka release, such as 3.9.")
@click.option(
    *("--program", "--code", "program"),
    is_flag=True,
    help="Print the programs with which the native kernel decodes one version.",
)
@click.option(
    "--coverage", is_flag=True, help="Print which versions of APIs are defined and which are proven by tests."
)
@format_option("JSON")
@wide_option
@color_option
@click.pass_obj
def api_command(
    environment: Environment,
    *,
    name: str | None,
    version: int | None,
    check: str | None,
    release: str | None,
    program: bool,
    coverage: bool,
    form: str,
    wide: bool,
    color: str,
) -> int:
    """Show the protocol's APIs: all of them, one by name or key, or one version.

    NAME may also be a record or another structure, such as ConfigRecord or RequestHeader, or an error.
    """
    if name is None and program:
        raise UsageError("--program needs an API and a version")
    if coverage and (name is not None or release is not None):
        raise UsageError("--coverage covers all APIs: it takes neither NAME nor --release")
    if release is not None and (program or version is not None):
        raise UsageError("--release selects the versions: it takes neither VERSION nor --program")
    if check is not None and (name is not None or release is not None or program or coverage):
        raise UsageError("--check reads a folder: it takes neither NAME nor --release, --program and --coverage")
    page = _ApiOutput(environment, form, color, wide=wide)
    if check is not None:
        return page.check(check)
    if coverage:
        page.coverage()
    elif release is not None:
        page.release(_release(release), None if name is None else _api(name))
    elif name is None:
        page.all()
    elif version is None and (error := error_by_name(name)) is not None:
        page.error(error)
    else:
        found = _find(name)
        if version is None and program:
            raise UsageError("--program needs a version")
        if version is None:
            page.definition(found)
        elif program:
            page.program(_schemas(found, version))
        else:
            page.version(found, version, _schemas(found, version))
    return Exit.OK


def _find(name: str) -> Api | DataDefinition:
    """The API or structure with a name or key; raises UsageError with a suggestion."""
    found = api(int(name)) if name.isdecimal() and len(name) < 6 else api_by_name(name)
    if found is not None:
        return found
    wanted = name.lower()
    for data_name, definition in data_definitions().items():
        if wanted in (data_name.lower(), snake_case(data_name)):
            return definition
    if name.lstrip("-").isdecimal():
        raise UsageError(f"no API has the key {name}: keys range from {min(api_keys())} to {max(api_keys())}")
    raise unknown_api(name, data_definitions())


def _api(name: str) -> Api:
    found = _find(name)
    if not isinstance(found, Api):
        raise UsageError(f"{found.message.name} is not an API")
    return found


def _release(text: str) -> str:
    found = find_release(text)
    if found is None:
        raise UsageError(
            f"unknown release {text!r}: known are {releases()[0]} to {releases()[-1]}, such as 3.9 or 0.10.2"
        )
    return found


def _schemas(found: Api | DataDefinition, version: int) -> list[Schema]:
    """The schemas of one version; raises UsageError if it is not defined."""
    versions = found.definition.versions if isinstance(found, Api) else found.message.versions
    if version not in versions:
        name = found.name if isinstance(found, Api) else found.message.name
        raise UsageError(f"{name} has no version {version}: it has {versions}")
    if isinstance(found, Api):
        return [found.request(version), found.response(version)]
    schema = data_schema(found.message.name, version)
    return [] if schema is None else [schema]


class _ApiOutput:
    """One answer, as text or JSON."""

    def __init__(self, environment: Environment, form: str, color: str, *, wide: bool) -> None:
        self.environment = environment
        self.json = form == "json"
        self.color = color
        self.wide = wide

    def write(self, text: str) -> None:
        self.environment.stdout.write(text.encode(self.environment.encoding, "replace"))

    def write_json(self, value: Any) -> None:
        import orjson

        self.environment.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

    def render(self, *parts: Any) -> None:
        """Rich tables and texts, one below the other."""
        from kafkasniff.cli.render.tables import as_text

        width = UNLIMITED if self.wide else max(self.environment.width, MIN_WIDTH)
        self.write(as_text(parts, width=width, coloured=self.environment.colour(self.color)))

    def check(self, name: str) -> int:
        folder = definition_folder(name)
        if not folder.is_dir():
            raise UsageError(f"--check: {name} is neither a folder nor a vendor ({', '.join(vendors())})")
        checked_definitions = check_definitions(folder)
        if self.json:
            self.write_json(
                {"apis": list(map(_api_object, checked_definitions.apis)), "problems": checked_definitions.problems}
            )
        else:
            from kafkasniff.cli.render.api_tables import api_list

            self.write("".join(f"{problem}\n" for problem in checked_definitions.problems))
            if checked_definitions.apis:
                self.render(api_list(checked_definitions.apis))
        return Exit.FINDINGS if checked_definitions.problems else Exit.OK

    def all(self) -> None:
        apis = [entry for key in api_keys() if (entry := api(key)) is not None]
        if self.json:
            self.write_json([_api_object(entry) for entry in apis])
            return
        from kafkasniff.cli.render.api_tables import api_list

        self.render(api_list(apis))

    def error(self, error: KafkaError) -> None:
        if self.json:
            names = ("code", "name", "retriable", "since", "former_names", "meaning", "advice")
            self.write_json({name: getattr(error, name) for name in names})
            return
        retriable = ", retriable" if error.retriable else ""
        lines = [f"{error.name}  error code {error.code}{retriable}, since {error.since}", error.meaning]
        lines.append(error.advice and f"Try: {error.advice}.")
        width = self.environment.width
        self.write("".join(f"{part}\n" for line in lines if line for part in wrapped(line, width)))

    def definition(self, found: Api | DataDefinition) -> None:
        if self.json:
            from kafkasniff.cli.render.api_tables import definition_object

            self.write_json(definition_object(found))
            return
        from kafkasniff.cli.render.api_tables import definition_page

        self.render(*definition_page(found))

    def version(self, found: Api | DataDefinition, version: int, schemas: list[Schema]) -> None:
        if self.json:
            from kafkasniff.cli.render.api_tables import version_object

            self.write_json(version_object(found, version, schemas))
            return
        from kafkasniff.cli.render.api_tables import version_page

        self.render(*version_page(found, version, schemas))

    def program(self, schemas: list[Schema]) -> None:
        from kafkasniff.kafka.schema.definition import listing, ops_of

        if self.json:
            ops = [[msgspec.structs.asdict(op) for op in ops_of(schema.root)] for schema in schemas]
            self.write_json([{"schema": schema.name, "ops": rows} for schema, rows in zip(schemas, ops, strict=True)])
        else:
            self.write(
                "\n".join(listing(schema.root, f"{schema.name}, version {schema.version}") for schema in schemas)
            )

    def release(self, release: str, only: Api | None) -> None:
        spoken = spoken_by(release).items()
        rows = [(key, _name(key), versions) for key, versions in spoken if only is None or key == only.key]
        if self.json:
            objects = [
                {
                    "api_key": key,
                    "api": name,
                    "min_version": versions.low,
                    "max_version": versions.high,
                    "unstable_version": versions.unstable,
                }
                for key, name, versions in rows
            ]
            self.write_json({"release": release, "apis": objects})
            return
        from kafkasniff.cli.render.api_tables import release_table

        self.render(release_table(release, rows))

    def coverage(self) -> None:
        found = proven()
        counts = count_by_release(found.pairs)
        structures = defined_data()
        apis = [entry for key in api_keys() if (entry := api(key)) is not None]
        proofs = [(entry, [found.pairs.get((entry.key, version)) for version in entry.versions]) for entry in apis]
        if self.json:
            self.write_json(
                {
                    "pairs_defined": counts[-1].defined,
                    "pairs_proven": counts[-1].proven,
                    "pairs_by_release": [count._asdict() for count in counts],
                    "structures_defined": len(structures),
                    "structures_proven": len(found.data),
                    "apis": [_coverage_object(entry, by_version) for entry, by_version in proofs],
                }
            )
            return
        from kafkasniff.cli.render.api_tables import coverage_table, release_counts

        others = f"{len(structures)} defined, {len(found.data)} proven"
        pairs = f"{counts[-1].defined} defined, {counts[-1].proven} proven"
        self.render(
            coverage_table(proofs),
            "",
            release_counts(counts),
            "",
            f"versions of headers, records and embedded structures: {others}",
            f"pairs of API and version: {pairs}",
        )


def _name(key: int) -> str:
    found = api(key)
    return "" if found is None else found.name


def _coverage_object(found: Api, proofs: list[Proof | None]) -> dict[str, Any]:
    by_version = [(version, proof) for version, proof in zip(found.versions, proofs, strict=True) if proof is not None]
    return {
        "api_key": found.key,
        "api": found.name,
        "defined": list(found.versions),
        "proven": [version for version, _ in by_version],
        "vectors": {str(version): list(proof.vectors) for version, proof in by_version if proof.vectors},
        "captures": {str(version): list(proof.captures) for version, proof in by_version if proof.captures},
    }


def _api_object(found: Api) -> dict[str, Any]:
    return {
        "api_key": found.key,
        "api": found.name,
        "former_names": list(found.former_names),
        "min_version": found.min_version,
        "max_version": found.max_version,
        "flexible_since": found.flexible_since,
        "first_release": first_release(found.key, found.min_version),
        "removed_in": removed_in(found.key),
        "listeners": list(found.listeners),
        "summary": found.summary,
    }
