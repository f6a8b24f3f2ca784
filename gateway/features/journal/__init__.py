"""The ended requests of a host: each is one record in the journal of its process, from which usage and the search of
requests are made.

lines.py    the record of one request
reasons.py  why a request was routed as it was, as data
sink.py     appends the ended requests of one process to its journal
live.py     the sink in force
folders.py  where the journals of a host are
files.py    the journals that wait for the database, and their readers
tables.py   how much of each journal a database has, and sums that grow
"""
