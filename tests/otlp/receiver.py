"""A receiver of OTLP over HTTP or gRPC on loopback. It decodes what arrives with OpenTelemetry's protobuf classes."""

from __future__ import annotations

import contextlib
import functools
import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

MESSAGES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Receiver:
    """What arrived so far. `status` and `location`: the answer; while `held` is set, answers wait."""

    def __init__(self) -> None:
        self.status = 200
        self.location: str | None = None
        self.held = threading.Event()
        self.free = threading.Event()
        self.url = ""
        self.headers: list[dict[str, str]] = []
        self.requests: list[ExportTraceServiceRequest] = []
        self.reports: list[ExportMetricsServiceRequest] = []

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for one in self.requests
            for resource in one.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the last report, by name."""
        (resource,) = self.reports[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def accept(self, path: str, headers: dict[str, str], data: bytes) -> int:
        if self.held.is_set():
            assert self.free.wait(60)
        message = MESSAGES[path]()
        message.ParseFromString(gzip.decompress(data) if headers.get("content-encoding") == "gzip" else data)
        self.headers.append(headers)
        if self.status == 200:
            (self.requests if path == "/v1/traces" else self.reports).append(message)
        return self.status


def attributes(of: Any) -> dict[str, Any]:
    """Attributes as Python values."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


@contextlib.contextmanager
def receiving(over: str = "http") -> Iterator[Receiver]:
    found = Receiver()
    if over == "grpc":
        server = grpc.server(ThreadPoolExecutor(1))

        def answer(path: str, data: bytes, context: Any) -> bytes:
            if found.accept(path, dict(context.invocation_metadata()), data) != 200:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, f"status {found.status}")
            return b""

        for path, message in MESSAGES.items():
            # Its name in the definitions of OTLP.
            service = message.DESCRIPTOR.full_name.replace(".Export", ".").removesuffix("Request")
            handler = grpc.unary_unary_rpc_method_handler(functools.partial(answer, path))
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": handler})])
        found.url = f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield found
        finally:
            server.stop(None).wait()
        return

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            status = found.accept(self.path, {name.lower(): value for name, value in self.headers.items()}, data)
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            if found.location is not None:
                self.send_header("location", found.location)
            self.do_GET()

        def do_GET(self) -> None:
            """Where following a redirect would end, with success."""
            if self.command == "GET":
                self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.free.set()
        server.shutdown()
        thread.join()
        server.server_close()
