"""Thousands of numbers for every option of every model: at the doors, and beside four requests that run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.contract.attacks import Beside, at_the_doors, attacks, four
from tests.contract.speakers import every_model, every_side, source, speaker, spoken
from tests.json_numbers import numeric_options

NUMBERS = 2000  # of every option
PLACES = 16  # of the batch: four, and twelve attacks at a time


@pytest.mark.slow
@every_model
@every_side
def test_2000_numbers_of_every_option_harm_no_other(model: str, side: str, tmp_path: Path) -> None:
    """Each is put to the doors; each that they take runs beside four, whose codes and samples stay exact."""
    begun = time.perf_counter()
    values = {name: at_the_doors(model, name, NUMBERS, tmp_path) for name in numeric_options(model)}
    opened, session = source(model, side), speaker(model, side).session(PLACES)
    assert session.places == PLACES
    asked = four(opened)
    expected = spoken(session, *asked)
    crowd = Beside(opened, session, asked, expected).run(attacks(model, values))
    session.close()
    taken = {name: len(numbers) for name, numbers in values.items()}
    count = sum(taken.values())
    print(
        f"\n{model} {side}: {NUMBERS * len(taken)} numbers of {len(taken)} options, {count} taken, "
        f"{NUMBERS * len(taken) - count} refused at the doors; {crowd.ran.total()} ran, "
        f"{crowd.refused.total()} refused by requests; {crowd.spoken} speeches of the four exact; "
        f"{time.perf_counter() - begun:.0f} s; ends {dict(crowd.ends)}; taken {taken}; "
        f"reasons {dict(crowd.reasons)}"
    )
    for name, number in taken.items():
        assert NUMBERS / 20 < number < NUMBERS * 0.95, name
        assert crowd.ran[name] + crowd.refused[name] >= number, name
        assert crowd.refused[name] <= number / 2, (name, crowd.reasons)
    assert crowd.spoken > 40
