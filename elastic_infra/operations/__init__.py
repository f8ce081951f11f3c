"""A job in a cluster: what its objects, pods, status ports and logs say, and what may be done to it. Pure.

The objects are the API server's JSON; whoever asks the cluster for them and applies a decision is the command line.
"""
