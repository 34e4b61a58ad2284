"""Build mixts, install the wheel into an empty environment and use it there: `make wheel-test`."""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("models", "inference", "bandit", "benchmarks")

IMPORT_ALL = """
import sys
import mixts.models, mixts.inference, mixts.bandit

for package in (mixts.models, mixts.inference, mixts.bandit):
    assert package.__file__.startswith(sys.prefix), f"imported from {package.__file__}"
"""


def main() -> None:
    # Resolved, because the system's temporary folder may be a symbolic link.
    with tempfile.TemporaryDirectory(prefix="mixts wheel ") as folder:
        temporary = Path(folder).resolve()
        wheel = build(temporary / "dist")
        check_contents(wheel)
        check_use(wheel, temporary)
    print(f"{wheel.name}: complete, installs and imports.")


def build(destination: Path) -> Path:
    """The wheel, built from the source distribution: no leftover of the checkout gets in."""
    run(sys.executable, "-m", "build", "--outdir", destination, ROOT)
    (wheel,) = destination.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """The wheel holds every file of the package's folders under `mixts`, its licence, and no more."""
    files = set(ZipFile(wheel).namelist())
    metadata = {name for name in files if name.partition("/")[0].endswith(".dist-info")}
    expected = {
        f"mixts/{path.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    missing, surplus = expected - files, files - metadata - expected
    if missing or surplus:
        sys.exit(
            f"{wheel.name} lacks {sorted(missing)} and has {sorted(surplus)} too many; "
            "correct packages, package-dir and package-data in pyproject.toml"
        )
    if not any(name.endswith("/LICENSE") for name in metadata):
        sys.exit(f"{wheel.name} has no LICENSE; correct license-files in pyproject.toml")


def check_use(wheel: Path, temporary: Path) -> None:
    """The wheel works where there is nothing but what it asks for."""
    environment = temporary / "environment"
    venv.create(environment, with_pip=True)
    programs = environment / "bin"
    run(programs / "python", "-I", "-m", "pip", "install", "--quiet", wheel)
    run(programs / "python", "-I", "-c", IMPORT_ALL, cwd=temporary)
    run(programs / "mixts", "--version", cwd=temporary)


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command; what it says matters only if it fails."""
    process = subprocess.run(
        command, cwd=cwd, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if process.returncode != 0:
        print(process.stdout, file=sys.stderr)
        sys.exit(f"failed with exit code {process.returncode}: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
