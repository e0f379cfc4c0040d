"""Find a kernel library by the name of its entry point, without radiance itself."""

import difflib
from importlib.metadata import entry_points

import pluggy

from radiance_abi import hooks
from radiance_abi.errors import AbiError
from radiance_abi.kernels import KernelLibrary

GROUP = "radiance.kernels"


def names() -> list[str]:
    """Return the entry points of kernel libraries in this environment."""
    return sorted({e.name for e in entry_points(group=GROUP)})


def libraries(name: str) -> list[KernelLibrary]:
    """Import the plugin of an entry point and return what its hook yields.

    Raises:
        AbiError: no such entry point (the nearest is offered), or the module implements no hook, or
            one that does not exist.
    """
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        near = difflib.get_close_matches(name, names(), 1)
        hint = (
            f"did you mean {near[0]!r}?" if near else f"installed: {', '.join(names()) or 'none'}"
        )
        raise AbiError(f"{GROUP}: expected an installed entry point, got {name!r}; {hint}")
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    manager.register(found[0].load(), name)
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise AbiError(
            f"{GROUP}:{name} = {found[0].value}: {error}; "
            f"the hooks are {', '.join(sorted(hooks.HOOK_OF_GROUP.values()))}"
        ) from error
    made = [library for some in manager.hook.radiance_kernel_libraries() for library in some]
    if not made:
        raise AbiError(
            f"{GROUP}:{name} = {found[0].value}: expected a hook radiance_kernel_libraries that "
            "yields a library, got none; mark it with @radiance_abi.hookimpl"
        )
    return made
