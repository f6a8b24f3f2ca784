"""Limits that several gateways count together, in Redis. Needs the extra `redis`.

redis_ledger.py  reservations, unsent settlements, and the fallback without Redis
exact.py         one Redis call for each request
leased.py        leases small amounts in advance
allowance.py     an allowance whose counters are in Redis
link.py          the connection to Redis
"""
