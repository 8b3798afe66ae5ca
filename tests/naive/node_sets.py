"""The text of a set of nodes, item by item."""

from collections import Counter


def node_set(nodes):
    tasks = Counter(nodes)
    runs = []
    for node in sorted(tasks):
        if runs and runs[-1][1] == node - 1 and runs[-1][2] == tasks[node]:
            runs[-1][1] = node
        else:
            runs.append([node, node, tasks[node]])
    return " ".join(_item(*run) for run in runs)


def _item(low, high, times):
    span = str(low) if low == high else f"{low}-{high}"
    return span if times == 1 else f"{span}*{times}"
