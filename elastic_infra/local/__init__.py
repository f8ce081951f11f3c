"""Runs a job's own manifests on this machine: a node is a tree of processes, faults come on demand.

What the training operator, the kubelet and the Job controller would do is decided by one pure machine; the processes
around it only carry it out. No containers: paths that a container would mount are mapped to folders of the work folder.
"""
