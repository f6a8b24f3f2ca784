"""`headrace batch`: batches from a terminal.

cli.py      the commands, and the files and batches of a gateway
sources.py  lines from JSONL, CSV and Parquet
run.py      sends lines to a server, also from Ray, and writes the answers
"""
