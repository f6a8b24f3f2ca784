"""The ledger: reserves before a call and settles after it, for every limit that applies.

ledger.py            reservations and settlements of all tenants
account.py           the subject group of limits: a tenant, or all clients of a model
subjects.py          the allowances of one limit: one for each key, model or user
allowance.py         what one subject of one limit may still use
drawn.py             what the state database has of limits of long periods
long_limits.py       these limits in a configuration, each with the usage that it counts
shared.py            counters in memory that all workers share
shared_allowance.py  an allowance with shared counters
native_rows.py       its row in the native core
mutexes.py           locks between processes, released when a process dies
memory.py            bytes that requests hold at once
memory_metrics.py    its metrics; redis_metrics.py: those of the connection to Redis
remote/              limits that several gateways count together, in Redis
"""
