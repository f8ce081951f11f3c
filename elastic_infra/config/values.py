"""The config's value types from Kubernetes and Pulumi: names, quantities, ports, late strings.

Each limit has the URL of the page that sets it. The module does not depend on the config's structure.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Final, Protocol, TypeAlias, cast

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class Late(Protocol):
    """A value that another resource will deliver: ``pulumi.Output``, seen without importing pulumi."""

    def apply(self, func: Callable[[Any], Any], /) -> Late:
        """Pass the value on when it is known."""


@dataclasses.dataclass(frozen=True)
class KnownLater:
    """Stands for a late value of a program in another process: equal to all others but secrets, and without a text.

    Attributes:
        secret: tells one secret from another without telling it; None where nothing but the place is known.
    """

    secret: str | None = None

    def apply(self, func: Callable[[Any], Any], /) -> KnownLater:  # noqa: ARG002 - of Late
        """The same object, since values derived from it are known later as well."""
        return self

    def __str__(self) -> str:
        return "(known later)"


def is_late(value: object) -> bool:
    """Whether a value is a ``pulumi.Output``. No value can be one in a process that has not imported pulumi."""
    if isinstance(value, KnownLater):
        return True
    pulumi = sys.modules.get("pulumi")
    return pulumi is not None and isinstance(value, pulumi.Output)


class _LateOr:
    """Validates a plain value at once and a late one when it arrives; unknown and secret stay at this leaf.

    Args:
        plain: type of the string.
    """

    def __init__(self, plain: Any) -> None:  # noqa: ANN401 - an annotated type
        self._plain = plain

    @functools.cached_property
    def _check(self) -> pydantic.TypeAdapter[str]:
        return pydantic.TypeAdapter(self._plain)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object, next_: core_schema.ValidatorFunctionWrapHandler) -> object:
            return cast("Late", value).apply(self._arrived) if is_late(value) else next_(value)

        return core_schema.no_info_wrap_validator_function(validate, handler.generate_schema(self._plain))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(cast("core_schema.WrapValidatorFunctionSchema", schema)["schema"])

    def _arrived(self, value: object) -> str:
        try:
            return self._check.validate_python(value)
        except pydantic.ValidationError as error:
            reason = error.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
            message = f"A late value (a pulumi.Output) is not what its field takes: {reason}"
            raise ValueError(message) from None  # the chained error would quote the value


MAX_STRING: Final = 32_768
"""Longest single string that is accepted: far above any real argument, far below etcd's request limit (1.5 MiB)."""


def _matching(pattern: str, limit: int, what: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if len(text) <= limit and compiled.fullmatch(text):
            return text
        message = f"must be {what} (at most {limit} characters)."
        raise ValueError(message)

    return AfterValidator(check)


# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_LABEL: Final = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_NAMESPACE: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"

DnsLabel = Annotated[str, _matching(_LABEL, 63, "lower-case letters, digits and '-', starting with a letter")]
"""RFC 1035 label: names of jobs, Services, containers, volumes."""

ObjectName = Annotated[str, _matching(_SUBDOMAIN, 253, "lower-case letters, digits, '-' and '.'")]
"""RFC 1123 subdomain: names of most other objects."""


def digest_in(name: str) -> str | None:
    """The SHA-256 with which the name of a launcher's ConfigMap ends after a '-'; None where it ends otherwise."""
    found = re.fullmatch(r".*-([0-9a-f]{64})", name)
    return found and found[1]


# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_PART: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_QUALIFIED: Final = rf"((?=[^/]{{1,253}}/){_SUBDOMAIN}/)?{_PART}"


def is_label_key(text: str) -> bool:
    """Whether Kubernetes takes a text as the key of a label."""
    return re.fullmatch(_QUALIFIED, text) is not None


LabelKey = Annotated[str, _matching(_QUALIFIED, 317, "a label key such as 'team' or 'example.com/team'")]
LabelValue = Annotated[
    str,
    _matching(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", 63, "letters, digits, '-', '_' and '.', or empty"),
]


def _no_nul(text: str) -> str:
    if "\0" not in text:
        return text
    message = "must not contain the character NUL: no process can be started with it."
    raise ValueError(message)


Text = Annotated[str, Field(max_length=MAX_STRING), AfterValidator(_no_nul)]
"""Any text, the empty one included."""

InputText: TypeAlias = Annotated[str | Late, _LateOr(Text)]
"""Any text, or a ``pulumi.Output`` of one."""

_NonEmpty = Annotated[str, Field(min_length=1, max_length=MAX_STRING), AfterValidator(_no_nul)]

InputStr: TypeAlias = Annotated[str | Late, _LateOr(_NonEmpty)]
"""A text that is not empty, or a ``pulumi.Output`` of one."""

InputName: TypeAlias = Annotated[str | Late, _LateOr(ObjectName)]
"""An object's name, or a ``pulumi.Output`` of one."""

InputNamespace: TypeAlias = Annotated[
    str | Late, _LateOr(Annotated[str, _matching(_NAMESPACE, 63, "lower-case letters, digits and '-'")])
]
"""A namespace (RFC 1123 label), or a ``pulumi.Output`` of one."""

InputImage: TypeAlias = Annotated[
    str | Late, _LateOr(Annotated[str, _matching(r"[^\s\x00]+", 4096, "an image without spaces")])
]
"""A container image, or a ``pulumi.Output`` of one."""

_KEY: Final = "letters, digits, '-', '_' and '.', but not '.' alone and no '..' at the start"

InputKey: TypeAlias = Annotated[
    str | Late, _LateOr(Annotated[str, _matching(r"(?!\.\.|\.$)[-._a-zA-Z0-9]+", 253, _KEY)])
]
"""A key of a Secret or ConfigMap, or a ``pulumi.Output`` of one."""

EnvName = Annotated[str, _matching(r"[A-Za-z_][A-Za-z0-9_]*", 255, "a variable name: letters, digits and '_'")]

AbsolutePath = Annotated[str, _matching(r"(/(?!\.\.(/|$))[^\x00:/]*)+", 4096, "an absolute path without ':' and '..'")]

MetricName = Annotated[str, _matching(r"(?!\.\.?$)[^/%\x00]+", 253, "a metric's name without '/' and '%'")]

# With `requests.` before it, the name of its quota, it must be a qualified name as well:
# https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-for-extended-resources
ResourceName = Annotated[
    str,
    _matching(
        rf"(?!requests\.)(?=[^/]{{1,244}}/){_SUBDOMAIN}/{_PART}", 253, "an extended resource such as 'nvidia.com/gpu'"
    ),
]


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        message = "must be a number, not true or false."
        raise ValueError(message)  # noqa: TRY004 - pydantic reports ValueError as a fault
    return value


MAX_INT32: Final = 2**31 - 1

Whole = Annotated[int, BeforeValidator(_no_bool)]
"""A whole number, without true and false, which Python counts as integers."""

Count = Annotated[Whole, Field(ge=1, le=10_000)]
"""A number of nodes, processes or devices."""

Int = Annotated[Whole, Field(ge=0, le=MAX_INT32)]
Seconds = Annotated[Whole, Field(ge=1, le=MAX_INT32)]

Port = Annotated[Whole, Field(ge=1024, le=65535)]
"""Ports below 1024 need root, which the restricted profile forbids."""

_QUANTITY: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_SCALE: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** (i + 1) for i, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (i + 1) for i, unit in enumerate("KMGTPE")},
}
_ANY_SCALE: Final = {**_SCALE, "n": Decimal("1e-9"), "u": Decimal("1e-6")}


def quantity(text: str) -> Decimal:
    """The number behind a Kubernetes quantity: ``"1.5Gi"`` is 1610612736.

    Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        message = "must be a Kubernetes quantity such as '500m', '64' or '16Gi'."
        raise ValueError(message)
    return Decimal(match[1]) * _SCALE[match[2] or ""]


_ANY_QUANTITY: Final = re.compile(
    r"\+?([0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?"
)


def any_quantity(value: object) -> Decimal | None:
    """The number behind what Kubernetes takes as a quantity, numbers and exponents too; None for anything else."""
    match = _ANY_QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        return None
    return Decimal(match[1]).scaleb(int(match[3] or 0)) * _ANY_SCALE[match[2] or ""]


def _number_to_text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _no_bool(value)
    return format(Decimal(repr(value)).normalize(), "f") if isinstance(value, float) else str(value)


def _positive(text: str) -> str:
    if 0 < quantity(text) < 2**63:
        return text
    message = "must be a quantity above zero and below 2^63."
    raise ValueError(message)


Quantity = Annotated[
    str,
    AfterValidator(_positive),
    BeforeValidator(_number_to_text, json_schema_input_type=str | float),
]
"""A positive Kubernetes quantity; plain numbers are taken as text (``cpu: 4``)."""
