"""Compiles what an answer must look like: which calls may come, and the form of its text."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from radiance_core.chat_format.grammar import answer_grammar
from radiance_core.chat_format.tagged_grammar import SchemaNotServed, patterns_of
from radiance_core.chat_format.tools import ToolChoice
from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.json_schema import read_schema
from radiance_core.engine.interface import TextModel
from radiance_core.engine.sampling import ConstraintSource, ConstraintSpec
from radiance_core.server.errors import invalid, scrub
from radiance_core.server.structured import compile_constraint

_CODE = "unsupported_constraint"


async def compile_answer(
    model: TextModel,
    choice: ToolChoice,
    content: ConstraintSpec | None,
    *,
    inside_reasoning: bool,
) -> ConstraintSource | None:
    """Return the constraint of an answer, None when it is free.

    Args:
        model: answers.
        choice: what may be called.
        content: what text that is no call must look like.
        inside_reasoning: the prompt ends within the model's thoughts.

    Raises: ``ApiError`` 400 naming the place in a tool's schema, or the field, that cannot be
    enforced.
    """
    form = model.chat_format
    schemas = await asyncio.to_thread(read_schemas, choice)
    try:
        grammar = await asyncio.to_thread(
            answer_grammar,
            form,
            choice,
            schemas,
            inside_reasoning=inside_reasoning,
            has_content=content is not None,
        )
    except SchemaNotServed as err:
        path = _path(choice, err.tool)
        raise invalid(f"{path}: {err}.", f"{path}.{err.path}", _CODE) from err
    if grammar is None:
        return None if content is None else await compile_constraint(model, content)
    parts: dict[str, Any] = {"answer": grammar}
    if content is not None:
        await compile_constraint(model, content)  # so that its faults are told as its own
        parts["content"] = [content.kind, content.text]
    try:
        return await model.compile_constraint(ConstraintSpec("answer", json.dumps(parts)))
    except ConstraintError as err:
        if form.tools is not None and form.tools.values == "tagged":
            await _try_patterns(model, choice, schemas)
        said = scrub(str(err).removeprefix("answer: "))
        raise invalid(f"tools: {said}", "tools", _CODE) from err


async def _try_patterns(
    model: TextModel, choice: ToolChoice, schemas: Mapping[str, Mapping[str, Any]]
) -> None:
    """Compile each pattern by itself, so that a fault in one is told by its place."""
    for name, schema in schemas.items():
        for place, expression in patterns_of(schema):
            try:
                await model.compile_constraint(ConstraintSpec("regex", expression))
            except ConstraintError as err:
                path = f"{_path(choice, name)}.{place}"
                said = scrub(str(err).removeprefix("regex: "))
                raise invalid(f"{path}: {said}", path, _CODE) from err


def read_schemas(choice: ToolChoice) -> dict[str, Mapping[str, Any]]:
    """Return the schemas of the tools that may be called, less what asks for nothing.

    Raises: ``ApiError`` 400 naming what of a schema cannot be enforced.
    """
    schemas: dict[str, Mapping[str, Any]] = {}
    for tool in choice.callable:
        path = _path(choice, tool.name)
        try:
            read = read_schema(json.dumps(tool.parameters, ensure_ascii=False), path)
        except ConstraintError as err:
            param = f"{path}.{err.path}" if err.path else path
            raise invalid(scrub(str(err)), param, _CODE) from err
        clean = json.loads(read.text)
        clean.pop("x-guidance", None)  # the grammar has its own
        schemas[tool.name] = clean
    return schemas


def _path(choice: ToolChoice, name: str) -> str:
    """Return where the schema of a tool stands in the request."""
    place = next(n for n, tool in enumerate(choice.shown) if tool.name == name)
    return f"tools[{place}].function.parameters"
