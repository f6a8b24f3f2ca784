"""The ids of messages that are in work or answered, shared by all gateways of a group.

table.py        the interface
redis_table.py  in Redis; redis_table.lua: its steps
sql_table.py    in the state database
"""
