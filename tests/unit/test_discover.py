"""Discovery: every way in which a plugin can be wrong has its own text, and leaves no trace."""

import random
import sys

import pytest
from plugin_folder import PluginFolder

from radiance_core import discover
from radiance_core.discover import PluginError, kernel_libraries

GOOD = """
    from radiance_abi import hookimpl, Kernel, KernelLibrary
    def run(call): pass
    @hookimpl
    def radiance_kernel_libraries():
        yield KernelLibrary("{name}", version="0.1", kernels=[
            Kernel(op="silu_mul", name="mine", run=run)])
"""


def test_named_libraries_come_in_the_order_named(plugins: PluginFolder) -> None:
    """The order of --kernels is the order of preference, whatever the order of installation."""
    names = ["zeta_a", "alpha_b", "mid_c"]
    random.shuffle(names)
    for name in sorted(names):
        plugins.add(name, GOOD.format(name=name))
    assert [lib.name for lib in kernel_libraries(names).chosen] == names


def test_library_not_named_is_not_imported(plugins: PluginFolder) -> None:
    """With --kernels a library that is not named is not imported at all."""
    plugins.add("wanted", GOOD.format(name="wanted"))
    plugins.add("other", "raise SystemExit('imported')")
    found = kernel_libraries(["wanted"])
    assert "plug_other" not in sys.modules
    assert "other" in [f.name for f in found.not_named]


def test_listing_imports_nothing(plugins: PluginFolder) -> None:
    """Listing entry points imports no plugin."""
    plugins.add("boom", "raise RuntimeError('imported')")
    assert "boom" in [f.name for f in discover.installed(discover.KERNELS)]
    assert "plug_boom" not in sys.modules


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import does_not_exist_at_all", "No module named 'does_not_exist_at_all'"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_raising_at_import(plugins: PluginFolder, raised: str, shown: str) -> None:
    """A plugin that raises at import is named with distribution, entry point and cause."""
    plugins.add("bad", raised)
    with pytest.raises(PluginError) as caught:
        kernel_libraries(["bad"])
    text = str(caught.value)
    assert "plugin bad (radiance-bad 0.1)" in text
    assert "radiance.kernels:bad = plug_bad raised at import" in text
    assert shown in text


def test_raising_in_the_hook(plugins: PluginFolder) -> None:
    """A hook that raises half way through is refused whole, what it yielded before included."""
    plugins.add("half", GOOD.format(name="half") + "        raise ValueError('half way')\n")
    with pytest.raises(
        PluginError, match="raised in radiance_kernel_libraries: ValueError: half way"
    ):
        kernel_libraries(["half"])


def test_unnamed_broken_plugin_is_left_out_and_reported(plugins: PluginFolder) -> None:
    """Without --kernels a broken plugin does not stop the others, and its refusal is kept."""
    plugins.add("good", GOOD.format(name="good"))
    plugins.add("bad", "raise RuntimeError('no luck')")
    found = kernel_libraries(None)
    assert "good" in [lib.name for lib in found.chosen]
    assert any(r.found.name == "bad" and "no luck" in r.reason for r in found.refused)


def test_wrong_abi(plugins: PluginFolder) -> None:
    """A plugin for another contract is refused by name with both numbers and a remedy."""
    plugins.add("old", GOOD.format(name="old").replace('version="0.1"', "abi_version=2"))
    with pytest.raises(PluginError) as caught:
        kernel_libraries(["old"])
    assert "built for ABI 2, this is ABI 1. Rebuild it, or install radiance-abi 2." in str(
        caught.value
    )


def test_misspelt_hook(plugins: PluginFolder) -> None:
    """A marked function that is no hook is refused with the nearest hook."""
    plugins.add(
        "typo",
        GOOD.format(name="typo").replace("radiance_kernel_libraries", "radiance_kernel_library"),
    )
    with pytest.raises(PluginError) as caught:
        kernel_libraries(["typo"])
    assert "hook 'radiance_kernel_library' does not exist" in str(caught.value)
    assert "did you mean 'radiance_kernel_libraries'?" in str(caught.value)


def test_missing_hook(plugins: PluginFolder) -> None:
    """A module without the hook of its group is refused, saying what to add."""
    plugins.add("empty", "x = 1")
    with pytest.raises(PluginError, match="to implement radiance_kernel_libraries"):
        kernel_libraries(["empty"])


def test_duplicate_id(plugins: PluginFolder) -> None:
    """Two plugins that yield one library id are refused, both named."""
    plugins.add("one", GOOD.format(name="same"))
    plugins.add("two", GOOD.format(name="same"))
    with pytest.raises(PluginError) as caught:
        kernel_libraries(["one", "two"])
    text = str(caught.value)
    assert "kernel library id same" in text
    assert "radiance-one" in text
    assert "radiance-two" in text


def test_duplicate_entry_point(plugins: PluginFolder) -> None:
    """Two distributions with one entry-point name are refused, both named with their versions."""
    plugins.add("twin", GOOD.format(name="twin"), distribution="radiance-first", version="1.0")
    plugins.add(
        "twin",
        GOOD.format(name="twin"),
        distribution="other-second",
        module="plug_b",
        version="2.0",
    )
    with pytest.raises(
        PluginError, match=r"twin: claimed by other-second 2.0 and by radiance-first 1.0"
    ):
        kernel_libraries(["twin"])


def _with_schema(name: str, schema: str, op: str) -> str:
    return (
        GOOD.format(name=name)
        .replace('version="0.1"', f'schemas=["{schema}"]')
        .replace('op="silu_mul"', f'op="{op}"')
    )


def test_equal_schemas_agree_and_different_ones_are_refused(plugins: PluginFolder) -> None:
    """A second library may repeat an op's schema; one that differs is refused whole."""
    mine = "my_op(M~, n, dtype:s) x[M,n] -> y[M,n]"
    plugins.add("a", _with_schema("a", mine, "my_op"))
    plugins.add("b", _with_schema("b", mine, "my_op"))
    plugins.add("c", _with_schema("c", mine.replace("x[M,n]", "x[M,n], z[M,n]"), "my_op"))
    assert len(kernel_libraries(["a", "b"]).chosen) == 2
    with pytest.raises(PluginError) as caught:
        kernel_libraries(["a", "c"])
    text = str(caught.value)
    assert "op my_op: its schema differs from that of plugin a (radiance-a 0.1)" in text
    assert "the whole library is refused" in text


def test_schema_that_contradicts_the_standard(plugins: PluginFolder) -> None:
    """A library cannot redefine a standard op."""
    plugins.add("d", _with_schema("d", "silu_mul(M~, n, dtype:s) x[M,n] -> y[M,n]", "silu_mul"))
    with pytest.raises(PluginError, match="differs from that of the standard vocabulary"):
        kernel_libraries(["d"])


def test_refused_schema_leaves_no_trace(plugins: PluginFolder) -> None:
    """Of a library that is refused, not even its valid schemas stay."""
    plugins.add(
        "e",
        _with_schema("e", "fine_op(M~, n, dtype:s) x[M,n] -> y[M,n]", "fine_op").replace(
            "kernels=[", 'kernels=[Kernel(op="no_such_op", name="k", run=run),'
        ),
    )
    found = kernel_libraries(None)
    assert "fine_op" not in found.schemas
    assert any("op 'no_such_op' has no schema" in r.reason for r in found.refused)


def test_constraint_on_unknown_param(plugins: PluginFolder) -> None:
    """A constraint on a key that the op lacks names the nearest param."""
    plugins.add(
        "f",
        GOOD.format(name="f")
        .replace("run=run)", 'run=run, where=[eq("dtipe", 1)])')
        .replace("import hookimpl", "import eq, hookimpl"),
    )
    with pytest.raises(PluginError, match=r"constraint on 'dtipe'.*did you mean 'dtype'"):
        kernel_libraries(["f"])


def test_name_that_is_not_installed(plugins: PluginFolder) -> None:
    """A name in --kernels that nothing has is refused with the nearest installed one."""
    plugins.add("mylib", GOOD.format(name="mylib"))
    with pytest.raises(PluginError) as caught:
        kernel_libraries(["mylob"])
    text = str(caught.value)
    assert "--kernels: library 'mylob' is not installed; did you mean 'mylib'?" in text
    assert "mylib. Correct the name, or install the package that has it." in text
    with pytest.raises(PluginError, match=r"library 'zzz' is not installed\. Installed: .*mylib\."):
        kernel_libraries(["zzz"])


def test_name_given_twice(plugins: PluginFolder) -> None:
    """A library named twice is an error."""
    plugins.add("mylib", GOOD.format(name="mylib"))
    with pytest.raises(PluginError, match="'mylib' is named twice"):
        kernel_libraries(["mylib", "mylib"])


def test_declining_library(plugins: PluginFolder) -> None:
    """A library that declines this machine is no error, unless nothing else was named."""
    declined = GOOD.format(name="far").replace('version="0.1"', 'declined="needs a moon"')
    plugins.add("far", declined)
    plugins.add("near", GOOD.format(name="near"))
    found = kernel_libraries(["far", "near"])
    assert [lib.name for lib in found.chosen] == ["near"]
    assert [(r.found.name, r.reason, r.declined) for r in found.refused] == [
        ("far", "needs a moon", True)
    ]
    with pytest.raises(PluginError, match="declines this machine: needs a moon"):
        kernel_libraries(["far"])


def test_reference_libraries_come_last(plugins: PluginFolder) -> None:
    """Without --kernels a reference library resolves after all others, whatever its name."""
    plugins.add("aaa", GOOD.format(name="aaa").replace('version="0.1"', "reference=True"))
    plugins.add("zzz", GOOD.format(name="zzz"))
    names = [lib.name for lib in kernel_libraries(None).chosen]
    assert names.index("aaa") > names.index("zzz")


def test_wrong_object(plugins: PluginFolder) -> None:
    """A hook that yields something else is refused, naming the type."""
    plugins.add("odd", GOOD.format(name="odd").replace("yield KernelLibrary(", "yield dict(name="))
    with pytest.raises(PluginError, match="to yield KernelLibrary objects, got dict"):
        kernel_libraries(["odd"])


def test_bad_library_id(plugins: PluginFolder) -> None:
    """A library id that --kernels could not spell is refused."""
    plugins.add("idd", GOOD.format(name="My,Lib"))
    with pytest.raises(PluginError, match="library id 'My,Lib': expected lower-case letters"):
        kernel_libraries(["idd"])


ARCH = """
    from radiance_abi import hookimpl
    class Arch:
        id, quant = "{id}", "{quant}"
    @hookimpl
    def radiance_architectures():
        yield Arch()
"""


def test_two_architectures_of_one_pair(plugins: PluginFolder) -> None:
    """Two plugins that claim one (id, quant) are refused, both named; another quant is fine."""
    group = discover.ARCHITECTURES
    plugins.add("m1", ARCH.format(id="toy", quant=""), group=group)
    plugins.add("m2", ARCH.format(id="toy", quant="fp8"), group=group)
    assert {("toy", ""), ("toy", "fp8")} <= set(discover.architectures().items)
    plugins.add("m3", ARCH.format(id="toy", quant="fp8"), group=group)
    with pytest.raises(
        PluginError, match=r"\('toy', 'fp8'\): claimed by radiance-m2 0.1 and by radiance-m3"
    ):
        discover.architectures()
