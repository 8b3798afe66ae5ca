"""Extras of the package: which one brings a library, and the line that says so where it is missing."""

import re
from importlib.metadata import requires
from importlib.util import find_spec

from dfrs.model.errors import InputError
from dfrs.version import LIGHT, installed

_REQUIREMENT = re.compile(r"""([\w.-]+).*;.*\bextra == ['"]([\w-]+)['"]""")


class MissingExtraError(InputError):
    """An option or a verb needs an extra that is not installed."""


def require(extra: str) -> None:
    """Raise MissingExtraError before something long begins whose end would need a library of the extra."""
    if installed() == LIGHT:
        raise MissingExtraError(_elsewhere(f"dfrs[{extra}]"))
    for module in _modules().get(extra, ()):
        if find_spec(module) is None:
            raise MissingExtraError(_line(module, extra))


def missing(error: ModuleNotFoundError) -> MissingExtraError | None:
    """What to say of a module that is not there; None if it belongs to no extra."""
    module = (error.name or "").partition(".")[0]
    if module == "dfrs":
        return None
    if installed() == LIGHT:
        return MissingExtraError(f"this needs {module}; {_elsewhere('dfrs[live]')}")
    fitting = [(len(modules), extra) for extra, modules in _modules().items() if module in modules]
    # The smallest: what brings a library stands in larger extras too.
    return MissingExtraError(_line(module, min(fitting)[1])) if fitting else None


def _line(module: str, extra: str) -> str:
    return f"this needs {module}, which is not installed: pip install 'dfrs[{extra}]'"


def _elsewhere(name: str) -> str:
    return f"{LIGHT} has what nodes and users of a cluster need: pip uninstall {LIGHT}, then pip install '{name}'"


def _modules() -> dict[str, list[str]]:
    """By extra, as pyproject.toml has them; each package is named as the module that it brings."""
    found: dict[str, list[str]] = {}
    for requirement in requires("dfrs") or ():
        if match := _REQUIREMENT.match(requirement):
            found.setdefault(match[2], []).append(match[1].replace("-", "_"))
    return found
