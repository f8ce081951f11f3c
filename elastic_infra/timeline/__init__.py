"""A job's history from its event lines, with figures, and pictures of both.

All modules are pure functions of records, except ``files`` (reads files) and ``png`` (calls a renderer).
"""
