"""A history for a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from elastic_infra.timeline.figures import figures
from elastic_infra.timeline.history import history
from elastic_infra.timeline.text import print_text
from tests.timeline.events import record, start, steps

MESSAGE = "RuntimeError: [/pytorch/gloo/pair.cc:534] Connection closed by peer :boom: [red]"


def test_an_error_message_is_no_markup() -> None:
    """What a worker said stands as it is: brackets are no tags, and words between colons no pictures."""
    records = [
        *start(0.0, "[node]", 1, 1),
        steps(5.0, "[node]", 1, 1, 5),
        record(6.0, "restart", "[node]", 2, cause="worker_failed", message=MESSAGE, about="[node]", world_size=1),
        *start(7.0, "[node]", 2, 1),
        steps(9.0, "[node]", 2, 6, 7),
    ]
    known, output = history(records), io.StringIO()
    print_text(known, figures(known), Console(file=output, width=400))

    assert MESSAGE in output.getvalue()
