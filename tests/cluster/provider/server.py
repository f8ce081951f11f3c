"""The engine tests' stand-in for Pulumi's kubernetes provider, grown to work on a real API server.

It applies on the server side as one field manager, deletes in the foreground where asked and reads back what
is live. It waits for no object to become ready: the jobs under test tell the official provider not to wait, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2 as proto
from typing_extensions import override

from tests.cluster import kube
from tests.cluster.provider import objects
from tests.cluster.waiting import until
from tests.engine.provider import KubernetesProvider, already_exists

MANAGER = "pulumi-stand-in"
DELETION_SECONDS = 300
"""Trainer makes the JobSet of a TrainJob again while that is being deleted, which has taken two minutes; the official
provider waits for ten."""


class ClusterProvider(KubernetesProvider):
    """Answers the engine with what the API server says."""

    def __init__(self, api: kube.Kube) -> None:
        self._api = api

    @override
    def Configure(self, request: Any, context: Any) -> proto.ConfigureResponse:
        # The engine marks secrets by itself for a provider that takes plain values.
        return proto.ConfigureResponse(supportsPreview=True, acceptResources=True)

    @override
    def Check(self, request: Any, context: Any) -> proto.CheckResponse:
        new, old = objects.from_struct(request.news), objects.from_struct(request.olds)
        with _refusals(new, context):
            namespaced = self._api.is_namespaced(new["apiVersion"], new["kind"])
        inputs = objects.checked(new, old, request.urn.rpartition("::")[2], namespaced=namespaced)
        return proto.CheckResponse(inputs=objects.to_struct(inputs))

    @override
    def Create(self, request: Any, context: Any) -> proto.CreateResponse:
        manifest = objects.from_struct(request.properties)
        if not request.preview and self._api.find(manifest) is not None:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, already_exists(manifest))
        # A replacement is previewed beside the object that it deletes first, which may have other owners:
        # https://github.com/pulumi/pulumi-kubernetes/blob/master/provider/pkg/await/await.go (patchForce)
        live = self._apply(manifest, context, preview=request.preview, force=request.preview)
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
        live = self._api.find(state or objects.addressed(request.urn, request.id))  # the latter for an import
        if live is None:
            return proto.ReadResponse()
        return proto.ReadResponse(
            id=request.id,
            properties=objects.to_struct(objects.outputs(live)),
            inputs=objects.to_struct(objects.as_inputs(inputs, live) if inputs else objects.authored(live)),
        )

    @override
    def Delete(self, request: Any, context: Any) -> empty_pb2.Empty:
        state = objects.from_struct(request.properties)
        self._api.delete(state, propagation=objects.propagation(state))
        until(f"the end of {request.id}", lambda: self._api.find(state) is None, DELETION_SECONDS)
        return empty_pb2.Empty()

    def _apply(self, manifest: kube.Object, context: Any, *, preview: bool, force: bool = False) -> kube.Object:
        if preview and not objects.is_known(manifest):
            return manifest
        with _refusals(manifest, context):
            return objects.outputs(self._api.apply(manifest, MANAGER, force=force, dry_run=preview))


@contextmanager
def _refusals(manifest: kube.Object, context: Any) -> Iterator[None]:
    """Tells the engine, and so the user, what the API server said."""
    try:
        yield
    except (kube.KubeError, OSError) as error:
        name = manifest.get("metadata", {}).get("name", "")
        context.abort(grpc.StatusCode.UNKNOWN, f"{manifest['kind']} {name}: {error}")
        raise
