"""Policies of other packages: entry points of the group `dfrs.policies`, looked up only where they are asked for.

The name of an entry point is the policy's. Its value is a `dfrs.policies.declaration.Family` that has that name, or
anything that gives the policy when it is called: its class, as a rule.
"""

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from dfrs.model.decisions import Policy, Traits, traits_of
from dfrs.model.errors import InputError
from dfrs.policies.declaration import Family, Name

GROUP = "dfrs.policies"


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
    try:
        found = point.load()
    except Exception as error:
        raise InputError(
            f'policy "{name}": {_package(point)}: {point.value} cannot be loaded: {_told(error)}'
        ) from error
    if isinstance(found, Family):
        family = cast("Family[Any]", found)
        if name not in {each.name for each in family.names}:
            raise InputError(f'policy "{name}": {_package(point)}: {point.value} has no policy of that name')
        return Family(
            group=family.group,
            names=family.names,
            build=lambda whole, start: _built(point, lambda: family.build(whole, start)),
            options=family.options,
        )
    if not callable(found):
        raise InputError(f'policy "{name}": {_package(point)}: {point.value} must be a Family, or give the policy')
    meaning = (found.__doc__ or "").strip().partition("\n")[0] or "a policy without a description"
    return Family(
        group="installed",
        names=(Name(name=name, start=None, meaning=meaning.rstrip("."), source=_package(point)),),
        build=lambda _name, _start: _built(point, found),
    )


def _built(point: EntryPoint, make: Callable[[], Any]) -> Policy:
    """What a package's code gives, if it is a policy. Raises InputError; ValueError is the package's word on a name."""
    try:
        policy = make()
    except (ValueError, InputError):
        raise
    except Exception as error:
        raise InputError(f'policy "{point.name}": {_package(point)}: {point.value}: {_told(error)}') from error
    if not callable(getattr(policy, "decide", None)):
        raise InputError(f'policy "{point.name}": {_package(point)}: {policy!r}: must have decide(snapshot)')
    if not isinstance(traits_of(policy), Traits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f'policy "{point.name}": {_package(point)}: {policy!r}: traits must be dfrs.Traits')
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


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
