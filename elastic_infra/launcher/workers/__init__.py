"""The workers of one node: their command lines and environments, their start and end, and the files that they leave."""
