"""Protocols: the domain types, the codecs of each wire, and one client for each family of servers.

requests.py        requests to models (`ChatRequest`, `CompletionRequest`, …), immutable, and the codec of their wire
ignored_fields.py  the request fields of each operation, and those that a model has no use for
types.py           `Usage`, `Deadline`, the form of an answer, and the values of fields
answer.py          `Answer`: a response that has begun, and its pieces for another reader too
call.py            `Call`: one execution of a request, and the trace of its attempts
spans.py           the spans of a traced request
base.py            `Upstream.call(request, call) -> Answer`: the one interface by which everything composes
stream.py          `Stream`: an answer in pieces, the state machine of every stream
tensors.py         tensors as plain data, in the terms of the Open Inference Protocol
assembly.py        joins large bytes in small steps, so that no copy holds the event loop
cut.py             the requests that a server cuts at the end of its drain
errors.py          the tree of errors; its classes decide retries and breakers
reason.py          why a request is refused: the causes and their descriptions
statuses.py        the one table from errors to HTTP statuses, gRPC codes and OpenAI's types
wire/              codecs: bytes ↔ types, without I/O
brokers/           clients of message brokers
credentials/       credentials that the gateway makes for servers: signatures, and tokens that it renews
upstreams/         clients of model servers, one folder for each family
dataflow.py        runs a graph of steps (`config.graph`), each as soon as its inputs are there
registry.py        the adapter of a pool's protocol
detection/         identifies a server; `protocol: auto`
conformance/       the suite that every adapter passes
fake.py            a scripted upstream for tests
http1/             HTTP/1.1, server and client
native/            the same bytes of HTTP/1.1 in C, where the installation could compile it
http2/             gRPC over HTTP/2, server and client
certificates.py    certificates and keys in PEM files, loaded as pairs
grpc_health.py     the health service of gRPC, for the gateway and the runtimes
stores/            pulls the files of models from where they lie, in a process of its own
offload/           decodes and encodes large bodies in a process of its own
paths.py           checks the part of an upstream's path that comes from a client
cursors.py         the continuation tokens of a list in pages
whole_body.py      reads the body of a response of aiohttp, bounded
lasting.py         work without an end, which begins again after an unexpected error
process.py         the process itself: temporary folders, open files, variables of its children, heap
"""
