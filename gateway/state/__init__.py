"""How the gateway writes to its databases in the background, and what the errors of a database mean.

faults.py   an error of a database: it is away, or it refuses the data
refusals.py writes a batch, whose items may be refused one by one; counts and logs the refused ones
database.py opens the state database; errors.py: the errors of the start and of the database
journal.py  the file in which one process appends records: it survives a killed process
behind.py   items that wait in memory until they are written
local_folder.py   folders of this host where data waits for the state database
private_folder.py folders for this user alone
"""
