"""The number of replicas of a pool: pure, on measured demand. Time is an argument.

rules.py    the bounds and the objective that an operator sets
facts.py    the measurements of one interval
demand.py   the mean of demand, its recent level, and the margin that the objective needs
scaler.py   the decision, with its reason
numbers.py  the replicas that a decision adds or removes
sleeping.py  the servers that are awake, of servers that can sleep
pattern.py  whether requests are expected by those of yesterday and of a week before
starts.py   the measured time of a start
"""
