"""The number of micro-batches that keeps the global batch."""

from __future__ import annotations

import pytest

from elastic_infra.training import accumulation_steps, scaled_learning_rate


def test_the_global_batch_is_the_same_for_every_number_of_workers_that_can_share_it() -> None:
    """Steps times micro-batch times workers is the global batch; all other numbers are refused."""
    for world in range(1, 20):
        try:
            steps = accumulation_steps(48, 4, world)
        except ValueError:
            assert 12 % world != 0
        else:
            assert steps * 4 * world == 48


def test_the_number_of_workers_is_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a launcher one worker computes the whole batch."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert accumulation_steps(12, 2) == 6
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert accumulation_steps(12, 2) == 2


@pytest.mark.parametrize(
    ("batches", "named"),
    [
        ((64, 4, 3), ["3 workers", "multiple of 12", "elastic.world_sizes: [1, 2, 4, 8, 16]"]),
        ((10, 4, 1), ["not a whole number", "micro_batch divides global_batch"]),
        ((4, 8, 1), ["not a whole number"]),
        ((0, 4, 1), ["must be 1 or more"]),
        ((4, 0, 1), ["must be 1 or more"]),
    ],
)
def test_a_batch_that_cannot_be_shared_is_refused(batches: tuple[int, int, int], named: list[str]) -> None:
    """The error names what to change."""
    with pytest.raises(ValueError, match="batch") as error:
        accumulation_steps(*batches)
    assert all(words in str(error.value) for words in named)


def test_the_learning_rate_follows_the_batch() -> None:
    """Linearly, or with the root; the batch for which the rate was tuned keeps the rate."""
    assert scaled_learning_rate(0.1, 1024, tuned_for=256) == pytest.approx(0.4)
    assert scaled_learning_rate(0.1, 1024, tuned_for=256, rule="square-root") == pytest.approx(0.2)
    assert scaled_learning_rate(0.1, 256, tuned_for=256) == 0.1


@pytest.mark.parametrize(
    ("batch", "tuned_for", "rule", "named"),
    [(0, 256, "linear", "1 or more"), (256, 0, "linear", "1 or more"), (256, 256, "cubic", "linear, square-root")],
)
def test_a_rate_that_means_nothing_is_refused(batch: int, tuned_for: int, rule: str, named: str) -> None:
    """The error names what may be given."""
    with pytest.raises(ValueError, match=named):
        scaled_learning_rate(0.1, batch, tuned_for, rule)  # type: ignore[arg-type]
