"use strict";
// The page: which view is shown, what is asked of the service and when, the latest advice, the list of decisions.

const POLL = 2000, POINTS = 160, QUIET = 5000;
const VIEWS = { ":units": "units", ":health": "health", ":trail": "trail" };
let shown = null, view = null, unit = null, decision = null, tag = null, before = null, told = null, timer = null, painted = 0, questions = 0, latest = null, said = 0, turn = 0, arrived = true;

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
  if (at("live").lastChild.textContent !== words) at("live").lastChild.textContent = words;
};

const show = (place) => {
  for (const name of ["sign-in", "studies", "study"]) at(name).hidden = name !== place;
};

const set = (id, value, words) => {
  at(id).textContent = words ?? whole(value);
  at(id).dataset.value = value;
};

const say = (words) => { at("news").textContent = words; };

const setting = (value) => inUnit(value, told.dial.unit);
const cell = (row, words, kind) => row.appendChild(made("td", words, kind));
const rowHead = (row) => Object.assign(row.appendChild(made("th")), { scope: "row" });

const whoWords = (row) => [...(row.unit === null ? [] : [`${unitName()} ${shortUnit(row.unit)}`]), ...(row.visit ?? row.key ? [plain(row.visit ?? row.key)] : [])].join(", ") || `decision ${row.seq}`;

// What a person at the dial should do about a decision.
const nextWords = (row) => {
  const stop = stopped(), measures = listed([...(told.costs ? Object.keys(told.costs) : [costName()]), ...(told.reads_reward ? [rewardName()] : [])].map((name) => `the ${name}`));
  const late = row.due_at !== null && new Date(row.due_at) < Date.now();
  if (stop && row.seq < stop.seq && row.status === "open") return `The study has stopped since. Ask whoever is responsible before you apply this. Then report ${measures}.`;
  if (row.status === "open" && late) return `Report ${measures}: this was due on ${day(row.due_at)}, ${since(row.due_at)} ago.`;
  if (row.status === "open") return `Apply ${setting(row.action)}. Then report ${measures}${row.due_at ? ` by ${day(row.due_at)}` : ""}, and the setting if another was applied.${stop ? " Tell whoever may resume the study." : ""}`;
  if (row.status === "nothing given") return `Apply ${setting(row.action)}. No outcome is waited for.`;
  return `Nothing: ${row.violated ? `the outcome is reported; it was ${overLimit(told)}` : OUTCOMES[row.status] ? "the outcome is reported" : `this round is ${row.status}`}.`;
};

// The latest decision of the study, or of the unit; `newest` are the newest decisions where they are at hand.
const drawNow = async (newest) => {
  const mine = turn;
  const row = unit !== null ? course?.course.at(-1) : (newest ?? (await (await get(`/v1/studies/${shown}/decisions?limit=1`)).json()).rows)[0];
  if (mine !== turn) return;
  if (!row) {
    at("now").hidden = unit !== null;
    for (const id of ["now-who", "now-advice", "now-why"]) at(id).textContent = "";
    at("now-next").textContent = "Ask for the first decision.";
    at("now-certificate").parentNode.hidden = true;
    return;
  }
  if (row.id !== latest?.id) {
    const { certificate, why } = await (await get(`/v1/decisions/${row.id}`)).json(), first = latest === null;
    if (mine !== turn) return;
    latest = { id: row.id, why: whyWords(certificate, why) };
    if (!first && Date.now() - said > QUIET) {
      said = Date.now();
      say(`New advice for ${whoWords(row)}: ${setting(row.action)}.`);
    }
  }
  at("now-title").textContent = unit === null ? "Latest advice" : `Latest advice for this ${unitName()}`;
  at("now-who").textContent = `For ${whoWords(row)}, ${clock(row.at)}, ${since(row.at)} ago`;
  at("now-advice").textContent = setting(row.action);
  at("now-proposal").hidden = row.proposal === null;
  if (row.proposal !== null) at("now-proposal").textContent = proposalWords(row, row.action, told.dial.unit);
  at("now-why").textContent = latest.why;
  at("now-next").textContent = nextWords(row);
  at("now-certificate").href = `#${row.id}`;
  at("now-certificate").parentNode.hidden = false;
};

const OUTCOMES = { known: "within the limit", corrected: "within the limit (corrected)", "nothing given": "nothing advised" };

const outcomeWords = (each) => (each.violated ? overLimit(told) : each.due_at !== null && new Date(each.due_at) < Date.now() ? `overdue for ${since(each.due_at)}` : OUTCOMES[each.status] ?? each.status);

const advisedCell = (row, each) => {
  const made_ = cell(row, setting(each.action));
  if (each.proposal !== null) made_.append(made("small", `${each.proposal_answer === "granted" ? "as proposed" : `${each.proposal_answer} from ${setting(each.proposal)}`}`));
};

const drawRows = async () => {
  const words = at("search").value.trim(), asked = ++questions;
  if (unit !== null && course === null) {
    at("rows").replaceChildren();
    at("no-rows").hidden = false;
    return null;
  }
  const asks = Object.entries({ limit: 15, before, search: words, unit }).filter(([, value]) => value).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  const page = await (await get(`/v1/studies/${shown}/decisions?${asks.join("&")}`)).json();
  if (asked !== questions) return null;
  at("reward-column").textContent = rewardName();
  at("cost-column").textContent = told.costs ? "costs" : costName();
  at("decisions-table").classList.toggle("no-units", page.rows.every((each) => each.unit === null));
  at("no-rows").hidden = page.rows.length > 0 || !words;
  at("rows").replaceChildren(...page.rows.map((each) => {
    const row = made("tr");
    row.dataset.id = each.id;
    rowHead(row).append(certificateLink(each));
    cell(row, "", "name").append(...(each.unit === null ? [] : [unitLink(each.unit)]));
    cell(row, each.visit ?? each.key ?? "", "name").title = each.visit ?? each.key ?? "";
    cell(row, Object.entries(each.meta).map(([name, value]) => `${name} ${value}`).join(", "), "name").title = JSON.stringify(each.meta);
    cell(row, clock(each.at));
    advisedCell(row, each);
    cell(row, setting(each.applied_action));
    cell(row, rewarded(each.reward) ? measured(each.reward, told.labels.reward_unit) : "–");
    cell(row, costWords(each.cost), each.violated ? "over" : "");
    const outcome = outcomeWords(each);
    cell(row, outcome, each.violated || outcome.startsWith("overdue") ? "over" : "");
    row.onclick = (event) => event.target.tagName === "A" || openCertificate(each.id);
    return row;
  }));
  at("newest").hidden = before === null;
  at("older").disabled = page.before === null;
  at("older").onclick = () => { before = page.before; drawRows(); };
  at("newest").onclick = () => { before = null; drawRows(); };
  return words ? null : page.rows;
};

const drawStudies = async () => {
  const { studies } = await (await get("/v1/studies")).json();
  at("none").hidden = studies.length > 0;
  const cards = await Promise.all(studies.slice(0, 30).map(async ({ name }) => {
    const study = await (await get(`/v1/studies/${name}/series?points=10`)).json(), { counts, stops } = study;
    const card = made("a", "", "card");
    card.href = `#${name}`;
    const head = card.appendChild(made("h2", name));
    head.append(made("span", counts.stop_reason ? "stopped" : "advising", counts.stop_reason ? "pill stopped" : "pill"));
    const rate = counts.outcomes ? percent(counts.violations / counts.outcomes) : "none";
    if (counts.stop_reason) card.append(made("p", `Since ${day(stops[stops.length - 1].at)}. ${STOPS[counts.stop_reason] || counts.stop_reason}`, "warn"));
    if (counts.overdue) card.append(made("p", `${many(counts.overdue, "outcome")} overdue`, "warn"));
    card.append(made("p", `${many(counts.decisions, "decision")}, ${many(counts.open, "outcome")} open`, "quiet"), made("p", `${overLimit(study)}: ${rate}; ${atMost(study)}`, "quiet"));
    if (unproved(study)) card.append(made("p", `${unproved(study)}.`, "quiet"));
    return card;
  }));
  at("cards").replaceChildren(...cards);
};

// Show the parts of the study that belong to the view.
const showView = () => {
  for (const part of document.querySelectorAll("#study [data-views]")) part.hidden = !part.dataset.views.split(" ").includes(view);
  for (const link of document.querySelectorAll("#views a")) {
    const name = link.dataset.view, here = name === view || (name === "units" && view === "unit");
    link.href = `#${shown}${name === "now" ? "" : `:${name}`}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
};

const labelParts = () => {
  const name = unitName();
  at("search-label").textContent = `Find decisions by ${name}, visit, note or number`;
  at("units-title").textContent = `${capital(name)}s, in the order of their first decisions`;
  at("unit-search-label").textContent = `Find a ${name}`;
  at("unit-column").textContent = name;
  at("unit-over").textContent = overLimit(told);
  at("unit-close").textContent = `All ${name}s`;
};

const drawStudy = async () => {
  show("study");
  showView();
  labelParts();
  drawHead();
  drawHealth();
  if (!painted) painted = performance.now();
  document.body.dataset.painted = painted;
  await drawOverdue();
  await drawUnit();
  if (["now", "unit"].includes(view)) await drawNow(before === null ? await drawRows() : null);
  if (view === "units") await drawUnits();
  if (view === "trail" && trailBefore === null) await drawTrail();
  if (view === "certificate") await drawCertificate(decision);
  document.body.dataset.seq = told.seq;
};

// After a change of view, the keyboard and the screen reader begin at its heading.
const arrive = () => {
  if (arrived) return;
  arrived = true;
  const heads = { now: "now-title", unit: "unit-title", units: "units-title", health: "health-title", trail: "trail-title", certificate: "certificate-title" };
  at(shown === null ? "studies-title" : heads[view]).focus();
};

const look = async () => {
  if (shown === null) {
    await drawStudies();
    show("studies");
    return;
  }
  const answer = await get(`/v1/studies/${shown}/series?points=${POINTS}`, tag ? { "If-None-Match": tag } : {});
  if (answer.status === 304) return;
  const found = await answer.json();
  if (found.name !== shown) return;
  tag = answer.headers.get("ETag");
  told = found;
  await drawStudy();
};

const tick = async () => {
  clearTimeout(timer);
  const mine = turn;
  try {
    await look();
    if (mine === turn) arrive();
    live("on", told && !told.complete && shown ? "reading the log" : "live");
  } catch (error) {
    if (error instanceof Refused) {
      at("refused").textContent = sessionStorage.getItem("safedial-key") ? "This key has no access." : "";
      show("sign-in");
    }
    live("off", error instanceof Refused ? "no key" : "the service does not answer");
  }
  timer = setTimeout(tick, told && !told.complete ? POLL / 10 : document.hidden ? 5 * POLL : POLL);
};

const go = (event) => {
  const [, study, mark, rest] = /^#([A-Za-z0-9][A-Za-z0-9_-]{0,63})(?:([/:.])(.+))?$/.exec(location.hash) ?? [null, null];
  turn += 1;
  shown = study;
  unit = mark === "/" ? decoded(rest) : null;
  decision = mark === "." ? `${study}.${rest}` : null;
  view = mark === "/" ? "unit" : mark === "." ? "certificate" : VIEWS[`:${rest}`] ?? "now";
  course = latest = tag = before = trailBefore = null;
  if (told?.name !== shown) told = null;
  after = 0;
  drawnCertificate = "";
  at("search").value = at("unit-search").value = at("news").textContent = "";
  at("where").textContent = [shown ?? "", ...(unit === null ? [] : [shortUnit(unit)]), ...(decision === null ? [] : ["certificate"])].join(" › ");
  document.title = shown ? `${at("where").textContent}${mark === ":" ? ` › ${view}` : ""} · safedial` : "safedial";
  arrived = event === undefined;
  tick();
};

at("sign-in").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("safedial-key", at("key").value.trim());
  at("key").value = "";
  tick();
};
at("search").oninput = () => { before = null; drawRows(); };
at("unit-search").oninput = () => { after = 0; drawUnits(); };
at("units-first").onclick = () => { after = 0; drawUnits(); };
at("unit-close").onclick = () => { location.hash = `${shown}:units`; };
document.querySelector(".skip").onclick = (event) => { event.preventDefault(); at("main").focus(); };
addEventListener("hashchange", go);
addEventListener("resize", () => told && shown && (drawHealth(), drawCourse()));
document.addEventListener("visibilitychange", () => document.hidden || tick());
go();
