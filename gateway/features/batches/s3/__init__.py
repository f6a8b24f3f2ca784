"""The storage in a bucket of S3.

storage.py  objects and logs
client.py   sends signed requests
keys.py     the keys of their signatures
"""
