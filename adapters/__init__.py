"""What speaks: the domain's types, the codecs of each wire, one client for each server protocol.

types.py     what is asked (`ChatRequest`, `CompletionRequest`), what it cost (`Usage`), when it must end (`Deadline`)
tensors.py   tensors in plain data, in the Open Inference Protocol's words
errors.py    every way to fail, drawn as a tree; its kinds decide retries and breakers
statuses.py  the one table from errors to HTTP statuses, gRPC codes and OpenAI's types
call.py      `Call`: one execution of a request, and the trace of its attempts
base.py      `Upstream.call(request, call) -> Answer`: the one interface that everything composes by
wire/        bytes ↔ types without I/O: openai.py, oip*.py, sse.py, compression.py
http1/       HTTP/1.1, server and client, for the gateway and the runtimes
offload/     codec work on large bodies, in a process of its own
registry.py  which module speaks a pool's protocol; dial.py: how its servers are reached
openai.py    the adapter for servers that speak OpenAI
oip_http.py  the adapter for servers that speak the Open Inference Protocol over HTTP; oip_grpc.py: over gRPC
detection/   what a server is, and `protocol: auto`
conformance/ the suite that every adapter passes
anthropic.py the adapter for servers that speak Anthropic's Messages; messages.py: what its clients ask
grpc_health.py  the health service of gRPC, of the gateway and the runtimes
environment.py the variables that a child process inherits
open_files.py  the limit of open files, and how many clients fit into it
temporary.py temporary folders, which the next start removes if their process was killed
fake.py      a scripted upstream, for tests of everything above
"""
