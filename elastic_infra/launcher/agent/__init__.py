"""The agent process: carries out the protocol's decisions for this node, and reports events to the protocol."""
