"""What happened to a job, read off its event lines: a history, its figures, and pictures of both.

Everything here is a pure function of records but ``files`` (reads) and ``png`` (calls a renderer); nothing starts,
stops or asks anything.
"""
