"""A test-only stand-in for Pulumi's kubernetes provider: the real engine on one side, the API server on the other.

It applies on the server side as one field manager, replaces what cannot change in place, deletes in the
foreground where asked and reads back what is live. It waits for no object to become ready: the jobs under
test tell the official provider not to wait, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2_grpc
from pulumi.runtime.proto import provider_pb2 as proto
from typing_extensions import override

from tests.cluster import kube
from tests.cluster.provider import changes, objects
from tests.cluster.waiting import until

VERSION = "4.34.2"
MANAGER = "pulumi-stand-in"
KINDS = {
    "add": (proto.PropertyDiff.ADD, proto.PropertyDiff.ADD_REPLACE),
    "delete": (proto.PropertyDiff.DELETE, proto.PropertyDiff.DELETE_REPLACE),
    "update": (proto.PropertyDiff.UPDATE, proto.PropertyDiff.UPDATE_REPLACE),
}


class StandIn(provider_pb2_grpc.ResourceProviderServicer):
    """Answers the engine."""

    def __init__(self, api: kube.Kube) -> None:
        self._api = api

    @override
    def GetPluginInfo(self, request: Any, context: Any) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=VERSION)

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
        return proto.ConfigureResponse(supportsPreview=True, acceptResources=True)

    @override
    def Check(self, request: Any, context: Any) -> proto.CheckResponse:
        new, old = objects.from_struct(request.news), objects.from_struct(request.olds)
        name = request.urn.rpartition("::")[2]
        with _refusals(new, context):
            namespaced = self._api.is_namespaced(new["apiVersion"], new["kind"])
        inputs = objects.checked(new, old, name, namespaced=namespaced)
        return proto.CheckResponse(inputs=objects.to_struct(inputs))

    @override
    def Diff(self, request: Any, context: Any) -> proto.DiffResponse:
        new, old = objects.from_struct(request.news), objects.from_struct(request.old_inputs)
        ignored = [changes.parse(text) for text in request.ignoreChanges]
        found = [c for c in changes.changes(old, new) if not any(c.path[: len(i)] == i for i in ignored)]
        return diff_response(new["kind"], found)

    @override
    def Create(self, request: Any, context: Any) -> proto.CreateResponse:
        manifest = objects.from_struct(request.properties)
        live = self._apply(manifest, context, preview=request.preview)
        name = "" if request.preview else objects.address(manifest)
        return proto.CreateResponse(id=name, properties=objects.to_struct(live))

    @override
    def Update(self, request: Any, context: Any) -> proto.UpdateResponse:
        manifest = objects.from_struct(request.news)
        if request.ignoreChanges and objects.is_known(manifest):
            manifest = objects.with_live(manifest, self._api.get(manifest), request.ignoreChanges)
        live = self._apply(manifest, context, preview=request.preview)
        return proto.UpdateResponse(properties=objects.to_struct(live))

    @override
    def Read(self, request: Any, context: Any) -> proto.ReadResponse:
        state, inputs = objects.from_struct(request.properties), objects.from_struct(request.inputs)
        live = self._api.find(state)
        if live is None:
            return proto.ReadResponse()
        return proto.ReadResponse(
            id=request.id,
            properties=objects.to_struct(objects.outputs(live)),
            inputs=objects.to_struct(objects.as_inputs(inputs, live)),
        )

    @override
    def Delete(self, request: Any, context: Any) -> empty_pb2.Empty:
        state = objects.from_struct(request.properties)
        self._api.delete(state, propagation=objects.propagation(state))
        until(f"the end of {request.id}", lambda: self._api.find(state) is None)
        return empty_pb2.Empty()

    @override
    def Cancel(self, request: Any, context: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def _apply(self, manifest: kube.Object, context: Any, *, preview: bool) -> kube.Object:
        if preview and not objects.is_known(manifest):
            return manifest
        with _refusals(manifest, context):
            return objects.outputs(self._api.apply(manifest, MANAGER, force=False, dry_run=preview))


def diff_response(kind: str, found: list[changes.Change]) -> proto.DiffResponse:
    """What the engine hears of the changes of an object of this kind."""
    if not found:
        return proto.DiffResponse(changes=proto.DiffResponse.DIFF_NONE)
    detailed = {c.text: proto.PropertyDiff(kind=_kind(kind, c), inputDiff=True) for c in found}
    return proto.DiffResponse(
        changes=proto.DiffResponse.DIFF_SOME,
        diffs=[c.text for c in found],
        replaces=[c.text for c in found if changes.replaces(kind, c)],
        deleteBeforeReplace=True,
        detailedDiff=detailed,
        hasDetailedDiff=True,
    )


@contextmanager
def serving(api: kube.Kube) -> Iterator[str]:
    """Runs the stand-in on loopback and yields what the engine wants in PULUMI_DEBUG_PROVIDERS."""
    server = grpc.server(futures.ThreadPoolExecutor(16))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(StandIn(api), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"kubernetes:{port}"
    finally:
        server.stop(grace=None).wait()


@contextmanager
def _refusals(manifest: kube.Object, context: Any) -> Iterator[None]:
    """Tells the engine, and so the user, what the API server said."""
    try:
        yield
    except (kube.KubeError, OSError) as error:
        name = manifest.get("metadata", {}).get("name", "")
        context.abort(grpc.StatusCode.UNKNOWN, f"{manifest['kind']} {name}: {error}")
        raise


def _kind(kind: str, change: changes.Change) -> Any:
    return KINDS[change.kind][changes.replaces(kind, change)]
