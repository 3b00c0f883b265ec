"""OpenTelemetry: exchanges as spans, counts as metrics, sent by OTLP over HTTP (`pip install 'kafkasniff[otlp]'`).

Only this package imports OpenTelemetry's SDK, and only runs that send something import this package.
"""
