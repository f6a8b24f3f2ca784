"""Teams: keys of one tenant with limits and budgets of their own, within those of the tenant.

The file defines some teams. Others are in the state database: operators and tenant-admins create and change them while
the gateways run, and every gateway applies a change with its next poll of the keys.

store.py   teams and the teams of keys in the state database
limits.py  the limits of a team: validated against the tenant, combined with the file
"""
