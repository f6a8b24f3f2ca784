"""`headrace replay`: recorded traffic under another policy, or sent again.

records.py      reads the entries and the contents of a folder
outcomes.py     the outcome of a recorded request under another configuration
limits.py       limits that changed, simulated in virtual time
report.py       counts of changes, as a table and as JSON
expectations.py `--expect "changed <= 1%"`
policies.py     the replay of policies
rates.py        the traffic of rollouts, for `headrace check --traffic`
keys.py         the key of the records
mooncake.py     the export of a recording as a trace
against/        sends recorded or traced requests again
options.py      the checked options of the command
"""
