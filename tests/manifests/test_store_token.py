"""Where the store's token comes from, and which pods get it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from elastic_infra.manifests.store_token import KEY, PLACEHOLDER
from tests import jobs
from tests.cli import elastic_infra

VARIABLE = {
    "name": "ELASTIC_INFRA_STORE_TOKEN",
    "valueFrom": {"secretKeyRef": {"name": "job-store", "key": "token", "optional": True}},
}
ETCD = {"elastic": {"nnodes": 2, "rdzv_backend": "etcd-v2", "rdzv_endpoint": "etcd:2379"}}


@pytest.mark.parametrize("host", ["dedicated", "worker0"])
def test_store_and_nodes_take_the_token_from_the_secret(host: str) -> None:
    """Whichever pod serves the store; the pods start without the Secret too."""
    config = jobs.elastic(rendezvous={"host": host})
    objects = jobs.objects(config)
    store: Any = objects.get("store")

    assert VARIABLE in jobs.container(config)["env"]
    assert store is None or VARIABLE in store["spec"]["template"]["spec"]["containers"][0]["env"]
    assert objects["token"]["metadata"]["name"] == "job-store"
    assert objects["token"]["data"] == {KEY: PLACEHOLDER}


def test_the_placeholder_says_what_it_is() -> None:
    """A user who decodes the placeholder learns what replaces it."""
    assert base64.b64decode(PLACEHOLDER) == b"made by pulumi up"


@pytest.mark.parametrize("config", [jobs.job(), jobs.job(**ETCD)], ids=["single pod", "etcd"])
def test_without_a_store_of_ours_there_is_no_token(config: Any) -> None:
    """A single pod's launcher makes one for itself."""
    assert "token" not in jobs.objects(config)
    assert "ELASTIC_INFRA_STORE_TOKEN" not in jobs.environment(config)


@pytest.mark.parametrize(("nodes", "told"), [("2:4", True), ("1", False)])
def test_render_says_how_to_make_the_secret(tmp_path: Any, nodes: str, told: bool) -> None:  # noqa: FBT001
    """A placeholder that is applied would be a token that is no secret, so it is not printed."""
    file = tmp_path / "digits.yaml"
    file.write_text(f"image: i\nscript: train.py\nnamespace: team\nelastic: {{nnodes: '{nodes}'}}\n")
    done = elastic_infra("render", file)

    assert done.code == 0
    assert "kind: Secret" not in done.out
    assert ("kubectl create secret generic digits-store --namespace team --from-literal=token=" in done.err) == told
