"""Decisions: pure and synchronous. Time (``now``, monotonic seconds) and chance (``rng``) are arguments.

routing/     the pool of a request: routes, splits, rewrites
balancing/   the endpoint of a request within a pool
pipelines/   the pure parts of pipelines: combining, guards
guards/      forbidden spans in texts, and which part of a stream may leave
rollouts/    gradual moves of requests, which are taken back if the new arm is worse
experiments/  comparisons of arms by values that clients report
comparison/  whether two answers to one request agree
bus.py       messages of brokers: room, order, topics of answers
batches/     requests that may wait: examination, order, admission, states
shadowing/   copies of requests whose answers are compared
sequential/  tests and intervals that are valid at every look
limits/      rates, budgets, prices and concurrency
scaling/     the number of replicas of a pool
swapping.py  the models that share the memory of a device
breaker.py   circuit breaker: stops calls to a failing endpoint, then tries one
health.py    slow start, the panic threshold, the ejection of an endpoint that fails more often than its peers
refusals.py  429s that concern one tenant and not the whole endpoint
retry.py     retry budget and backoff, and whether a broken stream may continue on another endpoint
hedge.py     the delay and the budget of hedges
cache.py     cached responses, and the cache-control of clients
queueing.py  the order of a pool's queue, fair shares between tenants, and which request a full queue evicts
tail.py      the choice of requests to trace, at their end
clock.py     windows of local time
globs.py     shell-style patterns over names
facts.py     what rules may read of a request
splits.py    a sticky weighted choice of an arm
warm.py      the pools that must be able to serve until a rollout is kept

No policy blocks, reads a clock or uses a global random generator, so each decision can be explained, replayed and
property-tested. State belongs to one event loop; there are no locks.
"""
