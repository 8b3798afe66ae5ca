"""An outcome as a document: the `--json` of `allocate`, the allocation file, and its CSV."""

import csv
import io
import json

import numpy as np

from dfrs.model.allocation import Allocation, Outcome
from dfrs.model.instance import Instance


def outcome_document(instance: Instance, outcome: Outcome) -> dict[str, object]:
    """Everything about an outcome: yields by service, nodes by service in order of its tasks."""
    allocation = outcome.allocation
    document: dict[str, object] = {
        "algorithm": outcome.algorithm,
        "status": str(outcome.status),
        "minimum_yield": outcome.minimum_yield,
        "average_yield": None,
        "bound": outcome.bound,
        "gap": outcome.gap,
        "utilization": None,
        "runtime_s": outcome.runtime_s,
        "placement": None,
        "yields": None,
        "scaled_yields": None,
        "details": dict(outcome.details),
    }
    if allocation is not None:
        ends = np.cumsum(instance.tasks_per_service)
        names = [instance.nodes[n] for n in allocation.place]
        document |= {
            "average_yield": allocation.average_yield,
            "utilization": allocation.utilization(instance),
            "placement": {
                service: names[end - count : end]
                for service, count, end in zip(
                    instance.services, instance.tasks_per_service.tolist(), ends.tolist(), strict=True
                )
            },
            "yields": dict(zip(instance.services, allocation.yields(instance).tolist(), strict=True)),
            "scaled_yields": dict(zip(instance.services, allocation.scaled_yields.tolist(), strict=True)),
        }
        if instance.rules is not None and instance.rules.soft:
            document |= {
                "rules_cost": instance.rules.cost(allocation.place),
                "rules_broken": instance.rules.concessions(allocation.place),
            }
    return document


def allocation_file(instance: Instance, outcome: Outcome, *, source: str, nodes: int | None = None) -> str:
    """The text of a `dfrs-allocation/1` file. `source` is the instance's file, `nodes` what was used instead of its."""
    made_from = {"format": "dfrs-allocation/1", "instance": source, "nodes": nodes}
    return json.dumps(made_from | outcome_document(instance, outcome), indent=1) + "\n"


def allocation_csv(instance: Instance, allocation: Allocation) -> str:
    """A row a task: service, component, task, node, its service's yield, and what it is given of each resource."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["service", "component", "task", "node", "yield", *(r.name for r in instance.resources)])
    yields = allocation.yields(instance)
    shares = allocation.shares(instance)
    first = np.searchsorted(instance.service_of, instance.service_of)
    for i, j in enumerate(instance.service_of.tolist()):
        component = instance.components[i] if instance.components else ""
        row = [instance.services[j], component, i - int(first[i]), instance.nodes[int(allocation.place[i])]]
        writer.writerow([*row, f"{yields[j]:.9g}", *(f"{share:.9g}" for share in shares[i])])
    return text.getvalue()
