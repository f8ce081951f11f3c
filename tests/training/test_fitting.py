"""A snapshot that does not fit is refused with the member, with what is expected and with what is there."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from elastic_infra.training import ElasticState, StateError

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64)
Tensor = tuple[tuple[int, ...], torch.dtype]
TENSORS = st.dictionaries(
    st.sampled_from("abcde"),
    st.tuples(st.lists(st.integers(1, 3), max_size=2).map(tuple), st.sampled_from(TYPES)),
    min_size=1,
)


def module(tensors: dict[str, Tensor]) -> torch.nn.Module:
    """A module with these buffers."""
    made = torch.nn.Module()
    for name, (shape, dtype) in tensors.items():
        made.register_buffer(name, torch.ones(shape, dtype=dtype))
    return made


@given(st.data(), TENSORS)
def test_each_misfit_of_a_module_is_named(data: st.DataObject, tensors: dict[str, Tensor]) -> None:
    """A tensor missing, extra, of another shape or of another type, in any module."""
    name = data.draw(st.sampled_from(sorted(tensors)))
    shape, dtype = tensors[name]
    other: dict[str, Tensor] = copy.deepcopy(tensors)
    fault = data.draw(st.sampled_from(["none", "missing", "extra", "shape", "dtype"]))
    if fault == "missing":
        del other[name]
    elif fault == "extra":
        other["x"] = tensors[name]
    elif fault == "shape":
        assume(shape)  # torch takes a list for a single number, as its oldest files have it
        other[name] = ((*shape, 2), dtype)
    elif fault == "dtype":
        other[name] = (shape, data.draw(st.sampled_from([kind for kind in TYPES if kind != dtype])))
    state = ElasticState(None, net=module(tensors))
    saved = {"members": {"net": module(other).state_dict()}, "plain": {}, "rng": None}

    if fault == "none":
        state.load(saved, rng=False)
        return
    with pytest.raises(StateError) as raised:
        state.load(saved, rng=False)
    said = {
        "missing": f'net: Error(s) in loading state_dict for Module: Missing key(s) in state_dict: "{name}"',
        "extra": 'net: Error(s) in loading state_dict for Module: Unexpected key(s) in state_dict: "x"',
        "shape": f"size mismatch for {name}: copying a param with shape torch.Size({[*shape, 2]}) from checkpoint, "
        f"the shape in current model is torch.Size({[*shape]})",
        "dtype": f"net.{name} is {_name(other.get(name))} in the snapshot and {_name(tensors[name])} here",
    }
    assert said[fault] in str(raised.value)
    assert str(raised.value).endswith(
        "Give ElasticState the members that the snapshot was saved with, or use another folder."
    )


def _name(tensor: Tensor | None) -> str:
    return str(tensor[1]).removeprefix("torch.") if tensor else ""


@given(st.sets(st.sampled_from("abcdefgh")), st.sets(st.sampled_from("abcdefgh")))
def test_each_member_that_is_missing_or_extra_is_named(here: set[str], there: set[str]) -> None:
    """The first five of them, and the number of the others; no member is changed."""
    members = {name: torch.nn.Linear(1, 1) for name in sorted(here)}
    saved = {name: torch.nn.Linear(1, 1).state_dict() for name in there}
    before = {name: copy.deepcopy(member.state_dict()) for name, member in members.items()}
    state, tree = ElasticState(None, **members), {"members": saved, "plain": {}, "rng": None}
    if here == there:
        state.load(tree, rng=False)
        return

    with pytest.raises(StateError) as raised:
        state.load(tree, rng=False)
    expected = [f"it misses {name}" for name in sorted(here - there)]
    expected += [f"it has {name} besides" for name in sorted(there - here)]
    more = f"; and {len(expected) - 5} more" if len(expected) > 5 else ""
    assert f"does not fit: {'; '.join(expected[:5])}{more}. Give" in str(raised.value)
    assert all(torch.equal(before[name]["weight"], member.weight) for name, member in members.items())


def test_an_optimizer_of_other_parameters_is_named() -> None:
    """Torch loads averages of another shape, and the next step would fail with no word of the snapshot."""

    def optimizer(*shapes: tuple[int, ...]) -> torch.optim.Optimizer:
        return torch.optim.Adam([torch.nn.Parameter(torch.ones(shape)) for shape in shapes])

    def averages(*shapes: tuple[int, ...]) -> dict[int, dict[str, torch.Tensor]]:
        return {index: {"step": torch.tensor(1.0), "exp_avg": torch.ones(shape)} for index, shape in enumerate(shapes)}

    state_dict = {**optimizer((2, 3), (4,)).state_dict(), "state": averages((2, 3), (4,))}
    saved = {"members": {"optimizer": state_dict}, "plain": {}, "rng": None}
    ElasticState(None, optimizer=optimizer((2, 3), (4,))).load(saved, rng=False)
    said = "optimizer: exp_avg of parameter 0 is 2x3 in the snapshot, and the parameter is 4 here"
    with pytest.raises(StateError, match=said):
        ElasticState(None, optimizer=optimizer((4,), (2, 3))).load(saved, rng=False)
