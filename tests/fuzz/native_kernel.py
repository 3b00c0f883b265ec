"""`python -m tests.fuzz.native_kernel`: the native kernel on millions of changed inputs (`native/fuzz.zig`). A read
past an input ends the process, and the walker must agree with the last input of each interval."""

from __future__ import annotations

import argparse
import ctypes
import functools
import random
from typing import Any, Final

from kafkasniff.kafka.records.record_list import control_types
from kafkasniff.kafka.records.record_sets import decode_records
from kafkasniff.kafka.schema.context import DecodeContext, DecodeOptions
from kafkasniff.kafka.schema.definition import program_of
from kafkasniff.native import kernel
from kafkasniff.native.caller import control_rows
from kafkasniff.native.library import Call, CompressedBatch
from kafkasniff.redact.payload import SHOWN, Payload
from kafkasniff.sinks.jsonl import body_json
from tests.fuzz import native_exchanges, native_lines, native_streams
from tests.fuzz.compiled import Room, compiled, rounds
from tests.fuzz.records import seeds as record_seeds
from tests.kafka.encode import Encoder, Plan
from tests.native.kernel_and_walker import (
    Kind,
    agree,
    agree_on_dicts,
    caller,
    hidden_records,
    kinds,
    program,
    records_by_python,
)

ROOM: Final = 64 << 10
SALT: Final = b"salt of the fuzzer"
WAYS: Final = (SHOWN, Payload("dropped"), Payload.hashed(SALT))


class _Seed(ctypes.Structure):
    _fields_ = (("program", ctypes.c_void_p), ("bytes", ctypes.c_char_p), ("size", ctypes.c_uint64))


class _Run(ctypes.Structure):
    _fields_ = (
        *(("call", ctypes.POINTER(Call)), ("seeds", ctypes.POINTER(_Seed)), ("seeds_count", ctypes.c_uint64)),
        ("room", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("room_size", "executions", "random", "seed", "size")),
        *(("status", ctypes.c_int32), ("spare", ctypes.c_uint32), ("ended", ctypes.c_uint64 * 5)),
    )


_caller = functools.cache(caller)


def _agrees(kind: Kind | None, data: bytes, payload: Payload) -> bool:
    """Whether the kernel takes a body, or a field of records; raises AssertionError if Python reads anything else."""
    asks = _caller(payload=payload)
    options = DecodeOptions(show_secrets=True)
    if kind is not None:
        made = asks.body(program(kind.root), data, 0, len(data), lambda _: None)
        hide = functools.partial(kind.hidden, payload=payload)
        as_json = agree(made, kind.root, data, 0, len(data), options, hide=hide)
        return agree_on_dicts(kind.root, data, 0, len(data), options) or as_json
    made = asks.records(data, 0, len(data), lambda _: None)
    if made is None:
        return False
    context = DecodeContext(options)
    with records_by_python():
        expected = hidden_records(decode_records(data, 0, len(data), context), payload)
    assert made.json.decode() == body_json(expected, "auto")
    assert context.problems == []
    return True


def _fuzz(options: argparse.Namespace) -> None:
    rng = random.Random(options.seed)
    layouts: list[Kind | None] = []
    inputs: list[tuple[int, bytes]] = []
    kept: list[Any] = []
    for kind in kinds():
        made = ctypes.create_string_buffer(program_of(kind.root))
        kept.append(made)
        for _ in range(3):
            inputs.append((ctypes.addressof(made), Encoder(Plan(rng)).body(kind.root)[:ROOM]))
            layouts.append(kind)
    if options.records:
        inputs, layouts = [], []
    fields = [one[1:] for one in record_seeds()] if options.records or options.bodies else []
    inputs += [(0, field) for field in fields]
    layouts += [None] * len(fields)
    seeds = (_Seed * len(inputs))(*[_Seed(address or None, data, len(data)) for address, data in inputs])

    library = compiled()
    function = library.kafkasniff_fuzz_programs if options.programs else library.kafkasniff_fuzz
    room = Room(ROOM)
    output, notes = (ctypes.create_string_buffer(size) for size in (1 << 20, 4096))
    batches = (CompressedBatch * 16)()
    headers, marks = b"\1\x0btraceparent\0\2b3", b"\x05task-"
    call = Call()
    call.output, call.output_size = ctypes.addressof(output), len(output)
    call.notes, call.notes_size = ctypes.addressof(notes), len(notes)
    call.batches, call.batches_size = batches, len(batches)
    call.headers, call.headers_size, call.marks, call.marks_size = headers, len(headers), marks, len(marks)
    call.max_records = 100_000
    controls = control_rows(control_types(kernel()), [])
    call.controls, call.controls_size = ctypes.addressof(controls), len(controls)
    call.salt, call.salt_size, call.person = SALT, len(SALT), WAYS[2].hiding.person
    run = _Run(ctypes.pointer(call), seeds, len(inputs), room.address, ROOM)
    compared = taken = 0
    for _ in rounds(options, run):
        # Small outputs, too: room may run out at any place.
        call.output_size = len(output) if rng.random() < 0.9 else rng.randrange(200)
        function(ctypes.byref(run))
        if not options.programs:
            data = room.last(run.size)
            compared += 1
            taken += _agrees(layouts[run.seed], data, rng.choice(WAYS))
    counts = dict(zip(("done", "odd", "no room", "compressed", "misuse"), run.ended, strict=True))
    print(f"{counts}; the walker read {compared:,} of them, the kernel took {taken:,} of these")


KINDS: Final = {
    "bodies": _fuzz,
    "exchanges": native_exchanges.fuzz,
    "streams": native_streams.fuzz,
    "lines": native_lines.fuzz,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.native_kernel", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=[*KINDS], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--executions", type=int, default=10_000_000, help="of each kind, at most")
    parser.add_argument("--seconds", type=int, default=0, help="of each kind, at most")
    parser.add_argument("--every", type=int, default=20_000, help="executions per input that the walker checks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", action="store_true", help="fields of records instead of bodies")
    parser.add_argument("--bodies", action="store_true", help="bodies and fields of records")
    parser.add_argument("--programs", action="store_true", help="damaged programs")
    options = parser.parse_args()
    for name in options.only:
        print(f"== {name}", flush=True)
        KINDS[name](options)


if __name__ == "__main__":
    main()
