"""What tenants have used and spent: counted in files that survive a process, written to the state database behind the
requests, reported by hour, day and month.

labels.py   the labels and counters of a row
files.py    one file of counters: the process that counts, and its readers
counter.py  counts the ended requests of one process
live.py     the counter in force
writer.py   writes the files of a host to the database
schema.py   the tables
store.py    hours, days and retention in the database
report.py   sums by label and period
query.py    queries from texts
discounts.py discounts of invoices by the tokens of a month
export.py   sums as CSV, FOCUS and invoices
parquet.py  FOCUS as Parquet
metrics.py  metrics of the counter and the writer
cli.py      `headrace usage`
"""
