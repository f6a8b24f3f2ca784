"""The bytes that each tenant stores: counted by the database itself, and bounded.

meter.py    triggers that count the rows of a table, each in the transaction that changes the row
room.py     refuses what would exceed the quota of a tenant
report.py   the bytes of all tenants, for the admin API and the metrics
"""
