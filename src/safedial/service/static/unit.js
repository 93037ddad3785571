"use strict";
// The units of a study, and one of them: its own count, its course.

let course = null, after = 0;

// A label from the address, as it is where it was mistyped.
const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

// A long label, such as a hash: its beginning tells it from others.
const shortUnit = (label) => plain(label.length > 24 ? `${label.slice(0, 12)}…` : label);

const unitLink = (label) => Object.assign(made("a", shortUnit(label)), { href: `#${shown}/${encodeURIComponent(label)}`, title: plain(label) });

const shareWords = ({ outcomes, violations, interval }) => (outcomes ? `${percent(violations / outcomes)} (${percent(interval[0])} to ${percent(interval[1])})` : "–");

const unitWords = ({ outcomes, violations, interval, decisions }) => {
  const counted = `${many(decisions, "decision")}, ${many(outcomes, "outcome")} known`;
  if (!outcomes) return `${counted}.`;
  return `${counted}, ${whole(violations)} ${overLimit(told)}: ${percent(violations / outcomes)} (${percent(0.95)}: ${percent(interval[0])} to ${percent(interval[1])}). The study's guarantee is for a round, not for one ${unitName()}: ${unitName()}s may differ.`;
};

const drawUnits = async () => {
  const words = at("unit-search").value.trim(), asked = ++questions;
  const page = await (await get(`/v1/studies/${shown}/units?limit=20&after=${after}&search=${encodeURIComponent(words)}`)).json();
  if (asked !== questions) return;
  at("unit-rows").replaceChildren(...page.units.map((each) => {
    const row = made("tr");
    rowHead(row).append(unitLink(each.unit));
    for (const count of [each.decisions, each.outcomes, each.violations]) cell(row, whole(count), count === each.violations && each.outcomes && each.interval[0] > told.risk ? "over" : "");
    cell(row, shareWords(each));
    return row;
  }));
  at("no-units").textContent = page.units.length ? "" : words ? `No ${unitName()} fits.` : `No decision names a ${unitName()} yet.`;
  at("units-first").hidden = after === 0;
  at("units-more").disabled = page.after === null;
  at("units-more").onclick = () => { after = page.after; drawUnits(); };
};

const drawUnit = async () => {
  if (unit === null) return;
  const wanted = unit;
  let found;
  try {
    found = await (await get(`/v1/studies/${shown}/units/${encodeURIComponent(unit)}`)).json();
  } catch (error) {
    if (error.message !== "status 404") throw error;
    course = null;
    at("unit-title").textContent = `No decision of this study has the ${unitName()} ${shortUnit(unit)}.`;
    for (const id of ["unit-counts", "unit-cost-title"]) at(id).textContent = "";
    for (const id of ["chart-unit-action", "chart-unit-cost"]) at(id).replaceChildren();
    return;
  }
  if (wanted !== unit) return;
  course = found;
  at("unit-title").textContent = `${capital(unitName())} ${shortUnit(found.unit)}`;
  at("unit-title").title = plain(found.unit);
  at("unit-counts").textContent = unitWords(found);
  at("unit-cost-title").textContent = costTitle();
  drawCourse();
};

const drawCourse = () => {
  if (course === null) return;
  const rows = course.course, x = rows.map((_, place) => place + 1), some = (line) => line.y.some((y) => y !== null);
  const base = { x, axis: `decision of this ${unitName()}`, where: (n) => `${rows[n].visit ?? `decision ${rows[n].seq}`}, ${clock(rows[n].at)}`, pick: (n) => n >= 0 && openCertificate(rows[n].id) };
  drawChart(at("chart-unit-action"), { ...base, ...SETTINGS(), title: `Settings of this ${unitName()}`, lines: [
    ...[{ label: "proposed", y: rows.map((row) => row.proposal), colour: "var(--quiet)", dash: "4 3" }].filter(some),
    { label: "advised", y: rows.map((row) => row.action), colour: "var(--advised)" }, { label: "applied", y: rows.map((row) => row.applied_action), colour: "var(--applied)", points: true }] });
  const hot = rows.map((row) => row.violated), place = (seq) => rows.filter((row) => row.seq <= seq).length + 0.5;
  if (told.costs) drawChart(at("chart-unit-cost"), { ...base, ...COSTS(place), title: `${costTitle()} of this ${unitName()}`,
    lines: Object.keys(told.costs).map((name, place) => ({ label: name, y: rows.map((row) => share(told.costs[name], row.cost?.[name])), colour: COLOURS[place % 4], points: true })) });
  else drawChart(at("chart-unit-cost"), { ...base, ...COSTS(place), title: `${costTitle()} of this ${unitName()}`, lines: [
    { label: costName(), y: rows.map((row) => row.cost), colour: "var(--advised)" },
    ...(hot.some(Boolean) ? [{ label: overLimit(told), y: rows.map((row) => (row.violated ? row.cost : null)), colour: "var(--bad)", points: true, hot }] : [])] });
};

// A cost as a share of its limit: 1 at the limit, and more beyond it, on whichever side it is.
const share = ({ threshold, below }, cost) => (cost === null || cost === undefined ? null : 1 + (below ? threshold - cost : cost - threshold) / (Math.abs(threshold) || 1));
