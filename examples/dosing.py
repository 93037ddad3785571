"""Dose vancomycin with a protocol that learns: HP-Shield scales it to what patients tolerated.

    python examples/dosing.py [PATIENTS]

A trough must not exceed 20 mg/l in more than one patient of 20. Stated are the protocol, a growth bracket (1 % more
dose raises a trough by 0.7 to 1.4 %), and that a quarter of the protocol's dose is safe for everybody.
"""

import sys

import numpy as np

from safedial import Agent, Dial, Features, SafetySpec, growth, make_policy
from safedial.simulation.dose_response import draw_patients, exposure, measured_trough, protocol_dose


def main(count: int) -> None:
    patients = draw_patients(np.random.default_rng(1), count)
    protocol = protocol_dose(patients)
    spec = SafetySpec(threshold=20, violation_risk=0.05, guarantee="bracket")
    policy = make_policy("hp_shield", base="protocol", growth=growth.relative(0.7, 1.4, floor=0.5), start_scale=0.25)
    agent = Agent(1, spec, policy=policy, dial=Dial(high=6000, unit="mg"), features=Features(names=("protocol",)))
    doses, troughs = np.empty((2, count))
    for number in range(count):
        patient = type(patients)(*(part[..., number : number + 1] for part in patients))
        decision = agent.ask({"protocol": protocol[number]})
        doses[number] = decision.action
        troughs[number] = measured_trough(patient, decision.action)[0]
        agent.tell(decision, cost=troughs[number])
    for name, dose, found in (
        ("protocol", protocol, measured_trough(patients, protocol)),
        ("safedial", doses, troughs),
    ):
        reached = np.mean(exposure(patients, dose) >= 400)
        print(f"{name}: {np.mean(found > 20):.1%} above 20 mg/l, {reached:.1%} reach the exposure that works")
    print(agent.preview({"protocol": 2000}).explain())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 600)
