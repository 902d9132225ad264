"""Every protection is missed by a test when it is switched off."""

import pytest

from tests.recovery.mutations import MUTATIONS, Mutation, outcome

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_protection_that_is_switched_off_turns_a_test_red(name):
    assert outcome(MUTATIONS[name]) == "red"


def test_the_same_tests_are_green_with_every_protection_on():
    tests = tuple(dict.fromkeys(test for mutation in MUTATIONS.values() for test in mutation.tests))
    assert outcome(Mutation("", "", "", tests)) == "green"
