"""Rules of a platform team's own: Python functions in files beside the policy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from elastic_infra.config import ConfigError, Fault
from elastic_infra.policy.check import CustomJudge
from elastic_infra.policy.rules import Workload
from elastic_infra.policy.settings import Policy


def load_functions(policy: Policy, folder: Path) -> Mapping[str, CustomJudge]:
    """The functions of the rules that are on, by name. This executes the files that the policy names.

    Args:
        folder: the policy file's, from which the paths of the functions count.

    Raises:
        ConfigError: a function cannot be had; says why.
    """
    return {
        name: _guarded(name, _function(f"custom.{name}.function", folder, rule.function))
        for name, rule in policy.custom.items()
        if rule.level != "disabled"
    }


def _function(where: str, folder: Path, named: str) -> Callable[..., Any]:
    file, _, function = named.rpartition(":")
    path = folder / file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError([Fault(where, f"{path} is no Python file that can be read.")])
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError([Fault(where, f"{path} cannot be run: {type(error).__name__}: {error}.")]) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise ConfigError([Fault(where, f"{path} has no function {function!r}.")])
    checked: Callable[..., Any] = found
    return checked


def _guarded(name: str, judge: Callable[..., Any]) -> CustomJudge:
    """The function, with its own errors told as faults of the policy."""

    def messages(workload: Workload) -> Iterator[str]:
        try:
            found = [*judge(workload)]
        except Exception as error:
            reason = f"the rule's function failed: {type(error).__name__}: {error}."
            raise ConfigError([Fault(f"custom.{name}", reason)]) from error
        yield from map(str, found)

    return messages
