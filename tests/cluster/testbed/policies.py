"""What NetworkPolicies let into a pod, decided from plain objects of the API server.

What comes in and IPv4 alone; pods on their machine's network have no address of their own and are left out.
https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from tests.cluster.kube import Object

PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
EVERYONE: Final = IPv4Network("0.0.0.0/0")
LAST_PORT: Final = 65535


@dataclass(frozen=True)
class Ports:
    """Ports of one protocol, both ends included."""

    protocol: str
    first: int = 0
    last: int = LAST_PORT


@dataclass(frozen=True)
class Opening:
    """Who comes in, and where."""

    sources: tuple[IPv4Network, ...]
    ports: tuple[Ports, ...]

    def lets_in(self, source: IPv4Address, protocol: str, port: int) -> bool:
        """Whether a packet of a new connection comes through."""
        return any(source in network for network in self.sources) and any(
            each.protocol == protocol and each.first <= port <= each.last for each in self.ports
        )


@dataclass(frozen=True)
class World:
    """What there is in a cluster."""

    policies: Sequence[Object]
    pods: Sequence[Object]
    namespaces: Sequence[Object]

    def openings(self, pod: Object) -> tuple[Opening, ...] | None:
        """What comes into a pod; None where no policy selects it, and all comes in."""
        own = [policy for policy in self.policies if _selects(policy, pod)]
        rules = [(policy, rule) for policy in own for rule in policy["spec"].get("ingress") or []]
        return tuple(Opening(self._sources(*each), _ports(each[1], pod)) for each in rules) if own else None

    def _sources(self, policy: Object, rule: Mapping[str, Any]) -> tuple[IPv4Network, ...]:
        if not rule.get("from"):
            return (EVERYONE,)
        return tuple(network for peer in rule["from"] for network in self._networks(policy, peer))

    def _networks(self, policy: Object, peer: Mapping[str, Any]) -> Iterable[IPv4Network]:
        if block := peer.get("ipBlock"):
            return _without(IPv4Network(block["cidr"]), [IPv4Network(each) for each in block.get("except") or []])
        selects_namespace = self._namespaces(policy, peer.get("namespaceSelector"))
        picked = _selector(peer.get("podSelector") or {})
        return [
            IPv4Network(address)
            for pod in self.pods
            if (address := address_of(pod)) and selects_namespace(pod) and picked(_labels(pod))
        ]

    def _namespaces(self, policy: Object, selector: Mapping[str, Any] | None) -> Callable[[Object], bool]:
        """Whether a pod is in the namespaces of a peer: the policy's own, where the peer names none."""
        if selector is None:
            return lambda pod: _namespace(pod) == _namespace(policy)
        picked = _selector(selector)
        names = {each["metadata"]["name"] for each in self.namespaces if picked(_labels(each))}
        return lambda pod: _namespace(pod) in names


def address_of(pod: Object) -> str | None:
    """The address that a pod has to itself: none before it starts and after it has ended."""
    if pod["spec"].get("hostNetwork") or pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return None
    address: str | None = pod["status"].get("podIP")
    return address


def _selects(policy: Object, pod: Object) -> bool:
    spec = policy["spec"]
    bounds_ingress = "Ingress" in (spec.get("policyTypes") or ["Ingress"])
    same = _namespace(policy) == _namespace(pod)
    return bounds_ingress and same and _selector(spec.get("podSelector") or {})(_labels(pod))


def _selector(selector: Mapping[str, Any]) -> Callable[[Mapping[str, str]], bool]:
    """Whether labels are picked; an empty selector picks all.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    """

    def holds(labels: Mapping[str, str], rule: Mapping[str, Any]) -> bool:
        value, values = labels.get(rule["key"]), rule.get("values") or []
        operators = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        return operators[rule["operator"]]

    exact = (selector.get("matchLabels") or {}).items()
    rules = selector.get("matchExpressions") or []
    return lambda labels: exact <= labels.items() and all(holds(labels, rule) for rule in rules)


def _ports(rule: Mapping[str, Any], pod: Object) -> tuple[Ports, ...]:
    if not rule.get("ports"):
        return tuple(Ports(protocol) for protocol in PROTOCOLS)
    return tuple(found for each in rule["ports"] for found in _named(each, pod))


def _named(port: Mapping[str, Any], pod: Object) -> Iterator[Ports]:
    """The ports of one entry: all, a number, a range of numbers, or those of a name that the pod's containers have."""
    protocol, number = port.get("protocol") or "TCP", port.get("port")
    if number is None:
        yield Ports(protocol)
    elif isinstance(number, int):
        yield Ports(protocol, number, port.get("endPort") or number)
    else:
        for container in pod["spec"]["containers"]:
            for each in container.get("ports") or []:
                if (each.get("name"), each.get("protocol") or "TCP") == (number, protocol):
                    yield Ports(protocol, each["containerPort"], each["containerPort"])


def _without(network: IPv4Network, holes: Iterable[IPv4Network]) -> list[IPv4Network]:
    left = [network]
    for hole in holes:
        left = [part for each in left for part in _minus(each, hole)]
    return left


def _minus(network: IPv4Network, hole: IPv4Network) -> Iterable[IPv4Network]:
    if network.subnet_of(hole):
        return ()
    return network.address_exclude(hole) if hole.subnet_of(network) else (network,)


def _namespace(manifest: Object) -> str:
    return str(manifest["metadata"]["namespace"])


def _labels(manifest: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = manifest["metadata"].get("labels") or {}
    return labels
