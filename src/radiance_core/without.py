"""Import a library without parts that are of no use here and would take most of the time."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without(name: str) -> Iterator[None]:
    """Have ``import name`` fail inside, as it would where that module is not installed.

    For imports that a library tries, for a part of its own that is not used here and would take
    most of the time. What has imported the module before keeps it, and what does later has it.
    """
    held = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]  # what the import system takes for "absent"
    try:
        yield
    finally:
        if held is None:
            del sys.modules[name]
        else:
            sys.modules[name] = held


@contextmanager
def held_back(*names: str) -> Iterator[None]:
    """Have modules be empty inside, which are imported only for what they do and not used here.

    A module that has been imported before is left as it is, and one that is asked for something
    inside is imported after all. Outside, they can be imported as ever.
    """
    empty = {name: _empty(name) for name in names if name not in sys.modules}
    sys.modules.update(empty)
    try:
        yield
    finally:
        for name, module in empty.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _empty(name: str) -> ModuleType:
    module = ModuleType(name)

    def find(attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        sys.modules.pop(name, None)
        return getattr(importlib.import_module(name), attribute)

    vars(module)["__getattr__"] = find
    return module


@contextmanager
def package_alone(name: str, **given: object) -> Iterator[None]:
    """Import modules of a package inside without what the package itself imports.

    Outside, the package is whole as soon as anyone asks it for what is not there yet.

    Args:
        name: of the package.
        given: attributes of the package that its modules ask for inside.
    """
    if name in sys.modules:
        yield
        return
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package = importlib.util.module_from_spec(spec)
    vars(package).update(given)
    sys.modules[name] = package
    try:
        yield
    except BaseException:
        del sys.modules[name]
        raise
    for attribute in given:
        delattr(package, attribute)
    _fill_when_asked(package)


def _fill_when_asked(package: ModuleType) -> None:
    """Run the package's own module when it is asked for what it lacks (PEP 562)."""

    def fill(attribute: str) -> object:
        if attribute.startswith("__") and attribute != "__version__":
            raise AttributeError(attribute)
        spec = package.__spec__
        assert spec is not None, "it was found by its spec"
        assert spec.loader is not None, "a package that is found has a loader"
        del vars(package)["__getattr__"]
        spec.loader.exec_module(package)
        return getattr(package, attribute)

    vars(package)["__getattr__"] = fill
