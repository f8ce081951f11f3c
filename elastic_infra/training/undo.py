"""Undoes the changes of a step before its optimizer, so that a broken step can be repeated.

The forward pass draws random numbers and changes or replaces buffers, such as the averages of BatchNorm; a script may
change plain values, learning rates, and members such as a counter or a ``GradScaler``. Weights and moments change only
in ``optimizer.step``, after whose call the step cannot be undone. On a device that call queues work behind that of the
collectives, so these are confirmed before the call.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
)

from . import generators
from .host_memory import Tree
from .state import ElasticState, Member

UNCOUNTED: Final = torch.nn.modules.batchnorm._NormBase  # noqa: SLF001  BatchNorm, SyncBatchNorm and InstanceNorm
"""Modules whose kernels change their averages without counting the change in the tensor's version."""
SMALL_BYTES: Final = 1 << 20
"""Bytes of the tensors in a member or a plain value that are copied in each step; a larger one is not undone."""
MANY: Final = 1000
"""Items of a collection that are looked into in each step. In a longer one only that items come, go and are replaced is
undone, so that a history of many steps costs a step little."""
_NESTED: Final = (dict, list, tuple)
_UNCHANGEABLE: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


class StepUndo:
    """Holds the values that the current step may change."""

    def __init__(self, state: ElasticState, confirm: Callable[[], None] = lambda: None) -> None:
        self._state = state
        self._confirm = confirm
        """Waits for the collectives of the step, and raises where their results mean nothing."""
        self._held = (generators.Held(), _Values(state), _Buffers(state))
        self._optimized = False
        for member in state.members.values():
            if isinstance(member, torch.optim.Optimizer):
                member.register_step_pre_hook(self._before_optimizer)
                member.register_step_post_hook(self._note)

    def begin(self) -> None:
        """Note the values at the beginning of a step."""
        self._optimized = False
        for each in self._held:
            each.hold()

    def confirm(self) -> None:
        """At the end of a step: its collectives are waited for, unless they were before the optimizer."""
        if not self._optimized:
            self._confirm()

    def undo(self) -> bool:
        """Restore the values from the beginning of the step; False where the optimizer has stepped already."""
        for member in self._state.members.values():
            if isinstance(member, torch.optim.Optimizer | torch.nn.Module):
                member.zero_grad(set_to_none=True)
        for each in self._held:
            each.set_back()
        return not self._optimized

    def _before_optimizer(self, *_: object) -> None:
        self._confirm()

    def _note(self, *_: object) -> None:
        self._optimized = True


@dataclasses.dataclass(slots=True)
class _Copy:
    """What a tensor held at the beginning of the step."""

    tensor: torch.Tensor
    version: int
    """Of the tensor when it was copied: torch counts the changes in place."""
    values: torch.Tensor


def _set_back(copies: Iterable[_Copy]) -> None:
    with torch.no_grad():
        for copy in copies:
            if copy.tensor._version != copy.version:  # noqa: SLF001
                copy.tensor.copy_(copy.values)


class _Values:
    """Plain values, learning rates, and the members that are neither modules nor optimizers."""

    def __init__(self, state: ElasticState) -> None:
        self._plain = state.plain
        members = state.members.values()
        self._optimizers = [member for member in members if isinstance(member, torch.optim.Optimizer)]
        self._scalers = [member for member in members if isinstance(member, torch.amp.GradScaler)]
        known = torch.nn.Module | torch.optim.Optimizer | torch.amp.GradScaler
        # What can be iterated stays: the script may have an iterator, which would go on all the same.
        self._others = [each for each in members if not isinstance(each, known) and not hasattr(each, "__iter__")]
        self._collections: list[tuple[Any, Any]] = []
        """Each dictionary and list that the step may change, with a copy of it."""
        self._copies: list[_Copy] = []
        self._states: list[tuple[Member, Tree]] = []
        """The state of each other member; what can change in it is held as well."""

    def hold(self) -> None:
        """Hold the values of now."""
        self._collections, self._copies, self._states = [(self._plain, self._plain.copy())], [], []
        for value in self._plain.values():
            self._hold(value)
        for group in (group for optimizer in self._optimizers for group in optimizer.param_groups):
            self._collections.append((group, group.copy()))
            for name, value in group.items():
                if name != "params":
                    self._hold(value)
        for scaler in self._scalers:
            self._hold(vars(scaler))  # its `state_dict` lacks what it has unscaled, and waits for the device
        for member in tuple(self._others):
            state = member.state_dict()
            if self._hold(state):
                self._states.append((member, state))
            else:  # it is not asked again, which may take long
                self._others = [other for other in self._others if other is not member]

    def set_back(self) -> None:
        """Set all to the values that are held."""
        for collection, copy in self._collections:
            collection.clear()
            collection.update(copy) if isinstance(collection, dict) else collection.extend(copy)
        _set_back(self._copies)
        for member, state in self._states:
            member.load_state_dict(state)

    def _hold(self, value: Any) -> bool:  # noqa: ANN401  a plain value, or the state of a member
        """Hold what can change in a value; False where that is not small."""
        if type(value) in _UNCHANGEABLE:
            return True
        found = _changeable(value)
        tensors = [each for each in found if isinstance(each, torch.Tensor)]
        if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > SMALL_BYTES:
            return False
        self._copies += [_Copy(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors]  # noqa: SLF001
        self._collections += [(each, each.copy()) for each in found if not isinstance(each, torch.Tensor)]
        return True


def _changeable(value: Any) -> list[Any]:  # noqa: ANN401  a tree
    """The dictionaries, lists and tensors in a value."""
    found, rest = [], [value]
    while rest:
        each = rest.pop()
        if isinstance(each, _NESTED):
            items = each.values() if isinstance(each, dict) else each
            if not isinstance(each, tuple):
                found.append(each)
            if len(items) <= MANY and not _UNCHANGEABLE.issuperset(map(type, items)):
                rest.extend(items)
        elif isinstance(each, torch.Tensor) and not each.is_inference():  # one of that mode cannot change in a step
            found.append(each)
    return found


@dataclasses.dataclass(slots=True)
class _Slot:
    """A module's place for a buffer, in which a step may put another tensor."""

    module: torch.nn.Module
    name: str
    is_counted: bool
    """Whether each change is counted in the tensor's version."""
    held: torch.Tensor | None = None
    """The buffer at the beginning of the step."""
    changes: bool = False
    """Whether it can change in place: a tensor of inference mode cannot."""


class _Buffers:
    """The buffers of the members that are modules; those that cannot have changed are not copied again."""

    def __init__(self, state: ElasticState) -> None:
        self._state = state
        self._slots: list[_Slot] = []
        self._copies: dict[int, _Copy] = {}
        """Of the buffers that the slots hold, by identity: modules may share one."""
        self._versions = itertools.count(-1, -1)
        """A source of version numbers that no buffer has."""
        self._found: tuple[list[torch.nn.Module], list[_Slot]] | None = None
        """The members that are modules, and their slots: a search takes milliseconds in a large model."""
        register_module_module_registration_hook(self._forget_slots)
        register_module_buffer_registration_hook(self._forget_other_slots)

    def hold(self) -> None:
        """Hold which buffer is in each slot, and a copy of those that may have changed since the last step."""
        self._slots, copies, is_new = self._search(), self._copies, False
        for slot in self._slots:
            buffer = slot.module._buffers.get(slot.name)  # noqa: SLF001  torch names no public way
            if buffer is not slot.held:
                slot.held, is_new = buffer, True
                slot.changes = buffer is not None and not buffer.is_inference()
            if slot.changes:
                version = buffer._version if slot.is_counted else next(self._versions)  # noqa: SLF001
                copy = copies.get(id(buffer))
                if copy is None or copy.tensor is not buffer:
                    copies[id(buffer)] = _Copy(buffer, version, buffer.detach().clone())
                elif copy.version != version:
                    copy.values.copy_(buffer.detach())
                    copy.version = version
        if is_new:
            held = {id(slot.held) for slot in self._slots}
            self._copies = {identity: copy for identity, copy in copies.items() if identity in held}

    def set_back(self) -> None:
        """Put the buffers that are held into their slots, with their values."""
        for slot in self._slots:
            slot.module._buffers[slot.name] = slot.held  # noqa: SLF001
        _set_back(self._copies.values())

    def _search(self) -> list[_Slot]:
        """The slots of all members, looked for again where any module of the process got a part or another slot."""
        modules = [member for member in self._state.members.values() if isinstance(member, torch.nn.Module)]
        if self._found is None or self._found[0] != modules:
            slots = [
                _Slot(part, name, not isinstance(part, UNCOUNTED))
                for module in modules
                for part in module.modules()
                for name in part._buffers  # noqa: SLF001
            ]
            self._found = (modules, slots)
        return self._found[1]

    def _forget_slots(self, *_: object) -> None:
        self._found = None

    def _forget_other_slots(self, part: torch.nn.Module, name: str, _: object) -> None:
        """Called where a module gets a buffer, in the place of another one too, which some do in each step."""
        if name not in part._buffers:  # noqa: SLF001
            self._found = None
