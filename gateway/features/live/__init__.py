"""The figures that people watch: of the last seconds, and of the minutes of the last hours, of all replicas.

Replicas know each other by the state database alone. Each stores its minutes there. While somebody watches, each also
stores what it does now.

frames.py   what a screen shows of one replica, and of all together
rates.py    rates, quantiles and money of sums
history.py  the figures of past minutes as columns
schema.py   the tables
store.py    writes and reads them
board.py    stores the figures of this replica in the background, and reads those of the others
"""
