"""Chat templates in the shapes that model families have, in words of our own.

``{calls}`` stands where a template writes an answer's calls, ``{thoughts}`` where its thoughts go.
"""

_BASE = """
{%- macro call_of(call, index) %}{one}{% endmacro -%}
{%- if tools %}
{{- '<|turn|>system\\nYou have tools.' }}
{%- for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}
{{- '<|end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|turn|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{thoughts}
{{- message.content or '' }}
{%- if message.tool_calls %}{calls}{% endif %}
{%- else %}
{{- message.content }}
{%- endif %}
{{- '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn|>assistant\\n' }}{opened}{% endif %}"""

_EACH = """
{%- for call in message.tool_calls %}
{before}{{- call_of(call.function if call.function else call, loop.index0) }}{after}
{%- if not loop.last %}{between}{% endif %}
{%- endfor %}"""


def template(
    one: str,
    *,
    before: str = "",
    after: str = "",
    between: str = "",
    opens: str = "",
    closes: str = "",
    thoughts: str = "",
    opened: str = "",
) -> str:
    """Return a template whose calls are written as ``one``, between the other texts."""
    each = _EACH.replace("{before}", _said(before)).replace("{after}", _said(after))
    each = each.replace("{between}", _said(between))
    return (
        _BASE.replace("{calls}", _said(opens) + each + _said(closes))
        .replace("{one}", one)
        .replace("{thoughts}", thoughts)
        .replace("{opened}", _said(opened))
    )


def _said(text: str) -> str:
    """Return an expression that prints a text exactly, white space and all."""
    return "{{- " + repr(text) + " }}" if text else ""


_JSON = '{{- \'{"name": "\' + call.name + \'", "%s": \' }}{{- call.arguments | tojson }}{{- "}" }}'
_THOUGHTS = (
    "{%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content"
    " + '\\n</think>\\n\\n' }}{% endif %}"
)


def _tagged(key_open: str, key_close: str, value_close: str, close: str, head: str) -> str:
    """Return a call whose arguments are each between marks of their own."""
    return (
        f"{{{{- {head} }}}}"
        "{%- for key, value in call.arguments.items() %}"
        f"{{{{- {key_open!r} + key + {key_close!r} }}}}"
        "{{- value if value is string else value | tojson }}"
        f"{{{{- {value_close!r} }}}}"
        "{%- endfor %}"
        f"{{{{- {close!r} }}}}"
    )


FAMILIES: dict[str, str] = {
    "hermes": template(
        _JSON % "arguments", before="\n<tool_call>\n", after="\n</tool_call>",
        thoughts=_THOUGHTS,
    ),
    "llama3-json": template(
        "{%- if message.tool_calls | length > 1 %}{{ raise_exception('one at a time') }}{% endif %}"
        + _JSON % "parameters"
    ).replace("call_of(call, index)", "call_of(call, index, message)").replace(
        "loop.index0)", "loop.index0, message)"
    ),
    "mistral-list": template(
        '{{- \'{"name": "\' + call.name + \'", "arguments": \' }}{{- call.arguments | tojson }}',
        after="", between=", ", opens="[TOOL_CALLS][", closes="]",
    ).replace(
        "loop.index0) }}",
        "loop.index0) }}{%- if call.id | length != 9 %}{{ raise_exception('nine, please') }}"
        "{% endif %}{{- ', \"id\": \"' + call.id + '\"}' }}",
    ),
    "mistral": template(
        "{{- call.name + '[ARGS]' }}{{- call.arguments | tojson }}", before="[TOOL_CALLS]"
    ),
    "functionary": template(
        "{{- '<function=' + call.name + '>' }}{{- call.arguments | tojson }}{{- '</function>' }}"
    ),
    "qwen3-coder": template(
        _tagged("<parameter=", ">\n", "\n</parameter>\n", "</function>\n</tool_call>",
                "'<tool_call>\n<function=' + call.name + '>\n'"),
        between="\n", opened="<think>\n", thoughts=_THOUGHTS,
    ),
    "glm": template(
        _tagged("\n<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", "\n</tool_call>",
                "'\n<tool_call>' + call.name"),
    ),
    "deepseek-fenced": template(
        "{{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.name + '\n```json\n' "
        "+ call.arguments + '\n```<｜tool▁call▁end｜>' }}",
        between="\n", opens="<｜tool▁calls▁begin｜>", closes="<｜tool▁calls▁end｜>",
    ),
    "granite-list": template(
        _JSON % "arguments", between=", ", opens="<|tool_call|>[", closes="]"
    ),
    "<|START_ACTION|>": template(
        '{{- \'{"tool_call_id": "\' ~ index ~ \'", "tool_name": "\' + call.name + '
        '\'", "parameters": \' }}{{- call.arguments | tojson }}{{- "}" }}',
        between=",\n    ", opens="<|START_ACTION|>[\n    ", closes="\n]<|END_ACTION|>",
    ),
    "<|calls|>": template(
        "{{- '<|call|>functions.' + call.name ~ ':' ~ index ~ '<|args|>' }}"
        "{{- call.arguments | tojson }}{{- '<|call_end|>' }}",
        opens="<|calls|>", closes="<|calls_end|>",
    ),
    "<m:calls>": template(
        _tagged('<parameter name="', '">', "</parameter>\n", "</invoke>\n",
                "'<invoke name=\"' + call.name + '\">\n'"),
        opens="\n<m:calls>\n", closes="</m:calls>",
    ),
    "<calls>": template(
        "{{- '<call name=\"' + call.name + '\">\n' }}"
        "{%- for key, value in call.arguments.items() %}"
        "{%- if value is string %}"
        "{{- '<arg name=\"' + key + '\" text=\"true\">' + value + '</arg>\n' }}"
        "{%- else %}{{- '<arg name=\"' + key + '\" text=\"false\">' }}{{- value | tojson }}"
        "{{- '</arg>\n' }}{% endif %}"
        "{%- endfor %}{{- '</call>\n' }}",
        opens="<calls>\n", closes="</calls>",
    ),
    "<function": template(
        "{{- '<function name=\"' + call.name + '\">' }}"
        "{%- for key, value in call.arguments.items() %}"
        "{{- '<param name=\"' + key + '\">' }}"
        "{%- if value is string %}{{- '<![CDATA[' + value + ']]>' if '<' in value else value }}"
        "{%- else %}{{- value | tojson }}{% endif %}{{- '</param>' }}"
        "{%- endfor %}{{- '</function>' }}",
        between="\n",
    ),
}  # fmt: skip
"""A template for each way of writing calls, by the name that it is told by."""

SPECIAL = (
    "<|end|>", "<|turn|>", "[TOOL_CALLS]", "[ARGS]", "<|tool_call|>", "<|START_ACTION|>",
    "<|END_ACTION|>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
)  # fmt: skip
