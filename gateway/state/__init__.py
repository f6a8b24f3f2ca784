"""The state database: how it is opened, read and written in the background, and what its errors mean.

database.py opens the database
schema.py   its tables: creates and completes those of each feature
journal.py  the file in which one process appends records: it survives a killed process
statements.py     statements with many rows
opened.py   a store that is opened at its first use
lease.py    rows of which each has one holder at a time
behind.py   items that wait in memory until they are written
rounds.py   work that is repeated once a period
insist.py   repeats a call until it is answered; logs each outage once
refusals.py writes a batch, whose items may be refused one by one; counts and logs the refused ones
errors.py   errors of the database, of which its users raise some of their own
faults.py   an error of a driver: the database is away, or it refuses the data
local_folder.py   folders of this host where data waits for the database
private_folder.py folders for this user alone
"""
