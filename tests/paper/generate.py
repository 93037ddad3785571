"""Small `.mat` files and parquet tables of the true structure, from plain Python values."""

import numpy as np
import pandas as pd
from scipy.io import savemat

RW_COMMENTS = {"C": "charge (random walk)", "D": "discharge (random walk)", "R": "rest (random walk)"}


def rw_samples(steps=12, seed=0):
    """`steps` random-walk steps: (letter, time since the start, volts, amps, celsius); every third is a rest."""
    random, now, samples = np.random.default_rng(seed), 60.0, []
    for number in range(steps):
        letter = "R" if number % 3 == 2 else random.choice(["C", "D"])
        amps = {"C": -1.0, "D": 1.0, "R": 0.0}[letter] * random.choice([0.75, 1.5, 2.25, 3.0, 3.75, 4.5])
        size = 2 if letter == "R" else int(random.integers(3, 31))
        time = now + 10.0 * np.arange(size)
        volts = 3.7 - 0.02 * amps * np.arange(size) / size + 0.001 * random.normal(size=size)
        samples.append((str(letter), time, volts, np.full(size, amps), 25.0 + 0.5 * random.random(size) + abs(amps)))
        now = float(time[-1]) + 10.0
    return samples


def write_rw(path, samples=None, change=None):
    """An RW file; `change(steps)` may alter the list of steps before it is written."""
    samples = rw_samples() if samples is None else samples
    steps = [
        {
            "comment": RW_COMMENTS[letter],
            "type": letter,
            "relativeTime": (time - time[0])[None, :],
            "time": time[None, :],
            "voltage": volts[None, :],
            "current": amps[None, :],
            "temperature": celsius[None, :],
            "date": f"30-Dec-2013 15:{number // 60:02d}:{number % 60:02d}",
        }
        for number, (letter, time, volts, amps, celsius) in enumerate(samples)
    ]
    if change:
        change(steps)
    data = {"procedure": "Uniform random walk", "description": ["18650 cells", "generated"], "step": _array(steps)}
    savemat(path, {"data": data}, do_compression=True)
    return path


def b_samples(cycles=4, seconds=1000.0, seed=0):
    """Cycles in turn charge, discharge, impedance; one sample every 20 s, NASA's signs (charge positive)."""
    random, kinds = np.random.default_rng(seed), ("charge", "discharge", "impedance")
    samples = []
    for number in range(cycles):
        kind = kinds[number % 3]
        time = np.arange(0.0, seconds, 20.0)
        amps = np.full(time.size, 1.5 if kind == "charge" else -2.0)
        volts = 3.8 + 0.0003 * np.sign(amps) * time + 0.001 * random.normal(size=time.size)
        samples.append((kind, time, volts, amps, 24.0 + 0.002 * time))
    return samples


def write_b(path, samples=None, change=None):
    """A B file; `change(cycles)` may alter the list of cycles before it is written."""
    samples = b_samples() if samples is None else samples
    cycles = []
    for number, (kind, time, volts, amps, celsius) in enumerate(samples):
        series = {"Voltage_measured": volts, "Current_measured": amps, "Temperature_measured": celsius, "Time": time}
        data = {"Re": 0.05} if kind == "impedance" else {name: values[None, :] for name, values in series.items()}
        date = np.array([[2008.0, 4.0, 2.0 + number, 13.0, 8.0, 17.5]])
        cycles.append({"type": kind, "ambient_temperature": 24, "time": date, "data": data})
    if change:
        change(cycles)
    savemat(path, {path.stem: {"cycle": _array(cycles)}}, do_compression=True)
    return path


def _array(records):
    """A MATLAB struct array: 1 × n, every field an object."""
    array = np.empty((1, len(records)), dtype=[(name, object) for name in records[0]])
    for place, record in enumerate(records):
        array[0, place] = tuple(record[name] for name in array.dtype.names)
    return array


def rw26_table(steps=8):
    """The parquet table of RW26, as its columns and types are."""
    letters = ["C", "D", "R", "D"] * steps
    amps = {"C": -0.5, "D": 1.25, "R": 0.0}
    frame = pd.DataFrame({"battery": "RW26", "step": range(1, steps + 1), "type": letters[:steps]})
    frame["comment"] = frame["type"].map(RW_COMMENTS)
    frame["date"] = pd.Timestamp("2014-11-14 17:25:43") + pd.to_timedelta(60 * frame["step"], unit="s")
    numbers = {
        "t_start": 60.0 * frame["step"],
        "duration": 60.0,
        "n": 7,
        "v_start": 3.7,
        "v_end": 3.6,
        "dv": -0.1,
        "i_mean": frame["type"].map(amps),
        "temp_start": 39.0,
        "temp_mean": 40.1,
        "temp_max": 41.2,
    }
    frame = frame.assign(**numbers)
    small = ("duration", "v_start", "v_end", "dv", "i_mean", "temp_start", "temp_mean", "temp_max")
    return frame.astype({"battery": "category", "type": "category", **dict.fromkeys(small, "float32")})


def rw_table(steps=4):
    """RW26 and the excerpt, stacked."""
    whole = rw26_table(steps).assign(source="RW26 full", block=np.nan, setpoint=np.nan)
    parts = [
        rw26_table(steps).assign(
            battery=battery, source="RW9-12 excerpt", block=float(block), setpoint=1.0, date=pd.NaT
        )
        for battery in ("RW9", "RW10")
        for block in (1, 2)
    ]
    for part in (whole, *parts):
        part["battery"] = part["battery"].astype(str)
        part["date"] = part["date"].astype("datetime64[us]")
    return pd.concat([whole, *parts], ignore_index=True)


def b_table():
    """The parquet table of B windows, not in order, charge current positive."""
    keys = [("B0006", 9, 0), ("B0005", 3, 1), ("B0005", 3, 0), ("B0005", 1, 0)]
    frame = pd.DataFrame(keys, columns=["battery", "uid", "k"])
    frame["type"] = np.where(frame["uid"] == 3, "discharge", "charge")
    frame["i_mean"] = np.where(frame["uid"] == 3, -2.0, 1.5)
    frame["start"] = "2008-04-02T13:08:17"
    numbers = {"ambient_c": 24.0, "duration": 290.3, "v_start": 3.7, "dv": 0.1}
    temperatures = {"temp_start": 24.0, "temp_mean": 25.1, "temp_max": 26.0}
    frame = frame.assign(t_start=300.1 * frame["k"], **numbers, **temperatures)
    small = [*numbers, *temperatures, "i_mean", "t_start"]
    return frame.astype({"battery": "category", "start": "category", **dict.fromkeys(small, "float32")})
