"""A job in a cluster: what its objects, pods, status ports and logs say, and what may be done to it. Pure.

The objects are the API server's JSON. The command line asks the cluster for them, and applies the decisions.
"""
