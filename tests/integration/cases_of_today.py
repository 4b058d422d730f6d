"""Of cases that take long a run of the tests takes some, others each day."""
import datetime
import os


def test_day():
    """Days since 1970; FF_TEST_DAY gives another, whose cases run again. Printed."""
    day = int(os.environ.get("FF_TEST_DAY", (datetime.date.today() - datetime.date(1970, 1, 1)).days))
    print(f"FF_TEST_DAY={day}", flush=True)
    return day


def cases_of_today(cases, parts):
    """Every `parts`-th of the cases, by the day; FF_ALL_TESTS=1: all."""
    cases = list(cases)
    return cases if os.environ.get("FF_ALL_TESTS") else cases[test_day() % parts::parts]
