"""Sections of files and batches.

batches.py   `batches`, and the bounds of tenants
provider.py  `provider_batches` of a pool
"""
