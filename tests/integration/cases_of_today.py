"""Of cases that take long a run of the tests takes some, others each day."""
import datetime
import os


def cases_of_today(cases, parts):
    """Every `parts`-th of the cases, by the day; FF_ALL_TESTS=1: all, FF_TEST_DAY=N: those of that day (since 1970)."""
    cases = list(cases)
    if os.environ.get("FF_ALL_TESTS"):
        return cases
    day = int(os.environ.get("FF_TEST_DAY", datetime.date.today().toordinal() - datetime.date(1970, 1, 1).toordinal()))
    return cases[day % parts::parts]
