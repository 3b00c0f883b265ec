"""The help of a command: options in sections, and examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import click


class Example(NamedTuple):
    """A command line in the help."""

    purpose: str
    line: str
    """Without `kafkasniff`."""


EXAMPLES: Final = {
    "decode": (
        Example("Failed requests, with their bodies:", "decode capture.pcap --errors -v"),
        Example("Fields for a script:", "decode capture.pcap --api Fetch --fields time,latency_ms,topic"),
        Example(
            "Who wrote the record with this key?", "decode capture.pcap --filter 'record.key == \"order-4711\"' -vv"
        ),
    ),
    "browse": (
        Example("Look around in a capture; ? shows the keys:", "browse capture.pcap"),
        Example("Only slow requests:", "browse --filter 'latency_ms > 100' capture.pcap"),
        Example("In a browser on this machine:", "browse --serve capture.pcap"),
    ),
    "live": (
        Example("Everything on one port, until Ctrl-C:", "live -i eth0 tcp port 9092"),
        Example("A screen of rates, latencies and findings:", "live -i any --top"),
        Example("Only write packets, to decode them later:", "live -i eth0 -q --write kafka.pcapng"),
    ),
    "export": (
        Example("Tables for Spark, DuckDB or pandas:", "export capture.pcap -o tables"),
        Example("With keys and values of records:", "export capture.pcap -o tables --records --jobs 2"),
        Example(
            "A folder of captures, on Spark, without payload:", "export captures/ -o tables --engine spark --no-payload"
        ),
    ),
    "audit": (
        Example("Which clients would Kafka 4.0 refuse?", "audit --target 4.0 capture.pcap"),
        Example("The same from the tables of a week:", "audit --target 4.0 tables"),
        Example("As JSON, for a script:", "audit --target 4.0 --format json capture.pcap"),
    ),
    "stats": (
        Example("What is in a capture:", "stats capture.pcap"),
        Example("The three busiest clients, topics and so on:", "stats --top 3 capture.pcap"),
        Example("Only errors of one client:", "stats --client-id 'billing-*' --errors capture.pcap"),
    ),
    "check": (
        Example("What is wrong?", "check capture.pcap"),
        Example("In CI: exit code 1 for errors alone:", "check --fail-on error capture.pcap"),
        Example("All detectors with their thresholds:", "check --list"),
    ),
    "security": (
        Example("Clients, principals, TLS and SASL by listener:", "security capture.pcap"),
        Example("In CI: exit code 1 for readable passwords:", "security --fail-on error capture.pcap"),
        Example("As JSON, for a script:", "security --format json capture.pcap"),
    ),
    "report": (
        Example("One HTML page to send to colleagues:", "report capture.pcap -o report.html"),
        Example(
            "With names of hosts instead of addresses:",
            "report capture.pcap --hosts /etc/hosts -o report.html",
        ),
        Example("A report of an export:", "report tables -o report.html"),
    ),
    "timing": (
        Example("Is it the client, the network or the broker?", "timing capture.pcap"),
        Example("By client and API:", "timing --by client,api capture.pcap"),
        Example("The ten slowest exchanges, as waterfalls:", "timing --slowest 10 capture.pcap"),
    ),
    "follow": (
        Example("Where did the record with this key go?", "follow --key order-4711 capture.pcap"),
        Example("Who got the record at this offset, and when?", "follow --offset orders-0@17 capture.pcap"),
        Example(
            "Records of a trace, of an export, as JSON:",
            "follow --trace 4bf92f3577b34da6a3ce929d0e0e4736 tables --json",
        ),
    ),
    "diff": (
        Example("What did the upgrade change?", "diff before.pcap after.pcap"),
        Example("Only latencies that changed by half:", "diff --only latency --min-change 50 before.pcap after.pcap"),
        Example("As JSON, for a script:", "diff --format json before.pcap after.pcap"),
    ),
    "analyze": (
        Example("Questions that can be asked:", "analyze --list"),
        Example("Latency percentiles by API, of the tables of an export:", "analyze latency tables"),
        Example("A capture can be asked, too:", "analyze errors capture.pcap"),
    ),
    "sql": (
        Example("Requests of each API:", "sql 'SELECT api, count(*) FROM exchanges GROUP BY 1' tables"),
        Example("A query in a file, over a capture, as CSV:", "sql -f slowest.sql --format csv capture.pcap"),
        Example("The tables and their columns:", "sql --list"),
    ),
    "api": (
        Example("All APIs and their versions:", "api"),
        Example("The fields of a version:", "api Fetch 13"),
        Example("What does Kafka 3.9 support?", "api --release 3.9"),
    ),
    "tls": (
        Example("Does the key log decrypt the capture?", "tls doctor --keylog keys.log capture.pcap"),
        Example("Which connections are encrypted?", "tls doctor capture.pcap"),
        Example("For a script, as JSON:", "tls doctor --format json capture.pcap"),
    ),
    "schemas": (
        Example("To decode without network:", "schemas fetch --registry http://registry -o schemas"),
        Example("From Apicurio:", "schemas fetch --registry http://host/apis/ccompat/v7 -o DIR"),
        Example("From a registry's captured traffic:", "schemas learn capture.pcap -o schemas"),
    ),
    "mcp": (
        Example("For a model's program that starts it:", "mcp capture.pcap"),
        Example("With keys and values of records:", "mcp --show-payload capture.pcap"),
        Example("Over HTTP:", "mcp --http :8931 --token-file token capture.pcap"),
    ),
    "wireshark": (
        Example("Into Wireshark's folders of the user:", "wireshark -o ~/.local/lib/wireshark"),
        Example("Before Wireshark 4.2:", "wireshark -o ~/.config/wireshark"),
        Example("For tshark -X lua_script:folder/plugins/kafkasniff.lua:", "wireshark -o folder"),
    ),
    "decode-bytes": (
        Example(
            "A request from a hexdump in a log:",
            "decode-bytes 0000000e0012000000000001000474657374",
        ),
        Example("A response, from stdin:", "decode-bytes --response --api ApiVersions --version 0 -"),
        Example("Byte by byte:", "decode-bytes -x 0000000e0012000000000001000474657374"),
    ),
    "completion": (
        Example("bash:", "completion bash >> ~/.bash_completion"),
        Example("zsh, in a folder of $fpath:", "completion zsh > ~/.zfunc/_kafkasniff"),
        Example("fish:", "completion fish > ~/.config/fish/completions/kafkasniff.fish"),
    ),
    "help": (
        Example("The options of a command, by section:", "help decode"),
        Example("The filter language:", "help filters"),
        Example("Exit codes, for scripts:", "help exit-codes"),
    ),
}
"""Three for each command; `capture.pcap`, `tables` and the like stand for the user's own."""


def write_examples(name: str | None, formatter: click.HelpFormatter) -> None:
    """Write the examples of a command."""
    with formatter.section("Examples"):
        for purpose, line in EXAMPLES.get(name or "", ()):
            formatter.write_text(purpose)
            # It is one line, however narrow the terminal is: it is to be copied.
            formatter.write(f"{'':{formatter.current_indent + 2}}kafkasniff {line}\n")


SECTIONS: Final = {
    "Capture": (
        *("--interface", "--list-interfaces", "--snaplen", "--buffer-size", "--promiscuous", "--reopen"),
        *("--user", "--keep-root", "--duration"),
    ),
    "Recorder": ("--recorder", "--cases", "--on", "--exec", "--webhook"),
    "Packet files": ("--write", "--write-all", "--rotate-size", "--rotate-every", "--rotate-files"),
    "Input": (
        *("--port", "--max-frame", "--keylog", "--two-pass", "--on-bad-capture"),
        *("--from", "--target", "--response", "--version", "--release", "--file"),
    ),
    "Names and schemas": ("--definitions", "--topic-ids", "--hosts", "--registry", "--schema"),
    "Selection": (
        *("--filter", "--api", "--topic", "--client-id", "--host", "--errors", "--slower-than", "--connection"),
        *("--exchange", "--correlation-id", "--since", "--until", "--count", "--key", "--offset", "--trace"),
    ),
    "Answer": (
        *("--only", "--skip", "--set", "--list", "--min-change", "--min-count", "--significance", "--all"),
        *("--by", "--each", "--slowest", "--request-log", "--program", "--coverage", "--check"),
    ),
    "Output": (
        *("--format", "--fields", "--output", "--records", "--no-records", "--bytes", "--hex", "--color", "--verbose"),
        *("--quiet", "--top", "--browse", "--serve", "--serve-port", "--wide", "--write-matching", "--fail-on"),
    ),
    "Tables": (
        *("--tables", "--views", "--no-bodies", "--no-json", "--discard-state", "--export", "--export-every"),
        *("--compact", "--keep"),
    ),
    "Spark and lakehouses": ("--engine", "--master", "--conf", "--table", "--register", "--delta"),
    "Metrics": ("--metrics", "--metrics-labels", "--metrics-token-file", "--metrics-cert", "--metrics-key", "--otlp"),
    "Server": ("--http", "--token-file"),
    "Secrets and payload": ("--show-secrets", "--show-payload", "--no-payload", "--hash-payload", "--hash-salt"),
    "Performance": ("--memory", "--query-memory", "--query-disk", "--jobs"),
}
"""Names of options by section, in the order of the help. Parameters of questions are in the section `Answer`, too."""

_SECTION: Final = {name: section for section, names in SECTIONS.items() for name in names} | {"--help": "Options"}


class SectionedCommand(click.Command):
    """A command whose help has sections, and examples at its end."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        for title, records in sections(self, ctx):
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        write_examples(self.name, formatter)


def sections(command: click.Command, context: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The options of a command by section, each with its names and its help."""
    found: dict[str, list[tuple[str, str]]] = {title: [] for title in (*SECTIONS, "Options")}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        # Arguments are described in the usage.
        if record is not None and isinstance(parameter, click.Option):
            names = (_SECTION[one] for one in parameter.opts if one in _SECTION)
            found[next(names, "Answer")].append(record)
    for title, records in found.items():
        if records:
            yield title, records
