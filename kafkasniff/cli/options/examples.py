"""Examples in the help and the manual pages of each command."""

from __future__ import annotations

from typing import Final, NamedTuple

import click

__all__ = ["EXAMPLES", "Example", "write_examples"]


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
        Example("With a password:", "schemas fetch --registry http://ME:PASSWORD@registry -o DIR"),
    ),
    "mcp": (
        Example("For a model's program that starts it:", "mcp capture.pcap"),
        Example("With keys and values of records:", "mcp --show-payload capture.pcap"),
        Example("Over HTTP:", "mcp --http :8931 --token-file token capture.pcap"),
    ),
    "wireshark": (
        Example("Into Wireshark's folders of the user:", "wireshark -o ~/.local/lib/wireshark"),
        Example("For all users of the machine:", "wireshark -o /usr/local/lib/wireshark"),
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
