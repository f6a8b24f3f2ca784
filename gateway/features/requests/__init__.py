"""The records of requests: written to a spool behind the requests, imported into days of the state database, searched.

lines.py    the record of one request, as the spool and the database have it
reasons.py  why a request was routed as it was, as data
spool.py    the journals of processes, where records wait for the database
sink.py     appends the ended requests of one process to its journal
live.py     the sink in force
recorded.py the sums of the records of each process
unrecorded.py the requests of an ended process whose records are lost
writer.py   imports the spools of a host into the database, and deletes old days
schema.py   the tables of one day
days.py     one SQLite file, or one Postgres partition, for each day
store.py    writes and reads days
query.py    a search from texts
search.py   the pages of a search
report.py   records as JSON
metrics.py  metrics of the sink and the writer
cli.py      `headrace requests`
"""
