"""Hypothesis profiles, and fixtures that several files use."""

import os
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

from dfrs.cli.main import main

settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=120,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("ci"), derandomize=False, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed, new for each test."""
    return np.random.default_rng(20_100_401)


@pytest.fixture
def dfrs(monkeypatch, capsys):
    """`dfrs` in this process: exit status, standard output, standard error. A traceback would fail the test."""

    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["dfrs", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return called
