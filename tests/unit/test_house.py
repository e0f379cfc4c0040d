"""The rules of the house: who may import whom, what an import may do, how large a file may grow."""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

from radiance_core.cli.main import cli
from radiance_core.kbench.main import kbench, schemas
from radiance_core.tune.main import tune

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "radiance_core"
PLUGINS = sorted(p.parent for p in ROOT.glob("plugins/*/pyproject.toml"))
SHIPPED = sorted(
    p
    for folder in (ROOT / "src", ROOT / "abi" / "src", *(d / "src" for d in PLUGINS))
    for p in folder.rglob("*.py")
)
BESIDE = [ROOT / "noxfile.py", *sorted((ROOT / "benchmarks").rglob("*.py"))]
TESTS = sorted(
    p
    for folder in (ROOT / "tests", *(d / "tests" for d in PLUGINS))
    for p in folder.rglob("*")
    if p.suffix in {".py", ".c"}
)
NATIVE = sorted(
    p
    for folder in (ROOT / "src", ROOT / "abi" / "src", *(d / "native" for d in PLUGINS))
    for p in folder.rglob("*")
    if p.suffix in {".c", ".h", ".cpp"}
)
LARGEST_MODULE = 400
TO_BE_EXPLAINED = 250
LARGEST_FUNCTION = 80
COLUMNS = 100


def project(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> set[str]:
    """Names of all modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
    return found


def test_there_is_something_to_check() -> None:
    """The globs below find the tree."""
    assert len(PLUGINS) >= 7
    assert len(SHIPPED) > 100
    assert len(BESIDE) > 20
    assert len(TESTS) > 150
    assert len(NATIVE) > 60


def test_the_core_names_no_plugin() -> None:
    """Neither code nor texts of the core spell the name of a bundled plugin; comments may."""
    names = {str(project(d)["name"]) for d in PLUGINS}
    names |= {n.replace("-", "_") for n in names} | {n.removeprefix("radiance-lib") for n in ()}
    for folder in PLUGINS:
        points = project(folder).get("entry-points", {})
        # An architecture's entry point is the family's name, which tokenizers have too.
        names |= set(points.get("radiance.kernels", {})) | set(
            points.get("radiance.quantizers", {})
        )
    assert {"libavx", "radiance-libref", "radiance_arch_llama"} <= names
    found = []
    for path in sorted(CORE.rglob("*.py")):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type != tokenize.COMMENT:
                found += [
                    f"{name_of(path)}:{token.start[0]}: {n}" for n in names if n in token.string
                ]
    assert not found


def test_plugins_import_the_contract_only() -> None:
    """A plugin knows the contract and what it declares to need, never the core."""
    for folder in PLUGINS:
        for path in (folder / "src").rglob("*.py"):
            assert not [m for m in imports(path) if m.split(".")[0] == "radiance_core"], name_of(
                path
            )


def test_plugin_folders_share_one_skeleton() -> None:
    """Folder, distribution and import name are spellings of one name; each has the same parts."""
    for folder in PLUGINS:
        p = project(folder)
        assert p["name"] == "radiance-" + folder.name.replace("_", "-")
        assert (folder / "src" / f"radiance_{folder.name}" / "__init__.py").is_file(), folder.name
        assert (folder / "README.md").is_file(), folder.name
        assert list((folder / "tests").glob("test_*.py")), folder.name
        assert {"description", "readme", "requires-python", "license"} <= set(p)
        assert any(d.startswith("radiance-abi>=") for d in p["dependencies"]), folder.name
        assert not [d for d in p["dependencies"] if d.split(">")[0].strip() == "radiance"]
        kind = folder.name.partition("_")[0]
        group = {"arch": "radiance.architectures", "quant": "radiance.quantizers"}.get(kind)
        points = p.get("entry-points", {})
        assert set(points) <= {group or "radiance.kernels"}, folder.name
        for module in points.get(group or "radiance.kernels", {}).values():
            assert module.split(".")[0].split(":")[0] == f"radiance_{folder.name}"


@pytest.mark.parametrize("path", SHIPPED, ids=name_of)
def test_modules_stay_readable(path: Path) -> None:
    """At most 80 lines a function, and a name of the module that says something."""
    assert path.stem not in {"utils", "helpers", "common", "misc", "base"}
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < LARGEST_FUNCTION, node.name


def head_of(path: Path) -> str:
    """The docstring of a Python file, the first comment of one in C or C++."""
    text = path.read_text()
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    comment = re.match(r"/\*.*?\*/|(//[^\n]*\n)+", text, re.DOTALL)
    return comment.group() if comment else ""


@pytest.mark.parametrize("path", [*SHIPPED, *BESIDE, *NATIVE], ids=name_of)
def test_a_long_file_says_why_it_is_one(path: Path) -> None:
    """400 lines are the end; past 250 the head says "One file", and why."""
    head, count = head_of(path), len(path.read_text().splitlines())
    assert head, "a file says what it is for"
    assert count <= LARGEST_MODULE
    assert count <= TO_BE_EXPLAINED or re.search(
        r"One file\b.*\b(because|since)\b", head, re.DOTALL
    )


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_tests_stay_short_enough_to_look_a_case_up(path: Path) -> None:
    """400 lines are the end; no reason is asked, since cases are a list that nobody reads whole."""
    assert len(path.read_text().splitlines()) <= LARGEST_MODULE


@pytest.mark.parametrize("path", [*NATIVE, *(p for p in TESTS if p.suffix == ".c")], ids=name_of)
def test_c_fits_its_columns(path: Path) -> None:
    """No line of C or C++ is wider than the 100 columns that ruff keeps elsewhere."""
    wide = [n for n, line in enumerate(path.read_text().splitlines(), 1) if len(line) > COLUMNS]
    assert not wide


def test_the_checks_of_size_can_fail(tmp_path: Path) -> None:
    """Heads are found in each language, and are the first thing only."""
    for name, text, head in (
        ("a.py", '"""One file, because."""\nx = 1\n"""not this"""', "One file, because."),
        ("a.c", "/* first\n * more */\n/* second */", "/* first\n * more */"),
        ("a.h", "// first\n// more\n#include\n// second\n", "// first\n// more\n"),
        ("b.h", "#include <a.h>\n/* late */", ""),
        ("b.py", "x = 1", ""),
    ):
        path = tmp_path / name
        path.write_text(text)
        assert head_of(path) == head


FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "numpy.load", "np.load"}


def faults(tree: ast.AST) -> list[str]:
    """Ways in which code could run what a file says."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [m for m in [node.module or ""] if m.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in FORBIDDEN_CALLS:
            found.append(ast.unparse(node.func))
    return found


@pytest.mark.parametrize("path", SHIPPED, ids=name_of)
def test_no_file_can_become_code(path: Path) -> None:
    """Nothing shipped unpickles, evaluates or compiles, so that a model's folder is only data."""
    assert faults(ast.parse(path.read_text())) == []


def test_the_check_for_code_can_fail() -> None:
    """Each forbidden way is seen."""
    source = "import pickle\nfrom marshal import loads\neval('1')\ntorch.load('x')\nre.compile('x')"
    assert faults(ast.parse(source)) == ["pickle", "marshal", "eval", "torch.load"]


IMPORT_ALL = '''
import os, pkgutil, sys, importlib
packages, here = {packages!r}, {here!r}

seen = []

def asker(frame):
    """The nearest frame outside what merely passes a request on."""
    passing = ("<frozen os>", os.__file__, "_collections_abc", "/ctypes/__init__.py", "<string>")
    while any(p in frame.f_code.co_filename for p in passing) and frame.f_back:
        frame = frame.f_back
    return frame.f_code.co_filename

def is_ours(path):
    return any(path.startswith(h) for h in here)

def hook(event, args):
    if event == "ctypes.dlopen" and args[0] is not None and is_ours(asker(sys._getframe(1))):
        seen.append(f"opened {{args[0]}}")
    if event in ("subprocess.Popen", "os.system", "socket.connect", "socket.bind"):
        seen.append(f"{{event}} {{args}}")
sys.addaudithook(hook)

def watch(name):
    plain = getattr(os._Environ, name)
    def spy(self, *args):
        path = asker(sys._getframe(1))
        if is_ours(path):
            seen.append(f"{{path}} reads the environment")
        return plain(self, *args)
    setattr(os._Environ, name, spy)
for name in ("__getitem__", "__iter__", "copy"):
    watch(name)

count = 0
for package in packages:
    module = importlib.import_module(package)
    for info in pkgutil.walk_packages(module.__path__, package + "."):
        # A shared object in a package is for dlopen, it is no module.
        if not info.name.rpartition(".")[2].startswith(("__main__", "lib")) or info.ispkg:
            importlib.import_module(info.name)
            count += 1
with open("/proc/self/maps") as maps:
    ours = {{line.split()[-1] for line in maps if any(h in line for h in here) and ".so" in line}}
seen += [f"mapped {{path}}" for path in sorted(ours)]
print(count)
print(*seen, sep="\\n")
{probe}
'''


def import_everything(packages: list[str], probe: str = "", *more: str) -> list[str]:
    here = [str(ROOT / "src"), str(ROOT / "abi"), str(ROOT / "plugins"), *more]
    script = IMPORT_ALL.format(packages=packages, here=here, probe=probe)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(more)},
    )
    assert done.returncode == 0, done.stderr
    count, *seen = done.stdout.split("\n")
    assert int(count) > 0
    return [line for line in seen if line]


def test_importing_does_no_work() -> None:
    """Importing every module opens no library, asks no environment and runs nothing."""
    pytest.importorskip("torch")
    packages = ["radiance_abi", "radiance_core", *(f"radiance_{d.name}" for d in PLUGINS)]
    assert import_everything(packages) == []


def test_the_check_of_imports_can_fail(tmp_path: Path) -> None:
    """A package that opens a library and asks the environment at import is caught twice."""
    package = tmp_path / "busy_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "busy.py").write_text(
        "import ctypes, os\nctypes.CDLL('libc.so.6')\nos.environ.get('HOME')\nos.getenv('PATH')\n"
    )
    seen = import_everything(["busy_package"], "", str(tmp_path))
    assert seen == ["opened libc.so.6", *[f"{package}/busy.py reads the environment"] * 2]


def test_the_core_needs_no_torch() -> None:
    """Importing the contract and the core leaves torch and its kin alone."""
    probe = "print([m for m in ('torch', 'transformers', 'gguf') if m in sys.modules] or '')"
    assert import_everything(["radiance_abi", "radiance_core"], probe) == []


def test_a_stage_reads_no_settings() -> None:
    """Only config.py of the core reads the environment; what it finds is passed on."""
    readers = [
        name_of(p)
        for p in CORE.rglob("*.py")
        if re.search(r"os\.environ|getenv|import environ", p.read_text())
    ]
    assert readers == ["src/radiance_core/config.py"]


def flags_named(tree: ast.AST) -> set[str]:
    """Flags that the texts of a module spell."""
    texts = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return {f for t in texts if isinstance(t, str) for f in re.findall(r"--[a-z][a-z-]*[a-z]", t)}


def test_texts_name_only_flags_that_exist() -> None:
    """A remedy that the core tells people to try is an option that some command has."""
    known = {"--no-build-isolation", "--help"}  # of pip, and of every command
    commands = [cli, *cli.commands.values(), kbench, schemas, tune]
    options = [option for c in commands for option in c.params]
    known |= {flag for o in options for flag in (*o.opts, *o.secondary_opts)}
    assert flags_named(ast.parse("f'{x}: try --none-such.'")) == {"--none-such"}
    found = {
        f"{name_of(path)}: {flag}"
        for path in sorted(CORE.rglob("*.py"))
        for flag in flags_named(ast.parse(path.read_text())) - known
    }
    assert not found
    assert {"--kernels", "--raw", "--seed", "--insecure"} <= known
