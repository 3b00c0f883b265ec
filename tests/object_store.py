"""An object store that moto plays on this machine."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest

from tests.capture.files import pcap
from tests.capture.segments import frames

CAPTURE = pcap(frames(40))


def boto3_client(address: str) -> Any:
    boto3 = pytest.importorskip("boto3")
    endpoint = address.partition("endpoint_override=")[2].partition("&")[0]
    return boto3.client("s3", endpoint_url=f"http://{endpoint}", region_name="us-east-1")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An address `s3://…{}…` on this machine, whose path is to be filled in; the bucket holds captures."""
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        address = f"s3a://captures/{{}}?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
        # Moto keeps objects in this process, even those of servers that were stopped.
        urlopen(f"http://{host}:{port}/moto-api/reset", b"").close()
        client = boto3_client(address)
        client.create_bucket(Bucket="captures")
        for key in ("day-1/a.pcap", "day-1/b.pcap", "day-2/a.pcap", "day-1/_SUCCESS"):
            client.put_object(Bucket="captures", Key=key, Body=CAPTURE)
        client.put_object(Bucket="captures", Key="day-1/c.pcap.gz", Body=gzip.compress(CAPTURE))
        yield address
    server.stop()
