"""What a program is given so that it is profiled: the library before all others, and a place to count in."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def environment(base: Mapping[str, str], library: Path, directory: Path) -> dict[str, str]:
    """The program's environment: the profiler before whatever else is preloaded."""
    preload = " ".join([str(library), *base.get("LD_PRELOAD", "").split()])
    found = {**base, "LD_PRELOAD": preload, "DFRS_PROFILE_DIR": str(directory)}
    if "OMPI_MCA_mca_base_env_list" in base:
        # Open MPI refuses this list and -x together.
        found["OMPI_MCA_mca_base_env_list"] = f"{base['OMPI_MCA_mca_base_env_list']};LD_PRELOAD;DFRS_PROFILE_DIR"
    return found


def shared_memory() -> Path:
    """Where ranks count: files that never go to a disk, if there is such a place."""
    shared = Path("/dev/shm")  # noqa: S108 - sessions make folders of their own in it
    return shared if os.access(shared, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
