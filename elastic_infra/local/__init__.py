"""Runs a job's own manifests on this machine: a node is a tree of processes, and faults can be injected.

One pure machine decides as the training operator, the kubelet and the Job controller would; the code around it carries
the decisions out. There are no containers: mounted paths are mapped to folders of the work folder.
"""
