"""The membership protocol as pure functions: no I/O, no clock, no randomness.

``machine.step(state, event, now) -> (state, actions)`` runs in every agent, and, unchanged, in the model checker of
the tests. Nothing here may import an edge (sockets, processes, files).
"""
