"""The source of the package, for tests of its structure."""

import ast
from functools import cache
from pathlib import Path

import safedial

SOURCE = Path(safedial.__file__).parent
Function = ast.FunctionDef | ast.AsyncFunctionDef

parsed = cache(ast.parse)


def modules() -> dict[str, str]:
    """The text of each module, by its path in the package."""
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
