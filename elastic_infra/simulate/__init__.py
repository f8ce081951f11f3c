"""A job's life on a cluster in numbers: what failures, preemptions and saving cost, before the job runs.

All modules are pure functions of a scenario and a seed, except ``trace`` (reads a file). A clock jumps from change to
change. The time between two random changes of many independent nodes is exponential with the sum of their rates, so
one draw serves ten thousand nodes, and there is no queue of events to keep.
"""
