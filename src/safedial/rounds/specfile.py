"""The spec file: one TOML file that states the guarantee and its assumptions.

    [spec]                      the fields of `SafetySpec`
    threshold = 0.5
    ...
    [spec.costs.NAME]           optional, for each of several costs, in place of `threshold`: the fields of `Cost`
    [dose]                      optional; one curve for both, or [dose.reward] and [dose.cost]
    curve = "hill"
    ed50 = 0.4
    [world]                     optional; the contexts' dimension
    dim = 3
    [[policy]]                  optional; a policy's name and options
    name = "hp_probe"
    [features]                  optional; names, center, scale, intercept, ranges, units of raw values (`Features`)
    [dial]                      optional; low, high, unit, levels (`Dial`)
    [labels]                    optional; what a study calls its cost, reward and units (`model.dial`)

The tables are those of a grid file with single values: `safedial sweep run` reads a spec file as a grid of one cell,
and turning a value into a list makes it an axis. `simulate --spec`, `check`, `monitor`, `plan` and `SpecFile.agent`
read it as it is.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from safedial.errors import InvalidInput, is_whole, require
from safedial.io import read_text, write_text
from safedial.model.costs import cost_columns
from safedial.model.dial import Dial, Features, read_labels
from safedial.model.dose import Dose, identity
from safedial.model.spec import SafetySpec
from safedial.rounds.rules import named_policy, read_parts, shortest_dose, write_parts

if TYPE_CHECKING:
    from safedial.rounds.agent import Agent

COMMENT = 100
"""The line width of comments."""

BARE = re.compile("[A-Za-z0-9_-]+")
"""A name that TOML accepts without quotes."""

TABLES = ("spec", "dose", "world", "policy", "features", "dial", "labels", "sweep")


@dataclass(frozen=True, kw_only=True)
class SpecFile:
    """The content of a spec file; what it omits is None or the default."""

    spec: SafetySpec
    dose: Dose = field(default_factory=lambda: Dose.of(identity()))
    dim: int | None = None
    policy: Mapping[str, Any] | None = None
    features: Features | None = None
    dial: Dial = field(default_factory=Dial)
    labels: Mapping[str, str] | None = None

    def agent(self, dim: int | None = None, **options: Any) -> Agent:
        """An `Agent` that keeps this guarantee; `options` are its further arguments.

        >>> parse_spec(EXAMPLE).agent()
        Agent(dim=2, policy=hp_probe, decisions=0, informative_rounds=0, alarmed=False)
        """
        from safedial.rounds.agent import Agent

        size = dim if dim is not None else self.dim
        require(size is not None, "dim", size, "is not in the spec file", "give dim, or a [world] table with dim")
        chosen = {"policy": self.policy} if self.policy else {}
        parts = {"dose": self.dose, "dial": self.dial, "features": self.features}
        return Agent(size, self.spec, **(chosen | parts | options))  # pyright: ignore[reportArgumentType]


EXAMPLE = """
[spec]
threshold = 0.5
violation_risk = 0.045
estimation_risk = 0.005
reward_noise = 0.3
cost_noise = 0.3
coefficient_bound = 1.0
context_bound = 1.0
[world]
dim = 2
"""
"""A short spec file, for examples."""


def load_spec(path: str | Path) -> SpecFile:
    """Read the spec file at `path`. An error names the first mistake and its table."""
    return parse_spec(read_text(path, "spec"))


def parse_spec(text: str) -> SpecFile:
    """Parse the text of a spec file.

    >>> parse_spec(EXAMPLE).spec.threshold, parse_spec(EXAMPLE).dim
    (0.5, 2)
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"spec: is not valid TOML ({error})") from error
    unknown = sorted(set(content) - set(TABLES))
    near = get_close_matches(unknown[0], TABLES, n=1) if unknown else []
    way_out = (f"did you mean [{near[0]}]? U" if near else "u") + "se " + ", ".join(f"[{name}]" for name in TABLES)
    require(not unknown, "spec", unknown, "has unknown tables", way_out)
    require("spec" in content, "[spec]", None, "is missing", "it holds the fields of SafetySpec")
    tables = {name: content.get(name, {}) for name in ("spec", "world", "features", "dial", "dose")}
    for name, table in tables.items():
        require(isinstance(table, dict), f"[{name}]", table, "must be a table")
    for name in ("spec", "world"):
        for key, value in tables[name].items():
            rule = "is a list: a spec file holds one value in each place"
            require(not isinstance(value, list), f"[{name}] {key}", value, rule, "a grid belongs to safedial sweep")
    misspelt = [] if "dim" in tables["world"] else get_close_matches("dim", tables["world"], n=1)
    require(not misspelt, "[world]", misspelt, "has unknown fields", "did you mean 'dim'?")
    chosen = _policy(content.get("policy"))
    parts = read_parts({name: table for name, table in tables.items() if table or name == "spec"})
    features = parts.get("features")
    dim = tables["world"].get("dim", features.dim if features else None)
    whole = dim is None or is_whole(dim, 1)
    require(whole, "[world] dim", dim, "must be a whole number >= 1")
    fits = features is None or features.dim == dim
    require(fits, "[world] dim", dim, "is not the number of [features], an intercept included")
    labels = read_labels(content.get("labels", {}), columns=cost_columns(parts["spec"]))
    return SpecFile(**parts, dim=dim, policy=chosen, labels=labels or None)


def spec_text(file: SpecFile, *, notes: Mapping[str, str] | None = None) -> str:
    """The file as TOML that `parse_spec` reads back. `notes` maps a key of [spec], or "" for the top, to a comment.

    >>> written = spec_text(parse_spec(EXAMPLE))
    >>> spec_text(parse_spec(written)) == written
    True
    """
    told = dict(notes or {})
    lines = _comment(told.pop("", "What is guaranteed, and what the guarantee rests on (safedial)."))
    form = write_parts({name: getattr(file, name) for name in ("dose", "features", "dial")})
    tables: dict[str, Mapping[str, Any]] = {"[spec]": file.spec.stated()}
    if file.dim is not None:
        tables["[world]"] = {"dim": file.dim}
    if not file.dose.is_identity:
        dose = shortest_dose(form["dose"])
        tables |= {"[dose]": dose} if "curve" in dose else {f"[dose.{name}]": curve for name, curve in dose.items()}
    if file.policy:
        tables["[[policy]]"] = file.policy
    if file.features:
        tables["[features]"] = form["features"]
    if file.dial != Dial():
        tables["[dial]"] = {key: value for key, value in form["dial"].items() if value is not None}
    if file.labels:
        tables["[labels]"] = file.labels
    for head, table in tables.items():
        lines += ["", head]
        for key, value in table.items():
            lines += _comment(told[key]) if head == "[spec]" and key in told else []
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def save_spec(file: SpecFile, path: str | Path, *, notes: Mapping[str, str] | None = None) -> Path:
    """Write a whole spec file or nothing; `load_spec` reads it back."""
    return write_text(Path(path), spec_text(file, notes=notes))


def _policy(listed: Any) -> dict[str, Any] | None:
    if listed is None:
        return None
    one = isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], dict)
    require(one, "[[policy]]", listed, "must be one table", "a grid belongs to safedial sweep")
    named_policy(listed[0])
    return dict(listed[0])


def _toml(value: Any) -> str:
    """A value in TOML syntax, which is JSON's except for tables."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml(part)}" for key, part in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _toml_key(key: str) -> str:
    return key if BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _comment(words: str) -> list[str]:
    return [f"# {part}" for line in words.splitlines() for part in wrap(line, COMMENT)]
