"""Compiles what must be compiled for the MPI at hand: the profiler that is preloaded, and the micro-benchmarks.

An MPI library's handles are its own, so a profiler fits only the MPI whose `mpicc` built it. What was built is kept in
the user's cache directory under a digest of its sources and of the MPI, and of the CPU where it is built for one kind.
It is put there by one rename: two programs that build at once do not disturb each other.
"""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from dfrs.model.errors import DfrsError, InputError
from dfrs.model.user_cache import user_cache
from dfrs.profiling.cpuinfo import cpu_fields, cpuinfo

LAUNCHERS = frozenset({"mpirun", "mpiexec", "orterun", "mpirun.openmpi", "mpiexec.openmpi", "mpiexec.hydra"})
_SOURCES = ("recorder.h", "weak.h", "recorder.c", "pmpi.c", "fortran.c", "pingpong.c", "rates.c")
_BUILD_S = 120.0
_CPU_FIELDS = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
"""Of /proc/cpuinfo: x86 has the first four, ARM the others."""


class NoMpiError(DfrsError):
    """There is no `mpicc`: install Open MPI (Debian: openmpi-bin libopenmpi-dev), or name one in DFRS_MPICC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The compiler of one MPI."""

    mpicc: str
    shown: str
    """What it says it runs: compiler, directories and libraries."""

    @property
    def open_mpi(self) -> bool:
        """Whether it is Open MPI's."""
        return "openmpi" in self.shown.lower() or "open-mpi" in self.shown.lower() or "open-pal" in self.shown.lower()

    @property
    def compiler(self) -> str:
        """The compiler behind it."""
        return self.shown.split()[0]


def toolchain(launcher: str = "") -> Toolchain:
    """The MPI compiler that belongs to `launcher` (a path of mpirun; else the one on PATH). Raises NoMpiError."""
    named = os.environ.get("DFRS_MPICC")
    beside = [str(Path(launcher).parent / "mpicc")] if launcher and Path(launcher).name in LAUNCHERS else []
    for candidate in [named] if named else [*beside, "mpicc"]:
        found = shutil.which(candidate)
        if found:
            return Toolchain(mpicc=found, shown=_shown(found))
    what = f"DFRS_MPICC = {named}" if named else "mpicc"
    raise NoMpiError(f"{what}: not found; install Open MPI (Debian: openmpi-bin libopenmpi-dev) or set DFRS_MPICC")


def profiler(tools: Toolchain) -> Path:
    """The library to preload, built if need be."""
    objects = ("recorder.c", "pmpi.c", "fortran.c")
    return _built(tools, "libdfrs_profile.so", objects, ["-fPIC"], ["-shared", "-ldl"], link_mpi=False)


def pingpong(tools: Toolchain) -> Path:
    """The program that measures latency by message size."""
    return _built(tools, "dfrs-pingpong", ("pingpong.c",), [], [], link_mpi=True)


def rates() -> Path:
    """The program that measures rates of operation; needs a C compiler, but no MPI. Raises NoMpiError without one."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise NoMpiError("cc: not found; install a C compiler (Debian: gcc)")
    tools = Toolchain(mpicc=compiler, shown=compiler)
    return _built(tools, "dfrs-rates", ("rates.c",), ["-march=native"], [], link_mpi=True, only_on=_cpu())


def _cpu() -> str:
    """Which kind of CPU this is, by what a compiler goes by; homes are shared by machines of several."""
    fields = cpu_fields(cpuinfo())
    return "\0".join((platform.machine(), *(fields.get(name, "") for name in _CPU_FIELDS)))


def cache_directory() -> Path:
    """Where built files are kept."""
    return user_cache() / "mpi"


def source_directory() -> Path:
    """Where the C sources are."""
    return Path(str(files("dfrs.profiling") / "native"))


def _shown(mpicc: str) -> str:
    for option in ("-show", "--showme"):
        answer = subprocess.run([mpicc, option], capture_output=True, text=True, check=False, timeout=_BUILD_S)
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.strip()
    raise InputError(f"{mpicc}: does not answer to -show: is it an MPI compiler?")


def _digest(tools: Toolchain, options: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join((tools.mpicc, tools.shown, _library(tools), *options)).encode())
    for name in _SOURCES:
        digest.update((source_directory() / name).read_bytes())
    return digest.hexdigest()[:20]


def _library(tools: Toolchain) -> str:
    """Which MPI library that is, beyond its place: a newer one in the same place needs a new build."""
    directories = [word[2:] for word in tools.shown.split() if word.startswith("-L")]
    for directory in directories:
        for library in sorted(Path(directory).glob("libmpi*.so")):
            found = library.resolve()
            status = found.stat()
            return f"{found} {status.st_size} {status.st_mtime_ns}"
    return ""


def _built(
    tools: Toolchain,
    name: str,
    sources: Sequence[str],
    compile_: Sequence[str],
    link: Sequence[str],
    *,
    link_mpi: bool,
    only_on: str = "",
) -> Path:
    place = cache_directory() / _digest(tools, (name, *compile_, *link, only_on))
    wanted = place / name
    if wanted.exists():
        return wanted
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place) as directory:
            objects: list[str] = []
            for source in sources:
                objects.append(str(Path(directory) / f"{source}.o"))
                path = str(source_directory() / source)
                _run([tools.mpicc, "-O2", *compile_, "-c", path, "-o", objects[-1]])
            made = Path(directory) / name
            # Not by mpicc where MPI must not be linked: see pmpi.c.
            _run([tools.mpicc if link_mpi else tools.compiler, *objects, *link, "-lm", "-o", str(made)])
            made.replace(wanted)
    except OSError as error:
        raise InputError(f"{place}: cannot build the profiler there: {error.strerror}; set XDG_CACHE_HOME") from None
    return wanted


def _run(command: Sequence[str]) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_S)
    if answer.returncode != 0:
        said = [line for line in (answer.stderr or answer.stdout).splitlines() if "error" in line.lower()]
        raise DfrsError(f"{command[0]}: cannot build: {said[0] if said else f'exit status {answer.returncode}'}")
