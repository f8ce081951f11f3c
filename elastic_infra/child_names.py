"""The names of a job's children in Pulumi, and which job of a deployment has which names.

A child's URN holds its name and the types above it, not the component's name: named after the job, the children stay
the same resources when the component is renamed.
"""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import functools
import weakref
from typing import Any, Final

import pulumi
from pulumi.runtime.settings import get_monitor

from elastic_infra.config import JobConfig


@dataclasses.dataclass(frozen=True)
class ChildNames:
    """Names of one job's children.

    Attributes:
        resource: name of the component.
        prefix: the beginning of all names.
    """

    resource: str
    prefix: str

    def of(self, role: str) -> str:
        """Name of one child."""
        return f"{self.prefix}-{role}"

    def aliases(self, role: str) -> pulumi.ResourceOptions | None:
        """The name that versions up to 0.1 gave the child, where it differs."""
        if self.prefix == self.resource:
            return None
        return pulumi.ResourceOptions(aliases=[pulumi.Alias(name=f"{self.resource}-{role}")])


def child_names(resource: str, config: JobConfig) -> ChildNames:
    """The names of a job's children."""
    by_job = config.children == "name" and config.name is not None
    return ChildNames(resource, str(config.name) if by_job else resource)


class Record(pulumi.CustomResource):
    """A `pulumi.Stash`, whose own constructor would have Pulumi take this package's source for the program's."""

    output: pulumi.Output[Any]
    """What the state keeps."""


def stash(
    names: ChildNames,
    role: str,
    content: pulumi.Input[object],
    options: pulumi.ResourceOptions,
    own: pulumi.ResourceOptions,
) -> Record:
    """A record of a job in the state, found by its earlier name as well.

    Args:
        options: those of every child.
        own: those of this one.
    """
    properties = {"input": content, "output": None}
    return Record("pulumi:index:Stash", names.of(role), properties, merged(options, names.aliases(role), own))


def merged(options: pulumi.ResourceOptions, *more: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    """Options with others over them.

    `depends_on` must be a list, of Outputs where it has to be: a merge makes an Output of one that is an Output itself,
    and Pulumi's SDK looks at every Output again each time that one is done, so that a few for each child are many.
    """
    return functools.reduce(pulumi.ResourceOptions.merge, filter(None, more), options)


def claimed(names: ChildNames, urn: pulumi.Output[str]) -> pulumi.Output[str]:
    """The component's URN once the children's names are its own, or the error of another job's same names.

    Raises:
        pulumi.RunError: in the Output; the engine would only speak of a duplicate URN.
    """
    others = _CLAIMED.setdefault(deployment(), {})

    def claim(urn: str) -> str:
        place = others.setdefault(urn.split("::")[2], [])
        for other in place:
            shared = {names.prefix, names.resource} & {other.prefix, other.resource}
            if shared and other.resource != names.resource:  # the engine refuses two resources of one name
                raise pulumi.RunError(_clash(names.resource, other.resource, shared.pop()))
        place.append(names)
        return urn

    return urn.apply(claim)


def hook_name(name: str) -> str:
    """The name with a number where another job's hook has it: parents of two types may each have a job of one name.

    The engine knows hooks by name, all over a deployment. It looks up those that the program of this run has
    registered, so that the state may hold others; the same ones in each run only spare it a write.
    """
    numbers = _HOOKS.setdefault(deployment(), collections.Counter())
    numbers[name] += 1
    return name if numbers[name] == 1 else f"{name}-{numbers[name]}"


def deployment() -> object:
    """The key for what the jobs of one deployment share."""
    return DEPLOYMENT.get() or get_monitor()


DEPLOYMENT: Final[contextvars.ContextVar[object | None]] = contextvars.ContextVar("deployment", default=None)
"""The key for the deployment where each job has its own connection to the engine, as in a plugin."""

_CLAIMED: Final[weakref.WeakKeyDictionary[object, dict[str, list[ChildNames]]]] = weakref.WeakKeyDictionary()
"""Names by the deployment, which is one connection to the engine, and by the types in the component's URN."""

_HOOKS: Final[weakref.WeakKeyDictionary[object, collections.Counter[str]]] = weakref.WeakKeyDictionary()
"""How many hooks wanted each name, by the deployment."""


def _clash(resource: str, other: str, name: str) -> str:
    return (
        f"ElasticTrainingJob {resource!r} and ElasticTrainingJob {other!r} both have children called after {name!r}, "
        "by `name` or by their own name, so Pulumi cannot tell these apart. Choose another `name`; where both must "
        f"keep theirs, as in two namespaces, set `children: resource` in the job whose `name` is {name!r}: its "
        "children are then called after the resource. Set it in a job that is new: one that is there would be made "
        "anew with all its objects."
    )
