"""The agent's process: carries out what the protocol decides for this node, and tells it what happened."""
