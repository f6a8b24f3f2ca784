"""What decides: pure and synchronous. Time (``now``, monotonic seconds) and chance (``rng``) are arguments.

    facts.py       what a policy may know of a request
    decision.py    what it says: which pools, in order, with which retry and timeouts
    rules.py       a model's routes, compiled: Facts → Decision; the catalogue of models; allow-lists
    conditions.py  a route's ``when`` as a tuple of predicates
    clock.py       windows of time, by a clock on the wall somewhere
    target.py      where a decision leads: a pool or a split, with what to fall back to
    rewrite.py     what an upstream is sent instead of what the client wrote
    globs.py       shell-style patterns over names
    split.py       sticky weighted choice between pools
    balance.py     which endpoint of a pool, going by the endpoints: in turn, by load, by latency
    stickiness.py  … by the request's key: consistent hashing with bounded loads
    affinity.py    … by the prompt's beginning
    pickers.py     which of these a pool's configuration names
    latency.py     what is known of an endpoint's latency
    health.py      slow start, and when health is not to be believed
    breaker.py     when to leave an endpoint alone
    queueing.py    who is next of those that wait for a pool, and who goes when too many do
    fairness.py    … between tenants: the virtual token counter
    drain.py       how quickly those that wait are served
    limits.py      token bucket and concurrency
    retry.py       whether another try is affordable, and when to make it

Nothing here blocks, reads a clock or draws from global chance, so each decision can be explained,
replayed and property-tested. State belongs to one event loop; there are no locks.
"""
