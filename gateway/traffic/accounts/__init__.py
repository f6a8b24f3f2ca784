"""The accounts of a pool at a provider: what each may still send to each model, and its pauses.

table.py     the words of all accounts and models, in memory that the workers of a gateway share
quota.py     one account and model: buckets, reservations, pauses
account.py   one account, whose models have a quota each
endpoint.py  an endpoint with an account: a refusal rests one model of it, for every tenant
"""
