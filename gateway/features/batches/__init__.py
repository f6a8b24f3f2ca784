"""Files and batches: requests that may wait, in capacity that live requests leave.

rows.py           files and batches as rows, and the names of their objects
schema.py         the tables
store.py          files and batches in the state database
tasks.py          the units of work, and their fencing leases
storage.py        the storage of files and results; opening.py opens it
local_storage.py  a folder
s3/               a bucket of S3
listing.py        batches for operators and tenants' admins, and the reasons why they have not ended
service.py        files and batches for the fronts
fronts/           the paths of files and batches
plane.py          the batches of one process
runner.py         takes tasks and runs them
work.py           the base of the tasks, and what they share
examination.py    the first task of a batch: examines every line
shard.py          runs lines, and logs each result once
results.py        the results of a shard: their log and its recovery, and the lines of output files
sealing.py        lines of results with personal data
submissions.py    lines that providers run; providers.py: the pools' providers
finishing.py      the last task: the output file and the error file
gate.py           admits lines beside live requests
calls.py          one line as an ordinary request
metrics.py        metrics of lines
client/           `headrace batch`
"""
