import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.kernels import progress
from tests import online_cases, strategies
from tests.naive import compare_online as compare


@st.composite
def progressing(draw):
    return online_cases.progress_case(strategies.Drawn(draw))


@pytest.mark.parametrize(
    ("kernel", "comparison"),
    [
        (progress.checkpointed, compare.checkpointed),
        (progress._account, compare.account),
        (progress._predict, compare.predict),
        (progress.perform, compare.perform),
        (progress.drop, compare.drop),
        (progress.delay, compare.delay),
        (progress.amend, compare.amend),
        (progress.next_completion, compare.next_completion),
    ],
    ids=lambda value: value.__name__,
)
@given(case=progressing())
def test_the_kernel_equals_its_twin(kernel, comparison, case):
    got, expected = comparison(kernel, case)
    assert got == expected
