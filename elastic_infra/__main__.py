"""Hosts the component for Pulumi programs in other languages."""

from pulumi.provider.experimental import component_provider_host

import elastic_infra


def main() -> None:
    """Serve until the engine hangs up."""
    component_provider_host(
        [elastic_infra.ElasticTrainingJob],
        "elastic-infra",
        version=elastic_infra.__version__,
    )


if __name__ == "__main__":
    main()
