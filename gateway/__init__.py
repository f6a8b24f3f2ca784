"""The gateway: doors for clients and operators, the path of a request, shared state, supervision.

A chat request, from the socket to the engine and back:

1. fronts/openai.py          who asks, what is asked; at the end the response, whole or streamed (door.py: what every
                             front does alike; listener.py: which front a path belongs to)
2. core.py                   the story: decide, reserve, call, and the one end in which all is settled
3. traffic/retry.py          another try, within a budget (fallback.py: another pool)
4. traffic/pool.py           filter, pick and lease an endpoint in one step (queue.py: wait for one)
5. adapters/upstreams/openai/client.py        the upstream's body, its answer, its stream of events, its errors
6. adapters/http1/client.py  a pooled connection and the end of every wait
7. runtimes/llm/api/server.py    the engine's own door (or any other server's)

Beside the path:

__main__.py           the command line
serve.py              runs a gateway until a signal stops it (signals.py: the signals)
app.py                a gateway of one process: data plane, admin listener, reloads
data_plane.py         all parts that serve requests, and their reconfiguration
client_listeners.py   the HTTP and gRPC servers for clients (tls.py: their certificates)
admin_listener.py     the HTTP server for operators, with bounds on connections and bodies
admin_backend.py      the operations behind the admin API
lifecycle.py          audit entries of the process, and the status of its configuration
snapshot.py           everything that one request reads, replaced as a whole
background.py         background tasks whose failures are logged
errors.py             errors of the gateway's own start
ownership.py          checks at the start that the packages belong to this distribution
first_request.py      prints a first request to try
auth/                 keys, tokens and client certificates; the tables that requests read
limits/               the ledger: reserves before a request, settles after it
traffic/              endpoints and their health, pools, retries, fallbacks; fleet.py preserves them across reloads
discovery/            endpoints from DNS, a file or Kubernetes
embeddings/           tokenizes texts and pools vectors for models that compute embeddings
foreign/              two commands that examine a server: probe and conformance
stored/               OpenAI's stored responses and conversations
explain/              why a request is routed as it is, and the tests of a policy
placement/            bundled runtimes as supervised child processes
supervisor/           several worker processes as one gateway
telemetry/            the access log and every metric
fronts/               one codec for each API of clients, the admin API, and errors.py: the table of error statuses
"""
