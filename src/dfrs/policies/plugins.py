"""Policies of other packages, looked up only where they are asked for.

They are entry points of the group `dfrs.policies`, of which the name is the policy's; or are named `module:attribute`,
as an entry point's value is written. The value is a `dfrs.policies.declaration.Family` that has that name, or anything
that gives the policy when it is called: its class, as a rule.
"""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from dfrs.model.decisions import Policy, Traits, traits_of
from dfrs.model.errors import InputError
from dfrs.policies.declaration import Family, Name

GROUP = "dfrs.policies"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def plugin_names() -> list[str]:
    """The names of all installed ones, also of those that cannot be loaded."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def plugin_family(name: str) -> Family[Any] | None:
    """The family of the installed policy of that name, None where there is none. Raises InputError where it is broken.

    Nothing else is loaded, so a package that is broken is in the way of nobody who does not name its policies.
    """
    points = list(entry_points(group=GROUP, name=name))
    if not points:
        return None
    if len(points) > 1:
        raise InputError(f'policy "{name}": {" and ".join(map(_package, points))} all have one of that name')
    (point,) = points
    found = _load(point)
    if isinstance(found, Family):
        family = cast("Family[Any]", found)
        if name not in {each.name for each in family.names}:
            raise InputError(f'policy "{name}": {_where(point)}{point.value} has no policy of that name')
        return _checked(point, family)
    return _of_one(point, found)


def module_family(name: str) -> Family[Any]:
    """The family of the policy `module:attribute`. Raises InputError where there is none.

    A module that is not installed is also looked for in the present directory, as `python -m` does.
    """
    point = _module_point(name)
    found = _load(point)
    if not isinstance(found, Family):
        return _of_one(point, found)
    family = cast("Family[Any]", found)
    attribute = name.partition(":")[2]
    chosen = [each for each in family.names if len(family.names) == 1 or each.name == attribute]
    if not chosen:
        names = " and ".join(each.name for each in family.names)
        raise InputError(f'policy "{name}": is a Family of {names}, and none of them is {attribute}')
    named = replace(chosen[0], name=name, kind=chosen[0].kind or chosen[0].name)
    return replace(_checked(point, family), names=(named,))


def code_digest(name: str) -> str:
    """Changes with the source of the package, or of the module by itself, that brings the policy of that name.

    What that imports from elsewhere does not count. Raises InputError where there is no such policy.
    """
    points = [_module_point(name)] if ":" in name else list(entry_points(group=GROUP, name=name))
    digest = hashlib.sha256()
    for point in points:
        _load(point)
        package = sys.modules[point.module.partition(".")[0]]
        for file in _source_files(package):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _source_files(module: ModuleType) -> list[Path]:
    """Those of a module, or of a package with all that is in it."""
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    if folders:
        return sorted(file for folder in folders for file in folder.rglob("*.py"))
    return [] if module.__file__ is None else [Path(module.__file__)]


def _module_point(name: str) -> EntryPoint:
    if not _MODULE.fullmatch(name):
        raise InputError(f'policy "{name}": must be MODULE:CLASS, as in my_policies:Mine')
    here = os.getcwd()
    if here not in sys.path:
        # Last: what is installed must not change its meaning with the directory.
        sys.path.append(here)
    return EntryPoint(name, name, GROUP)


def _load(point: EntryPoint) -> object:
    try:
        return point.load()
    except Exception as error:
        raise InputError(
            f'policy "{point.name}": {_where(point)}{point.value} cannot be loaded: {_told(error)}'
        ) from error


def _of_one(point: EntryPoint, found: object) -> Family[Any]:
    """The family of what gives one policy."""
    if not callable(found):
        raise InputError(f'policy "{point.name}": {_where(point)}{point.value} must be a Family, or give the policy')
    meaning = (found.__doc__ or "").strip().partition("\n")[0] or "a policy without a description"
    return Family(
        group="installed",
        names=(Name(name=point.name, start=None, meaning=meaning.rstrip("."), source=_package(point)),),
        build=lambda _name, _start: _built(point, found),
    )


def _checked(point: EntryPoint, family: Family[Any]) -> Family[Any]:
    """The family, which raises InputError where what it builds is no policy."""

    def build(whole: str, start: Any) -> Policy:  # noqa: ANN401 - what a family builds from is its own
        return _built(point, lambda: family.build(whole, start))

    return replace(family, build=build)


def _built(point: EntryPoint, make: Callable[[], Any]) -> Policy:
    """What a package's code gives, if it is a policy. Raises InputError; ValueError is the package's word on a name."""
    try:
        policy = make()
    except (ValueError, InputError):
        raise
    except Exception as error:
        raise InputError(f'policy "{point.name}": {_where(point)}{point.value}: {_told(error)}') from error
    if not callable(getattr(policy, "decide", None)):
        raise InputError(f'policy "{point.name}": {_where(point)}{policy!r}: must have decide(snapshot)')
    if not isinstance(traits_of(policy), Traits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f'policy "{point.name}": {_where(point)}{policy!r}: traits must be dfrs.Traits')
    return policy


def plugin_families() -> Iterator[tuple[str, Family[Any] | InputError]]:
    """By name: all installed ones, or what is wrong with them."""
    for name in plugin_names():
        try:
            family = plugin_family(name)
        except InputError as error:
            yield name, error
        else:
            if family is not None:
                yield name, family


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name} {point.dist.version}" if point.dist is not None else "a package without a name"


def _where(point: EntryPoint) -> str:
    """What an error says before the value: its package; nothing of `module:attribute`, which names its own."""
    return "" if point.name == point.value else f"{_package(point)}: "


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
