"""A wall clock that can be set: Python imports this module first where its folder is in PYTHONPATH.

The clock is ahead of the real one by the seconds in the file that DFRS_TESTS_CLOCK names. Steady clocks go on as ever,
as where somebody sets the time of a machine.
"""

import os
import time
from pathlib import Path

_ahead = Path(os.environ["DFRS_TESTS_CLOCK"])
_real_s = time.time


def _time():
    return _real_s() + float(_ahead.read_text())


time.time = _time
