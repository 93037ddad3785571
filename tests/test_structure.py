"""What is said in one place only, counted over the syntax tree: the rules' written form, the meaning of an
event's kind, and which learner or promise it is.
"""

import ast
import re
from collections.abc import Iterator

from safedial.core.promise import PROMISES
from safedial.policies import POLICIES
from safedial.study.event_kinds import EVENT_KINDS
from tests.source import Function, modules, parsed

PARTS = ("spec", "policy", "dose", "dial", "features")
READERS = {
    "SafetySpec.from_dict": "spec",
    "Dose.from_dict": "dose",
    "curve_from_dict": "dose",
    "Dial(**)": "dial",
    "Features(**)": "features",
}


def written_parts(source: str) -> set[str]:
    """The parts of the rules that a module itself turns into plain values, or makes from them."""
    found = set()
    for each in ast.walk(ast.parse(source)):
        if isinstance(each, ast.Name):
            found.add(READERS.get(each.id))
        elif isinstance(each, ast.Attribute) and each.attr == "from_dict":
            found.add(READERS.get(ast.unparse(each)))
        elif isinstance(each, ast.Attribute) and each.attr == "to_dict":
            found.update(part for part in PARTS if re.search(rf"\b{part}\b\W*$", ast.unparse(each.value)))
        elif isinstance(each, ast.Call) and any(option.arg is None for option in each.keywords):
            found.add(READERS.get(f"{ast.unparse(each.func)}(**)"))
        elif isinstance(each, ast.Dict) and None in each.keys and "'name'" in map(ast.unparse, filter(None, each.keys)):
            spread = (ast.unparse(value) for key, value in zip(each.keys, each.values, strict=True) if key is None)
            found.update("policy" for value in spread if ".options" in value)
    return found - {None}


def test_the_rules_have_one_written_form():
    """One part alone may be written (a spec in a provenance file); two or more make a form of the rules."""
    forms = {name: parts for name, source in modules().items() if len(parts := written_parts(source)) > 1}
    assert set(forms) == {"decision/rules.py"}, forms


def test_a_second_written_form_of_the_rules_is_seen():
    reads = "Agent(spec=SafetySpec.from_dict(saved['spec']), dial=Dial(**saved['dial']), features=Features(**named))"
    cell = "cell = {'spec': built['spec'].to_dict(), 'policy': {'name': policy.name, **plain(policy.options)}}"
    assert written_parts(reads) == {"spec", "dial", "features"}
    assert written_parts(cell) == {"spec", "policy"}
    assert written_parts("header = [rules.dose.to_dict(), self.features.to_dict()]") == {"dose", "features"}
    assert written_parts("settings = {'spec': spec.to_dict(), 'name': name, **options}") == {"spec"}


OTHER_WORDS = ("status", "promise", "rule")
"""Some kinds are also the word for a status, a promise or a rule of the guard. A comparison with something of such a
name (`status`, `turn.rule`, `row["promise"]`) is no comparison of kinds; every other one is.
"""

KIND_IN_SQL = re.compile(r"\bkind\s*(?:=|!=|<>|(?:NOT\s+)?IN\b)\s*\(?\s*'(\w+)'", re.IGNORECASE)


def kind_sites(source: str, *, of_events: bool = True) -> list[int]:
    """Lines that tell event kinds apart: comparisons, `match` and SQL with the literal of a kind, mappings from two
    kinds or more and nothing else; where kinds are `of_events` also comparisons of `kind` with what is not a literal.
    """
    found = []
    for each in ast.walk(parsed(source)):
        match each:
            case ast.Compare():
                sides = [each.left, *each.comparators]
                literal = any(_kinds(side) for side in sides) and not any(_name(side) in OTHER_WORDS for side in sides)
                named = any(_name(side) == "kind" for side in sides) and not any(_is_literal(side) for side in sides)
                hit = literal or (of_events and named)
            case ast.Match():
                cases = (part for case in each.cases for part in ast.walk(case.pattern))
                hit = any(isinstance(part, ast.MatchValue) and _kinds(part.value) for part in cases)
                hit = hit and _name(each.subject) not in OTHER_WORDS
            case ast.Dict():
                hit = len(each.keys) > 1 and all(key is not None and _kinds(key) for key in each.keys)
            case ast.Call(func=ast.Name(id="dict")):
                hit = len(each.keywords) > 1 and all(keyword.arg in EVENT_KINDS for keyword in each.keywords)
            case ast.Constant(value=str(text)):
                hit = any(word in EVENT_KINDS for word in KIND_IN_SQL.findall(text))
            case _:
                hit = False
        found += [each.lineno] if hit else []
    return sorted(found)


def _name(side: ast.expr) -> str:
    """`kind` of `kind`, `event.kind` and `row["kind"]`."""
    match side:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case _:
            return ""


def _is_literal(side: ast.expr) -> bool:
    parts = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
    return all(isinstance(part, ast.Constant) for part in parts)


def _kinds(side: ast.expr) -> bool:
    """Whether an expression is the literal of a kind, or a collection that has one in it."""
    parts = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
    return any(isinstance(part, ast.Constant) and part.value in EVENT_KINDS for part in parts)


def test_one_module_says_what_a_kind_of_event_means():
    found = {
        name: sites
        for name, source in modules().items()
        if (sites := kind_sites(source, of_events=name.startswith(("study/", "service/"))))
    }
    print(found)
    assert set(found) == {"study/event_kinds.py"}


def test_the_count_sees_every_way_to_tell_kinds_apart_and_nothing_else():
    told = """
event.kind == "decided"
kind not in ("outcome", "other")
event.kind in KEY_KINDS
TABLE = {"voided": 1, "expired": 2}
TABLE = dict(alarm=1, resumed=2)
QUERY = "SELECT 1 FROM events WHERE kind IN ('correction', 'voided')"
QUERY = f"CASE WHEN kind = 'decided' THEN {fields} END"
match word:
    case "imported" | "decided": ...
"""
    assert kind_sites(told) == [2, 3, 4, 5, 6, 7, 8, 9]
    silent = """
means = EVENT_KINDS[event.kind]
row["status"] in ("open", "expired") or turn.rule == "alarm" or promise != "imported"
body = {"imported": 1, "open": 2}
transaction.append("decided", body)
array.dtype.kind != "f"
QUERY = "SELECT kind FROM events WHERE kind IN :kinds"
"""
    assert kind_sites(silent) == []


PLAIN = {"fixed", "none", "imported"}
"""Names that are plain words too, and count beside `promise`, `policy` or `name` only."""

NAMED = {*PROMISES, *POLICIES} - PLAIN

OWN_OPTIONS = {"cost_class", "reward_class", "start_dose", "least_dose", "reach", "history"}
"""Options by which one learner could be told from another."""

OWNERS = ("core/promise.py", "policies/hp_conformal.py", "policies/nonlinear.py", "decision/learners/")
"""Where promises, these options and the learners are defined."""

PREDICATE = re.compile(r"(is|has|over|uses)_(linear|conformal|class|function|certified|joint|heuristic|expected|bayes)")

ASKED = {
    "policies/__init__.py: learner_of": "the simulated linear estimate is made for a radius and a margin",
    "replay_engines/arguments.py: check_rounds": "the replay engines compute the linear estimate and no other",
    "simulation/run.py: check_learner": "an adversary reads the linear estimate; so does a noise scale",
    "simulation/proved.py: promise_holds": "whether a world's mean lies in a function class depends on the class",
    "testing/claims.py: _drawn": "made-up predictions are those of the linear estimate",
    "cli/simulate.py: simulate": "the options of function classes are for the policies that take a class",
}
"""Where it is still asked which learner or promise it is, and why. This may only shrink."""


def questions(source: str, name: str) -> Iterator[str]:
    """Where a module asks which learner or promise it is: comparisons with their names, tables by promise, checks for a
    class of `decision.learners`, predicates such as `is_conformal`, and looks for an option that one learner has.
    """
    nodes = list(ast.walk(parsed(source)))
    learned = {
        part.asname or part.name
        for each in nodes
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("safedial.decision.learners.")
        for part in each.names
    }
    functions = [each for each in nodes if isinstance(each, Function)]
    for each in nodes:
        if isinstance(each, ASKING) and _asks(each, learned):
            around = [one.name for one in functions if one.lineno <= each.lineno <= (one.end_lineno or 0)]
            yield f"{name}: {around[-1] if around else ''}"


ASKING = ast.Compare | ast.MatchValue | ast.Dict | ast.Call | ast.Attribute | ast.Name


def _asks(node: ASKING, learned: set[str]) -> bool:
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
        words = {word for part in parts for word in _words(part)}
        about = {_last(part) for part in parts} & {"promise", "policy", "name"}
        options = isinstance(node.ops[0], ast.In | ast.NotIn) and words & OWN_OPTIONS
        return bool(words & NAMED or options or (about and words & PLAIN) or (learned and _names(node) & learned))
    if isinstance(node, ast.MatchValue):
        return bool(_words(node.value) & NAMED)
    if isinstance(node, ast.Dict):
        return len({word for key in node.keys if key for word in _words(key)} & {*PROMISES}) > 1
    if isinstance(node, ast.Call):
        asked, words = _last(node.func), {word for part in node.args for word in _words(part)}
        begins = asked in ("startswith", "endswith") and any(
            full.startswith(word) or full.endswith(word) for word in words for full in NAMED
        )
        kinds = learned and asked in ("isinstance", "issubclass") and _names(node) & learned
        return bool(begins or kinds or (asked == "get" and words & OWN_OPTIONS))
    return bool(PREDICATE.match(_last(node)))


def _words(node: ast.expr) -> set[str]:
    """The texts that an expression is, or is a collection of."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def _last(node: ast.AST) -> str:
    """The last name of an expression: of `rules.policy.promise` and of `body["promise"]`, promise."""
    if isinstance(node, ast.Subscript):
        return next(iter(_words(node.slice)), "")
    return getattr(node, "attr", getattr(node, "id", ""))


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def test_nobody_outside_the_learners_asks_which_learner_or_promise_it_is():
    outside = {name: source for name, source in modules().items() if not name.startswith(OWNERS)}
    found = [each for name, source in outside.items() for each in questions(source, name)]
    for each in found:
        print(each, "--", ASKED.get(each, "NEW"))
    assert sorted(found) == sorted(ASKED), "each once, and none that is not in ASKED"
    assert len(found) <= 6


def test_every_way_to_ask_which_learner_or_promise_it_is_is_seen():
    head = "from safedial.decision.learners.conformal_learner import ConformalLearner, View\n"
    asking = [
        'policy.promise == "conformal"',
        'rules.policy.promise in ("expected", "heuristic")',
        'body["promise"] != "none"',
        'saved["name"] == "hp_conformal"',
        'named.startswith("nonlinear")',
        "isinstance(learner, ConformalLearner)",
        "type(seen) is View",
        "policy.is_linear",
        "is_conformal(policy)",
        '"cost_class" in policy.options',
        'policy.options.get("least_dose") is not None',
        '{"certified": 1, "conformal": 2}[promise]',
    ]
    quiet = [
        "PROMISES[policy.promise].exchangeable",
        "rules.learner.guarded(decision)",
        'policy.options["start_dose"]',
        'spec.margin == "bounded"',
        'make_policy("hp_conformal")',
        'status == "none"',
    ]
    for line in asking:
        assert list(questions(f"{head}def f():\n    return {line}\n", "sample.py")) == ["sample.py: f"], line
    for line in quiet:
        assert not list(questions(f"{head}def f():\n    return {line}\n", "sample.py")), line
    match = "def f():\n    match promise:\n        case 'joint':\n            pass\n"
    assert list(questions(match, "sample.py")) == ["sample.py: f"]
