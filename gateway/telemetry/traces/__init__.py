"""Traces: from the record of a request to an OpenTelemetry collector.

live.py           the tracer in force, which reloads replace
tracer.py         starts the spans of a request, and chooses at its end whether they are exported
journal.py        requests that last, in a file that survives a killed process
attributes.py     the attributes of a request's own span; span_attributes.py: those that attempts have too
content.py        the texts of a request, on a route that opts in; messages.py: in the form of the conventions
runtime_spans.py  the spans of bundled runtimes, fetched for exported traces
encoding.py       spans as OTLP protobuf
exporter.py       the bounded queue in front of the collector, batches and retries
collector.py      the connection to the collector, over HTTP or gRPC
metrics.py        metrics of the export
"""
