"""Endpoints, pools of them, and the upstreams that compose pools into plans.

plan.py           composes the upstream of a decision: Fallback[Retry[Resume[Hedge[Pool]]]]
plan_state.py     state of plans that outlives a reload: budgets, caches
fallback.py       another upstream after a failure; a pool with a free slot first
filtered.py       answers that a provider's filter ends before anything is written
split.py          a choice between upstreams, inside a fallback
prompt_cache.py   marks prompts for the cache of a provider
retry.py          another attempt within a budget
hedge.py          a second attempt while the first has not begun
resume.py         continues a broken stream at another endpoint
cache.py          the response cache; coalesce.py: one upstream call shared by its readers
coalesce.py       one upstream call for simultaneous identical requests
pool.py           filters, picks and leases an endpoint; queue.py: the wait for a free slot
load.py           the load of a set of pools, and what is measured of the arms of balanced splits
queue.py          requests that wait for a slot in a full pool
sequences.py      the endpoint that has the state of a sequence
endpoint.py       one server address: health, breaker, load
accounts/         what the accounts at a provider may still send, and their pauses
fleet/            all endpoints, preserved across reloads
discovery/        endpoints from DNS, a file or Kubernetes
standing.py       the measurements and the state of pools that processes exchange
pool_state.py     measurements of a pool, preserved across reloads
spans.py          the spans of a traced request: waits in queues, attempts
arm.py            counts the end of each request at its arm; an arm that is another model
answer_refusals.py  whether the answer of a language model refuses
guarded/          streams of chats and of tensors behind guards
generated_text.py  values of generated texts, whole and streamed
cold.py           requests that wait for the first replica of a pool
meter.py          counts the requests of a pool
picked.py         the leases of requests that a proxy carries
metrics/          metrics of endpoints, queues and caches
"""
