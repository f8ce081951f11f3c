"""The workers of one node: what they are started with, how they start and end, and what they leave behind."""
