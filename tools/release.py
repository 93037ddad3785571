"""`make release`: a wheel, an sdist, an SBOM and SHA256SUMS in dist/, from the last commit, each checked.

    .venv-release/bin/python tools/release.py [EXTRA ...]      # smoke tests of these extras only; all by default

Wheel and sdist are built twice, each time from a fresh export of the commit, and must have the same bytes. Then the
wheel is installed with each extra in an environment of its own (text apart, which `make test-text` tests), in the
versions of requirements/dev.txt, and `smoke.py` tries it from outside the source tree.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent


def run(*words: object, cwd: Path = ROOT, **variables: str) -> str:
    """What a command prints; if it fails, this program ends with what the command said."""
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"release: {' '.join(map(str, words))} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def commit() -> str:
    """The last commit, as it was when this began."""
    return run("git", "rev-parse", "HEAD").strip()


def epoch() -> str:
    """When the commit was made, in seconds: the time of every file."""
    return run("git", "log", "-1", "--format=%ct", commit()).strip()


def build(folder: Path) -> dict[str, Path]:
    """A wheel and an sdist of the last commit, made in `folder`; the sdist is what the wheel is made from."""
    source, made = folder / "source", folder / "made"
    source.mkdir()
    run("git", "archive", "--output", folder / "source.tar", commit())
    shutil.unpack_archive(folder / "source.tar", source, filter="data")
    run(BIN / "python", "-m", "build", "--no-isolation", "--outdir", made, cwd=source, SOURCE_DATE_EPOCH=epoch())
    return {path.name: path for path in sorted(made.iterdir())}


def build_twice() -> Path:
    """Fill dist/ and check what is in it; gives the wheel."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        once, again = build(Path(first)), build(Path(second))
        for name, path in once.items():
            if digest(path) != digest(again[name]):
                sys.exit(f"release: two builds of {name} differ: {digest(path)} and {digest(again[name])}")
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        files = [Path(shutil.copy(path, DIST)) for path in once.values()]
    print("built twice, with equal hashes:", *(f"{path.name} ({path.stat().st_size:,} bytes)" for path in files))
    run(BIN / "twine", "check", "--strict", *files)
    wheel = next(path for path in files if path.suffix == ".whl")
    run(BIN / "check-wheel-contents", wheel)
    print("twine check --strict and check-wheel-contents have no objection")
    return wheel


def install(wheel: Path, extras: list[str], folder: Path) -> Path:
    """The Python of a new environment with the wheel and these extras."""
    run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, folder)
    python = next(path for path in (folder / "bin/python", folder / "Scripts/python.exe") if path.exists())
    wanted = f"safedial[{','.join(extras)}] @ {wheel.as_uri()}"
    locked = ("--constraint", ROOT / "requirements" / "dev.txt")
    run(BIN / "uv", "pip", "install", "--quiet", "--python", python, *locked, wanted)
    return python


def try_out(wheel: Path, extra: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = install(wheel, [extra] if extra else [], Path(folder) / "env")
        name = f"safedial[{extra}]" if extra else "safedial"
        print(
            f"{name}:", "; ".join(run(python, "-I", ROOT / "tools" / "smoke.py", extra, cwd=Path(folder)).splitlines())
        )


def bill_of_materials(wheel: Path, extras: list[str]) -> None:
    """What an installation with these extras consists of: packages, versions, licences, who needs whom."""
    target = DIST / f"{wheel.name.removesuffix('-py3-none-any.whl')}.cdx.json"
    with tempfile.TemporaryDirectory() as folder:
        python = install(wheel, extras, Path(folder) / "env")
        form = ("--output-reproducible", "--output-format", "JSON", "--spec-version", "1.6")
        found = json.loads(run(BIN / "cyclonedx-py", "environment", *form, python, SOURCE_DATE_EPOCH=epoch()))
    ours = next(each for each in found["components"] if each["name"] == "safedial")
    found["components"].remove(ours)
    del ours["externalReferences"]  # where the wheel lay on this machine
    found["metadata"]["component"] = ours | {"hashes": [{"alg": "SHA-256", "content": digest(wheel)}]}
    target.write_text(json.dumps(found, indent=2) + "\n")
    print(f"CycloneDX bill of materials: {target.name}")


def main(chosen: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for name in project["optional-dependencies"] if name not in ("text", "dev")]
    wheel = build_twice()
    for extra in chosen or ["", *extras]:
        try_out(wheel, extra)
    bill_of_materials(wheel, extras)
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(sums)
    print(f"dist/SHA256SUMS:\n{sums}", end="")


if __name__ == "__main__":
    main(sys.argv[1:])
