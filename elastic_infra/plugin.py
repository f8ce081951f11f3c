"""The package as a plugin of Pulumi: the components for programs in other languages.

Pulumi's Python host runs it for `PulumiPlugin.yaml`; `pulumi-resource-elastic-infra` is the same as a program.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import pulumi
from pulumi.errors import InputPropertyErrorDetails
from pulumi.provider import ConstructResult, main
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

from elastic_infra import ElasticLauncher, ElasticTrainingJob, __version__
from elastic_infra.child_names import DEPLOYMENT
from elastic_infra.cli.app import COMMANDS
from elastic_infra.cli.files import BAD_INPUT
from elastic_infra.config import JobConfig
from elastic_infra.plugin_schema import with_enums

PACKAGE: Final = "elastic-infra"
"""The package's name in Pulumi: part of every type, never to be changed."""


class Host(ComponentProvider):
    """Pulumi's own host, fixed in three places.

    All jobs of a deployment come to one host, so names that clash are found although each job has its own connection.
    Mappings are sorted: they cross the wire without an order, and variables in another order are another pod. A user's
    mistake is shown without this package's frames, which the base class would add.
    """

    def construct(
        self, name: str, resource_type: str, inputs: pulumi.Inputs, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Make the component.

        Raises:
            pulumi.InputPropertiesError: the config is not valid; the text has every fault as `path: reason`.
        """
        DEPLOYMENT.set(self)
        try:
            return super().construct(name, resource_type, in_order(inputs), options)
        except ComponentInitError as error:
            if isinstance(error.inner, pulumi.RunError):
                no_paths: list[InputPropertyErrorDetails] = []  # beside a path the engine would print the value
                raise pulumi.InputPropertiesError(str(error.inner), no_paths) from None
            raise


def in_order(value: Any) -> Any:  # noqa: ANN401 - JSON, with Outputs as leaves
    """The value with the keys of all mappings sorted."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def host() -> Host:
    """The host of both components, with the package's schema."""
    made = Host([ElasticTrainingJob, ElasticLauncher], PACKAGE, version=str(__version__))
    made.schema = json.dumps(with_enums(json.loads(made.schema or "{}"), JobConfig, ElasticTrainingJob.__name__))
    return made


def serve() -> None:
    """Answer the engine whose address is among the arguments, until the engine ends this process.

    Raises:
        SystemExit: no argument is an address: a person, and no engine, started this program, which would wait for ever.
    """
    arguments = sys.argv[1:]
    if not any(map(_is_address, arguments)):
        command = next((word for word in arguments if word in COMMANDS), "")
        sys.stderr.write(
            "This is the plugin that the Pulumi engine starts. The command line is `elastic-infra` or "
            f"`python -m elastic_infra.cli`: {' '.join(filter(None, ['elastic-infra', command, '--help']))}\n"
        )
        sys.exit(BAD_INPUT)
    main(host(), arguments)


def _is_address(argument: str) -> bool:
    name, _, port = argument.rpartition(":")
    return bool(name) and port.isdecimal()
