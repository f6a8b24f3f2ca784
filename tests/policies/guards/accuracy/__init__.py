"""How many forbidden texts the built-in guards find, and how many other texts they take for one.

values.py        made keys and numbers, which no scanner of secrets takes for real ones in the files
samples.py       the texts of `*.txt`: forbidden ones and others
measure.py       precision and recall of each kind
page.py          the tables of docs/guards.md
"""
