"""Kubernetes' value types, against Kubernetes' own rules."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_infra.config import values
from elastic_infra.config.values import any_quantity, quantity
from tests import strategies

# From the schema that the training operator's CRD has for every quantity.
KUBERNETES_QUANTITY = re.compile(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


def _accepts(kind: Any, value: object) -> bool:
    try:
        pydantic.TypeAdapter(kind).validate_python(value)
    except pydantic.ValidationError:
        return False
    return True


@given(strategies.QUANTITIES)
def test_every_accepted_quantity_is_one_for_kubernetes(value: object) -> None:
    """What passes here passes the API server."""
    text = pydantic.TypeAdapter(values.Quantity).validate_python(value)

    assert KUBERNETES_QUANTITY.match(text)
    assert quantity(text) > 0


@given(st.text(max_size=8) | st.floats() | st.integers())
def test_no_text_is_accepted_that_kubernetes_refuses(value: object) -> None:
    """Any input is refused, or is a quantity in ASCII."""
    if _accepts(values.Quantity, value):
        assert KUBERNETES_QUANTITY.match(pydantic.TypeAdapter(values.Quantity).validate_python(value))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", "1"),
        ("500m", "0.5"),
        ("1.5Gi", "1610612736"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("2M", "2000000"),
        ("1Ti", "1099511627776"),
        ("1Ei", "1152921504606846976"),
    ],
)
def test_a_quantity_is_the_number_behind_it(text: str, number: str) -> None:
    """Decimal and binary suffixes, and thousandths."""
    assert quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((1024, "1024"), (4e9, "4000000000"), ("4e9", "4000000000"), ("1E-3", "0.001"), ("+5.", "5"), (".5Ki", "512")),
        *(("7n", "7e-9"), ("7u", "7e-6"), ("1e", None), ("1e3Ki", None), ("lots", None), ("-1", None), ("1e999", None)),
        *((True, None), (None, None), ({}, None), (float("nan"), None), ("٣", None)),
    ],
)
def test_any_quantity_of_kubernetes_is_read(value: object, number: str | None) -> None:
    """Those that fields refuse as well; in a manifest they may come from an overlay."""
    assert any_quantity(value) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    "value",
    [
        *("", "0", "-1", "1 Gi", "1gb", "1GB", "1GiB", "1e3", ".5", "5.", "٣", "9Ei", "nan"),
        *(True, None, [], float("inf")),
    ],
)
def test_what_is_no_positive_quantity_is_refused(value: object) -> None:
    """Zero, negative, unknown suffixes, foreign digits, and more than 2^63."""
    assert not _accepts(values.Quantity, value)


@pytest.mark.parametrize(
    ("number", "text"), [(4, "4"), (0.5, "0.5"), (4.0, "4"), (100.0, "100"), (0.001, "0.001"), (1e-7, "0.0000001")]
)
def test_a_plain_number_is_a_quantity(number: float, text: str) -> None:
    """A number of any size is written without an exponent."""
    assert pydantic.TypeAdapter(values.Quantity).validate_python(number) == text


LONGEST = {"DnsLabel": 63, "ObjectName": 253, "LabelValue": 63, "EnvName": 255}


@pytest.mark.parametrize("name", sorted(LONGEST))
def test_a_name_ends_at_its_limit(name: str) -> None:
    """The longest is accepted, one more is not."""
    kind, limit = getattr(values, name), LONGEST[name]

    assert _accepts(kind, "a" * limit)
    assert not _accepts(kind, "a" * (limit + 1))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (values.DnsLabel, ["a", "a-b", "a1"], ["", "A", "1a", "-a", "a-", "a.b", "a_b", "é", "a\n"]),
        (values.ObjectName, ["a.b", "1a", "a-b.c"], ["", ".a", "a.", "a..b", "A", "a/b"]),
        (values.LabelKey, ["team", "x.io/Team_a.b", "A"], ["", "/a", "a/", "a/b/c", "a b", "X.io/a", "a" * 64]),
        (values.LabelKey, [f"{'a' * 253}/{'b' * 63}"], [f"{'a' * 254}/b", f"a/{'b' * 64}"]),
        (values.LabelValue, ["", "A", "a_b.c-d"], ["-a", "a-", "a b", "a/b"]),
        (values.EnvName, ["A", "_", "a1"], ["", "1A", "A-B", "A B", "A.B"]),
        (values.AbsolutePath, ["/", "/a b", "/a/..b", "/a//b"], ["", "a", "/a:b", "/a\0", "/..", "/a/../b", "/a/.."]),
        (values.ResourceName, ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"], ["gpu", "nvidia.com/", "/gpu"]),
        (values.ResourceName, [f"a/{'b' * 63}", f"{'a' * 244}/b"], [f"a/{'b' * 64}", f"{'a' * 245}/b", "requests.a/b"]),
        (values.MetricName, ["queue_length", "a|b"], ["", "a/b", "a%b", ".", ".."]),
        (values.Port, [1024, 65535, 2000.0], [1023, 65536, True, "x"]),
        (values.Count, [1, 10_000], [0, 10_001, True, 1.5]),
        (values.Seconds, [1, 2**31 - 1], [0, 2**31, False]),
        (values.InputNamespace, ["1-a"], ["a.b", "A", ""]),
        (values.InputImage, ["registry:5000/team/image@sha256:0"], ["", "a b", "a\n"]),
        (values.InputKey, ["a.b_c-D", ".a", "a.."], ["", "a/b", "a b", ".", "..", "..a"]),
        (values.InputText, ["", "é\n", "x" * values.MAX_STRING], ["a\0b", "x" * (values.MAX_STRING + 1), 3, "\ud800"]),
        (values.InputStr, ["x"], ["", None]),
    ],
)
def test_each_kind_of_name_has_its_alphabet(kind: Any, good: list[object], bad: list[object]) -> None:
    """As the API server would judge."""
    assert [value for value in good if not _accepts(kind, value)] == []
    assert [value for value in bad if _accepts(kind, value)] == []


def test_the_schema_of_a_late_string_is_that_of_a_plain_one() -> None:
    """`job.yaml` has no late values, so its schema has the plain limits."""
    schema = pydantic.TypeAdapter(Annotated[values.InputStr, "a field"]).json_schema()

    assert schema == {"type": "string", "minLength": 1, "maxLength": values.MAX_STRING}
