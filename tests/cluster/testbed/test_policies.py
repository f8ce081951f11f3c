"""What NetworkPolicies let in, by the documentation's rules and beside another implementation's verdicts."""

from __future__ import annotations

import json
import os
import re
import subprocess
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.kube import Object
from tests.cluster.testbed import enforcer
from tests.cluster.testbed.policies import PROTOCOLS, World
from tools import build, modules
from tools.run import SetupError

NODE: Final = {"app": "train"}
OWN: Final = {"podSelector": {"matchLabels": NODE}}
NOT_SPEECH: Final = {"key": "team", "operator": "NotIn", "values": ["speech"]}
OUTSIDE: Final = "192.0.2.7"
TEAMS: Final = [
    {"metadata": {"name": "vision", "labels": {"team": "vision"}}},
    {"metadata": {"name": "speech", "labels": {"team": "speech"}}},
]


def pod(address: str, namespace: str = "vision", **labels: str) -> Object:
    """A pod that serves port 80 as `web`."""
    container = {"ports": [{"name": "web", "containerPort": 80}]}
    return {
        "metadata": {"namespace": namespace, "name": address, "uid": address, "labels": labels},
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "podIP": address},
    }


def policy(*ingress: dict[str, Any], **spec: Any) -> Object:
    """A policy on the nodes of the namespace `vision`."""
    metadata = {"namespace": "vision", "name": "closed"}
    return {"metadata": metadata, "spec": {**OWN, "policyTypes": ["Ingress"], "ingress": [*ingress], **spec}}


TARGET: Final = pod("10.0.0.1", **NODE)
PODS: Final = {
    "itself": TARGET,
    "another node": pod("10.0.0.2", **NODE),
    "a neighbour": pod("10.0.0.3", app="other"),
    "a namesake elsewhere": pod("10.0.0.4", "speech", **NODE),
    "outside": pod(OUTSIDE, "speech"),
}


def let_in(*policies: Object, port: int = 80, protocol: str = "TCP") -> set[str]:
    """Who reaches a port of the node."""
    pods = [each for name, each in PODS.items() if name != "outside"]
    openings = World(policies, pods, TEAMS).openings(TARGET)
    sources = {name: IPv4Address(each["status"]["podIP"]) for name, each in PODS.items()}
    return {
        name
        for name, source in sources.items()
        if openings is None or any(each.lets_in(source, protocol, port) for each in openings)
    }


ALL: Final = set(PODS)
NODES: Final = {"itself", "another node"}
CASES: Final[dict[str, tuple[set[str], tuple[Object, ...]]]] = {
    "no policy": (ALL, ()),
    "a policy of another namespace": (ALL, ({**policy(), "metadata": {"namespace": "speech"}},)),
    "a policy on other pods": (ALL, (policy(podSelector={"matchLabels": {"app": "other"}}),)),
    "a policy for what goes out": (ALL, (policy(policyTypes=["Egress"]),)),
    "no rule": (set(), (policy(),)),
    "an empty rule": (ALL, (policy({}),)),
    "pods of the namespace": (NODES, (policy({"from": [OWN]}),)),
    "every pod of the namespace": (NODES | {"a neighbour"}, (policy({"from": [{"podSelector": {}}]}),)),
    "another namespace": (
        {"a namesake elsewhere"},
        (policy({"from": [{"namespaceSelector": {"matchLabels": {"team": "speech"}}}]}),),
    ),
    "every namespace": (ALL - {"outside"}, (policy({"from": [{"namespaceSelector": {}}]}),)),
    "both selectors in one entry": (
        NODES | {"a namesake elsewhere"},
        (policy({"from": [{"namespaceSelector": {}, **OWN}]}),),
    ),
    "addresses": ({"outside"}, (policy({"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}),)),
    "addresses but for some": (
        {"a namesake elsewhere"},
        (policy({"from": [{"ipBlock": {"cidr": "10.0.0.0/24", "except": ["10.0.0.0/31", "10.0.0.2/31"]}}]}),),
    ),
    "a key that is absent is not one of the values": (
        {"another node", "itself", "a neighbour"},
        (policy({"from": [{"podSelector": {"matchExpressions": [NOT_SPEECH]}}]}),),
    ),
    "two policies add up": (
        NODES | {"outside"},
        (policy({"from": [OWN]}), policy({"from": [{"ipBlock": {"cidr": "192.0.2.7/32"}}]})),
    ),
    "another port": (set(), (policy({"ports": [{"port": 81}]}),)),
    "the port": (ALL, (policy({"ports": [{"port": 80}]}),)),
    "a range of ports": (ALL, (policy({"ports": [{"port": 79, "endPort": 80}]}),)),
    "a port by its name": (ALL, (policy({"ports": [{"port": "web"}]}),)),
    "a name that the pod lacks": (set(), (policy({"ports": [{"port": "metrics"}]}),)),
    "another protocol": (set(), (policy({"ports": [{"port": 80, "protocol": "UDP"}]}),)),
    "all ports of a protocol": (ALL, (policy({"ports": [{"protocol": "TCP"}]}),)),
}


@pytest.mark.parametrize(("who", "policies"), CASES.values(), ids=CASES)
def test_who_is_let_in(who: set[str], policies: tuple[Object, ...]) -> None:
    """By the rules of https://kubernetes.io/docs/concepts/services-networking/network-policies/ alone."""
    assert let_in(*policies) == who


def test_a_pod_that_has_ended_opens_no_door() -> None:
    """Its address may be another pod's by now."""
    ended = {**PODS["another node"], "status": {"phase": "Succeeded", "podIP": "10.0.0.2"}}
    (opening,) = World([policy({"from": [OWN]})], [TARGET, ended], TEAMS).openings(TARGET) or ()

    assert [str(each) for each in opening.sources] == ["10.0.0.1/32"]


def test_the_rules_of_a_pod_drop_what_is_not_let_in() -> None:
    """As `iptables-restore` reads them."""
    closed = World([policy({"from": [OWN], "ports": [{"port": 80}]})], [TARGET], TEAMS)

    text = enforcer.rules(closed.openings(TARGET))

    assert ":INPUT DROP" in text
    assert "-A INPUT -s 10.0.0.1/32 -p tcp --dport 80:80 -j ACCEPT" in text
    assert enforcer.rules(World([], [TARGET], TEAMS).openings(TARGET)) == enforcer.OPEN


LABELS = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]))
VALUES = st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2, unique=True)
KEYS = st.fixed_dictionaries({"key": st.sampled_from(["a", "b"])})
EXPRESSIONS = st.one_of(
    st.builds(lambda key, values: {**key, "operator": "In", "values": values}, KEYS, VALUES),
    st.builds(lambda key, operator: {**key, "operator": operator}, KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
)
"""Without NotIn, which cyclonus takes for a key that has another value, and Kubernetes for one that is absent as well:
https://github.com/mattfenwick/cyclonus/blob/v0.5.6/pkg/kube/labelselector.go"""
SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": LABELS, "matchExpressions": st.lists(EXPRESSIONS, max_size=2)}
)
BLOCKS = st.sampled_from(["0.0.0.0/0", "10.0.0.0/29", "10.0.0.2/31", "10.0.0.3/32", "192.0.2.0/24"])
HOLES = st.lists(st.sampled_from(["10.0.0.0/30", "10.0.0.1/32", "10.0.0.4/30", "192.0.2.7/32"]), max_size=2)
PEERS = st.one_of(
    st.fixed_dictionaries({"podSelector": SELECTORS}, optional={"namespaceSelector": SELECTORS}),
    st.fixed_dictionaries({"namespaceSelector": SELECTORS}),
    st.builds(lambda block, holes: {"ipBlock": {"cidr": block, "except": holes}}, BLOCKS, HOLES),
)
NUMBERS: Final = (79, 80, 81, 90)
PROTOCOL = st.fixed_dictionaries({"protocol": st.sampled_from(PROTOCOLS)})
PORTS = st.one_of(
    PROTOCOL,
    st.builds(lambda base, port: {**base, "port": port}, PROTOCOL, st.sampled_from([*NUMBERS, "web", "metrics"])),
    st.builds(
        lambda base, first, more: {**base, "port": first, "endPort": first + more},
        PROTOCOL,
        st.sampled_from(NUMBERS),
        st.integers(0, 9),
    ),
)
RULES = st.fixed_dictionaries({}, optional={"from": st.lists(PEERS, max_size=2), "ports": st.lists(PORTS, max_size=2)})
NAMESPACES: Final = ("one", "two")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two namespaces, up to five pods with addresses of their own, and up to four policies."""
    namespaces = [{"metadata": {"name": name, "labels": draw(LABELS)}} for name in NAMESPACES]
    pods = [
        pod(f"10.0.0.{number}", draw(st.sampled_from(NAMESPACES)), **draw(LABELS))
        for number in range(1, draw(st.integers(1, 5)) + 1)
    ]
    policies = [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": f"policy-{number}", "namespace": draw(st.sampled_from(NAMESPACES))},
            "spec": {
                "podSelector": draw(SELECTORS),
                "policyTypes": draw(st.sampled_from([["Ingress"], ["Ingress"], ["Ingress", "Egress"]])),
                "ingress": draw(st.lists(RULES, max_size=2)),
                "egress": [{}],
            },
        }
        for number in range(draw(st.integers(0, 4)))
    ]
    return World(policies, pods, namespaces)


@pytest.fixture(scope="module")
def cyclonus() -> Path:
    """The other implementation; skips where it is not built."""
    try:
        return build.program_path("cyclonus", modules.cache_folder(os.environ, Path.home()), build.go_program())
    except SetupError as error:
        pytest.skip(f"no cyclonus: {error}")


def end(world: World, source: Object | None) -> dict[str, Any]:
    """One end of a connection, as cyclonus reads it."""
    if source is None:
        return {"IP": OUTSIDE}
    metadata = source["metadata"]
    (labels,) = (
        each["metadata"]["labels"] for each in world.namespaces if each["metadata"]["name"] == metadata["namespace"]
    )
    inside = {"Namespace": metadata["namespace"], "NamespaceLabels": labels, "PodLabels": metadata["labels"]}
    return {"IP": source["status"]["podIP"], "Internal": inside}


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(world=worlds())
def test_verdicts_are_those_of_cyclonus(cyclonus: Path, tmp_path: Path, world: World) -> None:
    """Every pod and a client outside, to every pod, on ports in and around what rules name.

    https://github.com/mattfenwick/cyclonus, which checks networks for projects that make them.
    """
    ends = [
        (source, target, protocol, port)
        for source in (*world.pods, None)
        for target in world.pods
        for protocol in PROTOCOLS
        for port in NUMBERS
        if source is not target
    ]
    traffic = [
        {
            "Source": end(world, source),
            "Destination": end(world, target),
            "Protocol": protocol,
            "ResolvedPort": port,
            "ResolvedPortName": "web" if (protocol, port) == ("TCP", 80) else "",
        }
        for source, target, protocol, port in ends
    ]
    (tmp_path / "policies.json").write_text(json.dumps({"items": world.policies}))
    (tmp_path / "traffic.json").write_text(json.dumps(traffic))
    said = subprocess.run(
        [
            *(cyclonus, "analyze", "--mode", "query-traffic", "--simplify-policies=false"),
            *("--policy-path", tmp_path / "policies.json", "--traffic-path", tmp_path / "traffic.json"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    theirs = [word == "TRUE" for word in re.findall(r"IS ALLOWED\? +\| +(TRUE|FALSE)", said)]

    assert theirs == [_is_let_in(world, *each) for each in ends]


def _is_let_in(world: World, source: Object | None, target: Object, protocol: str, port: int) -> bool:
    openings = world.openings(target)
    address = IPv4Address(source["status"]["podIP"] if source else OUTSIDE)
    return openings is None or any(each.lets_in(address, protocol, port) for each in openings)
