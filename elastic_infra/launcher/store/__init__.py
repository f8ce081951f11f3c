"""The launchers' own small store: compare-and-set, set, watch and beat over JSON lines, without torch.

Values are JSON, never pickle: the port is open to the cluster until a network policy closes it.
"""
