"""LiteLLM's proxy configuration, as ours.

conversion.py   the whole file → a draft, and what is left
deployments.py  an entry of `model_list`: its pool, its share and its bounds
models.py       the deployments of one name → a model with its routes
routing.py      fallbacks, aliases, retries, timeouts: what the settings say of all models
settings.py     sections for the whole gateway: state, cache, log, limits, tenants
reasons.py      why a setting has no equivalent
"""
