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

Beside the path:

__main__.py           the console script (commands.py: the command line)
serve.py              runs a gateway until a signal stops it (signals.py: the signals)
app.py                a gateway of one process: data plane, admin listener, reloads
data_plane.py         all parts that serve requests, and their reconfiguration
client_listeners.py   the HTTP and gRPC servers for clients (tls.py: their certificates)
admin_listener.py     the HTTP server for operators, with bounds on connections and bodies
admin_backend.py      the operations behind the admin API
lifecycle.py          audit entries of the process, and the status of its configuration
terminal.py           what commands show on a terminal: foreign texts, and their progress
background.py         background tasks, which begin again after an unexpected error
errors.py             errors of the gateway's own start
ownership.py          checks at the start that the packages belong to this distribution
revision.py           the revision of a configuration, and the version of its source
extras.py             the optional packages that a configuration needs and that are absent
first_request.py      prints a first request to try
host_writers.py       the writers of a host: usage and the records of requests
local_folder.py       folders of this host where data waits for the state database
private_folder.py     folders for this user alone
auth/                 keys, tokens and client certificates; the tables that requests read
quota/                the bytes that each tenant stores, counted and bounded by the state database
request/              the path of a request: route, reservation, call, end
limits/               the ledger: reserves before a request, settles after it
traffic/              endpoints and their health, pools, retries, fallbacks; fleet.py preserves them across reloads
discovery/            endpoints from DNS, a file or Kubernetes
pipelines/            models that are graphs of other models
embeddings/           tokenizes texts and pools vectors for models that compute embeddings
foreign/              two commands that examine a server: probe and conformance
batches/              files and batches: requests that may wait
bus/                  messages of brokers as requests
state/                how databases are written in the background, and what their errors mean
stored/               OpenAI's stored responses and conversations
explain/              why a request is routed as it is, and the tests of a policy
recording/            recorded traffic: a sample of requests, redacted and encrypted
replay/               recorded traffic under another policy
rollouts/             gradual moves of requests from one arm of a route to another
experiments/          values that clients report, and the views of experiments
shadow/               copies of requests to another target, and the comparison of the answers
placement/            bundled runtimes as supervised child processes
scaling/              the number of replicas of each runtime
supervisor/           several worker processes as one gateway
drafts/               drafts of the configuration: checks, replays, applies them; its history
picker/               the endpoint picker of Envoy-based gateways
playground/           requests of the console to models, on behalf of a signed-in person
top/                  the live screen of a gateway in a terminal
alerts/               soft budgets: signed messages to webhooks
teams/                teams of tenants with limits of their own, changed at run time
usage/                what tenants have used and spent, in the state database
requests/             a record of each request, by day, and the search of requests
telemetry/            the access log and every metric
console/              the pages for operators, and their sessions
fronts/               one codec for each API of clients, and the admin API
"""
