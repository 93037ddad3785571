"""A battery in the loop: violations as rounds go by, reward, and where the models of the cost are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safedial.io import read_rows
from safedial.plots.style import COLOURS, new_figure, save

LINES = ("-", "--", "-", "-.", ":")
"""Line styles of the agents of one policy, in order; their colours are `SHADES`, or else the policy's own."""

SHADES = {"hp_probe": ("#009E73", "#E69F00", "#CC79A7", "#00543D", "#8C6D31"), "hp_conformal": ("#56B4E9", "#1B4F72")}
FITS = ("#D55E00", "#CC79A7", "#999999", "#000000")


def draw_closed_loop(folder: str | Path) -> Path:
    """`closed_loop.png` from `closed_loop.csv` and `closed_loop_residuals.csv`."""
    rows = read_rows(Path(folder) / "closed_loop.csv")
    bands = read_rows(Path(folder) / "closed_loop_residuals.csv")
    looks = _looks(rows)
    figure, (over, gain, loop, loads) = new_figure(columns=2, rows=2, height=2.5)
    _violations(over, rows, looks)
    _rewards(gain, rows, looks)
    seen = [row for row in bands if row["source"] == "in the loop"]
    _residuals(loop, seen, {name: look["color"] for name, look in looks.items()}, "in the loop, one step ahead")
    fitted = [row for row in bands if row["source"] == "random loads"]
    names = list(dict.fromkeys(row["model"] for row in fitted))
    _residuals(loads, fitted, dict(zip(names, FITS, strict=True)), "least squares on random loads")
    loop.set_yscale("symlog", linthresh=0.03)
    loop.set_yticks([-0.3, -0.03, 0.0, 0.03, 0.3, 1.0], ["−0.3", "−0.03", "0", "0.03", "0.3", "1"])
    loads.legend(fontsize=6, frameon=False, loc="upper center", ncols=2)
    loads.set_ylim(-0.06, 0.1)
    handles, labels = over.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=6.5, frameon=False)
    return save(figure, Path(folder) / "closed_loop.png")


def _looks(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Colour and line of each series, different within a policy."""
    looks: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["series"] not in looks:
            number = sum(look["policy"] == row["policy"] for look in looks.values())
            shades = SHADES.get(row["policy"], (COLOURS[row["policy"]],))
            look = {"color": shades[number % len(shades)], "linestyle": LINES[number % len(LINES)]}
            looks[row["series"]] = {"policy": row["policy"], **look}
    return looks


def _violations(panel: Any, rows: list[dict[str, Any]], looks: dict[str, Any]) -> None:
    """Violations under a promise so far, a line for each seed, against what the risk allows; ✕ is an alarm."""
    for name, look in looks.items():
        for number, seed in enumerate(sorted({row["seed"] for row in rows})):
            mine = [row for row in rows if row["series"] == name and row["seed"] == seed]
            label = name if number == 0 else None
            style = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 1.1}
            panel.plot(
                [row["round"] for row in mine], [row["promised_violations"] for row in mine], label=label, **style
            )
            if mine[-1]["alarm_round"] != "":
                panel.plot(mine[-1]["alarm_round"], mine[-1]["promised_violations"], "x", color=look["color"])
    last = max(row["round"] for row in rows)
    panel.plot([0, last], [0, rows[0]["risk"] * last], color="grey", linestyle="--", linewidth=1)
    panel.text(last, rows[0]["risk"] * last, "what the risk allows", ha="right", va="bottom", fontsize=6.5, color="0.3")
    panel.set_xlabel("round")
    panel.set_ylabel("costs over τ so far")
    panel.set_title("violations under a promise; ✕: alarm", fontsize=8)


def _rewards(panel: Any, rows: list[dict[str, Any]], looks: dict[str, Any]) -> None:
    """Mean reward of each seed, by series."""
    last = {(row["series"], row["seed"]): row for row in rows}
    for place, (name, look) in enumerate(looks.items()):
        rewards = [row["mean_reward"] for (series, _), row in last.items() if series == name]
        mean = sum(rewards) / len(rewards)
        panel.barh(place, mean, color=look["color"], height=0.8, alpha=0.45)
        panel.text(0.001, place, name, va="center", fontsize=6)
        panel.plot(rewards, [place + 0.3] * len(rewards), "k.", markersize=2.5)
    panel.invert_yaxis()
    panel.set_yticks([])
    panel.set_xlabel("mean reward a round (dots: seeds)")
    panel.set_title("reward", fontsize=8)


def _residuals(panel: Any, rows: list[dict[str, Any]], colours: dict[str, str], title: str) -> None:
    """Mean error of the cost's model by band of the dial, with two standard errors."""
    panel.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    for number, (name, colour) in enumerate(colours.items()):
        mine = [row for row in rows if row["model"] == name]
        middle = [(row["low"] + row["high"]) / 2 + 0.012 * (number - len(colours) / 2) for row in mine]
        errors = [2 * row["error"] for row in mine]
        style = {"color": colour, "marker": "o", "markersize": 3, "linewidth": 0.9, "capsize": 1.5}
        panel.errorbar(middle, [row["mean"] for row in mine], yerr=errors, label=name, **style)
    panel.set_xlim(0, 1)
    panel.set_xlabel("dial (share of the largest current)")
    panel.set_ylabel("mean of cost − model")
    panel.set_title(title, fontsize=8)
