"use strict";
// The operator page: studies, one study live, the certificate of one decision. It only ever reads.

const POLL = 2000, POINTS = 160;
const at = (id) => document.getElementById(id);
// Text of others shows as text: control characters and marks that turn the direction of writing as their escapes.
const plain = (words) => String(words ?? "").replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (each) => `\\u${each.codePointAt(0).toString(16).padStart(4, "0")}`);
const made = (tag, words, kind) => Object.assign(document.createElement(tag), { textContent: plain(words), className: kind ?? "" });
const block = (words) => Object.assign(made("pre"), { textContent: String(words ?? "").split("\n").map(plain).join("\n") });
let shown = null, unit = null, tag = null, before = null, told = null, timer = null, painted = 0, questions = 0;

class Refused extends Error {}

const get = async (path, headers = {}) => {
  const key = sessionStorage.getItem("safedial-key");
  const answer = await fetch(path, { cache: "no-store", headers: { ...headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) } });
  if (answer.status === 401 || answer.status === 403) throw new Refused(answer.status);
  if (answer.status !== 304 && !answer.ok) throw new Error(`status ${answer.status}`);
  return answer;
};

const live = (kind, words) => {
  at("live").className = `live ${kind}`;
  at("live").lastChild.textContent = words;
};

const show = (room) => {
  for (const name of ["door", "studies", "study"]) at(name).hidden = name !== room;
};

const set = (id, value, words) => {
  at(id).textContent = words ?? whole(value);
  at(id).dataset.value = value;
};

const setting = (value) => inUnit(value, told.dial.unit);

const AXIS = "decision number";

// Promises without stated constants have evidence of their own; their violations are counted and not tested.
const OWN_EVIDENCE = { conformal: "that rounds have changed", bracket: "that rounds have changed", student: "against Gaussian noise of one size" };
const against = () => `evidence ${OWN_EVIDENCE[told.promise] ?? "against the promise"}`;

// Things worth knowing that no tile shows.
const notes = () => {
  const { counts, resumes } = told, found = [];
  if (counts.at_start) {
    const long = counts.at_start > 4 / told.risk;
    found.push([`At the start setting for the last ${many(counts.at_start, "decision")}: ${long ? "this is unusually long. Missing outcomes, or costs that are too alike, keep a study here." : "too few outcomes are known yet to go beyond it."}`, long]);
  }
  if (counts.frozen) found.push(["Learning has ended: a round was lost for a reason that may have to do with its outcome. The study keeps what it has learned.", true]);
  else if (counts.waits_for && counts.waiting) found.push([`Learning waits for the outcome of decision ${counts.waits_for}; ${many(counts.waiting, "later round")} ${counts.waiting === 1 ? "is" : "are"} not learned from until it comes.`, counts.waiting > Math.max(20, counts.outcomes / 4)]);
  if (counts.unwatched) found.push([`${many(counts.unwatched, "round")} ended without an outcome that shows whether the promise was kept.`, counts.unwatched > 0.25 * counts.decisions]);
  if (resumes.length) {
    const last = resumes[resumes.length - 1];
    found.push([`Resumed by a person ${counts.resumes === 1 ? "once" : `${whole(counts.resumes)} times`}, the last time on ${day(last.at)}${last.rule ? ` after: ${stopWords(last.rule)}` : "."}`, false]);
  }
  if (counts.imported) found.push([`${many(counts.imported, "round")} from before the study were imported.`, false]);
  return found;
};

const drawHead = () => {
  const { counts } = told, stop = counts.stopped ? told.stops[told.stops.length - 1] : null;
  at("name").textContent = told.name;
  at("state").textContent = stop ? `stopped since ${day(stop.at)}` : "advising";
  at("state").className = stop ? "pill stopped" : "pill";
  at("why").hidden = !stop;
  if (stop) at("why").replaceChildren(made("b", `This study is stopped, since ${day(stop.at)} (${since(stop.at)} ago).`), made("p", stopWords(stop.rule)),
    made("p", `Until a person resumes it with a reason, ${setting(told.fallback_action)} is advised to everybody, and nothing is promised.`));
  at("promise").textContent = `${stop ? "While it advises, the promise is: " : "The promise: "}${promiseWords(told).replace(/^[A-Z]/, (letter) => letter.toLowerCase())}, if what each decision lists is true.`;
  const found = notes();
  at("notes").hidden = !found.length;
  at("notes").replaceChildren(...found.map(([words, bad]) => made("li", words, bad ? "warn" : "")));
};

const drawTiles = () => {
  const { counts, risk } = told, stop = counts.stopped ? told.stops[told.stops.length - 1] : null;
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

const drawStudy = () => {
  const { counts, curves, threshold, risk } = told, alike = told.promise in OWN_EVIDENCE, over = overLimit(told);
  drawHead();
  drawTiles();
  at("pseudonyms").hidden = !told.pseudonyms;
  at("unit").textContent = told.dial.unit ? `in ${told.dial.unit}; mean of each step` : "mean of each step";
  at("rate-title").textContent = `Share of outcomes ${over}`;
  at("cost-title").textContent = told.costs ? "Measured costs" : "Measured cost";
  at("worst").textContent = told.costs ? "the worst of each step; 1 is the limit, and more is beyond it" : `mean and ${told.below ? "smallest" : "largest"} of each step`;
  at("evidence-title").textContent = against().replace("e", "E");
  at("evidence-words").textContent = `1 at the start; ${shortNumber(told.alarm_at)} stops the study`;
  at("evidence-count").hidden = !alike || !counts.outcomes;
  at("evidence-count").textContent = `${over.replace(/^[a-z]/, (letter) => letter.toUpperCase())}: ${whole(counts.violations)} of ${many(counts.outcomes, "outcome")}, ${percent(counts.violations / counts.outcomes)} (${percent(0.95)}: ${percent(told.interval[0])} to ${percent(told.interval[1])}); promised at most ${percent(risk)}. This count is shown and not tested.`;

  const x = curves.round, where = (n) => `decision ${whole(x[n])}, ${clock(curves.at[n])}`, pick = (n) => n >= 0 && openCertificate(`${told.name}.${curves.seq[n]}`);
  const base = { x, where, axis: AXIS };
  const some = (line) => line.y.some((y) => y !== null);
  drawChart(at("chart-action"), { ...base, title: "advised and applied setting", pick, floor: told.dial.low, lines: [
    ...[{ label: "proposed", y: curves.proposed, colour: "var(--quiet)", dash: "4 3" }].filter(some),
    { label: "advised", y: curves.advised, colour: "var(--advised)" }, { label: "applied", y: curves.applied, colour: "var(--applied)", points: true }] });
  if (told.costs) drawChart(at("chart-cost"), { ...base, title: "measured costs, as shares of their limits", pick, rules: [{ y: 1, label: "limit", colour: "var(--bad)" }],
    lines: Object.entries(curves.costs).map(([name, y], place) => ({ label: name, y, colour: ["var(--advised)", "var(--applied)", "var(--good)", "var(--quiet)"][place % 4] })) });
  else drawChart(at("chart-cost"), { ...base, title: "measured cost", pick, rules: [{ y: threshold, label: `limit ${shortNumber(threshold)}`, colour: "var(--bad)" }], lines: [
    { label: "mean", y: curves.cost, colour: "var(--advised)" }, { label: told.below ? "smallest" : "largest", y: curves.cost_max, colour: "var(--quiet)", points: true, hot: curves.violations.map((n) => n > 0) }] });
  const most = 4 * risk + 2 * (counts.outcomes ? counts.violations / counts.outcomes : 0);
  drawChart(at("chart-rate"), { ...base, title: `share of outcomes ${over}`, floor: 0, band: { low: curves.rate_low, high: curves.rate_high.map((high) => Math.min(high, most)) },
    rules: [{ y: risk, label: `promised at most ${percent(risk)}`, colour: "var(--bad)" }], lines: [{ label: `share ${over}`, y: curves.rate, colour: "var(--advised)" }] });
  drawChart(at("chart-evidence"), { title: "evidence", x: curves.evidence_round, axis: AXIS, where: (n) => `decision ${whole(curves.evidence_round[n])}`, log: true, least: 0.01,
    none: counts.decisions ? `${shortNumber(counts.evidence)} now; this study keeps no record of its course` : "nothing yet",
    rules: [{ y: told.alarm_at, label: "stops the study", colour: "var(--bad)" }], lines: [{ label: "evidence", y: curves.evidence, colour: "var(--advised)" }] });
  at("expects").hidden = !some({ y: curves.expected });
  drawChart(at("chart-reward"), { ...base, title: "summed reward", lines: [
    { label: "reward", y: curves.reward, colour: "var(--good)" }, ...[{ label: "expected beforehand", y: curves.expected, colour: "var(--quiet)", dash: "4 3" }].filter(some)] });
  drawBars(at("chart-ages"), told.ages);
  document.body.dataset.seq = told.seq;
  if (!painted) painted = performance.now();
  document.body.dataset.painted = painted;
};

const OUTCOMES = { known: "within the limit", corrected: "within the limit (corrected)", "nothing given": "nothing advised" };

const cell = (row, words, kind) => row.appendChild(made("td", words, kind));

const drawRows = async () => {
  const words = at("search").value.trim(), asked = ++questions;
  if (unit !== null && course === null) {
    at("rows").replaceChildren();
    at("no-rows").hidden = false;
    return;
  }
  const asks = Object.entries({ limit: 15, before, search: words, unit }).filter(([, value]) => value).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  const page = await (await get(`/v1/studies/${shown}/decisions?${asks.join("&")}`)).json();
  if (asked !== questions) return;
  at("rows").parentNode.classList.toggle("no-units", page.rows.every((each) => each.unit === null));
  at("no-rows").hidden = page.rows.length > 0 || !words;
  at("rows").replaceChildren(...page.rows.map((each) => {
    const row = made("tr");
    row.tabIndex = 0;
    row.dataset.id = each.id;
    cell(row, each.seq);
    cell(row, "", "name").append(...(each.unit === null ? [] : [unitButton(each.unit)]));
    cell(row, each.visit ?? each.key ?? "", "name").title = each.visit ?? each.key ?? "";
    cell(row, Object.entries(each.meta).map(([name, value]) => `${name} ${value}`).join(", "), "name").title = JSON.stringify(each.meta);
    cell(row, clock(each.at));
    cell(row, setting(each.action)).title = each.proposal === null ? "" : `proposed: ${setting(each.proposal)}, ${each.proposal_answer}`;
    cell(row, setting(each.applied));
    cell(row, shortNumber(each.reward));
    cell(row, costWords(each.cost), each.violated ? "over" : "");
    cell(row, each.violated ? overLimit(told) : OUTCOMES[each.status] ?? each.status, each.violated ? "over" : "");
    row.onclick = () => openCertificate(each.id);
    row.onkeydown = (event) => event.key === "Enter" && openCertificate(each.id);
    return row;
  }));
  at("newest").hidden = before === null;
  at("older").disabled = page.before === null;
  at("older").onclick = () => { before = page.before; drawRows(); };
  at("newest").onclick = () => { before = null; drawRows(); };
};

const pairs = (entries) => {
  const list = made("dl", "", "pairs");
  for (const [name, value] of entries) list.append(made("dt", name), made("dd", value));
  return list;
};

const folded = (title, ...parts) => {
  const box = made("details");
  box.append(made("summary", title), ...parts);
  return box;
};

const openCertificate = async (id) => {
  const { certificate, events, why, explanation, action } = await (await get(`/v1/decisions/${id}`)).json();
  const { key, visit = key, meta, raw_context: raw, features, dial, extrapolated, resumed, proposal, proposal_answer: answer, unit: whose } = certificate, body = at("certificate-body");
  at("certificate-title").textContent = visit ? `Visit: ${plain(visit)}` : `Decision ${id}`;
  body.replaceChildren(made("p", `${clock(certificate.at)}, decision ${id}`, "quiet"), made("p", inUnit(action, dial.unit), "big"));
  for (const name of extrapolated) body.append(made("p", `${name} lies outside the range stated for it; the caller allowed that.`, "warn"));
  const values = Array.isArray(raw) ? raw.map((value, place) => [`feature ${place + 1}`, shortNumber(value)]) : Object.entries(raw).map(([name, value]) => [name, `${Number(value.toPrecision(6))} ${features.units?.[name] ?? ""}`.trim()]);
  body.append(made("h3", "For"), pairs([...(proposal === undefined ? [] : [["proposed", `${inUnit(proposal, dial.unit)}, ${answer}`]]), ...(whose === undefined ? [] : [["unit", whose]]), ...Object.entries(meta ?? {}), ...values.slice(0, 40)]));
  body.append(made("h3", "Why this setting"), made("p", `${why.replace(/^[a-z]/, (letter) => letter.toUpperCase())}.`));
  body.append(made("h3", "What is promised"), made("p", promised(certificate, told.risk)));
  for (const each of resumed ?? []) body.append(made("p", `The study was resumed by a person on ${day(each.at)} after: ${stopWords(each.rule)}`, "quiet"));
  body.append(made("h3", "What came of it"));
  if (!events.length) body.append(made("p", "Nothing has been reported yet.", "quiet"));
  for (const event of events) body.append(made("p", eventWords(event, dial.unit)));
  const rests = made("ul");
  for (const line of certificate.assumptions) rests.append(made("li", line));
  body.append(made("h3", "More"));
  if (certificate.promise !== "none") body.append(folded("What the promise rests on", rests));
  body.append(folded("How it was computed", block(explanation)), folded("Every number", block(JSON.stringify(certificate, null, 2))));
  if (!at("certificate").open) at("certificate").showModal();
};

const drawStudies = async () => {
  const { studies } = await (await get("/v1/studies")).json();
  at("none").hidden = studies.length > 0;
  const cards = await Promise.all(studies.slice(0, 30).map(async ({ name }) => {
    const { counts, risk, stops, below, costs } = await (await get(`/v1/studies/${name}/series?points=10`)).json();
    const card = made("a", "", "card");
    card.href = `#${name}`;
    const head = card.appendChild(made("h2", name));
    head.append(made("span", counts.stopped ? "stopped" : "advising", counts.stopped ? "pill stopped" : "pill"));
    const rate = counts.outcomes ? percent(counts.violations / counts.outcomes) : "none";
    if (counts.stopped) card.append(made("p", `Since ${day(stops[stops.length - 1].at)}. ${stopWords(counts.stopped)}`, "warn"));
    card.append(made("p", `${many(counts.decisions, "decision")}, ${many(counts.open, "outcome")} open`, "quiet"), made("p", `${overLimit({ below, costs })}: ${rate}; promised at most ${percent(risk)}`, "quiet"));
    return card;
  }));
  at("cards").replaceChildren(...cards);
};

const look = async () => {
  if (shown === null) {
    await drawStudies();
    show("studies");
    return;
  }
  const answer = await get(`/v1/studies/${shown}/series?points=${POINTS}`, tag ? { "If-None-Match": tag } : {});
  if (answer.status === 304) return;
  tag = answer.headers.get("ETag");
  told = await answer.json();
  show("study");
  drawStudy();
  await drawUnit();
  if (before === null) await drawRows();
};

const tick = async () => {
  clearTimeout(timer);
  try {
    await look();
    live("on", told && !told.complete && shown ? "reading the log" : "live");
  } catch (error) {
    if (error instanceof Refused) {
      at("refused").textContent = sessionStorage.getItem("safedial-key") ? "This key has no access." : "";
      show("door");
    }
    live("off", error instanceof Refused ? "no key" : "the service does not answer");
  }
  timer = setTimeout(tick, told && !told.complete ? POLL / 10 : document.hidden ? 5 * POLL : POLL);
};

const go = () => {
  const [, study, label] = /^#([A-Za-z0-9][A-Za-z0-9_-]{0,63})(?:\/(.+))?$/.exec(location.hash) ?? [null, null];
  shown = study;
  unit = label === undefined ? null : decoded(label);
  course = null;
  tag = before = told = null;
  at("search").value = "";
  at("trail").textContent = [shown ?? "", ...(unit === null ? [] : [shortUnit(unit)])].join(" › ");
  document.title = shown ? `${shown} · safedial` : "safedial";
  tick();
};

at("door").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("safedial-key", at("key").value.trim());
  at("key").value = "";
  tick();
};
at("search").oninput = () => { before = null; drawRows(); };
at("unit-close").onclick = () => { location.hash = shown; };
addEventListener("hashchange", go);
addEventListener("resize", () => told && shown && (drawStudy(), drawCourse()));
document.addEventListener("visibilitychange", () => document.hidden || tick());
go();
