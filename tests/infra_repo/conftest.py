"""The repository in `repo` has tests of its own, which run in an environment of its own."""

collect_ignore = ["repo"]
