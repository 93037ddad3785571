"""A world of one feature that every peer must solve, and a synthetic file with the columns of the warfarin data."""

from pathlib import Path

import numpy as np

from benchmarks.arena.arena_cell import play
from benchmarks.arena.arena_world import ArenaWorld, Outcome
from safedial import growth

TOLERANCE = {-1.0: 0.3, 1.0: 0.7}


class OneFeature:
    """x is −1 or 1, and the cost of a setting z is z/T(x), within 5 %; the reward is z."""

    def __init__(self, seeds, rounds):
        self.rngs = [np.random.default_rng([seed, 3]) for seed in seeds]
        self.protocol, self.baseline, self.stated = np.full(len(seeds), 0.4), np.zeros(len(seeds)), {}
        self._next()

    def _next(self):
        sign = np.array([rng.choice([-1.0, 1.0]) for rng in self.rngs])
        self.context = np.stack([np.ones_like(sign), sign], axis=-1)
        self.tolerance = np.where(sign > 0, TOLERANCE[1.0], TOLERANCE[-1.0])

    def act(self, setting):
        error = np.array([rng.uniform(0.95, 1.05) for rng in self.rngs])
        found = Outcome(setting, setting / self.tolerance * error, setting, self.tolerance / 1.05)
        self._next()
        return found


class Near(OneFeature):
    """The reward is how near z comes to T(x), and nothing exceeds: the example of the documentation of CATS."""

    def act(self, setting):
        near = 1.0 - np.abs(setting - self.tolerance)
        self._next()
        return Outcome(near, np.zeros_like(near), near, np.ones_like(near))


def one_feature(risk=0.05):
    return ArenaWorld(
        name="one feature",
        dim=2,
        threshold=1.0,
        begin=OneFeature,
        growth=growth.relative(1.0, 1.0, floor=0.1),
        start_scale=0.25,
        start=0.1,
        context_bound=2.0**0.5,
        unit="share of the clairvoyant",
    )


def solved(policy, rounds, seeds=2, world=None):
    """(share of the clairvoyant's reward, share of excesses) of a policy in the world of one feature."""
    found = play(world or one_feature(), policy, list(range(seeds)), rounds=rounds, risk=0.05)
    return sum(found["value"]) / sum(found["clairvoyant"]), sum(found["violations"]) / rounds / seeds


PATIENT = "male,White,60 - 69,178,80,0.0,,,,2.5,1.0,{need},2.6,0.0,{gene},*1/*1"
HEADS = (
    "gender,race,age_decade,height_cm,weight_kg,amiodarone,carbamazepine,phenytoin,rifampin,target_inr,stable,"
    "dose_mg_week,inr,smoker,vkorc1_1639,cyp2c9"
)


def warfarin_file(folder: Path, patients: int = 60) -> Path:
    """Men of 60 to 69 years, 178 cm and 80 kg, who differ in one gene and in what they need."""
    rng = np.random.default_rng(0)
    lines = [HEADS]
    for number in range(patients):
        gene, usual = (("G/G", 40.0), ("A/G", 30.0), ("A/A", 20.0))[number % 3]
        lines.append(PATIENT.format(need=round(usual * np.exp(0.3 * rng.normal()), 2), gene=gene))
    lines.append(PATIENT.format(need="", gene=""))
    (folder / "warfarin_iwpc.csv").write_text("\n".join(lines) + "\n")
    return folder
