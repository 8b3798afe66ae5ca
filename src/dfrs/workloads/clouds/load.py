"""From the files of a cloud trace to a workload: which trace they are is seen from what they hold."""

from collections.abc import Sequence
from pathlib import Path

from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.workloads.clouds import alibaba_2018, azure_2020, google_2019
from dfrs.workloads.clouds.jobs import CloudOptions, CloudReport
from dfrs.workloads.clouds.tables import first_line

TABLES = ("instance_events", "collection_events", "batch_task", "batch_instance", "container_meta")
KNOWN = "instance_events (Google 2019), batch_task or container_meta (Alibaba 2018), or an SQLite file (Azure 2020)"
_ALIBABA = {
    len(alibaba_2018.TASKS): "batch_task",
    len(alibaba_2018.INSTANCES): "batch_instance",
    len(alibaba_2018.CONTAINERS): "container_meta",
}
SQLITE = (".sqlite", ".sqlite3", ".db")


def read_cloud_trace(
    path: str | Path,
    *,
    nodes: int,
    estimates: str | float = "perfect",
    window_s: tuple[float, float] | None = None,
    cut_off: str = "drop",
    machine: int | None = None,
) -> Workload:
    """A workload from files of Google cluster data 2019, Alibaba 2018 or the Azure trace for packing 2020.

    `path` is a file or a directory. `window_s`: only jobs submitted in it. `cut_off`: "drop", or "keep" for jobs whose
    start or end is outside of the trace. `machine`: of an Azure trace, the machineId that a node is. See
    `load_cloud_trace`, which also tells what was taken. Raises InputError.
    """
    options = CloudOptions(nodes=nodes, estimates=estimates, window_s=window_s, cut_off=cut_off, machine=machine)
    return load_cloud_trace(Path(path), options)[0]


def load_cloud_trace(path: Path, options: CloudOptions) -> tuple[Workload, CloudReport]:
    """The workload of a file of a trace, or of all files of it in a directory, and what was taken.

    In a directory files are known by the names that their publishers give them: they begin with the name of a table,
    and all files of a table are read. Nothing is downloaded. Raises InputError.
    """
    source, name = str(path), path.resolve().name.partition(".")[0]
    files = _files(path)
    if "azure" in files:
        return azure_2020.read(files["azure"][0], options, source=source, name=name)
    if options.machine is not None:
        raise InputError(f"{path}: machine = {options.machine}: only an Azure trace has machines to choose from")
    if "instance_events" in files:
        instances, collections = files["instance_events"], files.get("collection_events", ())
        return google_2019.read(instances, collections, options, source=source, name=name)
    if "batch_task" in files or "container_meta" in files:
        tasks, instances, containers = (files.get(table, ()) for table in TABLES[2:])
        return alibaba_2018.read(tasks, instances, containers, options, source=source, name=name)
    found = f"only {', '.join(files)}" if files else "no table of a cloud trace"
    raise InputError(f"{path}: {found}: must have {KNOWN}")


def _files(path: Path) -> dict[str, Sequence[Path]]:
    """The files by table; "azure" for an SQLite database. Raises InputError where they are of several traces."""
    if not path.is_dir():
        return {table: [path]} if (table := _table(path)) else {}
    inside = sorted(child for child in path.iterdir() if child.is_file())
    for child in inside:
        if child.name.endswith((".tar", ".tar.gz", ".zip")) and child.name.startswith(TABLES):
            raise InputError(f"{child}: an archive: must be unpacked first")
    files: dict[str, Sequence[Path]] = {
        table: named for table in TABLES if (named := [child for child in inside if child.name.startswith(table)])
    }
    databases = [child for child in inside if child.suffix in SQLITE and azure_2020.is_sqlite(child)]
    if len(databases) > 1:
        raise InputError(f"{path}: {len(databases)} SQLite files: name the one to be read")
    if databases:
        files["azure"] = databases
    traces = [bool(files.keys() & set(tables)) for tables in (TABLES[:2], TABLES[2:], ("azure",))]
    if sum(traces) > 1:
        raise InputError(
            f"{path}: files of several traces ({', '.join(files)}): name a file, or one directory for each"
        )
    return files


def _table(path: Path) -> str:
    """Which table a file is, by what it begins with; "" if none that is known."""
    if azure_2020.is_sqlite(path):
        return "azure"
    if path.name.endswith((".tar", ".tar.gz", ".tgz", ".zip")):
        raise InputError(f"{path}: an archive: must be unpacked first")
    line = first_line(path)
    if "collection_id" in line:
        return "instance_events" if "instance_index" in line else "collection_events"
    return _ALIBABA.get(line.count(",") + 1, "") if line else ""
