"""Soft budgets: signed messages to webhooks when a share of a budget is spent. They refuse no request.

One process of each host compares the recorded usage with the budgets and delivers the messages, beside the requests.
An alert is a row of the state database, once for each threshold of each period: several hosts and restarts repeat none,
and every alert is delivered at least once, under the same id.

thresholds.py  thresholds that are reached, from sums of usage
store.py       alerts in the state database
signature.py   the body and the signature of a message
sender.py      sends one message to an allowed address
writer.py      the background work of a host
metrics.py     metrics of the deliveries
"""
