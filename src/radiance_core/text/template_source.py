"""What a chat template says about itself, read from its syntax tree and never by running it.

A part of the template's process, like all that knows jinja2 here: a parser is work for strangers'
programs too.
"""

from collections.abc import Iterator

from jinja2 import TemplateSyntaxError, nodes

from radiance_core.text.errors import TemplateError
from radiance_core.text.template_env import template_environment
from radiance_core.text.template_facts import TemplateFacts

MAX_SOURCE_CHARS = 1 << 18
# The parser recurses a dozen frames a bracket, out of the thousand that Python allows.
MAX_DEPTH = 50

# Not "set": most have no end, and what a nested one costs the parser raises RecursionError.
_BLOCKS = frozenset({"if", "for", "macro", "call", "filter", "block", "with", "generation"})


def read_template(source: str) -> TemplateFacts:
    """Check a template's size, depth and syntax, and return what it says about itself.

    Raises:
        TemplateError: too long, nested too deep, or not a template; nothing of it has been run.
    """
    if len(source) > MAX_SOURCE_CHARS:
        raise TemplateError(
            f"chat template: expected at most {MAX_SOURCE_CHARS} characters, got {len(source)}; "
            "give the model another template.",
            "too_large",
        )
    environment = template_environment()
    try:
        _check_depth(source)
        tree = environment.parse(source)
    except TemplateSyntaxError as err:
        raise TemplateError(
            f"chat template: line {err.lineno}: expected a jinja2 template, got: {err.message}; "
            "give the model another template.",
            "syntax",
        ) from err
    except RecursionError as err:
        raise _too_deep() from err
    return _facts(tree, frozenset(environment.globals))


def _too_deep() -> TemplateError:
    return TemplateError(
        f"chat template: expected nesting of at most {MAX_DEPTH} levels, got more; "
        "give the model another template.",
        "syntax",
    )


def _check_depth(source: str) -> None:
    """Refuse deep brackets and blocks before the parser recurses into them."""
    brackets = blocks = 0
    after_tag = False
    for _, kind, value in template_environment().lex(source):
        if kind == "operator":
            brackets += (value in "([{") - (value in ")]}")
        elif kind in {"block_begin", "variable_begin"}:
            brackets = 0
        elif kind == "name" and after_tag:
            blocks += (value in _BLOCKS) - (value.removeprefix("end") in _BLOCKS - {value})
        if max(brackets, blocks) > MAX_DEPTH:
            raise _too_deep()
        if kind != "whitespace":
            after_tag = kind == "block_begin"


def _walk(tree: nodes.Node) -> Iterator[nodes.Node]:
    """Yield every node without recursing."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.iter_child_nodes())


def _facts(tree: nodes.Template, provided: frozenset[str]) -> TemplateFacts:
    """Gather the facts from the syntax tree."""
    read: set[str] = set()
    bound: set[str] = {"loop", "caller", "varargs", "kwargs"}
    contents: set[str] = {"content"}
    # Set only where the caller did not: `{% if not x is defined %}{% set x = ... %}`.
    optional: set[str] = set()
    every = list(_walk(tree))
    for node in every:
        match node:
            case nodes.Name(ctx="load"):
                read.add(node.name)
            case nodes.Name():
                bound.add(node.name)
            case nodes.Test(name="defined" | "undefined", node=nodes.Name(name=name)):
                optional.add(name)
            case nodes.Macro():
                bound.add(node.name)
            case nodes.Assign(target=nodes.Name(name=name), node=value) if _is_content(value):
                contents.add(name)
            case _:
                pass
    tests = {node.name for node in every if isinstance(node, nodes.Test)}
    takes_parts = any(_reads_parts(node, contents) for node in every)
    return TemplateFacts(
        variables=frozenset((read - bound) | optional) - provided,
        takes_strings=not takes_parts or not tests.isdisjoint(_KIND_TESTS),
        takes_parts=takes_parts,
        names_developer=any(
            isinstance(node, nodes.Const) and node.value == "developer" for node in every
        ),
        tests_none="none" in tests or "defined" in tests,
    )


_KIND_TESTS = frozenset({"string", "iterable", "sequence", "mapping"})


def _is_content(node: nodes.Node) -> bool:
    """Say whether an expression is a message's content: ``m.content`` or ``m['content']``."""
    match node:
        case nodes.Getattr(attr="content"):
            return True
        case nodes.Getitem(arg=nodes.Const(value="content")):
            return True
    return False


def _reads_parts(node: nodes.Node, contents: set[str]) -> bool:
    """Say whether a node goes through a content's parts, or picks one by number."""
    match node:
        case nodes.For(iter=source):
            named = isinstance(source, nodes.Name) and source.name in contents
            return named or _is_content(source)
        case nodes.Getitem(node=source, arg=nodes.Const(value=int())):
            return _is_content(source)
    return False
