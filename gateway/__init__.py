"""What acts: the front doors, one request's story, shared state, supervision.

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

app.py       puts everything together, reloads and ends it; serve.py runs it, signals.py stops and reloads it;
             __main__.py is the command line
admin_listener.py  aiohttp's server for operators, with bounds on its connections
snapshot.py  all that a request reads, swapped whole
auth/        keys, tokens and client certificates; the tables that requests see
limits/      the ledger: reserve before, settle after, of every limit that applies
traffic/     endpoints and their health, pools, probes; fleet.py keeps them across reloads
discovery/   where endpoints come from while it runs: DNS, a file, Kubernetes
embeddings/  texts as tokens, and tensors as vectors, for models that make embeddings
foreign/     what a server is, and whether it is spoken to rightly: two commands
stored/      OpenAI's stored responses and conversations
explain/     why a request goes where it goes, and the tests of a policy
placement/   bundled runtimes as supervised children
telemetry/   the access log and every metric
fronts/      openai.py, oip_http.py and oip_grpc.py, predict_v1.py, admin.py, and errors.py: the one table from errors
             to statuses
"""
