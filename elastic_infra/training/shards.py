"""Tensors that are spread over the ranks (FSDP2, HSDP, DTensor), as a snapshot holds them.

A state is cut in two: the tree, with a reference in place of each such tensor, and this rank's shards by name. A shard
is a box of the whole tensor. The boxes of all ranks together are the whole, for any number of ranks, so that a rank of
another world fills its own box with the parts of the old ones that overlap it. ``exchange`` moves these parts between
nodes, and ``state`` reads them from disk.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from .host_memory import DamagedError, Tree

REFERENCE: Final = "__sharded__"
"""Key of a reference: the name, shape and type of the whole tensor in whose place it stands."""


@dataclasses.dataclass(frozen=True)
class Box:
    """A part of a tensor: in each dimension ``shape`` numbers from ``begin`` on."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def volume(self) -> int:
        """Number of values in the box."""
        return math.prod(self.shape)

    def overlap(self, other: Box) -> Box | None:
        """The values that are in both boxes; None where there are none."""
        begin = tuple(max(mine, theirs) for mine, theirs in zip(self.begin, other.begin, strict=True))
        end = (min(mine, theirs) for mine, theirs in zip(_end(self), _end(other), strict=True))
        shape = tuple(last - first for first, last in zip(begin, end, strict=True))
        return Box(begin, shape) if all(length > 0 for length in shape) else None

    def view(self, values: torch.Tensor, part: Box) -> torch.Tensor:
        """The part of this box's values that is in another box inside of this one, without a copy."""
        for dim, (mine, first, length) in enumerate(zip(self.begin, part.begin, part.shape, strict=True)):
            values = values.narrow(dim, first - mine, length)
        return values


@dataclasses.dataclass(frozen=True)
class Held:
    """A shard without its values: what a rank tells the others."""

    whole: tuple[int, ...]
    """Shape of the whole tensor."""
    box: Box


@dataclasses.dataclass(frozen=True)
class Target:
    """What a reference becomes on this rank."""

    like: torch.Tensor
    """The member's tensor, or the parameter of an optimizer's value: it says over which ranks the value is spread."""
    box: Box
    values: torch.Tensor
    """The values of the box in host memory."""

    def tensor(self) -> torch.Tensor:
        """The tensor, spread as ``like`` is; all values must be there."""
        if not is_sharded(self.like):
            return self.values
        from torch.distributed.tensor import DTensor

        like: Any = self.like
        return DTensor.from_local(
            self.values, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )


class Assembly:
    """Fills this rank's boxes with the values of shards, which may come in any order and more than once."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets
        self._seen: set[tuple[str, Box]] = set()
        self._missing = {name: target.box.volume for name, target in targets.items() if target.box.volume}

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the tensors of whose boxes values are missing."""
        return tuple(self._missing)

    def wanted(self) -> dict[str, Box]:
        """This rank's boxes by name."""
        return {name: target.box for name, target in self._targets.items() if target.box.volume}

    def room(self, name: str, part: Box) -> torch.Tensor:
        """Uninitialised memory for a part of a tensor."""
        return torch.empty(part.shape, dtype=self._targets[name].values.dtype)

    def take(self, name: str, box: Box, values: torch.Tensor) -> None:
        """Copy what this rank wants of a shard. Shards must be equal or have no value in common, as a world's are."""
        target = self._targets.get(name)
        part = target.box.overlap(box) if target is not None and (name, box) not in self._seen else None
        if target is None or part is None:
            return
        self._seen.add((name, box))
        target.box.view(target.values, part).copy_(box.view(values, part))
        self._missing[name] -= part.volume
        if not self._missing[name]:
            del self._missing[name]

    def take_all(self, shards: Mapping[str, Tree]) -> None:
        """Copy what this rank wants of a rank's shards."""
        for name, shard in shards.items():
            self.take(name, box_in(shard), shard["values"])

    def fill(self, parts: Iterable[Mapping[str, Tree]]) -> None:
        """Take the shards of as few ranks as are needed.

        Raises:
            DamagedError: values are missing when all parts are taken.
        """
        for part in parts:
            self.take_all(part)
            if not self._missing:
                break
        if self._missing:
            message = f"no part has all values of {self.missing[0]}"
            raise DamagedError(message)

    def put_into(self, tree: Tree) -> Tree:
        """The tree with tensors in place of its references."""
        return _replaced(tree, "", lambda _, leaf: self._targets[leaf[REFERENCE]["name"]].tensor()
                         if is_reference(leaf) else leaf)  # fmt: skip


def is_sharded(value: object) -> bool:
    """Whether a value is a DTensor. The module of DTensor takes long to import, and a script with DTensors has it."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def forget_meshes(members: Iterable[Any]) -> None:
    """Have DTensor keep nothing of a process group that is gone.

    It keeps results of its operators by mesh. Two meshes of as many ranks are equal to it, and a result has the older
    mesh, in which this process may have had another rank, and which keeps its group's threads and descriptors. Torch
    2.10 to 2.12 never free a mesh with which DTensor has computed, so that a mesh has to give up its groups by itself.

    Args:
        members: what was built for the group.
    """
    for tensor in (tensor for each in members for tensor in _tensors_of(each) if is_sharded(tensor)):
        mesh: Any = tensor.device_mesh
        for owner in (mesh, getattr(mesh, "_root_mesh", None)):
            getattr(owner, "_pg_registry", {}).clear()  # torch before 2.11 has none
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import DTensor, _collective_utils, _redistribute

        propagator = DTensor._op_dispatcher.sharding_propagator  # noqa: SLF001  torch names no public way
        for owner, cache in (  # no release of torch has them all
            (propagator, "propagate_op_sharding"),
            (_collective_utils.MeshTopoInfo, "build_from_mesh"),
            (_redistribute, "_gen_transform_infos"),
            (_redistribute, "_planner_cache"),
        ):
            _empty(getattr(owner, cache, None))
        getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", lambda: None)()  # noqa: SLF001


def _empty(cache: Any) -> None:  # noqa: ANN401  a dict, or a function that keeps its results
    if isinstance(cache, dict):
        cache.clear()
    elif cache is not None:
        getattr(cache, "cache", cache).cache_clear()  # torch wraps some, to keep results for each thread


def is_reference(value: object) -> bool:
    """Whether a value stands for a sharded tensor."""
    return isinstance(value, Mapping) and REFERENCE in value


def are_in(members: Mapping[str, Any]) -> bool:
    """Whether any member has sharded tensors."""
    return any(is_sharded(tensor) for member in members.values() for tensor in _tensors_of(member))


def cut(tree: Tree) -> tuple[Tree, dict[str, Tree]]:
    """The tree with references in place of sharded tensors, and this rank's shards by name; without a copy.

    Raises:
        TypeError: a tensor is sharded in a way that this module does not know.
    """
    shards: dict[str, Tree] = {}

    def replace(name: str, leaf: Any) -> Any:  # noqa: ANN401  a leaf of a tree
        if not is_sharded(leaf):
            return leaf
        shards[name] = _shard_of(name, leaf)
        kind = str(leaf.dtype).removeprefix("torch.")
        return {REFERENCE: {"name": name, "shape": list(leaf.shape), "dtype": kind}}

    with torch.no_grad():
        return _replaced(tree, "", replace), shards


def unplaceable(optimizers: Mapping[str, torch.optim.Optimizer], tree: Mapping[str, Tree]) -> Iterator[str]:
    """Names of optimizers' sharded values whose shape is not their parameter's: a restore could not place these.

    Args:
        optimizers: the optimizers among the members.
        tree: the cut tree of all members.
    """
    for name, optimizer in optimizers.items():
        likes = _likes_of(name, optimizer, tree[name])
        for at, leaf in _leaves(tree[name], name):
            if is_reference(leaf) and (at not in likes or list(likes[at].shape) != leaf[REFERENCE]["shape"]):
                yield at


def first_copies(shards: Mapping[str, Tree]) -> dict[str, Tree]:
    """The shards that this rank saves to disk: of equal shards on several ranks (HSDP) one is enough."""
    return {name: shard for name, shard in shards.items() if shard["first"] and box_in(shard).volume}


def inventory(parts: Sequence[Mapping[str, Tree]]) -> dict[str, tuple[Held, ...]]:
    """What the shards are that a rank finds, for the other ranks: its own, and those of each rank whose it keeps."""
    found: dict[str, tuple[Held, ...]] = {}
    for part in parts:
        for name, shard in part.items():
            found[name] = (*found.get(name, ()), Held(tuple(shard["whole"]), box_in(shard)))
    return found


def digest(members: Mapping[str, Any]) -> int:
    """A number that two ranks share where they have the same boxes of all members' tensors."""
    boxes = [
        _box_here(name, tensor)
        for name, member in members.items()
        for tensor in _tensors_of(member)
        if is_sharded(tensor)
    ]
    return zlib.crc32(repr(boxes).encode())


def box_in(shard: Tree) -> Box:
    """The box of a shard."""
    return Box(tuple(shard["begin"]), tuple(shard["values"].shape))


def misfits(members: Mapping[str, Any], saved: Mapping[str, Tree]) -> Iterator[str]:
    """Which sharded tensors of a snapshot have no place in the members, a phrase each.

    Args:
        members: the members of the state, without wrappers.
        saved: the cut tree of each of these members in the snapshot.
    """
    for name, member in members.items():
        likes = _likes_of(name, member, saved[name])
        for at, leaf in _leaves(saved[name], name):
            if is_reference(leaf) and at not in likes:
                yield f"{at} is in the snapshot and not here"
            elif is_reference(leaf) and list(likes[at].shape) != leaf[REFERENCE]["shape"]:
                there, here = (_text(shape) for shape in (leaf[REFERENCE]["shape"], likes[at].shape))
                yield f"{at} is {there} in the snapshot and {here} here"


def targets(members: Mapping[str, Any], saved: Mapping[str, Tree]) -> dict[str, Target]:
    """What the references of a snapshot become on this rank, once ``misfits`` has found none.

    A tensor that is sharded in the snapshot and not in the members becomes whole.

    Raises:
        TypeError: a member's tensor is sharded in a way that this module does not know.
    """
    found = {}
    for name, member in members.items():
        likes = _likes_of(name, member, saved[name])
        for at, leaf in _leaves(saved[name], name):
            if is_reference(leaf):
                like = likes[at]
                box = _box_here(at, like) if is_sharded(like) else Box((0,) * like.ndim, tuple(like.shape))
                values = torch.empty(box.shape, dtype=getattr(torch, leaf[REFERENCE]["dtype"]))
                found[at] = Target(like, box, values)
    return found


def whole_targets(saved: Tree) -> dict[str, Target]:
    """What the references of a snapshot become in one process without members: whole tensors in host memory."""
    found = {}
    for _, leaf in _leaves(saved, ""):
        if is_reference(leaf):
            shape = tuple(leaf[REFERENCE]["shape"])
            values = torch.empty(shape, dtype=getattr(torch, leaf[REFERENCE]["dtype"]))
            found[leaf[REFERENCE]["name"]] = Target(values, Box((0,) * len(shape), shape), values)
    return found


def box_of(
    shape: Sequence[int], mesh: Sequence[int], coordinate: Sequence[int], dims: Sequence[int | None]
) -> Box:  # fmt: skip
    """The box of a rank, as ``torch.chunk`` cuts: all chunks but the last ones have the same length, rounded up.

    Args:
        shape: shape of the whole tensor.
        mesh: number of ranks along each dimension of the mesh.
        coordinate: the rank's place in the mesh.
        dims: along each dimension of the mesh, the dimension in which the tensor is cut; None: each rank has a copy.
    """
    begin, lengths = [0] * len(shape), list(shape)
    for ranks, place, dim in zip(mesh, coordinate, dims, strict=True):
        if dim is not None:
            chunk = -(-lengths[dim] // ranks)
            first = min(place * chunk, lengths[dim])
            begin[dim] += first
            lengths[dim] = min(chunk, lengths[dim] - first)
    return Box(tuple(begin), tuple(lengths))


def _shard_of(name: str, tensor: Any) -> Tree:  # noqa: ANN401  a DTensor
    box, coordinate = _box_here(name, tensor), tensor.device_mesh.get_coordinate()
    dims = _dims(name, tensor)
    first = all(place == 0 for place, dim in zip(coordinate, dims, strict=True) if dim is None)
    return {"whole": list(tensor.shape), "begin": list(box.begin), "first": first, "values": tensor.to_local()}


def _box_here(name: str, tensor: Any) -> Box:  # noqa: ANN401  a DTensor
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        message = f"{name} is spread over ranks without this one. Each rank must have a part of every tensor."
        raise TypeError(message)
    box = box_of(tensor.shape, mesh.shape, coordinate, _dims(name, tensor))
    with torch.no_grad():
        there = tuple(tensor.to_local().shape)
    if there != box.shape:
        message = f"{name} has {_text(there)} on this rank where {_text(box.shape)} are expected."
        raise TypeError(message)
    return box


def _dims(name: str, tensor: Any) -> list[int | None]:  # noqa: ANN401  a DTensor
    from torch.distributed.tensor import Replicate, Shard

    dims: list[int | None] = []
    for placement in tensor.placements:
        if type(placement) not in {Shard, Replicate}:  # FSDP2 over tensor parallelism has a subclass of Shard
            message = f"{name} has the placement {placement}. Snapshots know Shard and Replicate only."
            raise TypeError(message)
        dims.append(placement.dim % tensor.ndim if isinstance(placement, Shard) else None)
    return dims


def _likes_of(name: str, member: Any, saved: Tree) -> dict[str, torch.Tensor]:  # noqa: ANN401  a member
    """The member's tensor for each name in its saved tree; for an optimizer's values, their parameter."""
    if not isinstance(member, torch.optim.Optimizer):
        return {at: leaf for at, leaf in _leaves(member.state_dict(), name) if isinstance(leaf, torch.Tensor)}
    return {
        f"{name}.state.{index}.{key}": parameter
        for index, parameter in enumerate(_tensors_of(member))
        for key in saved["state"].get(index, {})
    }


def _tensors_of(member: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401  a member
    """A module's parameters and buffers, an optimizer's parameters, or the tensors in another member's state."""
    if isinstance(member, torch.nn.Module):
        yield from member.parameters()
        yield from member.buffers()
    elif isinstance(member, torch.optim.Optimizer):
        yield from (parameter for group in member.param_groups for parameter in group["params"])
    else:
        yield from (leaf for _, leaf in _leaves(member.state_dict(), "") if isinstance(leaf, torch.Tensor))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  a tree
    """Every leaf of a tree with its name; a reference is a leaf."""
    if isinstance(value, Mapping) and not is_reference(value):
        for key, item in value.items():
            yield from _leaves(item, _joined(name, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, _joined(name, index))
    else:
        yield name, value


def _replaced(value: Tree, name: str, replace: Callable[[str, Any], Any]) -> Tree:
    """The tree with every leaf replaced."""
    if isinstance(value, Mapping) and not is_reference(value):
        return {key: _replaced(item, _joined(name, key), replace) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_replaced(item, _joined(name, index), replace) for index, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return replace(name, value)


def _joined(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _end(box: Box) -> tuple[int, ...]:
    return tuple(begin + length for begin, length in zip(box.begin, box.shape, strict=True))


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "one number"
