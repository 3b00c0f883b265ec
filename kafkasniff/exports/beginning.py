"""What a run begins with: the state that the last one left, dealt out to its shards. The same for both engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.tellings import Tellings
from kafkasniff.errors import OutputError, UsageError
from kafkasniff.exports.carried import Carried, ShardState
from kafkasniff.exports.folder import ExportFolder, Manifest
from kafkasniff.exports.options import ExportOptions
from kafkasniff.inspector import Inspector
from kafkasniff.memory_limits import DEFAULT_MEMORY
from kafkasniff.model import Summary
from kafkasniff.rows.sessions import Sessions
from kafkasniff.shards import number_from, reshard
from kafkasniff.state import WAY_OUT, dump, load

__all__ = ["check_no_stream", "check_options", "first_states", "load_state", "new_state", "read_carried", "total"]


def check_options(manifest: Manifest, options: ExportOptions, directory: Path) -> None:
    """Raises UsageError where what is in the folder was exported with other options."""
    options = options.public
    if manifest.options.payload.form == options.payload.form != "shown" and manifest.options.payload != options.payload:
        raise UsageError(
            f"{directory} has hashes with another salt; give the same with --hash-salt, or name a new folder"
        )
    for name in options.__struct_fields__:
        if getattr(manifest.options, name) != getattr(options, name):
            raise UsageError(f"{directory} was exported with other options ({name}); name a new folder")


def check_no_stream(manifest: Manifest, directory: Path) -> None:
    """Raises UsageError where what is in the folder comes of a stream, which numbers its captures itself."""
    if manifest.batch is not None:
        raise UsageError(f"a stream writes into {directory}; name a new folder")


def read_carried(folder: ExportFolder, *, discard: bool = False) -> Carried:
    """What the last run into a folder left; nothing with `discard`, whatever it is.

    Raises OutputError, and UsageError as `kafkasniff.state.load` does.
    """
    manifest = folder.manifest
    if discard or manifest is None or manifest.state is None:
        return Carried([], Sessions(), Tellings())
    path = folder.root.below(*manifest.state.split("/"))
    try:
        return Carried.load(path.content())
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror or error}") from error


def new_state(options: ExportOptions, catalog: Catalog, *, sessions: bool) -> ShardState:
    """The state of a shard that has seen nothing. `sessions`: a filter has to know the topics of fetch sessions."""
    inspector = Inspector(
        ports=options.ports,
        records=options.decode_records,
        show_secrets=options.show_secrets,
        max_frame=options.max_frame,
        connections=True,
        headers=options.reads_headers,
    )
    if catalog.tellings is None:
        catalog.tellings = Tellings()
    enricher = Enricher(catalog, summary=inspector.summary, sessions=sessions)
    enricher.notes_missed = options.bodies and "exchanges" in options.tables
    return ShardState(inspector, enricher, set())


def load_state(dumped: bytes, options: ExportOptions) -> ShardState:
    """The state of a shard. Raises UsageError as `kafkasniff.state.load` does, and where it is of other options.

    The manifest's options are compared before (`check_options`); but the state is what decodes, and who can write it
    must not decide whether secrets are shown.
    """
    state = load(dumped, ShardState)
    # How much there is memory for is for the run to say.
    state.inspector.limit_messages(DEFAULT_MEMORY)
    if state.inspector.settings != new_state(options, Catalog(), sessions=False).inspector.settings:
        raise UsageError(f"this state is of other options than its export: {WAY_OUT}")
    return state


def first_states(
    carried: Carried, shards: int, options: ExportOptions, given: Mapping[str, str], *, sessions: bool = False
) -> list[bytes]:
    """What each shard begins with, dumped. `given` are names by topic id; for `sessions` see `new_state`."""
    if len(carried.shards) == shards:
        return carried.shards
    found: list[bytes] = []
    for number in range(shards):
        catalog = Catalog(given, tellings=Tellings())
        state = new_state(options, catalog, sessions=sessions)
        if carried.shards:
            before = [load_state(one, options) for one in carried.shards]
            inspectors: list[Inspector] = [one.inspector for one in before]
            state.inspector = reshard(inspectors, number, shards)
            state.enricher.count_into(state.inspector.summary)
            for one in before:
                state.enricher.missed |= one.enricher.missed
                state.enricher.catalog.absorb(one.enricher.catalog)
            state.start_ns = before[0].start_ns
        else:
            number_from(state.inspector, number)
        found.append(dump(state))
    return found


def total(summaries: Iterable[Summary]) -> Summary:
    """What several shards saw together."""
    found = Summary()
    for summary in summaries:
        for name in summary.__struct_fields__:
            setattr(found, name, getattr(found, name) + getattr(summary, name))
    return found
