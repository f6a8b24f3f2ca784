"""Pulls the files of models from where they lie into a cache on the disk.

source.py     what a place has: its objects, and the bytes of each; errors
web.py        archives at an HTTP server
local.py      archives on the disk
objects.py    buckets of S3, Google Cloud Storage and Azure
hub.py        projects of the Hugging Face hub
registry.py   images of OCI registries; layers.py: their files, one layer over the other
http.py       requests of every source that speaks HTTP
places.py     the source of an address
pull.py       objects → files of the cache → a view: a folder with the files of one revision
transfer.py   one object: resumed, verified
unpacking.py  archives, which are somebody else's data
zstandard_file.py   those that zstd compresses, in bounded steps
cache.py      files by content, within a bound; views, replaced in one step
__main__.py   the process that pulls, for a server whose event loop must not wait

A server starts the process and reads the views; it imports no source.
"""
