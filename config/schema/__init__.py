"""The sections of the file, with their defaults. A docstring under a field is its description.

config.py        the whole file
section.py       the base of every section; sections by their `kind`
listen.py        `listen`, `http` and `http.cors`
bus.py           `listen.bus`, and the address of a message broker
console.py       `console`
telemetry.py     `traces`, `metrics`, `usage`, `requests`, `record`, and `payload_events` of a model
state.py         `state` and `stored_responses`
batches.py       `batches`, and the batches of a pool's provider
pool.py          `pools`: endpoints, health checks, breakers, TLS
protocols/       `protocol` of a pool
runtimes/        `runtime` of a pool
balance.py       `balance`, `outliers` and `queue` of a pool, and the load that servers report
discovery.py     `discover` of a pool
route.py         `models`: routes, retries, hedges, caches, timeouts, shadows; `default_models`
target.py        pools, splits and fallbacks of a route
rollout.py       `rollout` of a route
experiment.py    `experiment` of a route, and `feedback`
copies.py        copies of requests, of a shadow and before a rollout, and the comparison of their answers
when.py          `when` of a route
rewrite.py       `rewrite` of a route
embeddings.py    `embeddings` of a model
pipelines/       `pipeline` of a model
guards/          `guards`
limits.py        `limits` of tenants and models
tenant.py        `tenants`, their soft budgets, and `webhooks`
identity.py      `auth`: tokens, certificates, roles, scopes
units.py         quantities: 250ms, 10MiB, 600/min, 20%, 127.0.0.1:8080
money.py         money and the `price` of a model
text.py          texts with a shape: names, globs and their relations, URLs, secrets
"""
