"""From config to Kubernetes objects: pure, deterministic, without a cluster and without Pulumi.

`render` is the only entry point. The same config gives the same objects, byte for byte, and the API server gets exactly
these objects.
"""

from elastic_infra.manifests.model import Manifest, Manifests, Value
from elastic_infra.manifests.render import render

__all__ = ["Manifest", "Manifests", "Value", "render"]
