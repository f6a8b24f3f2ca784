"""What tenants have used and spent: the sums of ended requests (`features/journal`) in the state database, reported by
hour, day and month.

labels.py   the labels and counters of a row
charges.py  the usage of a request, from its line
rows.py     the rows of hours to which one writer adds
earlier.py  files of counters of earlier releases
writer.py   adds the journals of a host to the database
schema.py   the tables
store.py    hours, days and retention in the database
draws.py    what requests have drawn from limits of long periods
begun.py    lets new limits begin with the recorded usage
budgets.py  lets the limits of a process follow them
report.py   sums by label and period
overview.py sums of a period by one label, beside the period before, with a forecast
query.py    queries from texts
discounts.py discounts of invoices by the tokens of a month
export.py   sums as CSV, FOCUS and invoices
parquet.py  FOCUS as Parquet
metrics.py  metrics of what is lost, and of the writer
cli.py      `headrace usage`
"""
