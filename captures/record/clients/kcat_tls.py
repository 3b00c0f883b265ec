"""kcat over TLS, with an OpenSSL whose secrets a preloaded library logs: records are written, and read back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from reporting import report

CERTIFICATES = Path(os.environ["CERTIFICATES"])
SOURCE = Path(__file__).with_name("openssl_keylog.c")
TOPIC = "encrypted"
VALUES = ("lamp", "table", "größe 數")

subprocess.run(["cc", "-shared", "-fPIC", "-o", "openssl_keylog.so", str(SOURCE)], check=True)


def kcat(*arguments: str, said: str = "") -> str:
    """What kcat prints; its log of the protocol goes to stderr."""
    # By name, so that the client sends SNI; the broker then advertises an address.
    settings = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(CERTIFICATES / "ca.pem"),
        "client.id": "kcat",
        "debug": "protocol",
    }
    command = ["kcat", "-b", sys.argv[1].replace("127.0.0.1", "localhost"), "-t", TOPIC, *arguments]
    command += [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    environment = {**os.environ, "LD_PRELOAD": "./openssl_keylog.so"}
    return subprocess.run(command, input=said, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout


version = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
found = re.search(r"Version (\S+).*librdkafka ([\d.]+)", version, re.DOTALL)
assert found is not None, version
report("client", name="kcat, librdkafka", version=found[2])
kcat("-P", "-p", "0", said="".join(f"{value}\n" for value in VALUES))
for value in VALUES:
    report("produced", topic=TOPIC, partition=0, key=None, value=value, error=None)
read = kcat("-C", "-o", "beginning", "-e", "-p", "0").splitlines()
assert read == [*VALUES], read
for value in read:
    report("consumed", topic=TOPIC, partition=0, key=None, value=value)
