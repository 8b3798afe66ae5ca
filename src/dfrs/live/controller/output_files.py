"""The files that a job's output goes to as well, as its tasks are told."""

from dfrs.live.controller.records import JobRecord
from dfrs.live.drivers.base import TaskFile
from dfrs.live.drivers.file_names import fill, is_shared


def output_file(job: JobRecord, name: str | None) -> TaskFile | None:
    """The file of that name of its present attempt; None without one.

    Unless its user said otherwise, nothing is lost: a file of which several tasks have a part, or an attempt before
    this one, is appended to.
    """
    if name is None:
        return None
    request = job.request
    again = job.attempt > 0 or is_shared(name, request.tasks, request.array)
    known: dict[str, str | int] = {"j": job.id, "A": job.request_id, "x": job.name, "u": job.user}
    if job.array_index is not None:
        known["a"] = job.array_index
    return TaskFile(name=fill(name, known), mode=request.open_mode or ("append" if again else "truncate"))
