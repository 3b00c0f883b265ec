"""Misuse: each mistake has its exit code and one line that says what is wrong, before anything is opened or written."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkasniff.cli.environment import Exit
from tests.cli.console import kafkasniff
from tests.conftest import ROOT
from tests.test_hostile_strings import harmless

RECORDS = "'request.topic_data.partition_data.records.batches.records.key == \"key-0\"'"
LIVE = "live -i eth0"

USAGE = [
    # -- arguments and options of click
    ("check", "CAPTURE|DIR"),
    ("diff {capture}", "missing argument"),
    ("analyze", "--list"),
    ("export x", "--output"),
    ("live", "name an interface with '-i' / '--interface'; -D lists them"),
    ("decode --nonsense x", "--nonsense"),
    ("live --json --no-such", "no such option: --no-such (see"),
    ("decode --csv x", "no such option: --csv; use --format csv (see `kafkasniff decode --help`)"),
    ("stats --csv x", "no such option: --csv (see"),
    ("stats --group x", "use --filter 'group_id == \"NAME\"'"),
    ("decode --only x", "--only; commands that have it: check, diff"),
    ("decode --topics x", "did you mean --topic?"),
    ("decode -T fields x", "-T fields needs -e NAME"),
    ("decode --jobs x y", "'x' is not a number"),
    ("decode x -c 0", "0 is not in the range"),
    ("diff {capture} {capture} --significance 1", "--significance"),
    # -- names
    ("decodee", "decodee"),
    ("stat {capture}", "no such command: stat; did you mean stats?"),
    ("no/such.pcap", "no such command, and no such file: no/such.pcap"),
    ("lag {capture}", "no such command: lag; it is a question: kafkasniff analyze lag CAPTURE"),
    ("analyze {capture}", "name a question before"),
    ("decode --from 07:00 x", "--from; use --since TIME"),
    ("no/such.pcap stats", "no such command, and no such file: no/such.pcap"),
    ("-f tcp -r {capture}", "-f is the capture filter of live; to select exchanges, use -Y EXPR"),
    ("stats -f tcp {capture}", "use -Y EXPR (see `kafkasniff stats --help`)"),
    ("--json stats {capture}", "--json; options follow the command"),
    ("analyze latencies x", "'latencies'; did you mean latency?"),
    ("analyze users x", "'users'; `kafkasniff analyze --list` lists them"),
    ("analyze latency {export} --by colour", "not one of api"),
    ("analyze versions {export} --target 9", "is unknown"),
    ("check --only slow-brokers x", "'slow-brokers'; did you mean slow-broker?"),
    ("stats --hlep x", "no such option: --hlep; did you mean --help?"),
    ("check --only retris x", "'retris'; did you mean `kafkasniff analyze retries`?"),
    ("check --only nonsense x", "'nonsense'; `kafkasniff check --list` lists them"),
    ("check --skip late-answer -", "late-answer"),
    ("check --set late-answers.late=soon -", "soon"),
    ("diff {capture} {capture} --only latencies", "the lists are versions, rates"),
    (
        "export {capture} -o {out} --tables record",
        "the tables are exchanges, records, connections, transport, problems",
    ),
    ("export {capture} -o {out} --tables exchanges,bodies", "the tables are exchanges, records"),
    ("audit x --target 5.9", "'5.9' is unknown"),
    ("audit x --target 3.0 --from 0.7", "unknown release '0.7'"),
    ("audit x --target 3.0 --from 3.0", "--from 3.0 is not older"),
    ("help filter", "no such command or topic: filter; did you mean filters?"),
    ("help nope", "no such command or topic: nope; the topics are filters, json, problems, tables, tls, exit-codes"),
    ("help api metrics", "no such section: metrics; `kafkasniff api` has Input, Names and schemas, Answer, Output"),
    ("help tls metrics", "tls is a topic without sections"),
    # -- api and decode-bytes
    ("api Produc", "no API is called 'Produc'; did you mean Produce?"),
    ("api zzzzzzzz", "no API is called 'zzzzzzzz'; `kafkasniff api` lists them"),
    ("api 999", "no API has the key 999: keys range from 0 to "),
    ("api 123456789012345678901234567890", "no API has the key"),
    ("api Produce 99", "Produce has no version 99: it has 0-13"),
    ("api ConfigRecord 5", "ConfigRecord has no version 5: it has 0"),
    ("api Produce --program", "--program needs a version"),
    ("api --program", "--program needs an API and a version"),
    ("api --release 9.9", "unknown release '9.9'"),
    ("api --release 3.9 --program Produce 1", "--release selects the versions"),
    ("api --coverage Produce", "--coverage covers all APIs"),
    ("api ConfigRecord --release 3.9", "ConfigRecord is not an API"),
    ("api Produce -1", "no such option: -1"),
    ("api Produce x", "invalid value for '[VERSION]'"),
    ("decode-bytes --response 00", "--api and --version"),
    ("decode-bytes --response --api Nonsense --version 1 00", "Nonsense"),
    ("decode-bytes --api 0 00", "--response"),
    ("decode-bytes 'hello world!'", "base64"),
    # -- values
    ("decode x --api Nonsense", "no API is called 'Nonsense'; `kafkasniff api` lists them"),
    ("decode x --api Prodce", "no API is called 'Prodce'; did you mean Produce?"),
    ("decode x --host nowhere", "--host: 'nowhere' is not an address"),
    ("decode x --slower-than soon", "--slower-than: 'soon' is not a duration"),
    ("decode x --since then", "--since: 'then' is not a time"),
    ("analyze latency {export} --since soon", "--since: 'soon' is not a time"),
    ("decode --memory much {capture}", "is not a size"),
    *((f"{command} --memory 127M {{capture}}", "128M is the minimum") for command in ("decode", "stats", "check")),
    *(
        (f"decode {{capture}} --exchange {shlex.quote(value)}", "is not a number")
        for value in ("", "x", "4,", "#", "4;5", "conn 3", "9" * 40)
    ),
    # -- filters
    *(
        (f"{command} --filter 'api == \"Fetch\" and latncy_ms > 100'", 'column 20: unknown field "latncy_ms"; did you')
        for command in ("decode none.pcap", "export none.pcap -o {out}", LIVE, "stats none.pcap", "check none.pcap")
    ),
    ("decode {capture} --filter 'topic == \"\x1b[31m'", "--filter"),
    (f"decode {{capture}} --no-records --filter {RECORDS}", "--filter refers to records, which --no-records skips"),
    (f"stats {{capture}} --no-records --filter {RECORDS}", "--filter refers to records, which --no-records skips"),
    (f"export -o {{out}} {{capture}} --filter {RECORDS}", "--records"),
    ("export --engine spark -o {out} --filter error {capture}", "--engine spark does not support filters"),
    # -- options that exclude or need each other
    ("decode {capture} -x --no-records", "--hex shows records, which --no-records skips"),
    ("decode {capture} -x --json", "--hex needs text, not --format json"),
    ("decode - -", "stdin"),
    ("diff - -", "only once"),
    ("decode --two-pass -", "--two-pass: stdin can be read only once"),
    ("decode --two-pass {pipe}", "pipe can be read only once"),
    ("browse {capture}", "needs a terminal"),
    ("analyze latency {export} --format parquet", "-o FILE.parquet"),
    ("analyze latency {export} --master local", "--engine spark"),
    ("analyze topic {export} {capture}", "captures or one export"),
    ("analyze topic {capture} --engine spark", "--engine spark needs an export"),
    ("analyze topic {export} --port 9092", "are for captures"),
    ("decode --write-matching {out} -", "stdin can be read only once"),
    ("decode --hash-payload --write-matching {out} {capture}", "use --no-payload to blank"),
    ("decode --no-payload --hash-payload {capture}", "cannot be combined"),
    ("decode --hash-salt {empty} {capture}", "--hash-payload"),
    ("decode --hash-payload --hash-salt {empty} {capture}", "16 bytes"),
    ("decode --hash-payload --hash-salt {missing} {capture}", "cannot read"),
    ("decode --write-matching - {capture}", "needs the name of a file"),
    ("decode --write-matching {out}.pcap.gz {capture}", "does not compress"),
    *(
        (f"export --format otlp -o http://localhost:4318 {option} x.pcap", f"{option.split()[0]} applies to tables")
        for option in (
            *("--tables exchanges", "--records", "--no-bodies", "--no-json", "--engine spark", "--jobs 2"),
            *("--discard-state", "--on-bad-capture skip"),
        )
    ),
    ("export -o {out}", "name a capture"),
    ("export --keep 30d -o {out} {capture}", "--keep needs --compact"),
    ("export --compact --records -o {out}", "--records has no effect with --compact"),
    ("export --compact -o {out} {capture}", "captures has no effect with --compact"),
    ("export --compact --keep soon -o {out}", "'soon' is not a duration"),
    ("follow {capture}", "--key"),
    ("follow --key a --trace b {capture}", "--trace"),
    ("follow --key a {export} {capture}", "export"),
    # -- queries
    ("sql 'SELECT lag FROM exchanges' {capture}", "there is no column lag; "),
    ("sql 'SELECT 1'", "which captures or exports?"),
    ("sql -f no-such-file.sql {capture}", "cannot read no-such-file.sql: No such file or directory"),
    ("sql -f - -", "stdin is either the query or a capture"),
    ("sql --list --format csv", "the list of tables is text or JSON"),
    ("sql 'SELECT 1' {capture} --format parquet", "-o FILE.parquet"),
    ("sql 'SELECT 1' {capture} --query-memory 1M", "128M is the minimum"),
    # -- schemas
    ("decode --registry nowhere {capture}", "--registry: nowhere is neither a URL nor a folder"),
    ("decode --registry {folder} --no-records {capture}", "which --no-records skips"),
    ("decode --schema topic {capture}", "--schema: topic is not TOPIC=FILE"),
    ("decode --schema topic/header=x {capture}", "is not TOPIC=FILE"),
    ("decode --schema t={missing} {capture}", "--schema: cannot read"),
    ("decode --schema t={garbage}.avsc {capture}", "it is not JSON"),
    ("decode --schema t={garbage}.desc {capture}", "it is not a set of descriptors"),
    ("schemas learn -o {out}", "schemas learn needs a capture"),
    ("schemas learn -o {out} --registry x {capture}", "--registry is for schemas fetch"),
    ("schemas fetch -o {out} --registry x {capture}", "schemas fetch reads no captures"),
    ("schemas fetch -o {out}", "schemas fetch needs --registry URL"),
    # -- files that are inputs
    *(
        (f"{command} -o {{capture}}", "is a capture to be read")
        for command in ("decode {capture}", "stats {capture}", "analyze topic -q {capture}", "report {capture}")
    ),
    ("decode --write-matching {capture} {capture}", "is a capture to be read"),
    ("diff {export} {capture} -o {capture}", "is a capture to be read"),
    ("decode {export}", "export` reads it"),
    ("export -o {out} {export}", "export` reads it"),
    ("security {export}", "is an export, not a capture"),
    ("timing {export} --each", "--each"),
    *(
        (f"{command} --api Fetch", "export is an export")
        for command in ("stats {export}", "check {export}", "diff {export} {capture}", "report -o {out} {export}")
    ),
    # -- files of options
    *(
        (f"{command} --hosts {{nonsense}}", "nonsense:2: nonsense is not an address")
        for command in ("decode none.pcap", "stats none.pcap", "audit --target 4.0 none.pcap", LIVE)
    ),
    *(
        (f"{command} --topic-ids {{nonsense}}", "nonsense:1: neither '10.0.0.5' nor 'fine' is a topic id")
        for command in ("decode {capture}", "export -o {out} {capture}", LIVE)
    ),
    ("decode {capture} --topic-ids {missing}", "No such file"),
    ("decode {capture} --topic-ids {folder}", "Is a directory"),
    ("stats {capture} --keylog {missing}", "missing"),
    # -- live
    (f"{LIVE} -i eth0", "each interface once"),
    (f"{LIVE} -i eth1 --export tables", "--export takes one interface"),
    (f"{LIVE} --write-all", "--write-all needs --write"),
    (f"{LIVE} -C 5", "-C needs --write"),
    (f"{LIVE} -w -", "name of a file"),
    (f"{LIVE} -w ''", "name of a file"),
    *((f"{LIVE} -w x -C {size}", f"-C {size}") for size in ("0", "-1k", "5t", "1.5m", "1" * 20)),
    (f"{LIVE} -w x -W 5", "-W needs -C or -G"),
    (f"{LIVE} -w x -G 60", "needs a time in the name of the files"),
    (f"{LIVE} -w x%S -G 0.5", "at least 1 s"),
    *(
        (f"{LIVE} {option}", f"{option.split()[0]} needs --export DIR")
        for option in ("--export-every 5m", "--tables records", "--no-bodies", "--no-json", "--discard-state")
    ),
    *((f"{LIVE} --export {{out}} --export-every {every}", "--export-every: at least 1 s") for every in ("0", "999ms")),
    (f"{LIVE} --export {{out}} --export-every often", "'often' is not a duration"),
    (f"{LIVE} --export {{folder}}", "is not part of an export"),
    (f"{LIVE} --metrics-labels 5", "--metrics-labels needs --metrics"),
    *(
        (f"{LIVE} --metrics '{address}'", "is not an address")
        for address in ("", ":", "host", "host:", ":65536", ":-1", "::1:9308", "[::1]", "a b:1", "http://a:1")
    ),
    (f"{LIVE} --metrics-token-file x", "--metrics-token-file needs --metrics"),
    (f"{LIVE} --metrics-cert x --metrics-key x", "--metrics-cert needs --metrics"),
    (f"{LIVE} --metrics :1 --metrics-cert x", "must be given together"),
    (f"{LIVE} --metrics :1 --metrics-token-file /nowhere", "cannot read /nowhere"),
    (f"{LIVE} --metrics :1 --metrics-cert /nowhere --metrics-key /nowhere", "cannot use /nowhere"),
    *((f"{LIVE} --otlp {url}", "OTLP is sent to an address") for url in ("localhost:4318", "grpc://h:4317/v1")),
    (f"{LIVE} --otlp http://me:pass@h:4318", "OTLP: no password in the address"),
    (f"{LIVE} --cases x", "--cases needs --recorder DURATION"),
    (f"{LIVE} --on error", "--on needs --recorder, --exec or --webhook"),
    (f"{LIVE} --recorder 10ms", "--recorder: at least 1 s"),
    (f"{LIVE} --recorder 5m --write x", "--recorder and --write cannot be combined"),
    *((f"{LIVE} --webhook {url}", "--webhook needs an address such as") for url in ("ftp://x", "http://x:99999")),
    (f"{LIVE} --webhook http://me:pass@x", "no password in the address"),
    (f"{LIVE} --exec true --on never", "--exec and --webhook need findings"),
    (f"{LIVE} --keep-root", "of its own"),
    (f"{LIVE} --user nobody", "of its own"),
    (f"{LIVE} --top", "needs a terminal"),
    (f"{LIVE} --browse", "needs a terminal"),
]
FAILS = [
    (Exit.UNAVAILABLE, "decode {capture} -o {missing}/out", "missing/out: No such file"),
    (Exit.UNAVAILABLE, "stats {capture} -o {missing}/out", "cannot write"),
    (Exit.UNAVAILABLE, "audit -q {capture} --target 4.0 -o {missing}/out", "cannot write"),
    (Exit.UNAVAILABLE, "analyze latency {export} -o {missing}/out", "cannot write"),
    (Exit.UNAVAILABLE, "report none.pcap -o {missing}/out", "cannot write"),
    (Exit.UNAVAILABLE, "report none.pcap -o {folder}", "cannot write"),
    (Exit.UNAVAILABLE, "export {capture} -o {garbage}/out", "cannot write"),
    (Exit.UNAVAILABLE, "decode -q --write-matching {missing}/out {capture}", "cannot write"),
    (Exit.UNAVAILABLE, "decode -q --write-matching {folder} {capture}", "cannot write"),
    (Exit.CAPTURE, "decode -- --json", "--json: cannot be opened"),
    (Exit.CAPTURE, "analyze latency {export}/exchanges", "contains neither captures"),
    (Exit.CAPTURE, "export {capture} {missing} -o {out}", "missing: cannot be opened"),
    (Exit.CAPTURE, "decode --two-pass {missing}", "missing: cannot be opened"),
    (Exit.CAPTURE, "decode --jobs 2 {missing}", "missing: cannot be opened"),
    (Exit.CAPTURE, "live -i 999999", "live -D"),
    (Exit.USAGE, "export {capture} -o {folder}", "is not part of an export"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, capture: Path) -> dict[str, Path]:
    """Places that command lines name: `{capture}`, `{missing}`, …"""
    folder = tmp_path_factory.mktemp("misuse")
    names = ("capture", "export", "garbage", "nonsense", "empty", "folder", "pipe", "missing", "out")
    found = {name: folder / name for name in names}
    shutil.copy(capture, found["capture"])
    assert kafkasniff("export", "-q", capture, "-o", found["export"]).code == 0
    found["garbage"].write_bytes(b"no capture at all, but text\n" * 9)
    (folder / "garbage.avsc").write_bytes(b"{")
    (folder / "garbage.desc").write_bytes(b"\xff")
    found["nonsense"].write_text("10.0.0.5 fine\nnonsense name\n")
    found["empty"].touch()
    (found["folder"] / "exchanges").mkdir(parents=True)
    os.mkfifo(found["pipe"])
    return found


@pytest.fixture(autouse=True)
def nothing_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("an interface was opened")

    monkeypatch.setattr("kafkasniff.capture.live.live.InterfaceSocket", refuse)
    monkeypatch.chdir(tmp_path)


def run(command: str, files: dict[str, Path], **options: Any) -> tuple[int, str]:
    """Exit code and the one line."""
    before = files["capture"].read_bytes()
    result = kafkasniff(*(word.format(**files) for word in shlex.split(command)), **options)
    assert result.out == b""
    assert result.err.startswith("kafkasniff: ")
    assert result.err.count("\n") == 1, result.err
    harmless(result.err)
    assert "pass@" not in result.err
    assert not files["out"].exists()
    assert files["capture"].read_bytes() == before
    assert list(Path.cwd().iterdir()) == []
    return result.code, result.err


@pytest.mark.parametrize(("command", "said"), USAGE, ids=[command for command, _ in USAGE])
def test_usage(command: str, said: str, files: dict[str, Path]) -> None:
    code, line = run(command, files)
    assert (code, said in line) == (Exit.USAGE, True), line


@pytest.mark.parametrize(("code", "command", "said"), FAILS, ids=[command for _, command, _ in FAILS])
def test_failures(code: Exit, command: str, said: str, files: dict[str, Path]) -> None:
    found, line = run(command, files)
    assert (found, said in line) == (code, True), line


READERS = ("decode", "stats", "check", "security", "timing", "audit --target 4.0", "analyze talkers", "export -o {out}",
           "report -o {out}", "diff {capture}")  # fmt: skip


@pytest.mark.parametrize("command", READERS)
def test_inputs_that_are_not_captures(command: str, files: dict[str, Path]) -> None:
    for name in ("missing", "garbage", "empty", "folder"):
        code, line = run(f"{command} {{{name}}}", files)
        assert (code, str(files[name]) in line) == (Exit.CAPTURE, True), line
    assert "contains neither captures (pcap, pcapng) nor an export (manifest.json)" in line


TTY: dict[str, Any] = {"stdin_tty": True, "stdout_tty": True}


@pytest.mark.parametrize(
    ("command", "said", "options"),
    [
        *((f"{command} -", "terminal", TTY) for command in READERS if not command.startswith("diff")),
        ("report {capture} -o -", "terminal", TTY),
        ("browse -", "stdin is a terminal", TTY),
        ("browse - {capture}", "alone", TTY),
        ("browse {capture} --filter 'api =='", "--filter", TTY),
        ("browse {pipe}", "named pipe", TTY),
        ("browse {export} {capture}", "an export alone", TTY),
        (f"{LIVE} --top", "needs a terminal", {"stdout_tty": True}),
        (f"{LIVE} --top", "needs a terminal", {"stdin_tty": True}),
        (f"{LIVE} --top", "TERM is dumb", {**TTY, "environ": {"TERM": "dumb"}}),
        (f"{LIVE} --browse --top", "--top cannot be combined with --browse", TTY),
        (f"{LIVE} --browse -o x", "--output cannot be combined with --browse", TTY),
        (f"{LIVE} --browse --export x", "--export cannot be combined with --browse", TTY),
        (f"{LIVE} --browse -w {{capture}}", "it exists", TTY),
        (f"{LIVE} --browse --filter 'api =='", "--filter", TTY),
    ],
)
def test_terminals(command: str, said: str, options: dict[str, Any], files: dict[str, Path]) -> None:
    code, line = run(command, files, **options)
    assert (code, said in line) == (Exit.USAGE, True), line


def test_no_command_shows_the_help_as_bad_usage() -> None:
    result = kafkasniff()
    assert result.code == Exit.USAGE
    assert "Commands:" in result.err


def test_a_file_named_like_a_command_is_not_a_command(tmp_path: Path) -> None:
    (tmp_path / "stats").write_bytes(b"")
    assert "missing argument" in kafkasniff("stats").err


def test_a_damaged_export_stays_an_export(tmp_path: Path) -> None:
    capture, tables = ROOT / "captures" / "librdkafka-acks0.pcap", tmp_path / "tables"
    assert kafkasniff("export", "-q", "-o", tables, capture).code == 0
    (path,) = (tables / "exchanges").rglob("*.parquet")
    whole = path.read_bytes()
    for end in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        result = kafkasniff("analyze", "talkers", tables)
        assert (result.code, "cannot read" in result.err) == (Exit.CAPTURE, True)
    (tables / "manifest.json").write_text("{")
    result = kafkasniff("stats", tables)
    assert (result.code, "manifest.json is invalid" in result.err) == (Exit.CAPTURE, True)
