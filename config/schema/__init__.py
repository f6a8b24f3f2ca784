"""The sections of the file, with their defaults. A docstring under a field is its description.

config.py        the whole file
section.py       the base of every section
listen.py        `listen`
bus/             `listen.bus`, and the address of a message broker
http.py          `http`
console/         `console`
cors.py          `http.cors`
telemetry/       `traces`, `metrics`, `usage`
state.py         `state` and `stored_responses`
batches/         `batches`
recording/       `record`
pool.py          `pools`: endpoints, health checks, breakers, TLS
balance.py       `balance` and `outliers` of a pool, and the load that servers report
discovery.py     `discover` of a pool
queue.py         `queue` of a pool
route.py         `models`: routes, retries, timeouts
pricing/         `price` of a model
target.py        pools, splits and fallbacks of a route
rollout.py       `rollout` of a route
experiments/     `experiment` of a route, and `feedback`
shadow/          `shadow` of a route
when.py          `when` of a route
rewrite.py       `rewrite` of a route
resilience.py    `hedge` and `cache` of a route
embeddings.py    `embeddings` of a model
pipelines/       `pipeline` of a model
limits.py        `limits` of tenants and models
tenant.py        `tenants`
identity.py      `auth`: tokens, certificates, roles, scopes
default_models.py  `default_models`
units.py         quantities: 250ms, 10MiB, 600/min, 20%, 127.0.0.1:8080
money.py         prices and budgets
text.py          texts with a shape: names, globs, URLs, secrets
globs.py         relations between patterns
"""
