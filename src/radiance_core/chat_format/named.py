"""Ways of writing calls that have a name, so that a setting can choose one.

Nothing here says which model writes how: that is found out from its template, stated by its
architecture, or set.
"""

from dataclasses import replace
from typing import Any

from radiance_core.chat_format.format import ID_HOLE, ToolFormat

FORMATS: dict[str, ToolFormat] = {
    form.name: form
    for form in (
        ToolFormat(
            "hermes",
            call_open="<tool_call>\n",
            name_end='", "arguments": ',
            call_close="\n</tool_call>",
            separator="\n",
            values="json_call",
            object_open='{"name": "',
            object_close="}",
        ),
        ToolFormat(
            "llama3-json",
            call_open="",
            name_end='", "parameters": ',
            call_close="",
            values="json_call",
            object_open='{"name": "',
            object_close="}",
            arguments_key="parameters",
            parallel=False,
        ),
        ToolFormat(
            "mistral-list",
            section_open="[TOOL_CALLS][",
            call_open="",
            name_end='", "arguments": ',
            call_close="",
            separator=", ",
            section_close="]",
            values="json_call",
            object_open='{"name": "',
            object_close=f', "id": "{ID_HOLE}"}}',
            id_key="id",
        ),
        ToolFormat("mistral", call_open="[TOOL_CALLS]", name_end="[ARGS]", call_close=""),
        ToolFormat(
            "functionary", call_open="<function=", name_end=">", call_close="</function>"
        ),
        ToolFormat(
            "qwen3-coder",
            call_open="<tool_call>\n<function=",
            name_end=">",
            call_close="\n</function>\n</tool_call>",
            separator="\n",
            values="tagged",
            key_open="\n<parameter=",
            key_close=">\n",
            value_close="\n</parameter>",
        ),
        ToolFormat(
            "glm",
            call_open="<tool_call>",
            name_end="",
            call_close="\n</tool_call>",
            separator="\n",
            values="tagged",
            key_open="\n<arg_key>",
            key_close="</arg_key>\n<arg_value>",
            value_close="</arg_value>",
        ),
        ToolFormat(
            "deepseek",
            section_open="<｜tool▁calls▁begin｜>",
            call_open="<｜tool▁call▁begin｜>",
            name_end="<｜tool▁sep｜>",
            call_close="<｜tool▁call▁end｜>",
            section_close="<｜tool▁calls▁end｜>",
        ),
        ToolFormat(
            "deepseek-fenced",
            section_open="<｜tool▁calls▁begin｜>",
            call_open="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            name_end="\n```json\n",
            call_close="\n```<｜tool▁call▁end｜>",
            separator="\n",
            section_close="<｜tool▁calls▁end｜>",
        ),
        ToolFormat(
            "granite-list",
            section_open="<|tool_call|>[",
            call_open="",
            name_end='", "arguments": ',
            call_close="",
            separator=", ",
            section_close="]",
            values="json_call",
            object_open='{"name": "',
            object_close="}",
        ),
    )
}  # fmt: skip


def named_like(form: ToolFormat) -> str:
    """Return the name of a format that is written like ``form``, else what its calls begin with."""
    for name, known in FORMATS.items():
        if _essence(known) == _essence(form):
            return name
    return form.first_mark


def _essence(form: ToolFormat) -> ToolFormat:
    """Return a format less its name and its white space, which vary among templates."""
    texts: dict[str, Any] = {
        field: "".join(getattr(form, field).split())
        for field in (
            "section_open", "call_open", "name_end", "call_close", "separator", "section_close",
            "key_open", "key_close", "value_close", "object_open", "object_close",
        )
    }  # fmt: skip
    return replace(form, name="", **texts)
