"""The history as OpenTelemetry traces."""

from __future__ import annotations

import base64
import json
import urllib.error
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from elastic_infra.timeline.history import History
from elastic_infra.timeline.otlp import traces
from tests.cli import elastic_infra
from tests.timeline import jaeger
from tests.timeline.events import RECORDINGS, told
from tests.timeline.jaeger import Jaeger, Kept
from tools.run import SetupError

RECORDED = ["faults", "never_stops"]


@pytest.mark.parametrize("name", RECORDED)
def test_the_protocols_own_types_read_the_traces(name: str) -> None:
    """OTLP's published messages take every field; each span ends after it begins, and has its parent in the trace."""
    spans = [span for _, span in read(told(name))]
    ids = {span.span_id for span in spans}

    assert len(ids) == len(spans) > len(told(name).generations)
    assert {len(span.trace_id) for span in spans} == {16}
    assert {len(each) for each in ids} == {8}
    assert len({span.trace_id for span in spans}) == 1
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert [span.name for span in spans if span.parent_span_id not in ids] == ["job"]


@pytest.mark.parametrize("name", RECORDED)
def test_a_phase_stands_below_its_generation(name: str) -> None:
    """The spans of nodes name the generation's span as their parent; before the first generation, the job's."""
    spans = {span.span_id: span for _, span in read(told(name))}
    phases = [(node, span) for node, span in read(told(name)) if node]

    assert {node for node, _ in phases} == {lane.node for lane in told(name).lanes}
    for _, span in phases:
        number = attributes(span.attributes).get("generation")
        assert spans[span.parent_span_id].name == (f"generation {number}" if number else "job")


def test_a_fault_is_an_event_with_its_node() -> None:
    """The job's span has the marks in order, and says how the job ended."""
    (job,) = [span for _, span in read(told("faults")) if span.name == "job"]
    events = [(event.name, attributes(event.attributes)) for event in job.events]

    assert job.status.code == 1
    assert ("worker", "node-0") in [(name, given.get("node")) for name, given in events]
    assert [event.time_unix_nano for event in job.events] == sorted(event.time_unix_nano for event in job.events)


def test_the_same_events_give_the_same_trace() -> None:
    """A trace that is sent twice is one trace."""
    assert traces(told("faults")) == traces(told("faults"))
    assert trace_id(told("faults")) != trace_id(told("never_stops"))


def read(history: History) -> Sequence[tuple[str, Span]]:
    """The spans with the name of their node, through the protocol's own types."""
    request = json_format.Parse(json.dumps(base64_ids(traces(history))), ExportTraceServiceRequest())
    return [
        (attributes(each.resource.attributes).get("service.instance.id", ""), span)
        for each in request.resource_spans
        for scope in each.scope_spans
        for span in scope.spans
    ]


def base64_ids(value: Any) -> Any:
    """OTLP writes ids as hexadecimal text, where protobuf's own JSON writes bytes as base64."""
    if isinstance(value, Mapping):
        return {key: _base64(each) if key in IDS else base64_ids(each) for key, each in value.items()}
    return [base64_ids(each) for each in value] if isinstance(value, list) else value


IDS = {"traceId", "spanId", "parentSpanId"}


def _base64(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text)).decode()


def attributes(given: Any) -> Mapping[str, Any]:
    """The values of attributes by their keys."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in given}


def trace_id(history: History) -> str:
    """The id that all spans have."""
    spans = traces(history)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return str(spans[0]["traceId"])


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Jaeger]:
    """A real collector, which keeps what it takes; skips where it is not built."""
    try:
        with jaeger.running(tmp_path / "jaeger.log") as running:
            yield running
    except SetupError as error:
        pytest.skip(f"no Jaeger: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_a_real_collector_keeps_every_span(name: str, collector: Jaeger) -> None:
    """What the command prints, posted as the page says: each span comes back with its parent, its times and its values.

    Jaeger's receiver is that of the OpenTelemetry Collector.
    """
    answer = collector.post(elastic_infra("timeline", RECORDINGS / name, "--format", "otlp").out)

    assert answer == {"partialSuccess": {}}
    assert collector.kept(trace_id(told(name))) == {as_kept(span) for _, span in read(told(name))}


@pytest.mark.slow
def test_a_real_collector_refuses_what_is_no_trace(collector: Jaeger) -> None:
    """The control: the collector reads the fields."""
    wrong = json.dumps(traces(told("faults"))).replace('"kind": 1', '"kind": {}', 1)

    with pytest.raises(urllib.error.HTTPError, match="400"):
        collector.post(wrong)


def as_kept(span: Span) -> Kept:
    """What a collector should make of a span."""
    begin, end = span.start_time_unix_nano // 1000, span.end_time_unix_nano // 1000
    values = frozenset((each.key, _as_text(each.value)) for each in span.attributes)
    return Kept(span.span_id.hex(), span.parent_span_id.hex(), span.name, begin, end - begin, values)


def _as_text(value: Any) -> str:
    """A value as Jaeger shows it: lists as JSON."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return json.dumps([each.string_value for each in value.array_value.values], separators=(",", ":"))
    return str(getattr(value, kind))
