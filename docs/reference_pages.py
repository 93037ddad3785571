"""The parts of the reference that the package tells of itself: commands, routes, spec fields, log columns.

A page under docs/reference has a line `<!-- commands -->`; `fill` puts the text in its place when the site is built.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from inspect import getdoc, signature
from pathlib import Path
from typing import Any

HIDDEN = ("--install-completion", "--show-completion", "--help")


def fill(app: Any, name: str, source: list[str]) -> None:
    """Sphinx's `source-read`: put generated parts into a page of the reference."""
    if name.startswith("reference/"):
        for part, made in PARTS.items():
            if f"<!-- {part} -->" in source[0]:
                source[0] = source[0].replace(f"<!-- {part} -->", "\n".join(made()))


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """A Markdown table."""
    cells = (tuple(" ".join(cell.split()).replace("|", "\\|") for cell in row) for row in rows)
    return ["", *(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *cells)), ""]


def commands() -> list[str]:
    """Every command, its arguments and options, from its own help."""
    from typer.main import get_command

    from safedial.cli import make_app

    return [
        line for name, command in _commands("safedial", get_command(make_app())) for line in _command(name, command)
    ]


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for part, below in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {part}", below)


def _command(name: str, command: Any) -> list[str]:
    within = getattr(command, "commands", {})
    taken = [each.name.upper() for each in command.params if each.param_type_name == "argument"]
    usage = " ".join([name, *taken, *(["COMMAND"] if within else []), "[OPTIONS]"])
    rows = [
        (", ".join(f"`{word}`" for word in _words(each)), _help(each), _default(each))
        for each in command.params
        if not set(each.opts) & set(HIDDEN)
    ]
    lines = ["", f"{'##' if name.count(' ') < 2 else '###'} `{name}`", "", _plain(command.help), "", f"    {usage}"]
    return [*lines, *(table(("option", "meaning", "default"), rows) if rows else [""])]


def _words(option: Any) -> list[str]:
    return [option.name.upper()] if option.param_type_name == "argument" else [*option.opts, *option.secondary_opts]


def _help(option: Any) -> str:
    more = f" Or the environment variable `{option.envvar}`." if isinstance(option.envvar, str) else ""
    told = _plain(option.help)
    return told + more + (" May be repeated." if option.multiple and "may be repeated" not in told.lower() else "")


def _default(option: Any) -> str:
    if option.required or option.name == "storage":
        return "required"
    value = option.default() if callable(option.default) else option.default
    empty = value is None or value in ("", (), [], False) or (value is True and not option.secondary_opts)
    shown = option.opts[0].lstrip("-") if value is True else ", ".join(map(str, value)) if _many(value) else str(value)
    return "" if empty else f"`{shown}`"


def _many(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _plain(words: str | None) -> str:
    """Help without escapes for the terminal, with names of options as code."""
    text = (words or "").replace("\f", "").replace("\\[", "[").replace("*", "\\*")
    return re.sub(r"(?<![`\w-])(--?[a-z][\w-]*)(?![`\w])", r"`\1`", text)


def routes() -> list[str]:
    """Every route and every body, from the OpenAPI document of the service."""
    from safedial.service.openapi import document as made

    document = made()
    lines = []
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            lines += ["", f"## `{method.upper()} {path}`", "", about.get("description", ""), *_route(about)]
    lines += ["", "## Bodies", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        required = schema.get("required", [])
        fields = schema.get("properties", {}).items()
        rows = [
            (f"`{field}`", _type(about), "yes" if field in required else "", about.get("description", ""))
            for field, about in fields
        ]
        lines += ["", f"### {name}", "", schema.get("description", "")]
        lines += table(("field", "type", "required", ""), rows) if rows else []
    return lines


def _route(about: Mapping[str, Any]) -> list[str]:
    rows = [(f"`{each['name']}`", each["in"], each.get("description", "")) for each in about.get("parameters", [])]
    body = _schema(about.get("requestBody", {}))
    lines = table(("parameter", "in", ""), rows) if rows else [""]
    lines += [f"Body: {body}.", ""] if body else []
    told = [(code, each.get("description", ""), _schema(each)) for code, each in about["responses"].items()]
    said = {"Successful Response": "", "problem+json": "an error"}
    answers = (" ".join(filter(None, (f"`{code}`", said.get(words, words), kind))) for code, words, kind in told)
    return [*lines, f"Answers: {'; '.join(answers)}.", ""]


def _schema(content: Mapping[str, Any]) -> str:
    kinds = content.get("content", {}).values()
    found = [each.get("schema", {}).get("$ref", "").rpartition("/")[2] for each in kinds]
    return "".join(f"[{name}](#{name.lower()})" for name in found if name)


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "any"))


def arguments(subject: Any) -> Iterator[tuple[str, str]]:
    """The entries of the docstring's `Args:`, a name (or several, with commas) and its words."""
    inside = re.split(r"^(?:Args|Attributes):\n", getdoc(subject) or "", flags=re.M)[1:]
    entries = re.split(r"^\n(?=\S)", inside[0], flags=re.M)[0] if inside else ""
    yield from re.findall(r"^    (\w[\w, ]*): (.*(?:\n {5,}.*)*)", entries, flags=re.M)


def _fields(subject: Any) -> list[str]:
    rows = [(", ".join(f"`{name.strip()}`" for name in names.split(",")), words) for names, words in arguments(subject)]
    return table(("field", "meaning"), rows)


def spec_fields() -> list[str]:
    """The tables of a spec file, from the docstrings of what they make."""
    from safedial import Cost, Dial, Features, SafetySpec
    from safedial.model.dial import LABELS
    from safedial.model.dose import CURVES
    from safedial.policies import FACTORIES

    lines = ["", "## `[spec]`", "", "The fields of [`SafetySpec`](decide.rst).", *_fields(SafetySpec)]
    lines += ["", "## `[spec.costs.NAME]`", "", "For each of several costs, in place of `threshold`.", *_fields(Cost)]
    lines += ["", "## `[dose]`", "", "One curve for reward and cost; or `[dose.reward]` and `[dose.cost]`."]
    lines += _choices("curve", CURVES)
    lines += ["", "## `[world]`", "", "`dim`: the context's dimension; not needed beside `[features]`."]
    lines += ["", "## `[features]`", "", "Raw values by name.", *_fields(Features)]
    lines += ["", "## `[dial]`", "", "The dial's own range and unit.", *_fields(Dial)]
    lines += ["", "## `[labels]`", "", "What a study calls its cost, its reward and a unit, for its readers; text."]
    lines += ["", ", ".join(f"`{name}`" for name in LABELS)]
    lines += ["", "## `[[policy]]`", "", "A name and options; [policies](policies.rst) says what they mean."]
    return [*lines, *_choices("name", FACTORIES)]


def _choices(key: str, makers: Mapping[str, Callable[..., Any]]) -> list[str]:
    rows = [
        (f'`{key} = "{name}"`', ", ".join(f"`{each}`" for each in signature(make).parameters))
        for name, make in makers.items()
    ]
    return table((key, "further fields"), rows)


def study_fields() -> list[str]:
    """The specification of a study and its guard, from the schemas of the service."""
    from safedial.service.schemas import Guard, Spec
    from safedial.study.study_spec import OPTIONS

    lines = []
    for head, model in (("The specification of a study", Spec), ("`guard`", Guard)):
        schema = model.model_json_schema(ref_template="#/{model}")
        rows = [
            (f"`{name}`", " or ".join(dict.fromkeys(_type(about).replace("null", "none").split(" or "))), about)
            for name, about in schema["properties"].items()
        ]
        body = [
            (name, re.sub(r"\[Guard\]\(.*?\)", "below", kind), about.get("description", ""))
            for name, kind, about in rows
        ]
        lines += ["", f"## {head}", *table(("field", "type", "meaning"), body)]
    options = ", ".join(f"`{name}`" for name in OPTIONS)
    return [
        *lines,
        "",
        f"Options of the policy may stand beside these fields: {options}. So may all fields of `[spec]`.",
    ]


def columns() -> list[str]:
    """The columns of a log, from the module that reads it."""
    from safedial.rounds import log_file

    return ["", *re.findall(r"^\|.*$", log_file.__doc__ or "", flags=re.M), ""]


def export_columns() -> list[str]:
    """The columns of a study's export, from one that is made here."""
    return [", ".join(f"`{name}`" for name in exported_columns()) + "."]


def exported_columns() -> list[str]:
    """The columns of a small study's table: every one that any study may have, but for its own names."""
    from safedial import Study

    guarantee = {"threshold": 0.5, "total_risk": 0.02, "reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1}
    spec = {**guarantee, "context_bound": 1, "features": {"names": ["FEATURE"]}, "fallback_action": 0}
    with tempfile.TemporaryDirectory() as folder:
        study = Study.create("columns", spec, storage=f"sqlite:///{folder}/store.db")
        made = study.ask({"FEATURE": 0.5}, unit="unit", visit="visit", meta={"NAME": "value"})
        study.tell(made.id, reward=0.0, cost=0.0, observed_at=datetime.now(UTC))
        written = study.export(f"{folder}/rounds.csv")
        study.store.close()
        return Path(written).read_text().splitlines()[0].split(",")


PARTS: dict[str, Callable[[], list[str]]] = {
    "commands": commands,
    "routes": routes,
    "spec fields": spec_fields,
    "study fields": study_fields,
    "log columns": columns,
    "export columns": export_columns,
}
"""What may stand in a page between `<!--` and `-->`, and what makes it."""
