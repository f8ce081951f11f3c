"""`ElasticLauncher`: one ConfigMap with the launcher for all jobs of a stack. Annotations here are read by Pulumi."""

import secrets
from collections.abc import Mapping
from typing import Any, Final, cast

import pulumi
from typing_extensions import NotRequired, TypedDict

from elastic_infra import inputs
from elastic_infra.manifests.launcher import digest, launcher_data, whole_digest
from elastic_infra.manifests.metadata import COMPONENT, MANAGED_BY
from elastic_infra.provider import provider_version

TYPE: Final = "elastic-infra:index:ElasticLauncher"
"""Part of the name of its child in every state file: never to be changed."""


class ElasticLauncherArgs(TypedDict):
    """The arguments of `ElasticLauncher`, each with a default."""

    namespace: NotRequired[pulumi.Input[str]]
    """Namespace of the ConfigMap, which is that of the jobs that mount it. Default `default`."""

    verify: NotRequired[bool]
    """End the ConfigMap's name in the launcher's SHA-256, which jobs with `launcher.verify` need. Default false."""


class ElasticLauncher(pulumi.ComponentResource):
    """The launcher for many jobs of one namespace: they name its `config_map` in `launcher.config_map`.

    A newer version of this package makes a new ConfigMap, and the old one stays in the cluster for the jobs that run
    with it.
    """

    config_map: pulumi.Output[str]
    """Name of the ConfigMap with this version's launcher."""

    def __init__(self, name: str, args: ElasticLauncherArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the launcher.

        Args:
            name: name in Pulumi, and the beginning of the ConfigMap's; a DNS label.
            args: where the ConfigMap is.
            opts: Pulumi's options.

        Raises:
            pulumi.RunError: the name or an argument is not valid; the text has every fault as `path: reason`.
        """
        given = inputs.shared_launcher(name, cast("Mapping[str, Any]", args))
        super().__init__(TYPE, name, {"namespace": given.namespace, "launcher": digest()}, opts)
        suffix = self._suffix(name)
        object_name = suffix.apply(lambda found: f"{name}-launcher-{_end(found, is_verified=given.verify)}")
        labels = {MANAGED_BY: "elastic-infra", COMPONENT: "launcher"}
        properties: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": object_name, "namespace": given.namespace, "labels": labels},
            "immutable": True,
            "binaryData": launcher_data(),
        }
        made = pulumi.CustomResource(
            "kubernetes:core/v1:ConfigMap",
            f"{name}-launcher",
            properties,
            pulumi.ResourceOptions(
                parent=self, version=provider_version(), retain_on_delete=True, hide_diffs=["binaryData"]
            ),
        )
        self.config_map = pulumi.Output.all(made.urn, object_name).apply(lambda known: str(known[1]))
        self.register_outputs({"config_map": self.config_map})

    def _suffix(self, name: str) -> "pulumi.Output[str]":
        """Random text, made once: what another stack left in the namespace is never in the way."""
        options = pulumi.ResourceOptions(parent=self, ignore_changes=["input"])
        made = secrets.token_hex(3)
        stash = pulumi.Stash(f"{name}-suffix", input=made, opts=options)
        return stash.output.apply(lambda found: str(found or made))  # mocks give none


def _end(suffix: str, *, is_verified: bool) -> str:
    """The end of the ConfigMap's name: what tells launchers apart, and the suffix of the stack."""
    return f"{suffix}-{whole_digest()}" if is_verified else f"{digest()}-{suffix}"
