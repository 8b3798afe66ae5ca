"""The notebooks run from their first cell to the last, and are stored as nobody has run them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def cells(path):
    """Code cells of a notebook."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["allocate", "campaign", "own-policy"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_without_outputs(path):
    assert json.loads(path.read_text())["nbformat"] == 4
    for cell in cells(path):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_cells_run_in_order(path, tmp_path):
    """Without a notebook's server: a cell has Python only, and its last value is what a notebook would show."""
    program = "\n\n".join("".join(cell["source"]) for cell in cells(path))
    (tmp_path / "notebook.py").write_text(program)
    done = subprocess.run([sys.executable, "notebook.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
