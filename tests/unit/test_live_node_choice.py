"""Jobs of a live cluster that may not run on every node: where they run, what they wait for, and what is shown."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.protocol import node_choice
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.live.protocol.wire import Hello
from dfrs.testing import InMemoryCluster, run_virtually, until
from dfrs.testing.in_memory import GIB
from tests.live_states import ABILITIES

SMALL = {"cpu_cores": 0.5, "memory_bytes": GIB}


def asking(**fields):
    return JobRequest(command=("x",), **fields)


def facts(name, *features):
    return Hello(
        protocol=1,
        node=name,
        host="h",
        address="",
        cpus=1.0,
        memory_bytes=GIB,
        abilities=ABILITIES,
        version="1",
        features=features,
    )


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, "abc"),
        ({"nodelist": ("a", "c", "gone")}, "ac"),
        ({"exclude": ("a",)}, "bc"),
        ({"nodelist": ("a", "b"), "exclude": ("a",)}, "b"),
        ({"constraint": "avx"}, "ab"),
        ({"constraint": "avx,rack:1"}, "a"),
        ({"constraint": "avx & rack:1"}, "a"),
        ({"constraint": "rack:1|rack:2"}, "abc"),
        ({"constraint": "avx", "exclude": ("a",)}, "b"),
        ({"constraint": "gpu"}, ""),
    ],
)
def test_which_nodes_a_request_permits(fields, wanted):
    nodes = [facts("a", "avx", "rack:1"), facts("b", "avx", "rack:2"), facts("c", "rack:1")]
    assert "".join(node.node for node in nodes if node_choice.permits(asking(**fields), node)) == wanted


def test_those_that_say_the_same_have_one_number_and_all_others_their_own():
    same = [{"nodelist": ("a", "b")}, {"nodelist": ("b", "a", "a")}]
    assert len({node_choice.number(asking(**fields)) for fields in same}) == 1
    different = [
        {},
        *same[:1],
        {"exclude": ("a", "b")},
        {"constraint": "a,b"},
        {"constraint": "a|b"},
        {"constraint": "a"},
    ]
    numbers = [node_choice.number(asking(**fields)) for fields in different]
    assert numbers[0] == 0
    assert len(set(numbers)) == len(numbers)
    assert node_choice.number(asking(constraint="b&a")) == numbers[3]
    assert all(0 <= number < 2**63 for number in numbers)


@given(st.lists(st.sampled_from("ab:,&| *("), max_size=8).map("".join))
def test_a_constraint_is_all_of_or_any_of_and_never_both(text):
    between = {char for char in text if char in ",&|"}
    words = [word.strip() for word in text.replace("&", ",").replace("|", ",").split(",")]
    good = all(word and word[0] in "ab" and set(word) <= set("ab:") for word in words)
    if good and between not in ({"|", ","}, {"|", "&"}, {"|", ",", "&"}):
        assert node_choice.features(text) == (words, "|" not in between)
    else:
        with pytest.raises(ValueError, match="must be features of nodes"):
            node_choice.features(text)


def test_what_contradicts_itself_is_refused_by_the_field():
    with pytest.raises(ValueError, match="must leave some of the nodes that the job may only run on"):
        asking(nodelist=("a", "b"), exclude=("b", "a", "c"))
    with pytest.raises(ValueError, match="must be features of nodes"):
        asking(constraint="a&b|c")
    assert asking(nodelist=("a", "b"), exclude=("b",)).exclude == ("b",)


def test_jobs_run_where_they_may_and_wait_for_nodes_that_are_to_come(tmp_path):
    async def story(_loop):
        async with InMemoryCluster(directory=tmp_path, nodes=2) as live:
            only = [await live.submit(nodelist=("n2",), **SMALL) for _ in range(3)]
            others = await live.submit(exclude=("n2",), **SMALL)
            for job in only:
                assert (await live.reaches(job, JobState.RUNNING)).nodes == ("n2",)
            assert (await live.reaches(others, JobState.RUNNING)).nodes == ("n1",)
            later = await live.submit(nodelist=("n3",), constraint="avx512", **SMALL)
            await until(lambda: live.job(later).why.startswith("waits: no node it may run on is up"), "its reason")
            assert live.job(later).why.endswith("(--nodelist n3 --constraint avx512)")
            node = live.hosts.node("n3", "h")
            node.attach(live.controller)
            await until(lambda: "n3" in live.controller.state.numbers, "the node")
            await asyncio.sleep(1.0)
            assert live.job(later).state is JobState.WAITING
            node.features = ("avx512", "rack:a")
            node.attach(live.controller)
            assert (await live.reaches(later, JobState.RUNNING)).nodes == ("n3",)
            assert next(each for each in live.controller.nodes() if each.name == "n3").features == node.features
            # Without its feature the node keeps what it has, and gets no more of it; all is so after a restart.
            node.features = ()
            node.attach(live.controller)
            more = await live.submit(constraint="avx512|gpu", **SMALL)
            for kill in (False, True):
                await live.restart(kill=kill)
                await until(lambda: "no node it may run on is up" in live.job(more).why, "its reason")
                assert live.job(later).nodes == ("n3",)
                assert live.job(later).state is JobState.RUNNING
            await live.controller.requeue(later, "ann")
            await until(lambda: live.job(later).attempt == 1, "begun anew")
            assert live.job(later).state is JobState.WAITING
            assert not live.controller.state.mismatches
            live.nodes["n1"].features = ("gpu",)
            live.nodes["n1"].attach(live.controller)
            assert (await live.reaches(more, JobState.RUNNING)).nodes == ("n1",)
            for job in (*only, others, later, more):
                await live.controller.cancel(job, "ann")
            await until(lambda: not live.controller.state.jobs and not live.controller.state.core.permitted, "nothing")

    run_virtually(1, story)


@pytest.mark.parametrize("policy", ["EASY", "FCFS"])
def test_a_batch_policy_starts_a_job_on_its_node_and_others_on_the_rest(tmp_path, policy):
    async def story(_loop):
        async with InMemoryCluster(policy, directory=tmp_path, nodes=2) as live:
            whole = {"cpu_cores": 4.0, "memory_bytes": GIB, "estimate_s": 100.0}
            first = await live.submit(nodelist=("n2",), **whole)
            assert (await live.reaches(first, JobState.RUNNING)).nodes == ("n2",)
            second = await live.submit(nodelist=("n2",), **whole)
            third = await live.submit(**whole)
            assert (await live.reaches(third, JobState.RUNNING)).nodes == ("n1",)
            await until(lambda: "the nodes it may run on have no room" in live.job(second).why, "its reason")
            await live.controller.cancel(first, "ann")
            assert (await live.reaches(second, JobState.RUNNING)).nodes == ("n2",)

    run_virtually(1, story)
