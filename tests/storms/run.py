"""One storm from its seed, and a digest by which it is known to repeat."""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from hashlib import sha256

from dfrs.testing import run_virtually
from tests.storms.acts import acts_of, faults_of
from tests.storms.log import read_log
from tests.storms.story import Storm


@dataclass
class Told:
    """What became of a storm."""

    storm: Storm
    steps: int
    """Turns of the event loop."""
    digest: str = ""
    error: Exception | None = None


def tell(seed, faults=None, acts=None):
    """The storm of that seed after its end, whether it went wrong or not."""
    faults = faults_of(seed) if faults is None else faults
    acts = acts_of(seed, faults) if acts is None else acts
    path = tempfile.mkdtemp(prefix="dfrs-storm-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    loops, made = [], []

    async def story(loop):
        loops.append(loop)
        made.append(Storm(path, seed, loop, faults, acts))
        await made[0].story()

    try:
        _, steps = run_virtually(seed, story)
        history = [list(map(str, each)) for each in made[0].hosts.history]
        events = json.dumps([read_log(path), history, steps])
        return Told(made[0], steps, sha256(events.encode()).hexdigest()[:16])
    except Exception as error:
        error.add_note(f"seed {seed}, in act {made[0].done} of {len(acts)}")
        return Told(made[0], loops[0].steps, error=error)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def storm(seed, faults=None):
    """The storm of that seed after its end, and a digest of what happened. Raises what went wrong."""
    told = tell(seed, faults)
    if told.error is not None:
        raise told.error
    return told.storm, told.digest
