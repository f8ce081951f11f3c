"""`python -m elastic_infra.cli` is `elastic-infra`."""

from elastic_infra.cli.program import main

main()
