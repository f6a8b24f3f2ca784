"""Sections of files and batches.

batches.py  `batches`, and the bounds of tenants
"""
