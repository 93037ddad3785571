"""Plain worlds for the golden answers: contexts, noise and outcomes, written out, so that nothing of the package is
used to judge it.

Every number comes from the raw bits of PCG64, which no version of NumPy may change, and from `statistics.NormalDist`.
An outcome is computed from what was really applied.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

NORMAL = NormalDist()


class Draws:
    """Uniform numbers from a seed, the same everywhere."""

    def __init__(self, *seed):
        self.bits = np.random.PCG64(np.random.SeedSequence(seed))

    def uniform(self, low=0.0, high=1.0):
        share = ((int(self.bits.random_raw()) >> 11) + 0.5) / 2.0**53
        return low + (high - low) * share

    def normal(self):
        return NORMAL.inv_cdf(self.uniform())

    def direction(self, dim, length):
        vector = [self.normal() for _ in range(dim)]
        size = math.sqrt(sum(each * each for each in vector))
        return [length * each / size for each in vector]


def noise(kind, draws):
    """One number of mean 0."""
    if kind == "uniform":
        return draws.uniform(-1.0, 1.0)
    if kind == "skewed":
        return -math.log(draws.uniform()) - 1.0
    return draws.normal()


def curve(stated, share):
    """g at a share of the dial; a table is read along straight lines, which is near enough for a world."""
    if stated is None or share <= 0.0 or share >= 1.0:
        return min(max(share, 0.0), 1.0)
    kind = stated["curve"]
    if kind == "power":
        return share ** stated["exponent"]
    if kind == "hill":
        half = stated["ed50"] ** stated["slope"]
        powered = share ** stated["slope"]
        return powered * (1.0 + half) / (half + powered)
    if kind == "logistic":
        steep, middle = stated["steepness"], stated["midpoint"]
        low, here, high = (1.0 / (1.0 + math.exp(-steep * (at - middle))) for at in (0.0, share, 1.0))
        return (here - low) / (high - low)
    if kind == "tabulated":
        return float(np.interp(share, stated["actions"], stated["intensities"]))
    return share


def along(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


class LinearUnits:
    """Means that are linear in the context, noise that scales with the dose: R = g_r·(⟨x,θ⟩ + κ_r·ξ), C alike.

    `costs` holds a size and a noise for each cost. Raw features are 10 + 5·x where the case has features; `labels` puts
    a whole number below that into the last column, which the means leave alone.
    """

    def __init__(self, case):
        self.case, self.stated = case, case["world"]
        self.dim = case["dim"]
        draws = Draws(case["seed"], 1)
        self.free = self.dim - (1 if self.stated.get("labels") else 0)
        self.reward = draws.direction(self.free, self.stated.get("reward_size", 0.9))
        sizes = self.stated.get("cost_sizes", [self.stated.get("cost_size", 0.8)])
        self.costs = [draws.direction(self.free, size) for size in sizes]
        self.draws = Draws(case["seed"], 2)

    def unit(self, number):
        """What a round brings: its context, and its noise whatever will be applied."""
        stated, draws = self.stated, self.draws
        context = draws.direction(self.free, stated.get("length", 0.95) * draws.uniform(0.4, 1.0))
        if stated.get("positive"):
            context = [0.8 * self.costs[0][place] + 0.4 * each for place, each in enumerate(context)]
        if stated.get("labels"):
            context.append(float(int(draws.uniform(0.0, stated["labels"]))))
        kind = stated.get("noise", "normal")
        drawn = [noise(kind, draws) for _ in range(1 + len(self.costs))]
        sensors, coin = [draws.normal(), draws.normal()], draws.uniform()
        return {"number": number, "context": context, "noise": drawn, "sensors": sensors, "coin": coin}

    def shown(self, unit):
        """The context as it is asked with: raw values by name where the case has features."""
        names = (self.case.get("features") or {}).get("names")
        if names is None:
            return list(unit["context"])
        free = {name: 10.0 + 5.0 * value for name, value in zip(names, unit["context"], strict=False)}
        if self.stated.get("labels"):
            free[names[-1]] = unit["context"][-1]
        return free

    def proposal(self, unit):
        return None

    def outcome(self, unit, applied, share, drift):
        """(reward, cost or costs) at the applied share of the dial."""
        case, stated = self.case, self.stated
        free = unit["context"][: self.free]
        dose = case.get("dose") or {}
        gain = curve(dose.get("reward"), share)
        size, sizes = stated.get("reward_noise", 0.3), stated.get("cost_noises", [stated.get("cost_noise", 0.3)])
        reward = gain * (along(free, self.reward) + size * unit["noise"][0])
        reward += stated.get("reward_sensor", 0.0) * unit["sensors"][0]
        found = []
        for place, coef in enumerate(self.costs):
            own = (stated.get("curves") or {}).get(place, dose.get("cost"))
            harm = curve(own, share)
            mean = along(free, coef) + drift.get("shift", 0.0)
            spread = harm if stated.get("scale") is None else stated["scale"](harm)
            found.append(harm * mean + drift.get("scale", 1.0) * spread * sizes[place] * unit["noise"][1 + place])
        found[0] += unit.get("baseline", 0.0) + stated.get("cost_sensor", 0.0) * unit["sensors"][1]
        if stated.get("events"):
            odds = (
                stated["odds"]
                * math.exp(along(free, self.costs[0]) + drift.get("shift", 0.0))
                * curve(dose.get("cost"), share)
            )
            found[0] = 1.0 if unit["coin"] < odds / (1.0 + odds) else 0.0
        names = stated.get("names")
        return reward, found[0] if names is None else dict(zip(names, found, strict=True))


class ToleranceUnits:
    """Units with a tolerance T: the cost lies above its threshold where the setting lies above T.

    C(a) = τ(a/T)^e ("power"), τ + s(max(a, k) − T) ("hinge"), or 1 where a > T ("event"); with a dose curve g(a) and
    g(T) in place of a and T. The protocol's setting is the first feature, or comes as the proposal.
    """

    def __init__(self, case):
        self.case, self.stated = case, case["world"]
        self.dim, self.high = case["dim"], (case.get("dial") or {}).get("high", 1.0)
        draws = Draws(case["seed"], 1)
        self.weights = draws.direction(self.dim - 1, self.stated.get("effect", 0.3))
        self.reward = draws.direction(self.dim - 1, 0.8)
        self.draws = Draws(case["seed"], 2)

    def unit(self, number):
        stated, draws = self.stated, self.draws
        protocol = self.high * stated.get("protocol", 0.2) * draws.uniform(0.6, 1.4)
        features = [draws.uniform(-1.0, 1.0) for _ in range(self.dim - 1)]
        if stated.get("labels"):
            features[-1] = float(stated.get("labels from", 0) + int(draws.uniform(0.0, stated["labels"])))
        drawn = {"tolerance": draws.normal(), "reward": draws.normal()}
        steep, knee, gap, binding = (draws.uniform() for _ in range(4))
        drawn |= {"steep": steep, "knee": knee, "gap": gap, "binding": binding, "request": draws.uniform(0.1, 2.5)}
        return {"number": number, "context": [protocol, *features], **drawn}

    def shown(self, unit):
        names = (self.case.get("features") or {}).get("names")
        return list(unit["context"]) if names is None else dict(zip(names, unit["context"], strict=True))

    def proposal(self, unit):
        asked = self.stated.get("asked")
        if asked == "proposal":
            return unit["context"][0]
        return unit["context"][0] * unit["request"] if asked == "request" else None

    def outcome(self, unit, applied, share, drift):
        stated, features = self.stated, unit["context"][1:]
        if stated.get("labels"):
            features = [*features[:-1], 0.3 * features[-1]]
        middle = along(features, self.weights) + stated.get("spread", 0.3) * unit["tolerance"]
        tolerance = unit["context"][0] * max(math.exp(middle), stated.get("least", 0.35)) * drift.get("fall", 1.0)
        best = 1.5 * unit["context"][0] * math.exp(0.3 * along(features, self.reward))
        if stated.get("reward") == "peak":
            reward = 1.0 - ((applied - best) / self.high) ** 2 * 4.0 + 0.1 * unit["reward"]
        else:
            reward = share * (along(features, self.reward) + 0.2 + 0.3 * unit["reward"])
        costs = []
        for place, cost in enumerate(stated["costs"]):
            own = tolerance if int(unit["binding"] * len(stated["costs"])) == place else tolerance * (1.0 + unit["gap"])
            costs.append(self._cost(cost, unit, applied, own, place))
        return reward, costs[0] if "names" not in stated else dict(zip(stated["names"], costs, strict=True))

    def _cost(self, cost, unit, applied, tolerance, place):
        g = (self.case.get("dose") or {}).get("cost")
        at, limit = applied, tolerance
        if g is not None:
            at, limit = curve(g, applied / self.high), curve(g, min(tolerance, 0.999 * self.high) / self.high)
        steep = cost["low"] + (cost["high"] - cost["low"]) * ((unit["steep"] + 0.38 * place) % 1.0)
        threshold = cost["threshold"]
        if cost["kind"] == "event":
            return 1.0 if at > limit else 0.0
        if cost["kind"] == "power":
            value = threshold * (at / limit) ** steep
        else:
            value = threshold + steep * (max(at, cost.get("knee", 0.0) * unit["knee"] * limit) - limit)
        return value if cost.get("side", "above") == "above" else 2.0 * threshold - value


WORLDS = {"linear": LinearUnits, "tolerance": ToleranceUnits}
