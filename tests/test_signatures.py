"""The shape of the source, counted over its syntax tree: signatures stay short, and nothing gets around the count."""

import ast
import inspect
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, get_overloads

import pytest

import safedial
from tests.source import Function, modules, parsed

MOST = 5
LONGEST = 350

VARIADIC = {
    # Options of the callable that the call names, which checks them itself: a policy, pyplot, a record's constructor.
    "policies/__init__.py: make_policy",
    "plots/style.py: new_figure",
    "core/curve.py: _replace",
    "specfile.py: agent",
    "study/manage.py: create_study",
    "testing/claims.py: plain_spec",
    # Free names that are stored as they are given.
    "diagnostics/finding.py: finding",
    "diagnostics/finding.py: stated",
    # Options of an experiment's `run`, which the command declares from its signature.
    "cli/reproduce.py: command",
    # Any number of values of one kind: columns, extras, arrays, status codes, names of an option.
    "cli/choose_policy.py: _asked",
    "cli/inputs.py: under",
    "cli/simulate.py: _promise",
    "cli/simulate.py: _rule",
    "cli/simulate.py: _class_",
    "core/namespace.py: namespace",
    "errors.py: how_to_install",
    "service/timeline.py: has_status",
    # The caller of these is Python itself, or they call a function on behalf of another.
    "cli/__init__.py: _interrupt",
    "cli/__init__.py: _warn",
    "study/store.py: __exit__",
    "decision/validation.py: in_row",
    "policies/shield/regressor.py: _trying",
}
"""Functions that may take *values or **options, and why. This set may only shrink."""

MOST_REPEATED = 10
"""Basenames that modules share: only where the folder tells them apart at a glance. It may only shrink."""


class Signature(NamedTuple):
    place: str
    line: int
    count: int
    variadic: bool

    def __str__(self) -> str:
        return f"{self.place} (line {self.line}): {self.count} positional parameters"


def signatures(source: str, name: str) -> Iterator[Signature]:
    """Every function of a module, private and nested ones included; `self` and `cls` are not counted."""
    tree = parsed(source)
    methods = {part for each in ast.walk(tree) if isinstance(each, ast.ClassDef) for part in each.body}
    for each in ast.walk(tree):
        if isinstance(each, Function | ast.Lambda):
            given, title = each.args, each.name if isinstance(each, Function) else "lambda"
            bound = each in methods and isinstance(each, Function) and not _static(each)
            count = len(given.posonlyargs) + len(given.args) - bound
            yield Signature(f"{name}: {title}", each.lineno, count, bool(given.vararg or given.kwarg))


def _static(method: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in method.decorator_list)


@pytest.fixture(scope="module")
def every():
    return [each for name, source in modules().items() for each in signatures(source, name)]


def test_no_function_takes_more_than_five_positional_parameters(every):
    assert not [str(each) for each in every if each.count > MOST]


def test_no_function_hides_its_parameters_in_stars(every):
    starred = {each.place for each in every if each.variadic}
    assert starred <= VARIADIC, sorted(starred - VARIADIC)
    assert starred >= VARIADIC, sorted(VARIADIC - starred)


def test_no_file_is_long():
    lengths = {name: source.count("\n") for name, source in modules().items()}
    assert not {name: length for name, length in lengths.items() if length > LONGEST}


def test_no_function_reads_its_parameters_from_locals():
    for name, source in modules().items():
        calls = (each for each in ast.walk(parsed(source)) if isinstance(each, ast.Call))
        named = {each.func.id for each in calls if isinstance(each.func, ast.Name)}
        assert "locals" not in named, name


def repeated_basenames(paths: Iterable[str]) -> set[str]:
    counts = Counter(path.rsplit("/", 1)[-1] for path in paths)
    return {name for name, count in counts.items() if count > 1 and name != "__init__.py"}


def test_few_modules_share_a_basename():
    repeated = repeated_basenames(modules())
    assert len(repeated) <= MOST_REPEATED, sorted(repeated)


def test_the_count_of_basenames_sees_every_folder_and_no_package():
    paths = ["spec.py", "core/spec.py", "a/b/dose.py", "a/c/dose.py", "a/__init__.py", "__init__.py", "a/other.py"]
    assert repeated_basenames(paths) == {"spec.py", "dose.py"}
    assert len(repeated_basenames(f"{folder}/m{i}.py" for folder in "ab" for i in range(11))) > MOST_REPEATED


def test_the_public_api_says_what_it_returns():
    """No public function, and no public method of a public class, returns Any or nothing stated."""
    vague = []
    for name in safedial.__all__:
        value = getattr(safedial, name)
        methods = inspect.getmembers(value, inspect.isroutine) if inspect.isclass(value) else [(name, value)]
        for title, each in methods:
            ours = str(getattr(each, "__module__", "")).startswith("safedial") and not title.startswith("_")
            if inspect.isroutine(each) and ours and each.__annotations__.get("return", "Any") == "Any":
                vague.append(f"{name}.{title}")
    assert not vague


def test_what_a_study_writes_is_a_receipt_or_the_future_of_one():
    answers = {"ask": "StudyDecision"} | dict.fromkeys(("tell", "correct", "void", "resume"), "Receipt")
    for name, answer in answers.items():
        forms = [each.__annotations__ for each in get_overloads(getattr(safedial.Study, name))]
        told = {form["wait"]: form["return"] for form in forms}
        assert told == {"Literal[True]": answer, "Literal[False]": f"Future[{answer}]"}


def test_the_count_sees_methods_nested_functions_lambdas_and_keyword_only_parameters():
    source = """
class Sample:
    def method(self, a, b, c, d, e): ...
    @classmethod
    def make(cls, a, /, b, *, c, d, e, f, g): ...
    @staticmethod
    def plain(a, b, c, d, e, f):
        async def inner(*values, **options): ...
        return lambda a, b, c, d, e, f, g: None
"""
    counts = {each.place.split(": ")[1]: (each.count, each.variadic) for each in signatures(source, "sample.py")}
    assert counts == {
        "method": (5, False),
        "make": (2, False),
        "plain": (6, False),
        "inner": (0, True),
        "lambda": (7, False),
    }
