"""The state from which training goes on: kept in the node's memory and on disk, restored from the newest copy.

Members are objects with a ``state_dict``: model, optimizer, scheduler, the position in the data; plain values are
numbers, text and collections of these. Random number generators of Python, NumPy, torch and CUDA are members of every
state. Model and optimizer are the same on all ranks (DistributedDataParallel), or spread over them (FSDP2, HSDP,
DTensor): then each rank keeps its shards, and any number of ranks can restore them (``shards``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import secrets
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast

import torch
import torch.distributed as dist

from ..launcher.workers import progress
from . import exchange, fitting, generators, host_memory, lent, shards, snapshots, transfer
from .buddies import Buddies
from .console import warn, warn_for_job, warn_for_node
from .copies import Copies
from .host_memory import Tree
from .iterable import ElasticIterable
from .neighbour import Invitation
from .node_memory import Key, NodeMemory, Parts
from .overlap import Overlap
from .rebuilding import Build, Rebuilt
from .sampler import ElasticSampler
from .shards import Assembly

SHOWN: Final = 5
"""Misfits that an error names: with another model there are hundreds."""
_POLL_SECONDS: Final = 0.05
HANDED_SECONDS: Final = 30.0
"""How long a group waits for the snapshot on disk of those who left at an agreed stop: a pod's usual grace."""
Source = Literal["process", "memory", "peer", "disk", "nothing"]
Version = tuple[int, int]
"""Of a state: its step, and the number of the generation that made it, where two may have made the step."""
_OF_RANK: Final = frozenset({"rng", "rank", "shards", "run", "attempt"})
"""What each rank has of its own in a captured state; the rest is the same on all ranks."""


class Member(Protocol):
    """An object that can be saved and loaded."""

    def state_dict(self) -> Any:  # noqa: ANN401  torch's own protocol
        """The values from which the object can go on."""

    def load_state_dict(self, state_dict: Any, /) -> Any:  # noqa: ANN401  torch's own protocol
        """Take the values of a ``state_dict``."""


class StateError(ValueError):
    """A snapshot does not fit the state; the message says in which member, and what to do."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """The point from which training goes on."""

    step: int
    """Number of steps that are done; 0 at the beginning."""
    source: Source
    """Where the state comes from. ``process``: this process has kept it. ``memory``: this node's memory. ``peer``:
    another process or its node's memory. ``disk``: a durable snapshot. ``nothing``: a fresh start."""
    node: str = ""
    """The host name of the peer's node, which is the pod's name; empty for other sources."""


@dataclasses.dataclass(frozen=True)
class _Said:
    """What a rank says of itself when a group begins."""

    step: int
    """The step of the state that this rank holds; -1 where it holds none."""
    node: str = ""
    invitation: Invitation | None = None
    parts: Mapping[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """By step: the ranks whose random number generators this rank holds."""
    keeps_state: bool = False
    """Whether this rank writes the state to its node's memory."""
    durable: tuple[int, ...] = ()
    """Of rank 0: the steps on disk, newest first."""
    fault: str = ""
    """Of rank 0: why the disk cannot be used."""
    attempt: int = 0
    """The generation that made the state in this rank's memory, as a number that grows."""
    handed: int = -1
    """The step that this rank saves to disk for this group; -1 where it saves none."""
    start: str = ""
    """A word of this rank's; rank 0's tells this start of the workers from an earlier one of the same run."""

    @property
    def version(self) -> Version:
        """Equal on ranks with the same state: of one step that two generations made, the last bits may differ."""
        return (self.step, self.attempt)


class ElasticState:
    """The training state of one worker.

    Usage::

        state = ElasticState("/checkpoints", model=model, optimizer=optimizer, data=sampler, best=0.0)
        state.restore()
        state.best = 0.7                # plain values are attributes

    Args:
        folder: folder of the durable snapshots: a path, or a URL such as ``s3://bucket/job`` or ``gs://bucket/job``,
            for which the image must have fsspec and its package for the scheme; None: snapshots stay in memory only.
        model: the model, with or without its DistributedDataParallel wrapper, or after ``fully_shard``; saved without
            the wrapper. Build the optimizer after ``fully_shard``, as torch asks.
        optimizer: the optimizer. Any member may be left out.
        scheduler: the scheduler of the learning rate.
        data: the position in the data: an ``ElasticSampler`` or ``ElasticIterable``. With another object and several
            ranks a warning says that rank 0's position is saved for all.
        build: builds members for the current process group, in place of ``model`` and ``optimizer``, and returns them
            by name: ``{"model": model, "optimizer": optimizer}``. It is called once for each group, so that a sharded
            model changes its ranks while the process stays. ``state.model`` is the present one. None, the default: all
            members are given.
        keep: the rule by which durable snapshots stay; the newest 2 by default.
        in_memory: whether snapshots are kept in the node's memory, which takes twice the size of the state, and the
            generators of the node before this one with them. True by default; snapshots that do not fit are left out,
            with a warning.
        plain: further members and plain values, by name.

    Raises:
        StateError: the URL cannot be used: its scheme is unknown, or a package for it is missing.
    """

    step: int
    """Number of steps that are done."""
    memory_step: int | None
    """The step of the newest snapshot that this process has put into the node's memory; None before one, and where
    training went back before it and nothing was restored from memory."""

    def __init__(  # noqa: PLR0913  a keyword for each kind of member
        self,
        folder: str | os.PathLike[str] | None,
        *,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        scheduler: Member | None = None,
        data: Member | None = None,
        build: Build | None = None,
        keep: snapshots.Keep | None = None,
        in_memory: bool = True,
        **plain: Any,  # noqa: ANN401  a script's own value
    ) -> None:
        given = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "data": data}
        members = {name: member for name, member in given.items() if member is not None}
        members |= {name: value for name, value in plain.items() if hasattr(value, "state_dict")}
        values = {name: value for name, value in plain.items() if name not in members}
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "plain", values)
        object.__setattr__(self, "step", 0)
        object.__setattr__(self, "memory_step", None)
        object.__setattr__(self, "_rebuilt", Rebuilt(build) if build is not None else None)
        object.__setattr__(self, "_folder", _open(folder, keep) if folder is not None else None)
        memory = _node_memory() if in_memory else None
        object.__setattr__(self, "_memory", memory)
        object.__setattr__(self, "_copies", Copies(memory) if memory is not None and memory.keeps_state else None)
        object.__setattr__(self, "_buddies", Buddies(memory) if memory is not None else None)
        object.__setattr__(self, "_writing", None)
        object.__setattr__(self, "_saving", snapshots.Saving())
        object.__setattr__(self, "_overlap", Overlap(warn))
        object.__setattr__(self, "_is_outdated", False)
        object.__setattr__(self, "_handed", -1)
        object.__setattr__(self, "_start", "")
        object.__setattr__(self, "_data_is_told", False)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  a script's own value
        for values in (self.__dict__.get("members", {}), self.__dict__.get("plain", {})):
            if name in values:
                return values[name]
        later = " before it is built, which Elastic.steps does." if self._awaits_build else "."
        message = f"The state has no {name!r}{later}"
        raise AttributeError(message)

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
        if name in self.plain:
            self.plain[name] = value
        elif name in self.members:
            message = f"{name!r} is a member with a state_dict: change it in place."
            raise AttributeError(message)
        else:
            object.__setattr__(self, name, value)

    def snapshot(
        self,
        *,
        durable: bool = False,
        overlap: bool = False,
        alone: bool = False,
        saved: Callable[[int], None] | None = None,
        failed: Callable[[int], None] | None = None,
    ) -> bool:
        """Copy the state after ``step`` steps to memory now and, if ``durable``, to disk in the background.

        Training waits only for the copy to memory. While this rank's part of a durable snapshot is being written its
        bytes must not change, so the memory gets no newer snapshot. A sharded state's durable snapshot is another copy
        instead, since every rank must hold the same steps in memory. The next durable snapshot waits until the one
        before it is whole, or given up. Nor does the memory get shards where copies of the newest ones have not reached
        another node: it keeps the step before meanwhile, which is whole without any one node.

        Args:
            durable: whether the snapshot is written to disk too.
            overlap: whether weights and moments are copied while training goes on, until the next ``optimizer.step``
                of any optimizer; ``Snapshots.overlap`` says what the script promises with it. A durable snapshot and
                that of a sharded state are copied at once all the same.
            alone: whether other ranks may take no snapshot of this step, so that none gets a copy of the shards.
            saved: called with the step once this rank's part is on disk, from the thread that wrote it.
            failed: called in the same way where the snapshot cannot be saved, after a warning.

        Returns:
            Whether the state was copied.

        Raises:
            TypeError: a member has values that a snapshot cannot hold.
        """
        self.end_copy()
        if not durable and ((self._memory is None and not self._has_buddies) or self._memory_is_read):
            return False
        if overlap and not durable and self._can_overlap:
            self._copy_to_memory(self.capture(), overlap=True)
            return True
        keeps = alone or not self.is_sharded or self._may_overwrite()
        if not keeps and (not durable or self._folder is None):
            return False
        if durable:
            self.wait()
        if not keeps:
            part: memoryview | None = self._shards_for_disk(self.capture())
        elif self.is_sharded:
            part = self._copy_shards(durable=durable and self._folder is not None, alone=alone)
        else:
            part = self._copy()
        if part is not None and durable and self._folder is not None:
            self._save(part, saved, failed)
        return True

    @property
    def is_rebuilt(self) -> bool:
        """Whether members are built anew for each process group."""
        return self._rebuilt is not None

    def rebuild(self) -> None:
        """Build the members for the current process group; the state is then that of the beginning, till a restore.

        Raises:
            TypeError: ``build`` does not return members by name.
        """
        self._rebuilt.rebuild(self.members, self.plain)
        self.step = 0
        self.__dict__.pop("is_sharded", None)

    def hand_over(
        self,
        *,
        durable: bool,
        saved: Callable[[int], None] | None = None,
        failed: Callable[[int], None] | None = None,
    ) -> None:
        """Keep a rebuilt state for the next group, in which nodes may be missing that have shards now.

        Every rank must call this method. The snapshot goes to disk too where the memory of the others may lack a shard,
        because no other node has a copy of it.

        Args:
            durable: whether a durable snapshot is due in any case.
            saved, failed: as of ``snapshot``.
        """
        if self._has_buddies and not self._buddies.have_arrived():
            self._buddies.part()
        places = _gather(self._place())
        is_copied = not self.is_sharded or exchange.are_copied(places)
        # Of two nodes with the same shards one stays; of three, all that have a shard may leave at once.
        one_stays = not self.is_sharded or len(exchange.nodes_of(places)) <= 2  # noqa: PLR2004
        is_safe = one_stays and all(place.keeps for place in places) and (is_copied or self._has_buddies)
        while self._memory_is_read:  # until this rank's part of an older step is on disk, or cannot be written
            self._saving.written.wait(_POLL_SECONDS)
        goes_to_disk = durable or not is_safe
        self.snapshot(durable=goes_to_disk, saved=saved, failed=failed)
        has_arrived = self._has_buddies and self._buddies.have_arrived()
        is_safe = is_safe and (is_copied or has_arrived)
        if not is_safe and not goes_to_disk and self._folder is not None:
            self.wait()
            # The memory holds this step already; another copy there would overwrite the last step that all nodes hold.
            self._save(self._shards_for_disk(self.capture()), saved, failed)
        self._handed = -1 if is_safe or self._folder is None else self.step

    def _join_buddies(self) -> None:
        """Have another node keep this rank's shards, where no other one has them in any case."""
        places = _gather(self._place())
        if self._buddies is not None and all(place.keeps for place in places) and not exchange.are_copied(places):
            nodes = [place.node for place in places]
            self._buddies.join(nodes, _rank(), _gather(self._buddies.invitation()), _beside())

    def _place(self) -> exchange.Place:
        keeps = self._memory is not None and self._buddies is not None and self._buddies.keep
        return exchange.Place(os.environ.get("GROUP_RANK", "0"), shards.digest(self._unwrapped_members()), keeps)

    @property
    def folder(self) -> str:
        """The folder of the durable snapshots as messages name it; empty where snapshots stay in memory only."""
        folder = cast("snapshots.Folder | None", self._folder)
        return folder.root if folder is not None else ""

    @functools.cached_property
    def is_sharded(self) -> bool:
        """Whether members have tensors that are spread over the ranks, as they were when first asked or last built."""
        return shards.are_in(self._unwrapped_members())

    @property
    def is_saving(self) -> bool:
        """Whether a durable snapshot is being written; on rank 0, until it is whole or given up."""
        return self._writing is not None and self._writing.is_alive()

    def missed(self, module: torch.nn.Module) -> str:
        """The name of a parameter that the module trains and no member has; empty where there is none."""
        held = [*host_memory.tensors_in(self.capture()["members"])]
        for member in self.members.values():  # a model may save copies of its parameters
            held += member.parameters() if isinstance(member, torch.nn.Module) else ()
        places = {tensor.untyped_storage().data_ptr() for tensor in held}
        trained = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
        return next((name for name, each in trained if each.untyped_storage().data_ptr() not in places), "")

    def save_alone(
        self, saved: Callable[[int], None] | None = None, failed: Callable[[int], None] | None = None
    ) -> None:
        """Save the whole state after ``step`` steps to disk without the other ranks, which may be gone.

        Returns once the snapshot is on disk, or a warning says why it is not. The random number generators of the other
        ranks are not in the snapshot. A sharded state cannot be saved so.

        Args:
            saved: called with the step once the snapshot is on disk.
            failed: called with the step where the snapshot cannot be saved.

        Raises:
            TypeError: a member has values that a snapshot cannot hold.
        """
        if self._folder is None:
            return
        if self.is_sharded:
            warn(f"Step {self.step} is not saved, because the other ranks have shards of the state.")
            if failed is not None:
                failed(self.step)
            return
        self.wait()
        part = host_memory.bytes_of(self.step, self.capture())
        alone = snapshots.Writer(run=f"{self._run}-alone-{_rank()}")
        object.__setattr__(self, "_saving", snapshots.Saving())
        self._saver(part, alone, saved, failed)()

    @property
    def sending_seconds(self) -> float:
        """Processor time for which a thread sent the last copy of the shards to another node; 0 without one."""
        return self._buddies.seconds if self._buddies is not None else 0.0

    @property
    def copying_seconds(self) -> float:
        """Seconds for which a thread copied the last snapshot with ``overlap``; 0 without one."""
        return cast("Overlap", self._overlap).seconds

    def end_copy(self) -> None:
        """Wait until no snapshot is being copied to memory. One that ``overlap`` has torn is thrown away, by name."""
        self._overlap.end()

    def wait(self) -> None:
        """Wait until no snapshot is being copied to memory or written to disk.

        A snapshot of a generation that is over is given up where a part is missing: its rank may be gone.
        """
        self.end_copy()
        if self._writing is not None:
            if self._is_outdated:
                self._saving.given_up.set()
            self._writing.join()
            object.__setattr__(self, "_writing", None)
            object.__setattr__(self, "_is_outdated", False)

    def end_generation(self, *, broken: bool = False) -> None:
        """Note that the generation is over whose ranks write the snapshot that is under way, if there is one.

        Args:
            broken: whether the generation broke, so that a part that is missing is given up at once. Where all ranks
                live on, their parts may still come, and are waited for until the next durable snapshot.
        """
        object.__setattr__(self, "_is_outdated", self._writing is not None)
        if broken:
            self._saving.given_up.set()
            if self._buddies is not None:
                self._buddies.interrupt()

    def restore(self) -> Restored:
        """Load the newest snapshot that all ranks can get: from this node's memory, a peer's memory, or the disk.

        Every rank must call this method, after ``init_process_group`` where there are several ranks. A sharded state
        comes from memory where the present nodes hold all of its shards; else a warning says which one is missing.

        Raises:
            StateError: the snapshot does not fit the members or is of a newer version, or the folder of durable
                snapshots cannot be read.
        """
        self.end_copy()
        self._tell_data()
        if self._folder is not None:
            self._folder.check()
        if self._awaits_build:
            self.rebuild()
        restored = self._restore_shards() if self.is_sharded else self._restore_whole()
        if self.memory_step is not None and self.memory_step > restored.step:
            self.memory_step = restored.step if restored.source in {"memory", "peer"} else None
        return restored

    def share(self, *, holds: bool, confirm: Callable[[], None] = lambda: None) -> Restored:
        """Bring the ranks of a new group to the newest state that any of them holds; without one as ``restore``.

        Where there is no snapshot either all take what the first of the ranks with the most steps has, which is rank
        0's initial state at a fresh start.

        Args:
            holds: whether the members of this process are the state after ``step`` whole steps. False in a process that
            has just begun, or that was interrupted while its optimizer changed the members.
            confirm: called before the members take what another rank has sent; raises where that means nothing.

        Raises:
            StateError: the state of another rank does not fit the members, or the state is sharded over ranks that are
                not those of the new group.
        """
        if self.is_sharded:
            message = "A sharded state cannot enter another group: its shards are those of the ranks of the first one."
            raise StateError(message)
        self._tell_data()
        ranks = self._exchange(_Said(self.step if holds else -1))
        if max(said.step for said in ranks) >= 0:
            return self._take_newest(ranks, confirm)
        restored = self.restore()
        return restored if restored.source != "nothing" else self._take_first(ranks, confirm)

    def _take_first(self, ranks: Sequence[_Said], confirm: Callable[[], None]) -> Restored:
        """Bring all ranks to what the first of those with the most steps has, where none holds a whole state."""
        # Each was built without peers, with weights of its own, or has a part of a broken step: no two are equal.
        unequal = [
            dataclasses.replace(said, step=step, attempt=-rank)
            for rank, (said, step) in enumerate(zip(ranks, _gather(self.step), strict=True))
        ]
        taken = self._take_newest(unequal, confirm)
        if not self.step:
            return Restored(0, "nothing")
        warn_for_job(
            f"Training goes on from step {self.step} with what the broken step after it may have changed already, "
            "because no rank holds the state before that, and there is no snapshot. Keep snapshots in memory, or save "
            "more often."
        )
        return taken

    def _take_newest(self, ranks: Sequence[_Said], confirm: Callable[[], None]) -> Restored:
        """Bring all ranks to the newest state that any of these has said to hold."""
        versions = [said.version for said in ranks]
        newest = max(versions)
        lacks = versions[_rank()] != newest
        if any(version != newest for version in versions):
            tree = _from_peer(None if lacks else self.capture(), versions)
            confirm()
            if lacks:
                self.load(tree, rng=False)
        is_new, self.step = not self.step, newest[0]
        if lacks and is_new and self.step:
            generators.begin(self.step, _rank())
        return _from_rank(ranks) if lacks else Restored(self.step, "process")

    def capture(self) -> Tree:
        """The state as one tree with the members' own tensors, without a copy; sharded tensors are in ``shards``.

        Raises:
            TypeError: a tensor is sharded in a way that a restore could not repeat.
        """
        members = self._unwrapped_members()
        tree = {name: member.state_dict() for name, member in members.items()}
        rest = {"plain": dict(self.plain), "rng": generators.capture()}
        if not self.is_sharded:
            return {"members": tree, **rest}
        tree, mine = shards.cut(tree)
        optimizers = {name: member for name, member in members.items() if isinstance(member, torch.optim.Optimizer)}
        for name in shards.unplaceable(optimizers, tree):
            message = f"{name} is sharded, and has another shape than its parameter, so that no restore could place it."
            raise TypeError(message)
        return {"members": tree, **rest, "shards": mine, "run": self._run}

    def load(self, tree: Tree, *, rng: bool = True, is_lent: bool = False) -> None:
        """Load a captured state.

        Args:
            tree: the state. Members may keep its tensors.
            rng: whether the random number generators are loaded too, and do not stay as they are.
            is_lent: whether the tensors lie in the node's memory, which changes, so that members get copies to keep.

        Raises:
            StateError: members are missing, too many, or of another form.
        """
        self.end_copy()
        if "shards" in tree:
            tree = self._assembled(tree, [tree["shards"]])
        members = self._unwrapped_members()
        found = [*fitting.misfits(members, tree["members"])]
        if found:
            raise _misfit(*found)
        for name, member in members.items():
            try:
                if is_lent:
                    lent.load(member, tree["members"][name])
                else:
                    member.load_state_dict(tree["members"][name])
            except (RuntimeError, ValueError, KeyError, TypeError) as error:
                what = f"{name}: {' '.join(str(error).split())}"
                raise _misfit(what) from error
        plain = {name: value for name, value in tree["plain"].items() if name in self.plain}
        self.plain.update(lent.copied(plain) if is_lent else plain)
        if rng:
            generators.restore(tree["rng"])

    def _tell_data(self) -> None:
        """Warn once of a position in the data that may be this rank's alone: that of rank 0 is saved."""
        data, told = self.members.get("data"), self.__dict__["_data_is_told"]
        if _world() > 1 and not told and not isinstance(data, ElasticIterable | ElasticSampler | None):
            object.__setattr__(self, "_data_is_told", True)
            warn_for_job(
                f"data= is a {type(data).__name__}, and rank 0's position is saved for all ranks: where each rank has "
                "a position of its own, samples are doubled and lost. Use ElasticSampler, or an ElasticIterable around "
                "it. Where the position is the same on all ranks, give it under another name: "
                "ElasticState(position=...)."
            )

    def _word(self) -> str:
        """What rank 0 said at the last exchange; before the first one a word that no other start of the workers has."""
        return self._start or secrets.token_hex(4)

    @property
    def _run(self) -> str:
        """Equal on all ranks; another for each start of the workers, once they have said what they hold.

        The run's id and attempt alone would not do: with torchrun both stay, and a job that is made again has them too.
        """
        names = ("TORCHELASTIC_RUN_ID", "ELASTIC_INFRA_ATTEMPT")
        run = "-".join([*(os.environ.get(name, "0") for name in names), *filter(None, [self._start])])
        return run.replace("/", "_")

    @property
    def _awaits_build(self) -> bool:
        rebuilt = self.__dict__.get("_rebuilt")
        return rebuilt is not None and not rebuilt.is_built

    def _unwrapped_members(self) -> dict[str, Any]:
        return {name: _unwrapped(member) for name, member in self.members.items()}

    @property
    def _has_buddies(self) -> bool:
        """Whether ranks of other nodes expect this rank's shards, or the word that there are none."""
        return self._buddies is not None and self._buddies.are_joined

    @property
    def _memory_is_read(self) -> bool:
        """Whether the newest snapshot in memory is being written to disk, so that its bytes must not change."""
        return not self.is_sharded and self.is_saving and not self._saving.written.is_set()

    def _save(
        self, part: memoryview, saved: Callable[[int], None] | None, failed: Callable[[int], None] | None
    ) -> None:
        """Write this rank's part of a durable snapshot in the background; none may be under way."""
        object.__setattr__(self, "_saving", snapshots.Saving())
        save = self._saver(part, _writer(self._run), saved, failed)
        thread = threading.Thread(target=save, name="snapshot", daemon=True)
        thread.start()
        object.__setattr__(self, "_writing", thread)

    def _saver(
        self,
        part: memoryview,
        writer: snapshots.Writer,
        saved: Callable[[int], None] | None,
        failed: Callable[[int], None] | None,
    ) -> Callable[[], None]:
        """What saves a part, in this thread or another one, and says how that ended."""
        folder, step, saving = cast("snapshots.Folder", self._folder), self.step, self._saving

        def save() -> None:
            told = saved if folder.save(step, part, writer, saving) else failed
            if told is not None:
                told(step)

        return save

    def _copy(self) -> memoryview:
        """Copy the state to the node's memory, if it has room; returns this rank's part of a durable snapshot."""
        is_whole = _rank() == 0 or (self._memory is not None and self._memory.keeps_state)
        tree = self.capture() if is_whole else {"rng": generators.capture()}
        part = self._copy_to_memory(tree)
        if part is not None and (_rank() == 0 or not is_whole):
            return part
        return host_memory.bytes_of(self.step, tree if _rank() == 0 else {"rng": tree["rng"]})

    def _may_overwrite(self) -> bool:
        """Whether the next snapshot of the shards may overwrite the older one of the two in memory.

        It may not where the newer one lacks a copy on another node that may still arrive.
        """
        return not self._has_buddies or self._buddies.have_arrived() or not self._has_buddies

    def _copy_shards(self, *, durable: bool, alone: bool) -> memoryview | None:
        """Copy this rank's shards to this and the next node's memory; returns the part of a durable snapshot."""
        tree = self.capture()
        own = {name: tree[name] for name in _OF_RANK & tree.keys()}
        content = self._copy_to_memory(tree if self._memory is not None and self._memory.keeps_state else own)
        if self._has_buddies and not alone:
            self._buddies.send(content)
        return self._shards_for_disk(tree) if durable else None

    def _shards_for_disk(self, tree: Tree) -> memoryview:
        """This rank's part of a durable snapshot, of a captured state that is sharded."""
        part = tree if _rank() == 0 else {name: tree[name] for name in _OF_RANK & tree.keys()}
        return host_memory.bytes_of(self.step, {**part, "shards": shards.first_copies(part["shards"])})

    def _copy_to_memory(self, tree: Tree, *, overlap: bool = False) -> memoryview | None:
        """Copy a captured state to the node's memory, if it has room; returns its bytes, unless ``overlap`` copies."""
        if self._memory is None:
            return None
        part: memoryview | None = None
        tree = {**tree, "attempt": _attempt()}
        try:
            if overlap:
                self._begin_copy(self._memory.draft(self.step, _rank(), tree))
            else:
                part = self._memory.store(self.step, _rank(), tree)
                self.memory_step = self.step
        except OSError as error:
            warn(f"Snapshots in memory are off: {error.strerror or error}. Raise resources.memory and shared_memory.")
            object.__setattr__(self, "_memory", None)
            return None
        if self._copies is not None and not self.is_sharded:
            self._copies.send(self.step, _rank(), tree["rng"])
        return part

    @property
    def _can_overlap(self) -> bool:
        """Whether this worker copies a state in which an optimizer's changes can be told from others."""
        keeps_state = self._memory is not None and self._memory.keeps_state
        return keeps_state and not self.is_sharded and self._overlap.is_allowed

    def _begin_copy(self, draft: host_memory.Draft) -> None:
        optimizers = [member for member in self.members.values() if isinstance(member, torch.optim.Optimizer)]
        step = self.step

        def publish() -> memoryview:
            part = draft.publish()
            self.memory_step = step
            return part

        self._overlap.begin(step, dataclasses.replace(draft, publish=publish), optimizers)

    def _exchange(self, held: _Said) -> list[_Said]:
        """Say what this rank holds, hear it of all ranks, and join the ring of nodes that keep copies.

        Args:
            held: what it holds, without what is the same for every state.
        """
        mine = self._copies.invitation() if self._copies is not None and self._memory is not None else None
        said = dataclasses.replace(
            held,
            node=socket.gethostname(),
            invitation=mine,
            keeps_state=self._copies is not None,
            handed=self._handed,
            start=self._word(),
        )
        ranks = _gather(said)
        self._start = ranks[0].start
        if self._copies is not None:
            self._copies.join([said.invitation for said in ranks], mine)
        return ranks

    def _restore_whole(self) -> Restored:
        held = self._memory.newest() if self._memory is not None else None
        parts: Parts = self._memory.parts() if self._memory is not None else {}
        attempt = held[1].get("attempt", 0) if held else 0
        durable, fault = self._durable_steps() if _rank() == 0 else ((), "")
        ranks = self._exchange(
            _Said(
                held[0] if held else -1,
                parts={step: tuple(found) for step, found in parts.items()},
                durable=durable,
                fault=fault,
                attempt=attempt,
            )
        )
        best, disk = max(said.step for said in ranks), ranks[0].durable
        if ranks[0].fault:
            raise StateError(ranks[0].fault)
        handed, self._handed = max(said.handed for said in ranks), -1
        if max(best, handed, *disk) < 0:
            self._refuse_blindness()
        if handed > max(best, *disk, -1):
            disk = self._await_handed(handed, disk)
        restored = self._from_disk(disk, after=best)
        if restored is None and best >= 0:
            return self._from_memory(ranks, held[1] if held else None, parts.get(best, {}))
        return restored or Restored(0, "nothing")

    def _from_memory(self, ranks: Sequence[_Said], own: Tree | None, parts: Mapping[int, Tree]) -> Restored:
        """Load the newest state in any memory, and the generators of this rank where a memory holds them."""
        versions = [said.version for said in ranks]
        best = max(versions)
        lacks = versions[_rank()] != best
        tree = None if lacks else own
        if any(version != best for version in versions):
            with _gloo() as group:
                tree = _from_peer(tree, versions, group)
        self.load(tree, rng=False, is_lent=not lacks)
        self.step = best[0]
        self._go_on_drawing(_generators_of_rank([said.parts.get(self.step, ()) for said in ranks], parts))
        if lacks and sum(said.keeps_state and said.version == best for said in ranks) == 1:
            # Until the next snapshot the loss of that one node would be the loss of the state.
            is_whole = self._memory is not None and self._memory.keeps_state
            self._copy_to_memory(self.capture() if is_whole else {"rng": generators.capture()})
        return _from_rank(ranks) if lacks else Restored(self.step, "memory")

    def _go_on_drawing(self, rng: Tree | None) -> None:
        """Set the random number generators to those of this rank; without them, to others than any rank has had."""
        if rng is not None:
            generators.restore(rng)
        else:
            generators.begin(self.step, _rank())

    def _restore_shards(self) -> Restored:
        if self._buddies is not None:
            self._buddies.part()
        held = self._memory.sharded() if self._memory is not None else {}
        copies = self._memory.copies() if self._memory is not None else {}
        parts = {key: [each["shards"] for each in (tree, *copies.get(key, ()))] for key, tree in held.items()}
        mine = {key: shards.inventory(found) for key, found in parts.items()}
        disk, fault = self._durable_steps() if _rank() == 0 else ((), "")
        everywhere = _gather((mine, self._handed, disk, fault, self._word()))
        inventories = [inventory for inventory, *_ in everywhere]
        *_, disk, fault, self._start = everywhere[0]
        if fault:
            raise StateError(fault)
        key, reason = exchange.newest_whole(inventories)
        best = key[0] if key is not None else -1
        handed = max(step for _, step, *_ in everywhere)
        if max(best, handed, *disk) < 0:
            self._refuse_blindness()
        if handed > max(best, *disk, -1):
            disk = self._await_handed(handed, disk)
        self._handed = -1
        restored = self._from_disk(disk, after=best)
        if restored is None and key is not None:
            drawn = {tree["rank"]: tree["rng"] for tree in (held[key], *copies.get(key, ()))} if key in held else {}
            restored = self._from_memories(key, held.get(key), parts.get(key, []), inventories, drawn)
        restored = restored or Restored(0, "nothing")
        self._join_buddies()
        if max((step for inventory in inventories for step, _ in inventory), default=-1) > restored.step:
            # A peer may have sent rank 0's shards, and others have theirs from their own nodes.
            source = "memory" if restored.source == "peer" else restored.source
            warn_for_job(f"{reason}. Training goes on from step {restored.step}, from {source}.")
        return restored

    def _from_memories(
        self,
        key: Key,
        held: Tree | None,
        own: list[Mapping[str, Tree]],
        inventories: list[exchange.Inventory],
        drawn: Mapping[int, Tree],
    ) -> Restored:
        """Load a snapshot whose shards are all in the memory of the present nodes."""
        shared = {name: part for name, part in held.items() if name not in _OF_RANK} if held is not None else None
        versions = [(key[0] if key in inventory else -1, 0) for inventory in inventories]
        if any(step != key[0] for step, _ in versions):
            with _gloo() as group:
                shared = _from_peer(shared, versions, group)
        assembly = self._assembly(cast("Tree", shared))
        boxes = [inventory.get(key, {}) for inventory in inventories]
        with _gloo() as group:
            from_others = exchange.fill(assembly, own, boxes, _gather(assembly.wanted()), group)
        tree = {**cast("Tree", shared), "members": assembly.put_into(cast("Tree", shared)["members"])}
        self.load(tree, rng=False, is_lent=True)
        if self._memory is not None:
            self._memory.spare(key)
        self.step = key[0]
        self._go_on_drawing(_generators_of_rank(_gather(tuple(drawn)), drawn))
        return Restored(key[0], "peer" if from_others else "memory")

    def _assembly(self, tree: Tree) -> Assembly:
        """This rank's boxes of a snapshot's sharded tensors, without values yet."""
        members = self._unwrapped_members()
        found = [*fitting.misfits(members, tree["members"])] or [*shards.misfits(members, tree["members"])]
        if found:
            raise _misfit(*found)
        return Assembly(shards.targets(members, tree["members"]))

    def _assembled(self, tree: Tree, parts: Iterable[Mapping[str, Tree]]) -> Tree:
        """The tree with this rank's boxes, filled from the shards of as few ranks as are needed."""
        assembly = self._assembly(tree)
        assembly.fill(parts)
        rest = {name: part for name, part in tree.items() if name not in {"shards", "run"}}
        return {**rest, "members": assembly.put_into(tree["members"])}

    def _await_handed(self, step: int, disk: tuple[int, ...]) -> tuple[int, ...]:
        """The steps on disk, once the step is there that all ranks of the group before are saving."""
        folder = cast("snapshots.Folder", self._folder)
        is_there = transfer.said_by_first(_rank() == 0 and folder.await_step(step, HANDED_SECONDS))
        return (step, *disk) if is_there else disk

    def _from_disk(self, steps: tuple[int, ...], *, after: int) -> Restored | None:
        """Load the newest snapshot on disk that all ranks can read, of those newer than a step; None without one.

        Raises:
            StateError: one does not fit, or a rank can read none and there is nothing else: training would begin anew.
        """
        faults: list[list[str]] = []
        newer = [step for step in steps if step > after]
        for step in newer:
            tree, fault = self._read(step)
            if all(_gather(tree is not None)):
                self.load(tree, rng=False)
                self.step = step
                self._go_on_drawing(cast("Mapping[str, Tree]", tree).get("rng"))
                return Restored(step, "disk")
            cast("snapshots.Folder", self._folder).distrust(step)
            faults.append(_gather(fault))
        for rank, of_rank in enumerate(zip(*faults, strict=True)):
            if after < 0 and all(of_rank):
                message = (
                    f"Rank {rank} can read none of the {len(newer)} snapshots in {self.folder}: {of_rank[0]}. Mount "
                    "the folder on every node; to begin anew, use another one."
                )
                raise StateError(message)
        return None

    def _sees_snapshots(self) -> bool:
        """Whether this rank finds any snapshots on disk, whole or not."""
        folder = cast("snapshots.Folder | None", self._folder)
        with contextlib.suppress(OSError):
            return folder is not None and folder.has_any()
        return False

    def _refuse_blindness(self) -> None:
        """Refuse to begin anew where rank 0, which chooses the snapshot, finds none where others find some.

        Every rank must call this method.

        Raises:
            StateError: it is so.
        """
        seeing = _gather(self._sees_snapshots())
        if seeing[0] or not any(seeing):
            return
        message = (
            f"Rank 0 finds no snapshots in {self.folder}, and rank {seeing.index(True)} does. Mount the folder on "
            "every node; to begin anew, use another one."
        )
        raise StateError(message)

    def _durable_steps(self) -> tuple[tuple[int, ...], str]:
        """The steps on disk, newest first, and why they cannot be used, for all ranks to say."""
        folder = cast("snapshots.Folder | None", self._folder)
        if folder is None:
            return (), ""
        try:
            return folder.steps(), ""
        except snapshots.NewerFormatError as error:
            return (), str(error)
        except OSError as error:
            reason = error.strerror or error
            return (), f"The snapshots in {folder.root} cannot be read: {reason}. Check the address and the rights."

    def _read(self, step: int) -> tuple[Tree | None, str]:
        """The shared part of a durable snapshot with what this rank has of its own; None where it cannot be had.

        Returns:
            And why its bytes cannot be read; empty where they can be, and are damaged.
        """
        folder = cast("snapshots.Folder", self._folder)
        try:
            parts = {0: host_memory.state_of(folder.part(step, 0))}
            if _rank() and (mine := folder.part(step, _rank())) is not None:
                parts[_rank()] = host_memory.state_of(mine)
            tree = {name: part for name, part in parts[0].items() if name not in _OF_RANK}
            if _rank() in parts:
                tree["rng"] = parts[_rank()]["rng"]
            return (self._assembled(tree, self._shards_on_disk(step, parts)) if "shards" in parts[0] else tree), ""
        except StateError:
            raise
        except (OSError, ValueError) as error:
            warn(f"The snapshot of step {step} in {folder.root} is skipped: {error}.")
            return None, (str(error) or type(error).__name__) if isinstance(error, OSError) else ""

    def _shards_on_disk(self, step: int, parts: Mapping[int, Tree]) -> Iterator[Mapping[str, Tree]]:
        """The shards of each rank that saved them, from the place in the old world that is nearest to this rank's."""
        folder = cast("snapshots.Folder", self._folder)
        saved, here = folder.world(step), _world()
        for rank in sorted(range(saved), key=lambda rank: abs(rank * here - _rank() * saved)):
            part = parts[rank] if rank in parts else host_memory.state_of(folder.part(step, rank))
            yield part["shards"]


def _open(folder: str | os.PathLike[str], keep: snapshots.Keep | None) -> snapshots.Folder:
    try:
        place = snapshots.place_of(folder)
    except (ImportError, ValueError) as error:
        raise StateError(str(error)) from error
    return snapshots.Folder(place, warn_for_node, keep)


def _from_peer(tree: Tree | None, versions: Sequence[Version], group: dist.ProcessGroup | None = None) -> Tree:
    """The state of the first rank with the highest of these; other ranks with the same keep theirs."""
    source, lacking = _source(versions)
    return transfer.pass_on(tree, (source, *lacking), group) if _rank() in {source, *lacking} else tree


def _beside() -> dist.ProcessGroup | None:
    """A group with gloo, which every rank must make: None, the default group, where its backend is gloo."""
    return None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")


@contextlib.contextmanager
def _gloo() -> Iterator[dist.ProcessGroup | None]:
    """The same inside of the block only."""
    group = _beside()
    try:
        yield group
    finally:  # where a peer is lost, its other peers wait for this rank until the connections close
        if group is not None:
            dist.destroy_process_group(group)


def _generators_of_rank(held: Sequence[Collection[int]], parts: Mapping[int, Tree]) -> Tree | None:
    """This rank's random number generators after a step, from the memory that holds them; None where none does.

    Every rank must call this function. A rank goes on with the random numbers of that rank, as from disk, so that
    training is the same to the bit where a lost node is replaced.

    Args:
        held: by rank, of which ranks it holds the generators.
        parts: those that this rank holds.
    """
    holders = {
        rank: next((holder for holder, found in enumerate(held) if rank in found), None)
        for rank, found in enumerate(held)
        if rank not in found
    }
    if all(holder is None for holder in holders.values()):
        return parts.get(_rank())
    given = _gather({rank: parts[rank] for rank, holder in holders.items() if holder == _rank()})
    sent = {rank: part for by_holder in given for rank, part in by_holder.items()}
    return parts.get(_rank(), sent.get(_rank()))


def _from_rank(ranks: Sequence[_Said]) -> Restored:
    source, _ = _source([said.version for said in ranks])
    return Restored(ranks[source].step, "peer", ranks[source].node)


def _source(versions: Sequence[Version]) -> tuple[int, tuple[int, ...]]:
    """The rank that gives its state, and the ranks that take it."""
    best = max(versions)
    return versions.index(best), tuple(rank for rank, version in enumerate(versions) if version != best)


def _node_memory() -> NodeMemory | None:
    """The node's snapshots in the launcher's folder, which is in memory; None outside the launcher."""
    place = progress.locate(os.environ)
    if place is None:
        return None
    path, local_rank = place
    return NodeMemory(str(Path(path).parent), local_rank, warn)


def _unwrapped(member: Any) -> Any:  # noqa: ANN401  a member, wrapped or not
    """The module inside DistributedDataParallel, so that a snapshot fits with and without the wrapper."""
    return member.module if isinstance(member, torch.nn.parallel.DistributedDataParallel) else member


def _gather(value: Any) -> list[Any]:  # noqa: ANN401  any small value
    """Every rank's value, in the order of ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def _writer(run: str) -> snapshots.Writer:
    return snapshots.Writer(_rank(), _world(), run)


def _attempt() -> int:
    return int(os.environ.get("ELASTIC_INFRA_ATTEMPT", "0"))


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _misfit(*found: str) -> StateError:
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    what = "; ".join([*found[:SHOWN], *more]).removesuffix(".")
    advice = "Give ElasticState the members that the snapshot was saved with, or use another folder."
    return StateError(f"The snapshot does not fit: {what}. {advice}")
