"""The records of a run, read from a real store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elastic_infra.launcher.driver.records import Records
from elastic_infra.launcher.protocol.actions import CompareAndSet
from elastic_infra.launcher.protocol.records import Generation
from tests.launcher.store.serving import TOKEN, Served, after_hello, ask


@pytest.fixture
def served() -> Iterator[Served]:
    """A store on the address that the driver asks."""
    store = Served(TOKEN, "127.0.0.1")
    yield store
    store.close()


def put(served: Served, record: Generation) -> None:
    """Have a node of the run write a record."""
    from elastic_infra.launcher import codec

    with after_hello(served, "a") as node:
        found = ask(node, {"op": "get", "id": 1, "key": "gen"})
        order = CompareAndSet(record, int(str(found["version"])))
        assert order.generation is not None
        value = codec.to_json(order.generation)
        ask(node, {"op": "compare_and_set", "id": 2, "key": "gen", "value": value, "version": order.version})


def test_the_present_record_comes_first_and_then_each_new_one(served: Served) -> None:
    """A reader that comes late begins with the record that holds now."""
    put(served, Generation(1))
    records = Records(served.port, "job", TOKEN)
    present = list(records.within(0.3))
    put(served, Generation(2))
    put(served, Generation(2, "final", exit_code=0))
    after = list(records.within(0.3))
    records.close()

    assert [(each.number, each.phase) for each in present] == [(1, "running")]
    assert [(each.number, each.phase) for each in after] == [(2, "running"), (2, "final")]
    assert records.trouble == ""


def test_a_store_that_cannot_be_read_is_named(served: Served) -> None:
    """The reader goes on trying, and says why there is nothing to read."""
    records = Records(served.port, "job", "guess")

    assert list(records.within(0.1)) == []
    assert "token" in records.trouble
    served.close()
    assert list(records.within(0.1)) == []
    assert "refused" in records.trouble
