"""`headrace batch`: batches from a terminal.

cli.py      the commands
sources.py  lines from JSONL, CSV and Parquet
results.py  the output file, and its continuation after a stop
sending.py  sends lines to a server and writes the answers
ray_run.py  the same run as a job of Ray Data
progress.py counts, rate, remaining time and cost
remote.py   files and batches of a gateway
"""
