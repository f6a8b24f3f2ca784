"""Lines that providers run in batches of their own.

providers.py    the pools' providers
submissions.py  the submissions of a shard
download.py     the results of one submission
"""
