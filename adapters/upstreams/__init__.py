"""Clients of the servers that Headrace calls, one folder for each family; what all of them share is here."""
