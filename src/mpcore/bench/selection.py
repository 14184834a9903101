"""Which problems to run: names by regular expression, values by axes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from mpcore.bench.problem import number
from mpcore.bench.suite import SUITES, get_suite, parse

RUN_AXES = ("threads", "isa", "impl")
"""Axes that are no fields of a problem."""

_RANGE_FACTOR = 4


def parse_axis(text: str) -> tuple[str, tuple[str, ...]]:
    """Return name and values of ``dtype=bf16,f16`` or ``n=2^10:2^24``.

    A range goes up by factors of 4.

    Raises
    ------
    ValueError
        If it has no name or no values.
    """
    name, equals, rest = text.partition("=")
    if not (name and equals and rest):
        raise ValueError(f"An axis must be like dtype=bf16,f16. Received: {text!r}")
    values: list[str] = []
    for part in rest.split(","):
        first, colon, last = part.partition(":")
        values += _range(first, last) if colon else [part]
    return name, tuple(values)


def _range(first: str, last: str) -> list[str]:
    value, end = number(first), number(last)
    values = []
    while value <= end:
        values.append(str(value))
        value *= _RANGE_FACTOR
    return values


def select(
    pattern: str | None,
    axes: Mapping[str, Sequence[str]],
    full: bool,
    suites: Iterable[str] = SUITES,
) -> list[str]:
    """Return problem strings.

    Parameters
    ----------
    pattern : str or None
        A regular expression that some part of a string must match.
    axes : dict
        Fields and their values: each problem is taken with each value of the fields it
        has.
    full : bool
        All problems; else the quick ones.

    Raises
    ------
    ValueError
        If nothing is selected, the pattern is malformed, an axis is no field of any
        selected suite, or a value says nothing.
    """
    try:
        expression = re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"`-k` must be a regular expression: {error}") from None
    chosen: dict[str, None] = {}
    fields: set[str] = set()
    for name in suites:
        suite = get_suite(name)
        for text in suite.quick + (suite.full if full else ()):
            if expression.search(text):
                fields |= set(suite.fields)
                chosen |= dict.fromkeys(_varied(text, axes))
    if not chosen:
        raise ValueError(f"No problem matches -k {pattern!r}. See `mpcore bench list`.")
    unknown = set(axes) - fields
    if unknown:
        known = ", ".join(sorted(fields | set(RUN_AXES)))
        raise ValueError(
            f"An axis must be one of {known}. Received: {', '.join(sorted(unknown))}"
        )
    return list(chosen)


def _varied(text: str, axes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a problem with all combinations of the values its fields take."""
    problem = parse(text)
    choices = [axes.get(field, (value,)) for field, value in problem.fields]
    texts = [":".join([problem.suite, *values]) for values in product(*choices)]
    return [str(parse(each)) for each in texts]
