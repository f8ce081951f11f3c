"""The membership protocol as pure functions: no I/O, no clock, no randomness.

``machine.step(state, event, now) -> (state, actions)`` runs in every agent, and, unchanged, in the model checker of the
tests. No module here may import an edge (sockets, processes, files).
"""
