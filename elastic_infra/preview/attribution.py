"""Which change of the config is behind which change of the manifests.

Each change is tried alone on the base config. The result need not be a valid config: rendering accepts it, and only
places that differ between the two real sides count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from pydantic import BaseModel

from elastic_infra.config import ConfigError, JobConfig
from elastic_infra.manifests import Manifests
from elastic_infra.manifests.render import lasting
from elastic_infra.preview.effects import Effect, effects
from elastic_infra.preview.tree import Branch, Difference, Path, Tree, children, item_key, keyed

Shares = tuple[tuple[Effect, ...], ...]


def attribute(name: str, base: JobConfig, head: JobConfig, found: Sequence[Difference]) -> Shares:
    """The effects of each difference, in the order of `found`.

    Every effect of all differences together is in at least one of them.
    """
    before, after = lasting(name, base), lasting(name, head)
    total = effects(before, after, head)
    if len(found) == 1:
        return (total,)
    shares = [_common(total, before, _rendered(name, with_change(base, head, each)), head) for each in found]
    if rest := _missing(total, shares):
        back = [_common(rest, _rendered(name, with_change(head, base, each)), after, head) for each in found]
        shares = [(*share, *more) for share, more in zip(shares, back, strict=True)]
    together = _missing(total, shares)
    return tuple((*share, *together) for share in shares)


def _missing(total: Sequence[Effect], shares: Sequence[tuple[Effect, ...]]) -> tuple[Effect, ...]:
    explained = {effect.path for share in shares for effect in share}
    return tuple(effect for effect in total if effect.path not in explained)


def _rendered(name: str, config: JobConfig) -> Manifests | None:
    try:
        return lasting(name, config)
    except ConfigError:
        return None


def _common(
    total: Sequence[Effect], before: Manifests | None, after: Manifests | None, config: JobConfig
) -> tuple[Effect, ...]:
    if before is None or after is None:
        return ()
    alone = {effect.path for effect in effects(before, after, config)}
    return tuple(effect for effect in total if effect.path in alone)


def with_change(base: JobConfig, head: JobConfig, difference: Difference) -> JobConfig:
    """The base config with one difference taken from the head, unchecked, for rendering only."""
    end = _reordered if difference.kind != "value" else _taken
    return cast("JobConfig", _rebuilt(base, head, difference.path, end))


def _rebuilt(base: Tree, head: Tree, path: Path, end: Callable[[Tree, Tree], Tree]) -> Tree:
    if not path:
        return end(base, head)
    step, ours, theirs = path[0].name, _branch(base, head), _branch(head, base)
    if step in theirs:
        ours[step] = _rebuilt(ours.get(step), theirs[step], path[1:], end)
    else:
        ours.pop(step, None)
    return _like(base, ours)


def _taken(_base: Tree, head: Tree) -> Tree:
    return head


def _reordered(base: Tree, head: Tree) -> Tree:
    """The items of the base in the order of the head; items that the head lacks come last."""
    ours, order = _branch(base, head), list(_branch(head, base))
    if not ours:
        return head
    names = [name for name in order if name in ours] + [name for name in ours if name not in order]
    return _like(base, {name: ours[name] for name in names})


def _branch(tree: Tree, other: Tree) -> Branch:
    if isinstance(tree, tuple) and isinstance(other, tuple):
        key = item_key(tree, other)
        return keyed(tree, key) if key else {}
    return children(tree) or {}


def _like(tree: Tree, branch: Branch) -> Tree:
    if isinstance(tree, BaseModel):
        return tree.model_copy(update=branch)
    return tuple(branch.values()) if isinstance(tree, tuple) else branch
