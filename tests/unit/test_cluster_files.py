import pytest

from dfrs.model.errors import InputError
from dfrs.model.nodes import Condition, NodeChange
from dfrs.workloads.cluster import read_capacity, read_node_events, read_nodes


def file(tmp_path, text):
    path = tmp_path / "nodes.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_capacities_are_one_row_a_node_in_any_order_of_columns(tmp_path):
    path = file(tmp_path, "name,memory,cpu\na,1, 2\nb,0.5,1e0\n\nc,0,0\n")
    assert read_capacity(path).tolist() == [[2.0, 1.0], [1.0, 0.5], [0.0, 0.0]]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    assert read_capacity(file(tmp_path, "\ufeffcpu,memory\n1,1\n")).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["memory", ":1"]),
        ("cpu\n1\n", ["memory"]),
        ("cpu,memory\n", ["at least one"]),
        ("cpu,memory\n1,1\n1\n", [":3", "memory"]),
        ("cpu,memory\n1,x\n", [":2", "memory", '"x"']),
        ("cpu,memory\n1,1\n0,5,0,5\n", [":3", "more cells"]),
        ("cpu,memory\n-1,1\n", [":2", "cpu", '"-1"']),
        ("cpu,memory\nnan,1\n", ["nan"]),
        ("cpu,memory\ninf,1\n", ["inf"]),
        (b"cpu,memory\n\xff,1\n", ["cannot be read"]),
    ],
)
def test_broken_capacities_are_input_errors(tmp_path, text, words):
    with pytest.raises(InputError) as caught:
        read_capacity(file(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in [str(tmp_path), *words])


def test_hosts_are_a_column_that_need_not_be_there(tmp_path):
    capacity, hosts = read_nodes(file(tmp_path, "host,memory,cpu\na,1,2\n b ,0.5,1\n"))
    assert (capacity.tolist(), hosts) == ([[2.0, 1.0], [1.0, 0.5]], ("a", "b"))
    capacity, hosts = read_nodes(file(tmp_path, "memory,cpu\n1,2\n"))
    assert (capacity.tolist(), hosts) == ([[2.0, 1.0]], None)
    with pytest.raises(InputError, match=":3: host is empty: must be a name"):
        read_nodes(file(tmp_path, "host,memory,cpu\na,1,2\n,1,2\n"))
    with pytest.raises(InputError, match="no node: must have at least one"):
        read_nodes(file(tmp_path, "host,memory,cpu\n"))


def test_events_are_sorted_by_time_and_stable(tmp_path):
    path = file(tmp_path, "time_s,node,condition\n20,1,up\n10,1,down\n10,0,drain\n-5.5,3,down\n")
    assert read_node_events(path) == [
        (-5.5, NodeChange(3, Condition.DOWN)),
        (10.0, NodeChange(1, Condition.DOWN)),
        (10.0, NodeChange(0, Condition.DRAIN)),
        (20.0, NodeChange(1, Condition.UP)),
    ]


def test_no_events_are_none(tmp_path):
    assert read_node_events(file(tmp_path, "time_s,node,condition\n")) == []


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("x,1,up", "time_s"),
        ("nan,1,up", "time_s"),
        ("inf,1,up", "time_s"),
        ("1,-1,up", "node"),
        ("1,0.5,up", "node"),
        ("1,inf,up", "node"),
        ("1,,up", "node"),
        ("1,1,broken", "condition"),
        ("1,1,", "condition"),
        ("1,1", "condition"),
    ],
)
def test_broken_events_are_input_errors(tmp_path, row, word):
    path = file(tmp_path, f"time_s,node,condition\n0,0,up\n{row}\n")
    with pytest.raises(InputError, match=f":3: {word} = ") as caught:
        read_node_events(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("read", [read_capacity, read_nodes, read_node_events])
def test_a_file_that_is_not_there_or_a_directory_is_an_input_error(tmp_path, read):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read(path)
