"use strict";
// The health of a study: whether it advises, what is overdue, how long it has been at its start, the evidence; and resuming it.

const AXIS = "decision number", COLOURS = ["var(--advised)", "var(--applied)", "var(--good)", "var(--quiet)"];

// Guarantees without stated constants have evidence of their own; their violations are counted and not tested.
const OWN_EVIDENCE = { conformal: "that rounds have changed", bracket: "that rounds have changed", student: "against Gaussian noise of one size" };
const against = () => `evidence ${OWN_EVIDENCE[told.guarantee] ?? "against the guarantee"}`;

const stopped = () => (told.counts.stop_reason ? told.stops[told.stops.length - 1] : null);

// What the axes of settings and of costs have in common.
const SETTINGS = () => ({ floor: told.dial.low, value: nameAndUnit("setting", told.dial.unit) });
// Each limit holds from its amendment on, until the next; `place` is where a decision's number lies on the axis.
const limits = (place) => told.limits.map(({ after, threshold }, n) => ({ y: threshold, label: `limit ${measured(threshold, told.labels.cost_unit)}`, colour: "var(--bad)", from: place(after), to: place(told.limits[n + 1]?.after ?? Infinity) }));
const COSTS = (place) => (told.costs ? { value: "share of the limit", rules: [{ y: 1, label: "limit", colour: "var(--bad)" }] }
  : { value: nameAndUnit(costName(), told.labels.cost_unit), rules: limits(place) });
const costTitle = () => (told.costs ? "Measured costs, as shares of their limits" : `Measured ${costName()}`);

// Things worth knowing, the pressing ones marked.
const notes = () => {
  const { counts, resumes, amendments } = told, found = [];
  if (counts.overdue) found.push([`${many(counts.overdue, "outcome")} overdue, the first since ${day(counts.overdue_since)} (${since(counts.overdue_since)}).`, true]);
  if (counts.at_start) {
    const long = counts.at_start > 4 / told.risk;
    found.push([`At the start setting for the ${counts.at_start === 1 ? "last decision" : `last ${many(counts.at_start, "decision")}`}: ${long ? "this is unusually long. Missing outcomes, or costs that are too alike, keep a study here." : counts.outcomes * told.risk < 2 ? "too few outcomes are known yet to go beyond it." : "the known outcomes do not show that more is safe there."} It began on ${day(counts.at_start_since)}.`, long]);
  }
  if (counts.frozen) found.push(["Learning has ended: a round was lost for a reason that may have to do with its outcome. The study keeps what it has learned.", true]);
  else if (counts.waits_for && counts.waiting) found.push([`Learning waits for the outcome of decision ${counts.waits_for}; ${many(counts.waiting, "later round")} ${counts.waiting === 1 ? "is" : "are"} not learned from until it comes.`, counts.waiting > Math.max(20, counts.outcomes / 4)]);
  if (counts.unwatched) found.push([`${many(counts.unwatched, "round")} ended without an outcome that shows whether the guarantee was kept.`, counts.unwatched > 0.25 * counts.decisions]);
  if (counts.decisions) found.push([`${capital(against())}: ${evidenceWords(counts.evidence, told.alarm_at)}.`, counts.evidence >= Math.sqrt(told.alarm_at)]);
  if (amendments.length) found.push([`Amended by a person ${amendments.length === 1 ? "once" : `${whole(amendments.length)} times`}, the last time on ${day(amendments[amendments.length - 1].at)}: ${told.guaranteed_since ? `the guarantee and the evidence count from ${day(told.guaranteed_since)} on` : "the guarantee and the evidence go on"}.`, false]);
  if (resumes.length) {
    const last = resumes[resumes.length - 1];
    found.push([`Resumed by a person ${counts.resumes === 1 ? "once" : `${whole(counts.resumes)} times`}, the last time on ${day(last.at)}${last.rule ? ` after: ${stopWords(last.rule)}` : "."}`, false]);
  }
  if (counts.imported) found.push([`${many(counts.imported, "round")} from before the study were imported.`, false]);
  return found;
};

const drawHead = () => {
  const stop = stopped(), { overdue } = told.counts;
  at("name").textContent = told.name;
  at("state").textContent = stop ? `stopped since ${day(stop.at)}` : "advising";
  at("state").className = stop ? "pill stopped" : "pill";
  at("why").hidden = !stop;
  const words = stop ? [`This study is stopped, since ${day(stop.at)}.`, stopWords(stop.rule), `Until a person resumes it with a reason, ${setting(told.fallback_action)} is advised to everybody, and nothing is guaranteed.`] : [];
  if (at("why").dataset.words !== words.join()) {
    at("why").dataset.words = words.join();
    at("why").replaceChildren(...words.map((each, place) => made(place ? "p" : "b", each)), ...(stop ? [Object.assign(made("a", "Resume it, with a reason"), { href: `#${shown}:health` })] : []));
  }
  if (stop) at("why").lastChild.hidden = view === "health";
  const lead = unproved(told) ? `${unproved(told)}. What is to be guaranteed, once it is proved: ` : stop ? "While it advises, the guarantee is: " : "The guarantee: ";
  at("guarantee").textContent = `${lead}${guaranteeWords(told).replace(/^[A-Z]/, (letter) => letter.toLowerCase())}, if what each decision lists is true.`;
  at("overdue-mark").hidden = !overdue;
  at("overdue-mark").textContent = `${whole(overdue)} overdue`;
  for (const each of document.querySelectorAll(".unit-name")) each.textContent = unitName();
  document.querySelector("[data-view=units]").textContent = `${capital(unitName())}s`;
};

const drawTiles = () => {
  const { counts, risk } = told, stop = stopped();
  set("decisions", counts.decisions);
  set("outcomes", counts.outcomes);
  set("violations", counts.violations);
  const rate = counts.outcomes ? counts.violations / counts.outcomes : 0;
  at("violations-note").textContent = `${overLimit(told)}${counts.outcomes ? `: ${percent(rate)} (${percent(0.95)}: ${percent(told.interval[0])} to ${percent(told.interval[1])})` : ""}`;
  at("violations").parentNode.classList.toggle("bad", counts.outcomes > 0 && told.interval[0] > risk);
  set("evidence", counts.evidence, counts.evidence < 0.01 ? "< 0.01" : shortNumber(counts.evidence));
  const stoppedBy = stop && ["alarm", "drift", "bracket_drift", "student_drift"].includes(stop.rule);
  at("evidence-note").textContent = !stop ? `${against()}; ${shortNumber(told.alarm_at)} stops the study` : stoppedBy ? `${against()}; it was ${shortNumber(stop.evidence ?? told.alarm_at)} when the study stopped` : `${against()}; not why the study stopped`;
  at("evidence").parentNode.classList.toggle("bad", Boolean(stoppedBy) || counts.evidence >= told.alarm_at);
  set("open", counts.open);
  at("open-note").textContent = counts.oldest_open ? `outcomes open, the oldest for ${since(counts.oldest_open)}` : "outcomes open";
};

const drawOverdue = async () => {
  const { overdue } = told.counts, hours = told.due_after;
  const stops = told.stops_after ? ` One that is open for more than ${span(3600 * told.stops_after)} stops the study.` : "";
  at("overdue-words").textContent = hours === null ? "This study states no deadline for outcomes (due_after)." : `${overdue ? `${many(overdue, "outcome")} overdue` : "None"}; an outcome is due ${span(3600 * hours)} after its decision.${stops}`;
  at("overdue-table").hidden = !overdue;
  if (!overdue || view !== "health") return;
  const { rows } = await (await get(`/v1/studies/${shown}/decisions?overdue=1&limit=500`)).json();
  at("overdue-rows").replaceChildren(...rows.slice(-20).reverse().map((each) => {
    const row = made("tr");
    rowHead(row).append(certificateLink(each));
    cell(row, "", "name").append(...(each.unit === null ? [] : [unitLink(each.unit)]));
    cell(row, each.visit ?? each.key ?? "", "name");
    cell(row, setting(each.action));
    cell(row, `${day(each.due_at)} (${since(each.due_at)})`, "over");
    return row;
  }));
};

const drawHealth = () => {
  const { counts, curves, risk } = told, alike = told.guarantee in OWN_EVIDENCE, over = overLimit(told);
  at("notes").replaceChildren(...notes().map(([words, bad]) => made("li", words, bad ? "warn" : "")));
  at("notes").hidden = !at("notes").children.length;
  at("resume").hidden = view !== "health" || !stopped();
  at("resume-forget").parentNode.hidden = !alike;
  at("resume-unrelated").parentNode.hidden = !alike || !at("resume-forget").checked;
  drawTiles();
  at("unit").textContent = "mean of each step";
  at("rate-title").textContent = `Share of outcomes ${over}`;
  at("cost-title").textContent = told.costs ? "Measured costs" : costTitle();
  at("worst").textContent = told.costs ? "the worst of each step; 1 is the limit, and more is beyond it" : `mean and ${told.below ? "smallest" : "largest"} of each step`;
  at("evidence-title").textContent = capital(against());
  at("evidence-words").textContent = `1 at the start; ${shortNumber(told.alarm_at)} stops the study`;
  at("evidence-count").hidden = !alike || !counts.outcomes;
  at("evidence-count").textContent = `${capital(over)}: ${whole(counts.violations)} of ${many(counts.outcomes, "outcome")}, ${percent(counts.violations / counts.outcomes)} (${percent(0.95)}: ${percent(told.interval[0])} to ${percent(told.interval[1])}); ${atMost(told)}. This count is shown and not tested.`;
  at("chart-reward").parentNode.hidden = !curves.reward.some(rewarded) && !told.reads_reward;
  at("reward-title").textContent = `${capital(rewardName())}, summed`;

  const x = curves.seq, where = (n) => `decision ${x[n]}, ${clock(curves.at[n])}`, pick = (n) => n >= 0 && openCertificate(`${told.name}.${curves.seq[n]}`);
  const base = { x, where, axis: AXIS }, some = (line) => line.y.some((y) => y !== null);
  drawChart(at("chart-action"), { ...base, ...SETTINGS(), title: "Advised and applied setting", pick, lines: [
    ...[{ label: "proposed", y: curves.proposed, colour: "var(--quiet)", dash: "4 3" }].filter(some),
    { label: "advised", y: curves.advised, colour: "var(--advised)" }, { label: "applied", y: curves.applied, colour: "var(--applied)", points: true }] });
  drawChart(at("chart-cost"), { ...base, ...COSTS((seq) => seq), title: costTitle(), pick, lines: told.costs
    ? Object.entries(curves.costs).map(([name, y], place) => ({ label: name, y, colour: COLOURS[place % 4] }))
    : [{ label: "mean", y: curves.cost, colour: "var(--advised)" }, { label: told.below ? "smallest" : "largest", y: curves.cost_max, colour: "var(--quiet)", points: true, hot: curves.violations.map((n) => n > 0) }] });
  const most = 4 * risk + 2 * (counts.outcomes ? counts.violations / counts.outcomes : 0);
  drawChart(at("chart-rate"), { ...base, title: `Share of outcomes ${over}`, value: "share", floor: 0, band: { low: curves.rate_low, high: curves.rate_high.map((high) => Math.min(high, most)) },
    rules: [{ y: risk, label: atMost(told), colour: "var(--bad)" }], lines: [{ label: `share ${over}`, y: curves.rate, colour: "var(--advised)" }] });
  drawChart(at("chart-evidence"), { title: capital(against()), x: curves.seq, axis: AXIS, value: "evidence, 1 at the start", where: (n) => `decision ${curves.seq[n]}`, log: true, least: 0.01,
    none: counts.decisions ? `${shortNumber(counts.evidence)} now; this study keeps no record of its course` : "nothing yet",
    rules: [{ y: told.alarm_at, label: "stops the study", colour: "var(--bad)" }], lines: [{ label: "evidence", y: curves.evidence, colour: "var(--advised)" }] });
  at("expects").hidden = !some({ y: curves.expected });
  drawChart(at("chart-reward"), { ...base, title: `${capital(rewardName())}, summed`, value: nameAndUnit(`${rewardName()}, summed`, told.labels.reward_unit), lines: [
    { label: rewardName(), y: curves.reward, colour: "var(--good)" }, ...[{ label: "expected beforehand", y: curves.expected, colour: "var(--quiet)", dash: "4 3" }].filter(some)] });
  drawBars(at("chart-ages"), told.ages);
};

at("resume-forget").onchange = () => { at("resume-unrelated").parentNode.hidden = !at("resume-forget").checked; };

at("resume").onsubmit = async (event) => {
  event.preventDefault();
  const key = at("resume-key").value.trim() || sessionStorage.getItem("safedial-key");
  const answer = await fetch(`/v1/studies/${shown}/resume`, { method: "POST", body: JSON.stringify({ reason: at("resume-reason").value.trim(), rule: stopped()?.rule ?? null, forget: at("resume-forget").checked, unrelated: at("resume-forget").checked && at("resume-unrelated").checked }),
    headers: { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) } });
  at("resume-key").value = "";
  if (answer.ok) {
    at("resume-reason").value = at("resume-answer").textContent = "";
    at("resume-forget").checked = at("resume-unrelated").checked = false;
    const { stop_reason: again } = await answer.json().catch(() => ({}));
    say(again ? `The study was resumed and has stopped again at once: ${STOPS[again] ?? again}` : "The study is resumed.");
    at("health-title").focus();
    return tick();
  }
  const why = await answer.json().catch(() => ({}));
  at("resume-answer").textContent = [401, 403].includes(answer.status) ? "Not resumed: this needs a key with the role admin." : `Not resumed: ${why.detail ?? why.title ?? `status ${answer.status}`}`;
};
