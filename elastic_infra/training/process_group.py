"""A process group whose members come and go while this process lives.

Each worker begins in a group with itself as the only member, in which the model and its wrappers are built. The worker
then enters the group of the job's generation, parks when the generation ends, and enters the next group with the same
process, model and data. The launcher's agent orders these moves over the channel (``launcher.workers.channel``). Where
workers cannot be moved, the group is torch's usual one, and the launcher stops and starts them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from ..launcher.workers import channel
from . import regroup
from .console import warn_for_job
from .waits import Waits

_POLL_SECONDS: Final = 0.005
_CUT_SECONDS: Final = 0.25
"""Until the next look at a main thread that has not left a broken generation: connections may have been made since the
last cut. A thread that nothing frees is the same in two looks."""
_CONNECT_SECONDS: Final = 1.0
"""One attempt to reach rank 0: a main thread that waits longer would park too late."""
_FREEING_SECONDS: Final = 1.0
"""At the end of training: groups are freed in milliseconds, and best before the interpreter ends, or never."""
_SIGNS: Final = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "socket", "processgroup")
"""Words in the messages of torch's RuntimeErrors about a group, since torch has no class for most of these errors."""
_SIGNS_OF_DEVICE: Final = ("cuda error", "cuda out of memory", "unhandled cuda")
"""The same of errors of the device."""


class BrokenError(RuntimeError):
    """The generation broke before this process was in its group."""


class Orders:
    """The agent's messages, received by a separate thread, so that a main thread in a collective is freed at once."""

    def __init__(self, connection: channel.Connection, freeing: regroup.Freeing) -> None:
        self._connection = connection
        self._freeing = freeing
        self._changed = threading.Condition()
        self._order: channel.Enter | channel.Dismiss | None = None
        self._within = 0
        """The generation that the main thread has entered and not left; 0 while it waits for an order."""
        self.broken = 0
        """The newest generation that ended in the middle of a step."""
        self.lost = False
        """Whether the agent is gone."""
        self.on_break: Callable[[], None] = lambda: None
        """Called from the thread that receives messages: frees a main thread that waits outside of a collective."""

    def listen(self) -> None:
        """Receive messages until the agent is gone."""
        threading.Thread(target=self._listen, name="agent", daemon=True).start()

    def next(self) -> channel.Enter | channel.Dismiss:
        """Wait for the agent's next order to this process."""
        with self._changed:
            self._changed.wait_for(lambda: self._order is not None or self.lost)
            order, self._order = self._order, None
            self._within = order.generation if isinstance(order, channel.Enter) else 0
        if order is None:
            message = "The launcher's agent is gone."
            raise ConnectionError(message)
        return order

    def leave(self) -> None:
        """Note that the main thread has left its generation, and waits for an order from now on."""
        with self._changed:
            self._within = 0
            self._changed.notify_all()

    def await_break(self, generation: int) -> bool:
        """Wait until the agent says that the generation is over; False where it dismisses this process instead."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.broken >= generation or self.lost or isinstance(self._order, channel.Dismiss)
            )
        return self.broken >= generation

    def _listen(self) -> None:
        while (message := self._connection.receive()) is not None:
            if isinstance(message, channel.Break):
                self.broken = max(self.broken, message.generation)
                self._freeing.cut()
                self.on_break()
                threading.Thread(target=self._free, args=(message.generation,), name="cut", daemon=True).start()
            with self._changed:
                if isinstance(message, channel.Enter | channel.Dismiss):
                    self._order = message
                self._changed.notify_all()
        with self._changed:
            self.lost = True
            self._changed.notify_all()

    def _free(self, generation: int) -> None:
        """Cut until the main thread has left a broken generation; say so to the agent where nothing frees it."""

        def has_left() -> bool:
            return self._within != generation or self.lost

        waits: Waits = ()
        while not self._await(has_left, _CUT_SECONDS):
            self._freeing.cut()
            before, waits = waits, self._freeing.left_waiting()
            if waits and waits == before:
                self._connection.send(channel.Stuck(generation))
                return

    def _await(self, condition: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, seconds)


class ElasticGroup:
    """This process's place in the job.

    Usage::

        group = ElasticGroup.start()          # in place of torch.distributed.init_process_group
        model = DistributedDataParallel(Net())
        ...
        elastic = Elastic(state, loader, group=group)

    Before ``Elastic.steps`` begins the group has one member, so ``torch.distributed.get_rank`` says 0 there.
    """

    def __init__(
        self,
        connection: channel.Connection | None = None,
        environ: MutableMapping[str, str] = os.environ,
        way: regroup.Way | None = None,
        freeing: regroup.Freeing | None = None,
    ) -> None:
        self._agent = connection
        self._environ = environ
        self._way = way or regroup.Anew("gloo", None)
        self._freeing = freeing or regroup.freeing_of("gloo")
        self._orders = Orders(connection, self._freeing) if connection is not None else None
        self._store: dist.Store | None = None
        self._serves: tuple[str, int] | None = None
        """Host and port at which this process serves the store; None in all processes but rank 0."""
        self._obstacle = ""
        self._remade: frozenset[str] = frozenset()
        self._left: list[dist.ProcessGroup] = []
        """Groups of generations that are over, to which the script's model may still refer."""
        self.generation = 0
        """The generation in whose group this process is; 0 before the first."""
        self.is_behind = False
        """Whether others went on while this process was parked, so that its state is not the job's."""
        self.wrappers: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()
        """The living ones that were made since, whoever holds them, where the launcher can move this process."""
        if connection is not None:
            register_module_module_registration_hook(self._note_wrapper)

    @classmethod
    def start(
        cls,
        backend: str = "gloo",
        *,
        sharded: bool = False,
        experimental: bool = False,
        timeout: timedelta | None = None,
        environ: MutableMapping[str, str] = os.environ,
    ) -> ElasticGroup:
        """Make the first group: with this process alone where the launcher can move it, else torch's usual group.

        Args:
            backend: "gloo", the default, can be rebuilt in place; any other backend gives torch's usual group, except
                "nccl" where ``experimental`` allows it.
            sharded: whether the script spreads its model over the ranks (FSDP2, HSDP, DTensor), which gives torch's
                usual group: such a model is built with its peers, and a lost node takes shards with it. False by
                default, as for a model that ``ElasticState(build=...)`` builds for each group.
            experimental: whether groups are rebuilt by torch's experimental ``_reconfigure``, the only way in place for
                NCCL; call ``torch.cuda.set_device`` before. False by default, because torch's function may change, and
                was tried on one GPU only.
            timeout: timeout of a collective. None, the default: torch's own for the backend (gloo 30 minutes, NCCL 10),
                or the job's ``runtime.nccl_collective_timeout_sec``. After a peer's death the launcher ends the
                collectives long before.
            environ: holds torchrun's variables, without which the group has one member; by default ``os.environ``.

        Returns:
            This process's place in the job, for ``Elastic``.
        """
        reason = _why_not_in_place(backend, sharded=sharded, experimental=experimental, environ=environ)
        connection = None if reason else channel.connect(environ)
        if connection is not None and not channel.is_welcome(connection):
            connection = None
            reason = "The launcher did not start this process itself, but a program that did, which cannot be moved."
        if reason:
            warn_for_job(f"{reason} Workers restart when nodes come or go.")
        way = regroup.way_of(backend, timeout, experimental=experimental and connection is not None)
        group = cls(connection, environ, way, regroup.freeing_of(backend))
        if group._orders is not None:
            group._orders.listen()
        if connection is None and "RANK" in environ:
            dist.init_process_group(backend, timeout=timeout)
        else:
            way.begin()
        return group

    @property
    def is_movable(self) -> bool:
        """Whether the launcher can move this process."""
        return self._agent is not None

    @property
    def is_broken(self) -> bool:
        """Whether the generation has ended in the middle of a step."""
        return self._orders is not None and self._orders.broken >= self.generation > 0

    def on_break(self, function: Callable[[], None]) -> None:
        """Have a function called, in another thread, whenever a generation ends in the middle of a step."""
        if self._orders is not None:
            self._orders.on_break = function

    def begin(self, settle: Callable[[], None]) -> channel.Dismiss | None:
        """Enter the first generation's group, once model and optimizer are built.

        Args:
            settle: brings this process to the state of its new group; its collectives may fail as a step's may.

        Returns:
            How this process is dismissed; None once it is in the group.
        """
        self._say(channel.Ready())
        return self._enter(0, settle)

    def move(self, step: int, settle: Callable[[], None]) -> channel.Dismiss | None:
        """Park after so many steps, and enter the next generation's group; arguments and result as in ``begin``."""
        self._park(step)
        return self._enter(step, settle)

    def takes(self, error: BaseException) -> bool:
        """Whether a step failed because of the group, so that the step is repeated; waits for the agent's message.

        False where the script caused the error, or the launcher stops this process in any case.
        """
        if self._orders is None or self._obstacle or is_of_device(error):
            return False
        if not (self._freeing.garbles or isinstance(error, RuntimeError | OSError)):
            return False
        if not self.is_broken:
            if not (is_of_group(error) or self._freeing.has_failed):
                return False
            self._say(channel.Failed(self.generation, str(error).partition("\n")[0][:500]))
            if not self._orders.await_break(self.generation):
                return False
        self._freeing.confirm()  # nothing that was queued behind the collectives may run on beside what comes now
        return True

    def confirm(self) -> None:
        """Wait until the collectives so far have done what they are for, before anything is made of their results.

        Raises:
            BrokenError: one of them was cut, so that its results mean nothing.
        """
        if self._orders is None or not self._freeing.garbles:
            return
        self._freeing.confirm()
        if self.is_broken or self._freeing.has_failed:
            message = "A collective of this step was cut."
            raise BrokenError(message)

    def look_for_break(self) -> None:
        """End a step that cannot be completed, before the next collective tells: that one may be many batches away.

        Raises:
            BrokenError: the generation has ended in the middle of the step.
        """
        if self.is_broken:
            message = "A peer of this step is gone."
            raise BrokenError(message)

    def look(self) -> None:
        """Tell the agent where this process cannot be moved any more; cheap where nothing changed."""
        if self._agent is not None and not self._obstacle and obstacle(self._remade):
            self._say_in()

    @contextlib.contextmanager
    def remade(self) -> Iterator[None]:
        """Take down the process groups made inside the block, which makes them anew in each generation."""
        for group, name in tuple(dist.distributed_c10d._world.pg_names.items()):  # noqa: SLF001  torch has no public list
            if name in self._remade:  # the group of all has outlived its members
                self._left.append(group)
                dist.destroy_process_group(group)
        before = _names_of_groups()
        try:
            yield
        finally:  # those made so far, where a peer is lost meanwhile
            self._remade = _names_of_groups() - before

    def leave(self) -> None:
        """Tell the agent that training is over here, so that this process cannot be moved any more.

        The script may destroy the group afterwards.
        """
        if self._agent is not None and not self._obstacle:
            self._obstacle = "training is over"
            self._say(channel.In(self.generation, self._obstacle))
        self._free_left(_FREEING_SECONDS)
        regroup.release()

    def _note_wrapper(self, module: torch.nn.Module, *_: object) -> None:
        """Called with each module of the process that gets a part, as a wrapper does when it is made."""
        if isinstance(module, DistributedDataParallel):
            self.wrappers.add(module)

    def _park(self, step: int) -> None:
        if self._orders is not None:
            self._orders.leave()
        self._say(channel.Parked(self.generation, step))

    def _enter(self, step: int, settle: Callable[[], None]) -> channel.Dismiss | None:
        if self._orders is None:
            message = "This process is not moved by the launcher, so the agent sends it no orders."
            raise RuntimeError(message)
        while isinstance(order := self._orders.next(), channel.Enter):
            self.generation = order.generation
            self.is_behind = self.is_behind or order.behind
            self._environ.update(order.environ)
            try:
                self._make()
                with self._freeing.settling():
                    settle()
            except Exception as error:
                if not self.takes(error):
                    raise
                self._park(step)
                continue
            self.is_behind = False
            self._free_left()
            self._say_in()
            return None
        return order

    def _free_left(self, seconds: float = 0.0) -> None:
        """Have another thread free the groups that were left.

        Gloo's destructor waits for all collectives, and one may never end: where a peer is lost at the wrong moment,
        gloo misses that its connections are gone. Such a thread ends with the process.

        Args:
            seconds: how long this thread waits for that one.
        """
        left, self._left = self._left, []
        if left:
            thread = threading.Thread(target=left.clear, name="groups that were left", daemon=True)
            thread.start()
            thread.join(seconds)

    def _say_in(self) -> None:
        self._obstacle = obstacle(self._remade)
        if self._obstacle:
            warn_for_job(f"Workers restart when nodes come or go: {self._obstacle}.")
        self._say(channel.In(self.generation, self._obstacle))

    def _make(self) -> None:
        rank, world = int(self._environ["RANK"]), int(self._environ["WORLD_SIZE"])
        self._raise_if_broken()  # before: who frees this thread begins with the message of the break
        self._freeing.forget()
        self._left += self._way.leave()
        self._store = self._store_of(rank, world)
        handles = self._meet(self._store, rank, world)
        with self._freeing.making(world):
            self._way.enter(self._store, self.generation, handles, rank)
        self._raise_if_broken()

    def _meet(self, store: dist.Store, rank: int, world: int) -> list[str]:
        """What each member says of itself, once all have arrived; torch's own waits cannot be interrupted."""
        keys = [f"here-{self.generation}-{other}" for other in range(world)]
        store.set(keys[rank], self._way.handle())
        for key in keys:
            while not store.check([key]):
                self._wait()
        return [handle.decode() for handle in store.multi_get(keys)]

    def _store_of(self, rank: int, world: int) -> dist.Store:
        host, port = self._environ["MASTER_ADDR"], int(self._environ["MASTER_PORT"])
        # A port that the user gave is the same in each generation. This process listens there until the last reference
        # to its store is gone, and a wrapper around the model has one.
        if rank == 0 and self._store is not None and self._serves == (host, port):
            return self._store
        self._store, self._serves = None, (host, port) if rank == 0 else None
        if rank:
            self._await_listener(host, port)
        return dist.TCPStore(host, port, world, is_master=rank == 0, timeout=regroup.MAKING, wait_for_workers=False)

    def _await_listener(self, host: str, port: int) -> None:
        """Return once rank 0 listens; a node that does not answer may be lost, which the agent says in a moment."""
        given_up_at = time.monotonic() + regroup.MAKING.total_seconds()
        while True:
            try:
                socket.create_connection((host, port), _CONNECT_SECONDS).close()
            except ConnectionRefusedError:  # its node is there, and its process still builds its model
                given_up_at = time.monotonic() + regroup.MAKING.total_seconds()
            except OSError:
                if time.monotonic() >= given_up_at:
                    raise
            else:
                return
            self._wait()

    def _wait(self) -> None:
        self._raise_if_broken()
        time.sleep(_POLL_SECONDS)

    def _raise_if_broken(self) -> None:
        if self.is_broken:
            message = f"Generation {self.generation} ended before it began."
            raise BrokenError(message)

    def _say(self, message: channel.Message) -> None:
        if self._agent is not None:
            self._agent.send(message)


def is_of_group(error: BaseException) -> bool:
    """Whether the error comes from a process group: a peer or a connection is gone, or a timeout has passed."""
    if isinstance(error, dist.DistError | BrokenError | ConnectionError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and "cuda" not in text and any(sign in text for sign in _SIGNS)


def is_of_device(error: BaseException) -> bool:
    """Whether the error comes from the device: its context may be lost, and only another process has a new one."""
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS_OF_DEVICE)


def _why_not_in_place(backend: str, *, sharded: bool, experimental: bool, environ: Mapping[str, str]) -> str:
    """Why the launcher cannot move this process; empty where it can, and outside the launcher."""
    if channel.VARIABLE not in environ:
        return ""
    if sharded:
        return "The model is sharded, and cannot leave the group in which it was built."
    return regroup.obstacle(backend, experimental=experimental)


def obstacle(remade: frozenset[str] = frozenset()) -> str:
    """Why this process cannot be moved; empty where it can.

    Args:
        remade: the process groups that are made anew in each generation.
    """
    foreign = len(_names_of_groups() - remade) - 1
    if foreign > 0:
        return f"the script made {foreign} process groups of its own, which only the script could make again"
    return ""


def _names_of_groups() -> frozenset[str]:
    return frozenset(dist.distributed_c10d._world.pg_names.values())  # noqa: SLF001  torch has no public list


def rebind(wrapper: DistributedDataParallel) -> None:
    """Have the wrapper use the current group, with the buckets that a new wrapper would have.

    Unpickling makes a new reducer on the same parameters without a collective. Buckets begin anew because a survivor's
    rebuilt buckets differ from a newcomer's, and gloo ends the process where they differ.
    """
    hooks = list(wrapper._comm_hooks)  # noqa: SLF001  torch offers no other way to keep wrapper and module
    wrapper.process_group = dist.group.WORLD
    wrapper.reducer._remove_autograd_hooks()  # noqa: SLF001
    wrapper.__setstate__(wrapper.__getstate__())
    wrapper._comm_hooks = []  # noqa: SLF001
    for hook, state in hooks:
        wrapper.register_comm_hook(state, hook)
