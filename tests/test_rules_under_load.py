"""What a rule of a function allows once is done once, whoever asks at the same time: see `tests.races`."""

import pytest

from tests.races import race

ROUNDS = 3


def test_rules_on_a_file() -> None:
    """SQLite, with two workers."""
    race("sqlite", ROUNDS)


@pytest.mark.matrix
def test_rules_of_three_instances() -> None:
    """PostgreSQL, where nothing but locks keeps two transactions apart."""
    race("postgresql", ROUNDS)
