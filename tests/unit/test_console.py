"""Where a table of many columns is printed."""

import io

import pytest
from rich.console import Console

from dfrs.cli import console


@pytest.mark.parametrize("width", [1, 80, 81, 300])
def test_wide_tables_get_their_room_and_what_is_printed_later_does_not(monkeypatch, capsys, width):
    monkeypatch.setattr(console, "out", Console(width=80))
    console.out_of(width).print("x" * width)
    assert capsys.readouterr().out.splitlines() == ["x" * width]
    assert console.out.width == 80


def test_a_terminal_keeps_its_width(monkeypatch):
    monkeypatch.setattr(console, "out", Console(file=io.StringIO(), force_terminal=True, width=80))
    assert console.out_of(300) is console.out
