"""The published schema says what plans look like, and nothing else passes for one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from planner.plan import Explanation
from solver.problem import Span
from tests.cli.build import SCHEMA, VALIDATOR, Row, plan_of, real_dump


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of the schema that describes an object."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def test_schema_is_valid_and_closed() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for part in objects(SCHEMA):
        assert part["additionalProperties"] is False
        assert set(part["required"]) <= set(part["properties"])


def test_every_number_says_what_it_is() -> None:
    for part in objects(SCHEMA):
        for name, field in part["properties"].items():
            assert "description" in field or "$ref" in field or "const" in field or field.get("type") == "object", name


def test_plans_pass() -> None:
    moves = real_dump()
    newcomer = plan_of([Row("a", None, (0, 4)), Row("b", (2, 6), None)], 8, proven=False, slack=1.0)
    explained = replace(
        moves,
        explanations=(
            Explanation("server1", Span(7, 40), -1.5, -1.5, 33, True, "restart", "It would lose."),
            Explanation("server2", None, None, None, None, False, None, "Nothing else is possible."),
        ),
    )
    nothing = plan_of([Row("a", (0, 4), (0, 4))], 4)
    for plan in (moves, newcomer, explained, nothing, replace(nothing, status="infeasible")):
        VALIDATOR.validate(plan.to_json())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("surprise",), 1),
        (("status",), "perfect"),
        (("version",), 2),
        (("servers", 0, "current"), [1]),
        (("servers", 0, "surprise"), 1),
        (("before", "holes"), -1),
        (("before", "hops"), 0),
        (("objective", "bound_by"), "a guess"),
        (("solve", "settings", "resize"), 1),
        (("solve", "settings", "min_span"), 0),
        (("solve", "settings", "max_hops"), 0),
        (("solve", "settings", "horizon"), 0),
        (("solve", "settings", "min_gain"), 2),
    ],
)
def test_other_documents_do_not_pass(path: tuple[Any, ...], value: object) -> None:
    document = real_dump().to_json()
    part: Any = document
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    with pytest.raises(ValidationError):
        VALIDATOR.validate(document)
