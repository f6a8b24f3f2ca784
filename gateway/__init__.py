"""The gateway: doors for clients and operators, the path of a request, shared state, supervision.

The path of one chat request, from the socket to the engine:

1.  adapters/http1/connection.py         parses HTTP/1.1, bounds every wait, writes the response
2.  fronts/listener.py                   selects the front by path
3.  fronts/openai.py                     decodes the body, encodes the response or the stream
4.  fronts/door.py                       authenticates, assigns the request's id, encodes headers and errors
5.  request/client_exchange.py           decides, reserves, calls, settles (request/spine.py: the story)
6.  traffic/retry.py                     another attempt within a budget (plan.py composes it with the others)
7.  traffic/pool.py                      filters, picks and leases an endpoint in one step
8.  adapters/upstreams/openai/client.py  encodes the upstream's request, decodes its response, stream and errors
9.  adapters/http1/client.py             a pooled connection; a deadline for every wait
10. runtimes/llm/api/server.py           the API of the bundled engine (or any other server's)
11. runtimes/llm/engine/async_engine.py  submits sequences to the engine's thread

Two objects travel along it: the request (adapters/requests.py) is the client's request; the call (adapters/call.py) is
one execution of it, with its deadline and its trace. The access log and the metrics read telemetry/record.py.

The floors, from the top. A part imports only from its own floor and from those below:

process/    the command line, and what composes a gateway from its parts
admin/      the listener of operators: its API, the console, the life of the configuration
features/   one folder each: pipelines, batches, buses, rollouts, shadows, usage and others
fronts/     one codec for each API of clients
request/    the path of a request: route, reservation, call, end
traffic/    endpoints and their health, pools, retries, fallbacks; the fleet, which outlives reloads
limits/     the ledger: reserves before a request, settles after it
auth/       keys, tokens and client certificates; the tables that requests read
telemetry/  the access log, metrics and traces
state/      the state database: how it is opened and written, and what its errors mean

limits/, auth/ and telemetry/ do not know each other. Below all of them:

terminal.py    what commands show on a terminal: foreign texts, and their progress
background.py  background tasks, which begin again after an unexpected error
errors.py      errors of the gateway's own start
__main__.py    the console script
"""
