"""Files and batches: requests that may wait, in capacity that live requests leave.

rows.py           files and batches as rows, and the names of their objects
schema.py         the tables
store.py          files and batches in the state database
tasks.py          the units of work, and their fencing leases
storage.py        the storage of files and results; opening.py opens it
local_storage.py  a folder
s3/               a bucket of S3
listing.py        batches of all tenants or of one, for operators and tenants' admins
report.py         batches as JSON for them
waiting.py        the reasons why a batch has not ended
service.py        files and batches for the fronts
fronts/           the paths of files and batches
plane.py          the batches of one process
runner.py         takes tasks and runs them
work.py           the base of the tasks
examination.py    the first task of a batch: examines every line
shard.py          runs lines, and logs each result once
line_runs.py      the runs of single lines
results.py        the log of a shard's results while it is written
provided/         lines that providers run
recovery.py       the logs of a shard as its next holder reads them
records.py        the records of a log: outputs and charges
finishing.py      the last task: the output file and the error file
gate.py           admits lines beside live requests
calls.py          one line as an ordinary request
metrics.py        metrics of lines
client/           `headrace batch`
outputs.py        the lines of output files
"""
