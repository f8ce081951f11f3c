"""`ElasticTrainingJob`: registers with Pulumi what `render` makes of a config. Decides nothing about its content.

Children are registered by type token, as plain objects: the typed modules of pulumi_kubernetes would cost a third of
a second and 20 MB, and say nothing that `render` has not said. Annotations here are read by Pulumi at run time.
"""

import base64
import secrets
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import pulumi

from elastic_infra import child_names, guards, inputs, launcher_pin
from elastic_infra.args import ElasticTrainingJobArgs
from elastic_infra.config import JobConfig
from elastic_infra.config.values import Late
from elastic_infra.made_anew import ROLE as MADE_ANEW
from elastic_infra.made_anew import MadeAnew, made_anew
from elastic_infra.manifests import Manifest, Manifests, Value, render
from elastic_infra.manifests.launcher import newest_launcher
from elastic_infra.manifests.metadata import object_labels
from elastic_infra.manifests.model import ROLES
from elastic_infra.manifests.service import service_name
from elastic_infra.manifests.store_token import with_token
from elastic_infra.manifests.updates import (
    RUNTIME_RESTARTS,
    depends_on_novelty,
    foreign_paths,
    parts,
    replacing,
    restart_paths,
)
from elastic_infra.provider import provider_version
from elastic_infra.traces import short_traces
from elastic_infra.transforms import hand_triggers_back

TYPE: Final = "elastic-infra:index:ElasticTrainingJob"
"""Part of the name of every child in every state file: never to be changed."""

_MOUNT_THE_LAUNCHER: Final = ("store", "runtime", "workload")
"""The roles that wait for the launcher: the others are made meanwhile, while the state is small, for some backends
write it whole with each step."""


class ElasticTrainingJob(pulumi.ComponentResource):
    """An elastic PyTorch training job on Kubernetes: it keeps training while nodes come and go."""

    job_name: pulumi.Output[str]
    """Name of the PyTorchJob, the batch/v1 Job or the TrainJob."""

    namespace: pulumi.Output[str]
    """Namespace of every object."""

    min_nodes: pulumi.Output[int]
    """The fewest nodes that train."""

    max_nodes: pulumi.Output[int]
    """The most nodes that train."""

    labels: pulumi.Output[dict[str, str]]
    """Labels of every object and pod of the job."""

    rendezvous_endpoint: pulumi.Output[str | None]
    """host:port of the rendezvous store inside the cluster; none for a single pod and for etcd."""

    scale_path: pulumi.Output[str | None]
    """Path of the scale subresource on the API server, for an autoscaler of one's own; only a PyTorchJob has one."""

    def __init__(
        self,
        name: str,
        args: ElasticTrainingJobArgs,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Register the job.

        Args:
            name: the job's name in Pulumi and in Kubernetes, a DNS label.
            args: the config as a dict; type checkers name a wrong key of an inline one. `from_config` takes a
                `JobConfig`.
            opts: Pulumi's options; `transforms`, `provider`, `protect` and `depends_on` reach every child.

        Raises:
            pulumi.RunError: the config is not valid; the text has every fault as `path: reason`.
        """
        config, stable = inputs.rendered(name, args)
        job = config.name or name
        names = child_names.child_names(name, config)
        hand_triggers_back()
        newest = newest_launcher(job, config)
        guarded = guards.Guarded(name, () if config.adopted else guards.guards(config, stable))
        refusals = _REFUSALS.setdefault(child_names.deployment(), guards.Refusals())
        options = _guarded(job, guarded, refusals, opts)
        super().__init__(TYPE, name, inputs.summary(job, config, stable), options)
        self._claimed_urn = child_names.claimed(names, super().urn)
        for notice in inputs.notices(config, opts):
            self._warn(notice)
        self._warn_of_secrets(config)
        with short_traces():
            first = self._first(names, guarded, refusals)
            common = child_names.merged(first, pulumi.ResourceOptions(version=provider_version()))
            if config.adopted:
                live = Manifests(render(job, config).workload)
                self._publish(job, config, live, self._adopt(names, live.workload, common))
                return
            anew = made_anew(names, config, stable, first) if depends_on_novelty(config) else None
            manifests, mounting = stable, common
            if newest is not None:
                pin = launcher_pin.pinned(names, config, cast("pulumi.Input[str]", newest), stable, first)
                mounting = self._mounting(names, newest, pin, stable.launcher, common)
                manifests = render(job, config, cast("Late", pin.name))
            workload = self._register(names, config, manifests, _of_roles(common, mounting, config, stable), anew)
            self._publish(job, config, manifests, workload)

    @classmethod
    def from_config(
        cls, name: str, config: JobConfig, opts: pulumi.ResourceOptions | None = None
    ) -> "ElasticTrainingJob":
        """Register a job whose config is a ready `JobConfig`: from a file, from Flyte, or shared with `render`.

        Args:
            name: as in the constructor.
            config: the config, taken as it is.
            opts: as in the constructor.

        Raises:
            pulumi.RunError: a name made from the job's breaks Kubernetes' rules.
        """
        return cls(name, cast("ElasticTrainingJobArgs", config), opts)  # a union in __init__ would blunt type checkers

    @property
    def urn(self) -> "pulumi.Output[str]":
        """Pulumi's, or the error where another job has the children's names: each child waits for that of its parent.

        A `depends_on` of each child would say the same with three Outputs more for each.
        """
        return self._claimed_urn

    def _warn(self, notice: str) -> None:
        """Say it of this job, which the SDK does once the URN is known; of a job whose names are refused, nothing."""
        self.urn.apply(lambda _: pulumi.log.warn(notice, self))

    def _warn_of_secrets(self, config: JobConfig) -> None:
        def warn(name: str, *, is_secret: bool) -> None:
            if is_secret:
                self._warn(inputs.secret_notice(name))

        for each, value in inputs.late_variables(config).items():
            known: pulumi.Output[bool] = pulumi.Output.from_input(value.is_secret())
            known.apply(lambda is_secret, name=each: warn(name, is_secret=is_secret))  # type: ignore[misc]

    def _first(
        self, names: child_names.ChildNames, guarded: guards.Guarded, refusals: guards.Refusals
    ) -> pulumi.ResourceOptions:
        """Options of every child: it waits for what may refuse the whole job."""
        first = pulumi.ResourceOptions(parent=self)
        if not guarded.guards:
            return first
        stash = _stash(names, guarded, refusals, first)
        allowed = refusals.allowed(guarded, stash)
        return child_names.merged(first, pulumi.ResourceOptions(depends_on=[allowed]))

    def _mounting(
        self,
        names: child_names.ChildNames,
        newest: str | Late,
        pin: launcher_pin.Pin,
        manifest: Manifest | None,
        common: pulumi.ResourceOptions,
    ) -> pulumi.ResourceOptions:
        """Options of what mounts the launcher's ConfigMap: it is there, as it was or as this version makes it.

        Where a change was refused the pin is unknown. The ConfigMap is registered all the same, as it is: under
        `--continue-on-error` Pulumi deletes what a program does not register.
        """

        def register(pinned: object, newest: object) -> pulumi.Resource | None:
            is_older = pinned != newest
            if is_older and not any(isinstance(name, pulumi.output.Unknown) for name in (pinned, newest)):
                pulumi.log.info(launcher_pin.newer_is_ready(names.resource), self)
            if manifest is None:
                return None
            own = pulumi.ResourceOptions(
                depends_on=[pin.stash],
                hide_diffs=["binaryData"],  # two archives in a row tell a reviewer nothing
                ignore_changes=["metadata.name", "binaryData"] if is_older else None,
            )
            options = child_names.merged(common, names.aliases("launcher"), own)
            return pulumi.CustomResource(_token(manifest), names.of("launcher"), dict(manifest), options)

        made = launcher_pin.with_newest(pin.name, cast("pulumi.Input[str]", newest), register, with_unknowns=True)
        there: pulumi.Input[pulumi.Resource] = pin.stash if manifest is None else made
        return child_names.merged(common, pulumi.ResourceOptions(depends_on=[there]))

    def _register(
        self,
        names: child_names.ChildNames,
        config: JobConfig,
        manifests: Manifests,
        common: Mapping[str, pulumi.ResourceOptions],
        anew: MadeAnew | None,
    ) -> pulumi.Input[pulumi.Resource]:
        """Register every object but the launcher; returns the workload, which waits to hear whether it is made anew.

        Where a change was refused this is unknown, and the workload is registered all the same: under
        `--continue-on-error` Pulumi deletes what a program does not register.
        """
        children: dict[str, pulumi.Resource] = {}

        def register(
            role: str, manifest: Manifest, before: Mapping[str, pulumi.Resource], new: MadeAnew | None = None
        ) -> pulumi.CustomResource:
            own = _own_options(names.resource, role, config, manifest, before, is_new=new is not None)
            hooks = new.hooks(names.resource) if new is not None else None
            options = child_names.merged(common[role], names.aliases(role), own, hooks)
            properties = _with_token(manifest) if role == "token" else dict(manifest)
            return pulumi.CustomResource(_token(manifest), names.of(role), properties, options)

        def register_once_known(manifest: Manifest, anew: MadeAnew) -> pulumi.Output[pulumi.Resource]:
            before = {**children, MADE_ANEW: anew.stash}

            def register_workload(is_new: object) -> pulumi.Resource:
                if is_new is not True:
                    return register("workload", manifest, before)
                workload = register("workload", manifest, before, anew)
                anew.record(workload)
                return workload

            return anew.is_new.apply(register_workload, run_with_unknowns=True)

        workload: pulumi.Input[pulumi.Resource] | None = None
        for role, manifest in manifests.objects():
            if role == "workload" and anew is not None:
                workload = register_once_known(manifest, anew)
            elif role != "launcher":
                children[role] = register(role, manifest, children)
        return children["workload"] if workload is None else workload

    def _adopt(
        self, names: child_names.ChildNames, manifest: Manifest, common: pulumi.ResourceOptions
    ) -> pulumi.Resource:
        """Import the live workload as it is: the engine imports no object that differs from the program's."""
        live = cast("Mapping[str, str]", manifest["metadata"])
        own = pulumi.ResourceOptions(
            import_=f"{live['namespace']}/{live['name']}",
            ignore_changes=["metadata", "spec"],
        )
        options = child_names.merged(common, own)
        return pulumi.CustomResource(_token(manifest), names.of("workload"), dict(manifest), options)

    def _publish(self, name: str, config: JobConfig, manifests: Manifests, made: pulumi.Input[pulumi.Resource]) -> None:
        workload = _urn(made)
        namespace, port = cast("pulumi.Input[str]", config.namespace), config.rendezvous.port
        service = _joined(service_name(name, config), ".", namespace, f".svc:{port}")
        scale = _joined("/apis/kubeflow.org/v1/namespaces/", namespace, f"/pytorchjobs/{name}/scale")
        self._workload = workload
        self._published: dict[str, object] = {
            "job_name": name,
            "namespace": namespace,
            "min_nodes": config.elastic.min_nodes,
            "max_nodes": config.elastic.max_nodes,
            "labels": object_labels(name, config),
            "rendezvous_endpoint": service if manifests.service else None,
            "scale_path": scale if config.kind == "PyTorchJob" else None,
        }

        def register(_: object) -> None:
            self.register_outputs(self._published)

        workload.apply(register, run_with_unknowns=True)

    if not TYPE_CHECKING:  # type checkers know the outputs, and are to know of no other attribute

        def __getattr__(self, name: str) -> pulumi.Output[Any]:
            """An output, made when it is asked for: Pulumi's SDK looks at each one until the workload is there."""
            if name not in ElasticTrainingJob.__annotations__:
                message = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(message, name=name, obj=self)
            return _after(self._workload, self._published[name])


def _urn(made: pulumi.Input[pulumi.Resource]) -> pulumi.Output[str]:
    if isinstance(made, pulumi.Resource):
        return made.urn
    resource: pulumi.Output[pulumi.Resource] = pulumi.Output.from_input(made)
    return resource.apply(lambda known: known.urn)


def _after(workload: pulumi.Output[str], value: object) -> pulumi.Output:  # type: ignore[type-arg]  # of any value
    """The value, for others to use only once the workload, whose URN is given, is there."""
    if isinstance(value, pulumi.Output):
        return pulumi.Output.all(workload, value).apply(lambda known: known[1])
    return workload.apply(lambda _: value)


def _joined(*parts: pulumi.Input[str]) -> pulumi.Input[str]:
    """Text, late only where a part is: an Output costs a preview more than a registration does."""
    if any(isinstance(part, pulumi.Output) for part in parts):
        return pulumi.Output.concat(*parts)
    return "".join(map(str, parts))


def _with_token(secret: Manifest) -> Manifest:
    """The store's Secret with a token that only the cluster and the encrypted state ever hold."""
    encoded = base64.b64encode(secrets.token_hex(32).encode()).decode()
    return with_token(secret, cast("Late", pulumi.Output.secret(encoded)))


def _token(manifest: Manifest) -> str:
    """The type under which pulumi_kubernetes knows an object: ``kubernetes:apps/v1:Deployment``."""
    version = str(manifest["apiVersion"])
    return f"kubernetes:{version if '/' in version else f'core/{version}'}:{manifest['kind']}"


def _of_roles(
    common: pulumi.ResourceOptions, mounting: pulumi.ResourceOptions, config: JobConfig, stable: Manifests
) -> dict[str, pulumi.ResourceOptions]:
    """Options of the children by their role."""
    of_roles = {role: mounting if role in _MOUNT_THE_LAUNCHER else common for role in ROLES}
    of_roles["workload"] = child_names.merged(of_roles["workload"], _made_anew_with(stable.runtime))
    if stable.store is not None:
        of_roles["store"] = child_names.merged(of_roles["store"], _emptied_with(replacing(config, stable)))
    return of_roles


def _made_anew_with(runtime: Manifest | None) -> pulumi.ResourceOptions | None:
    """A TrainJob goes with its runtime also where only values differ that are known late: no name tells them."""
    trigger = None if runtime is None else launcher_pin.late_fingerprint(parts(runtime, RUNTIME_RESTARTS))
    return None if trigger is None else pulumi.ResourceOptions(replacement_trigger=trigger)


def _emptied_with(workload: Value) -> pulumi.ResourceOptions | None:
    """The store goes with a workload in which only values differ that are known late: their run ids are the same.

    Its pod may hold nothing of these values, and would end the new job with the result of the old one.
    """
    trigger = launcher_pin.late_fingerprint(workload)
    if trigger is None:
        return None
    return pulumi.ResourceOptions(replacement_trigger=trigger, delete_before_replace=True)  # its name stays


def _own_options(
    name: str,
    role: str,
    config: JobConfig,
    manifest: Manifest,
    before: Mapping[str, pulumi.Resource],
    *,
    is_new: bool = False,
) -> pulumi.ResourceOptions | None:
    """What is special about a child, most of all the workload: it comes last, and never twice side by side."""
    if role == "token":
        return pulumi.ResourceOptions(ignore_changes=["data"])  # each run of a program makes one, the first is kept
    if role == "workdir":
        return pulumi.ResourceOptions(hide_diffs=["binaryData"])  # the list of its files tells what differs
    if role == "store":
        return pulumi.ResourceOptions(depends_on=list(before.values()))  # a store that starts without its token is open
    if role == "checkpoint":
        hook = pulumi.ResourceHook(child_names.hook_name(f"{name}-claim"), guards.claim_notice(name, manifest))
        return pulumi.ResourceOptions(
            ignore_changes=["spec"],  # expanded in the cluster and refreshed, it must stay
            retain_on_delete=True,
            hooks=pulumi.ResourceHookBinding(before_create=[hook]),
        )
    if role != "workload":
        return None
    return pulumi.ResourceOptions(
        depends_on=list(before.values()),
        delete_before_replace=True,
        ignore_changes=list(foreign_paths(config, is_new=is_new)) or None,
        replace_on_changes=list(restart_paths(config)),
    )


_REFUSALS: Final[weakref.WeakKeyDictionary[object, guards.Refusals]] = weakref.WeakKeyDictionary()
"""Refusals by the deployment."""


def _guarded(
    job: str, guarded: guards.Guarded, refusals: guards.Refusals, opts: pulumi.ResourceOptions | None
) -> pulumi.ResourceOptions | None:
    if not guarded.guards:
        return opts
    hook = _hook(f"{guarded.resource}-refuse-rename", guards.component_hook(guarded, job, refusals))
    hooks = pulumi.ResourceHookBinding(before_update=[hook])
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(hooks=hooks))


def _stash(
    names: child_names.ChildNames,
    guarded: guards.Guarded,
    refusals: guards.Refusals,
    options: pulumi.ResourceOptions,
) -> pulumi.Resource:
    """The records of what must not change: updated, and so checked, before any object is touched."""
    hook = _hook(f"{guarded.resource}-refuse", guards.stash_hook(guarded, refusals))
    hooks = pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(before_update=[hook]))
    return child_names.stash(names, "guard", guards.records(guarded), options, hooks)


def _hook(name: str, check: Callable[[pulumi.ResourceHookArgs], Awaitable[None]]) -> pulumi.ResourceHook:
    return pulumi.ResourceHook(child_names.hook_name(name), check, pulumi.ResourceHookOptions(on_dry_run=True))
