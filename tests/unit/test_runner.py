"""Runs are kept, found again, and never half kept."""

from dataclasses import dataclass
from functools import partial

import polars as pl
import pytest

from dfrs.campaigns.runner import Runner, runner, study_key
from dfrs.model.errors import InputError

SCHEMA = {"algorithm": pl.String, "number": pl.Int64, "value": pl.Float64}


def rows(number, fails):
    if fails:
        raise ArithmeticError(number)
    return [{"algorithm": name, "number": number, "value": number / 2} for name in "ab"]


@dataclass(frozen=True)
class Toy:
    numbers: tuple
    fails: int = -1
    timed: bool = False
    name = "toy"
    sample = "numbers"
    schema = SCHEMA

    @property
    def runs(self):
        return 2 * len(self.numbers)

    @property
    def key(self):
        return study_key(self.numbers, ("campaigns/runner.py",))

    def warm(self):
        pass

    def parts(self):
        return [partial(rows, number, number == self.fails) for number in self.numbers]


@pytest.mark.parametrize(("workers", "timed"), [(1, False), (2, False), (2, True)])
def test_rows_come_in_the_order_of_the_parts(tmp_path, workers, timed):
    told = []
    with runner(tmp_path, workers, told.append) as running:
        frame = running.results(Toy(numbers=(3, 1, 2), timed=timed))
    assert frame.to_dict(as_series=False) == {
        "algorithm": ["a", "b"] * 3, "number": [3, 3, 1, 1, 2, 2], "value": [1.5, 1.5, 0.5, 0.5, 1.0, 1.0],
    }  # fmt: skip
    assert sum(told) == 6
    assert dict(frame.schema) == SCHEMA


def test_what_is_there_is_not_run_again(tmp_path):
    first = Runner(tmp_path, 1).results(Toy(numbers=(1, 2)))
    told = []
    again = Runner(tmp_path, 1, told.append).results(Toy(numbers=(1, 2), fails=2))
    assert again.equals(first)
    assert told == [4]


def test_a_study_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ArithmeticError):
        Runner(tmp_path, 1).results(Toy(numbers=(1, 2), fails=2))
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write results there"):
        Runner(tmp_path / "file" / "results", 1).results(Toy(numbers=(1,)))


def test_a_key_is_of_what_is_told_and_of_the_code():
    keys = {study_key(1, ("api.py",)), study_key(2, ("api.py",)), study_key(1, ("api.py", "model"))}
    assert len(keys) == 3
    assert study_key(1, ("api.py",)) in keys
