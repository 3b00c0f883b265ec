"""The initial state of a run: that of the last run, distributed to its shards. The same for both engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkasniff.engine.inspector import Inspector, number_from, reshard
from kafkasniff.enrich import Catalog, Enricher
from kafkasniff.enrich.catalog import LearnedFacts
from kafkasniff.errors import UsageError
from kafkasniff.model import Summary
from kafkasniff.runtime.memory_limits import DEFAULT_MEMORY
from kafkasniff.tables.checkpoint import WAY_OUT, Carried, ShardState, dump, load
from kafkasniff.tables.exports.options import ExportOptions
from kafkasniff.tables.exports.target import ExportTarget
from kafkasniff.tables.rows.connections import Logins
from kafkasniff.tables.rows.sessions import Sessions


def check_continues(target: ExportTarget, options: ExportOptions, *, streams: bool = False) -> None:
    """Raises UsageError if the export has other options, or only one of it and the run is a stream (`streams`).

    A stream numbers its captures itself.
    """
    manifest, directory = target.manifest, target.name
    if manifest is None:
        return
    if manifest.batch is not None and not streams:
        raise UsageError(f"a stream writes into {directory}; name a new folder")
    if manifest.batch is None and streams:
        raise UsageError(f"{directory} is not the export of a stream; name a new folder")
    options = options.public
    if manifest.options.payload.form == options.payload.form != "shown" and manifest.options.payload != options.payload:
        raise UsageError(
            f"{directory} has hashes with another salt; give the same with --hash-salt, or name a new folder"
        )
    for name in options.__struct_fields__:
        if getattr(manifest.options, name) != getattr(options, name):
            raise UsageError(f"{directory} was exported with other options ({name}); name a new folder")


def read_carried(target: ExportTarget, *, discard: bool = False) -> Carried:
    """The state that the last run left; with `discard` none.

    Raises OutputError, and UsageError as `kafkasniff.tables.checkpoint.load` does.
    """
    state = None if discard else target.state()
    return Carried([], Sessions(), LearnedFacts()) if state is None else load(state, Carried)


def new_state(options: ExportOptions, catalog: Catalog, *, sessions: bool) -> ShardState:
    """The initial state of a shard. `sessions`: a filter has to know the topics of fetch sessions."""
    inspector = Inspector(
        ports=options.ports,
        records=options.decode_records,
        show_secrets=options.show_secrets,
        max_frame=options.max_frame,
        connections=True,
        headers=options.reads_headers,
        network="links" if "transport" in options.tables else "nothing",
    )
    if catalog.learned_facts is None:
        catalog.learned_facts = LearnedFacts()
    enricher = Enricher(catalog, summary=inspector.summary, sessions=sessions)
    enricher.notes_missed = options.bodies and "exchanges" in options.tables
    logins = Logins() if "connections" in options.tables else None
    return ShardState(inspector, enricher, set(), logins=logins)


def load_state(dumped: bytes, options: ExportOptions) -> ShardState:
    """The state of a shard. Raises UsageError as `checkpoint.load` does, and if its options are others.

    The manifest's options were compared before (`check_continues`). But the state's options are the ones that decode,
    and a writer of a state file must not decide whether secrets are shown.
    """
    state = load(dumped, ShardState)
    # The run sets the memory budget.
    state.inspector.limit_messages(DEFAULT_MEMORY)
    if state.inspector.settings != new_state(options, Catalog(), sessions=False).inspector.settings:
        raise UsageError(f"this state has other options than its export: {WAY_OUT}")
    if (state.logins is not None) != ("connections" in options.tables):
        raise UsageError(f"this state has other tables than its export: {WAY_OUT}")
    return state


def first_states(
    carried: Carried, shards: int, options: ExportOptions, given: Mapping[str, str], *, sessions: bool = False
) -> list[bytes]:
    """The initial state of each shard, dumped. `given` are names by topic id; for `sessions` see `new_state`."""
    if len(carried.shards) == shards:
        return carried.shards
    found: list[bytes] = []
    for number in range(shards):
        catalog = Catalog(given, learned_facts=LearnedFacts())
        state = new_state(options, catalog, sessions=sessions)
        if carried.shards:
            before = [load_state(shard, options) for shard in carried.shards]
            inspectors: list[Inspector] = [shard_state.inspector for shard_state in before]
            state.inspector = reshard(inspectors, number, shards)
            state.enricher.count_into(state.inspector.summary)
            for shard_state in before:
                state.enricher.missed |= shard_state.enricher.missed
                state.enricher.catalog.absorb(shard_state.enricher.catalog)
            state.start_ns = before[0].start_ns
            logins = [shard_state.logins for shard_state in before if shard_state.logins is not None]
            if logins:
                state.logins = logins[0]
                logins[0].absorb(logins[1:], state.inspector.open_numbers)
        else:
            number_from(state.inspector, number)
        found.append(dump(state))
    return found


def total(summaries: Iterable[Summary]) -> Summary:
    """The sum of several shards' summaries."""
    found = Summary()
    for summary in summaries:
        found.add(summary)
    return found
