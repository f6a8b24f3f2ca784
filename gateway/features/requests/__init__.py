"""The records of requests: ended requests (`features/journal`), imported into days of the state database, searched.

writer.py   imports the journals of a host into the database, and deletes old days
schema.py   the tables of one day
days.py     one SQLite file, or one Postgres partition, for each day
store.py    writes and reads days
query.py    a search from texts
search.py   the pages of a search
report.py   records as JSON
metrics.py  metrics of what is lost, and of the writer
cli.py      `headrace requests`
"""
