"""The stages of a lost node's way back, from its log."""

from __future__ import annotations

import json

from benchmarks.cluster import in_place


def test_each_stage_counts_from_the_start_of_the_container() -> None:
    """Lines that are no events are passed over, and the last stage is the worker's own line."""
    events = [{"time": f"1970-01-01T00:00:{10 + number}.500Z", "event": name}
              for number, name in enumerate(in_place.STAGES)]  # fmt: skip
    log = ["elasticrun: Fork server: 5 modules loaded.", *map(json.dumps, events)]
    found = in_place.stages(log, {"started": 10.0, "time": 16.25})

    assert list(found.values()) == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.25]


def test_the_table_has_the_median_with_p95_and_each_loss() -> None:
    """What the pod takes for torch alone stands apart."""
    losses = [{in_place.WHOLE: seconds, in_place.ALONE: 2.0} for seconds in (4.0, 5.0, 4.5)]

    assert in_place.table(losses).splitlines()[2:] == [
        "| all nodes have made a step | 4.50 | 5.00 | 3 | 4.00, 5.00, 4.50 |",
        "| **beside it, in the same pod, seconds from its own start** |  |  |  |  |",
        "| a Python that imports torch alone | 2.00 | 2.00 | 3 | 2.00, 2.00, 2.00 |",
    ]
