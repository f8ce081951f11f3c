"""A test-only provider that a real Pulumi engine takes for the kubernetes one: in this process, nothing installed.

It answers as the official provider does while there is no cluster: nested differences, replacement when a name or a
namespace changes, secrets kept as they come. Each stack has a separate cluster, of which the provider knows only the
existing objects: creating an object again is an error, as it is from 4.29 on. A test may have one operation fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent import futures
from importlib import metadata
from typing import Any, Final

import grpc
from google.protobuf import any_pb2, empty_pb2, json_format, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc, status_pb2
from pulumi.runtime.proto import provider_pb2 as proto
from typing_extensions import override

from tests.cluster.provider import changes

SECRET: Final = "4dabf18193072939515e22adb298388d"
"""Key by which Pulumi marks a secret on the wire, beside its value."""


def unmarked(value: Any) -> Any:
    """The value as an API server would get it."""
    if isinstance(value, dict):
        return unmarked(value["value"]) if SECRET in value else {key: unmarked(item) for key, item in value.items()}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


class KubernetesProvider(provider_pb2_grpc.ResourceProviderServicer):
    """The provider's service, which answers the engine."""

    def __init__(self) -> None:
        self._there: dict[tuple[str, ...], struct_pb2.Struct] = {}
        self._failing: set[tuple[str, str]] = set()

    def fail_once(self, operation: str, name: str) -> None:
        """Have the next operation on a resource fail, as a cluster does.

        Args:
            operation: "Create", "Delete", or "wait": the object is made, and waited for in vain.
            name: the resource's name in Pulumi.
        """
        self._failing.add((operation, name))

    def _fails(self, operation: str, urn: str) -> bool:
        failure = (operation, urn.rpartition("::")[2])
        found = failure in self._failing
        self._failing.discard(failure)
        return found

    @override
    def GetPluginInfo(self, request: Any, context: Any) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=metadata.version("pulumi-kubernetes"))

    @override
    def Attach(self, request: Any, context: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    @override
    def CheckConfig(self, request: Any, context: Any) -> proto.CheckResponse:
        return proto.CheckResponse(inputs=request.news)

    @override
    def DiffConfig(self, request: Any, context: Any) -> proto.DiffResponse:
        return proto.DiffResponse(changes=proto.DiffResponse.DIFF_NONE)

    @override
    def Configure(self, request: Any, context: Any) -> proto.ConfigureResponse:
        return proto.ConfigureResponse(acceptSecrets=True, supportsPreview=True, acceptResources=True)

    @override
    def Check(self, request: Any, context: Any) -> proto.CheckResponse:
        return proto.CheckResponse(inputs=request.news)

    @override
    def Diff(self, request: Any, context: Any) -> proto.DiffResponse:
        old, new = _read(request.old_inputs), _read(request.news)
        found = list(changes.changes(old, new))
        if not found:
            return proto.DiffResponse(changes=proto.DiffResponse.DIFF_NONE)
        replacing = [change for change in found if changes.replaces(new["kind"], change)]
        return proto.DiffResponse(
            changes=proto.DiffResponse.DIFF_SOME,
            replaces=[change.text for change in replacing],
            deleteBeforeReplace=_address(old) == _address(new),
            detailedDiff={change.text: _kind(change, replaces=change in replacing) for change in found},
            hasDetailedDiff=True,
        )

    @override
    def Create(self, request: Any, context: Any) -> proto.CreateResponse:
        manifest = _read(request.properties)
        name = "" if request.preview else _address(manifest)
        if not request.preview:
            place = _place(request.urn, name)
            if place in self._there:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, already_exists(manifest))
            if self._fails("Create", request.urn):
                context.abort(grpc.StatusCode.UNKNOWN, "exceeded quota: gpus")
            self._there[place] = request.properties
            if self._fails("wait", request.urn):
                _abort_in_part(name, request.properties, context)
        return proto.CreateResponse(id=name, properties=request.properties)

    @override
    def Update(self, request: Any, context: Any) -> proto.UpdateResponse:
        if not request.preview:
            self._there[_place(request.urn, request.id)] = request.news
        return proto.UpdateResponse(properties=request.news)

    @override
    def Read(self, request: Any, context: Any) -> proto.ReadResponse:
        if request.inputs.fields:
            return proto.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)
        live = self._there.get(_place(request.urn, request.id))  # an import
        return proto.ReadResponse(id=request.id, properties=live, inputs=live) if live else proto.ReadResponse()

    @override
    def Delete(self, request: Any, context: Any) -> empty_pb2.Empty:
        if self._fails("Delete", request.urn):
            context.abort(grpc.StatusCode.UNKNOWN, "timed out waiting for the pods to be gone")
        self._there.pop(_place(request.urn, request.id), None)
        return empty_pb2.Empty()

    @override
    def Cancel(self, request: Any, context: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()


def _read(properties: struct_pb2.Struct) -> dict[str, Any]:
    document: dict[str, Any] = unmarked(json_format.MessageToDict(properties))
    return document


def already_exists(manifest: dict[str, Any]) -> str:
    """The API server's answer, as the official provider hands it on."""
    name = manifest["metadata"]["name"]
    return f'resource {name} was not successfully created: {manifest["kind"].lower()}s "{name}" already exists'


def _abort_in_part(name: str, properties: struct_pb2.Struct, context: Any) -> None:
    """Say that the object is there and not ready, as the official provider does when its time is up."""
    reason = "timed out waiting for the condition"
    detail = any_pb2.Any()
    detail.Pack(proto.ErrorResourceInitFailed(id=name, properties=properties, inputs=properties, reasons=[reason]))
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=reason, details=[detail])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, reason)


def _place(urn: str, name: str) -> tuple[str, ...]:
    """Stack, kind and name of an object."""
    stack, _, types, _ = urn.removeprefix("urn:pulumi:").split("::", 3)
    return stack, types.rpartition(":")[2], name


def _address(manifest: dict[str, Any]) -> str:
    return f"{manifest['metadata'].get('namespace', 'default')}/{manifest['metadata']['name']}"


def _kind(change: changes.Change, *, replaces: bool) -> proto.PropertyDiff:
    # https://github.com/pulumi/pulumi/blob/v3.230.0/proto/pulumi/provider.proto (PropertyDiff.Kind)
    kind = proto.PropertyDiff.Kind.Value(f"{change.kind.upper()}_REPLACE" if replaces else change.kind.upper())
    return proto.PropertyDiff(kind=kind, inputDiff=True)


@contextlib.contextmanager
def serving(provider: KubernetesProvider) -> Iterator[str]:
    """Serve on loopback; gives what the engine wants in PULUMI_DEBUG_PROVIDERS."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"kubernetes:{port}"
    finally:
        server.stop(grace=None).wait()
