"use strict";
// One unit of a study: its own count, its own long-run statement, its course.

let course = null;

// A label from the address, as it is where it was mistyped.
const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

// A pseudonym is long; its beginning tells it from others.
const shortUnit = (label) => plain(label.length > 24 ? `${label.slice(0, 12)}…` : label);

const unitButton = (label) => {
  const button = Object.assign(made("a", shortUnit(label)), { href: `#${shown}/${encodeURIComponent(label)}`, title: plain(label) });
  button.onclick = (event) => event.stopPropagation();
  button.onkeydown = (event) => event.stopPropagation();
  return button;
};

const unitWords = ({ outcomes, violations, interval, decisions }) => {
  const counted = `${many(decisions, "decision")}, ${many(outcomes, "outcome")} known`;
  if (!outcomes) return `${counted}.`;
  return `${counted}, ${whole(violations)} ${overLimit(told)}: ${percent(violations / outcomes)} (${percent(0.95)}: ${percent(interval[0])} to ${percent(interval[1])}). The study's promise is for a round, not for one unit: units may differ.`;
};

const longRunWords = (said) => (said === null ? "The study states nothing for one unit alone."
  : `For this unit alone, whatever the sequence of its rounds: of ${many(said.known, "known round")} ${whole(said.exceeded)} exceeded, and at most ${shortNumber(said.bound)} can have, open ones included.`);

const drawUnit = async () => {
  const arrives = unit !== null && at("unit-card").dataset.unit !== unit;
  at("unit-card").hidden = unit === null;
  at("unit-card").dataset.unit = unit ?? "";
  if (unit === null) return;
  if (arrives) at("unit-card").scrollIntoView({ block: "nearest" });
  const wanted = unit;
  let found;
  try {
    found = await (await get(`/v1/studies/${shown}/units/${encodeURIComponent(unit)}`)).json();
  } catch (error) {
    if (error.message !== "status 404") throw error;
    course = null;
    at("unit-title").textContent = `No decision of this study has the unit ${shortUnit(unit)}.`;
    for (const id of ["unit-counts", "unit-long-run", "unit-cost-title"]) at(id).textContent = "";
    for (const id of ["chart-unit-action", "chart-unit-cost"]) at(id).replaceChildren();
    return;
  }
  if (wanted !== unit) return;
  course = found;
  at("unit-title").textContent = `Unit ${shortUnit(found.unit)}`;
  at("unit-title").title = plain(found.unit);
  at("unit-counts").textContent = unitWords(found);
  at("unit-long-run").textContent = longRunWords(found.long_run);
  at("unit-cost-title").textContent = told.costs ? "Measured costs, as shares of their limits" : "Measured cost";
  drawCourse();
};

const drawCourse = () => {
  if (course === null || unit === null) return;
  const rows = course.course, first = course.decisions - rows.length + 1;
  const base = { x: rows.map((_, place) => first + place), axis: "decision of this unit", where: (n) => `${rows[n].visit === null ? `decision ${rows[n].seq}` : `visit ${rows[n].visit}`}, ${clock(rows[n].at)}`, pick: (n) => n >= 0 && openCertificate(rows[n].id) };
  drawChart(at("chart-unit-action"), { ...base, title: "advised and applied setting of this unit", floor: told.dial.low, lines: [
    { label: "advised", y: rows.map((row) => row.action), colour: "var(--advised)" }, { label: "applied", y: rows.map((row) => row.applied), colour: "var(--applied)", points: true }] });
  const hot = rows.map((row) => row.violated);
  if (told.costs) drawChart(at("chart-unit-cost"), { ...base, title: "measured costs of this unit", rules: [{ y: 1, label: "limit", colour: "var(--bad)" }],
    lines: Object.keys(told.costs).map((name, place) => ({ label: name, y: rows.map((row) => share(told.costs[name], row.cost?.[name])), colour: ["var(--advised)", "var(--applied)", "var(--good)", "var(--quiet)"][place % 4], points: true })) });
  else drawChart(at("chart-unit-cost"), { ...base, title: "measured cost of this unit", rules: [{ y: told.threshold, label: `limit ${shortNumber(told.threshold)}`, colour: "var(--bad)" }],
    lines: [
      { label: "cost", y: rows.map((row) => row.cost), colour: "var(--advised)" },
      ...(hot.some(Boolean) ? [{ label: overLimit(told), y: rows.map((row) => (row.violated ? row.cost : null)), colour: "var(--bad)", points: true, hot }] : [])] });
};

// A cost as a share of its limit: 1 at the limit, and more beyond it, on whichever side it is.
const share = ({ threshold, below }, cost) => (cost === null || cost === undefined ? null : 1 + (below ? threshold - cost : cost - threshold) / (Math.abs(threshold) || 1));
