"""Kinds of experiments, one file each: every module of this folder has an `EXPERIMENT`, and is found by being here."""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from dfrs.experiments.experiment import Experiment


@cache
def experiments() -> Mapping[str, Experiment]:
    """By the names of their kinds."""
    modules = (import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    found: list[Experiment] = [module.EXPERIMENT for module in modules]
    return {experiment.kind.name: experiment for experiment in found}
