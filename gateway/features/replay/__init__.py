"""`headrace replay`: recorded traffic under another policy, or sent again.

records.py      the records of a folder, as they were written, and in the order of their arrivals
traces.py       public traces as arrivals and lengths, and the export of a recording as one
policies.py     recorded requests under another configuration, with its limits in virtual time
guarding.py     the verdicts of guards on recorded texts under another configuration
outcomes.py     the outcome of a recorded request under another configuration
report.py       counts of changes, and expectations such as `changed <= 1%`
sending.py      sends requests at their times, until their end or a signal
exchanging.py   sends one request, reads its answer, and compares it with the recorded one
sent_report.py  counts, differences and quantiles of sent requests
options.py      the checked options of the command
"""
