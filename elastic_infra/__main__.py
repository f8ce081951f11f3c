"""Hosts the component for Pulumi programs in other languages."""

from pulumi.provider.experimental import component_provider_host

from elastic_infra import ElasticTrainingJob, __version__


def main() -> None:
    """Serve until the engine hangs up."""
    component_provider_host(
        [ElasticTrainingJob],
        "elastic-infra",
        version=str(__version__),
    )


if __name__ == "__main__":
    main()
