"""`python -m elastic_infra.cli` is `elastic-infra`."""

from elastic_infra.cli.app import main

main()
