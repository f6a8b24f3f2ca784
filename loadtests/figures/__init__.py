"""From interleaved rounds to the figures of a report.

``rounds``  interleaved rounds; those on a busy machine are dropped
``cpu``     CPU seconds from /proc: of a process tree, and of everything foreign to the run
``ratios``  medians, spreads, ours ÷ theirs
``report``  the tables that people read, and the JSON line that programs read
"""
