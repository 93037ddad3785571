"use strict";
// The operator page: studies, one study live, the certificate of one decision. It only ever reads.

const POLL = 2000, POINTS = 160;
const at = (id) => document.getElementById(id);
// Text of others shows as text: control characters and marks that turn the direction of writing as their escapes.
const plain = (words) => String(words ?? "").replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (each) => `\\u${each.codePointAt(0).toString(16).padStart(4, "0")}`);
const made = (tag, words, kind) => Object.assign(document.createElement(tag), { textContent: plain(words), className: kind ?? "" });
const whole = (value) => value.toLocaleString("en");
const percent = (value) => `${Number((100 * value).toPrecision(2))} %`;
const clock = (text) => new Date(text).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

const STOPS = {
  alarm: "Costs exceeded the threshold more often than promised.",
  drift: "Costs do not look exchangeable over rounds.",
  noise_broken: "Outcomes scatter more than the stated noise allows.",
  assumption_broken: "The data contradict the stated norms.",
  too_many_open: "Too many outcomes are open.",
  too_many_void: "Too many rounds are void or expired.",
  stop_rule: "The study's stop rule was met.",
};

let shown = null, tag = null, before = null, told = null, timer = null, painted = 0;

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

// Settings are rounded down, as on the certificate: no digit that a person reads is above what was certified.
const roundedDown = (value) => {
  if (value === 0) return "0";
  const digits = Math.min(20, Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value)))));
  const text = value.toFixed(digits), kept = Number(text) > value ? (Number(text) - 10 ** -digits).toFixed(digits) : text;
  return String(Number(kept));
};

const setting = (value) => (value === null ? "–" : `${roundedDown(value)}${told.dial.unit ? ` ${told.dial.unit}` : ""}`);

const drawStudy = () => {
  const { counts, curves, threshold, risk } = told, stopped = counts.stopped;
  at("name").textContent = told.name;
  at("state").textContent = stopped ? "stopped: the fallback is advised" : "advising";
  at("state").className = stopped ? "pill stopped" : "pill";
  at("why").hidden = !stopped;
  at("why").textContent = `${STOPS[stopped] || stopped} The study advises ${setting(told.fallback_action)} until a person resumes it with a reason.`;
  const each = told.promise === "joint" ? `in any round, ever, with probability at most` : `in each round with probability at most`;
  at("promise").textContent = `The promise: the cost exceeds ${shortNumber(threshold)} ${each} ${percent(risk)}, if what each certificate lists holds.`;
  set("decisions", counts.decisions);
  set("outcomes", counts.outcomes);
  set("violations", counts.violations);
  const rate = counts.outcomes ? counts.violations / counts.outcomes : 0;
  at("violations-note").textContent = counts.outcomes ? `above τ: ${percent(rate)} (95 %: ${percent(told.interval[0])} to ${percent(told.interval[1])})` : "above the threshold τ";
  at("violations").parentNode.classList.toggle("bad", counts.outcomes > 0 && told.interval[0] > risk);
  set("evidence", counts.evidence, shortNumber(counts.evidence));
  at("evidence-note").textContent = `evidence; ${shortNumber(told.alarm_at)} stops the study`;
  at("evidence").parentNode.classList.toggle("bad", counts.evidence >= told.alarm_at);
  set("open", counts.open);
  at("unit").textContent = told.dial.unit ? `in ${told.dial.unit}; mean of each step` : "mean of each step";
  at("evidence-words").textContent = `1 at the start; ${shortNumber(told.alarm_at)} stops the study`;

  const x = curves.round, where = (n) => `decision ${whole(x[n])}, ${clock(curves.at[n])}`, pick = (n) => n >= 0 && openCertificate(`${told.name}.${curves.seq[n]}`);
  drawChart(at("chart-action"), { title: "advised and applied action", x, where, pick, floor: told.dial.low, lines: [
    { label: "advised", y: curves.advised, colour: "var(--advised)" }, { label: "applied", y: curves.applied, colour: "var(--applied)", points: true }] });
  drawChart(at("chart-cost"), { title: "realized cost", x, where, pick, rules: [{ y: threshold, label: `τ = ${shortNumber(threshold)}`, colour: "var(--bad)" }], lines: [
    { label: "mean", y: curves.cost, colour: "var(--advised)" }, { label: "largest", y: curves.cost_max, colour: "var(--quiet)", points: true, hot: curves.violations.map((n) => n > 0) }] });
  drawChart(at("chart-rate"), { title: "violation rate", x, where, floor: 0, band: { low: curves.rate_low, high: curves.rate_high.map((high) => Math.min(high, 4 * risk + 2 * rate)) },
    rules: [{ y: risk, label: `promised ${percent(risk)}`, colour: "var(--bad)" }], lines: [{ label: "rate", y: curves.rate, colour: "var(--advised)" }] });
  drawChart(at("chart-evidence"), { title: "evidence", x: curves.evidence_round, where: (n) => `after ${whole(curves.evidence_round[n])} rounds that count`, log: true, none: "this policy watches its rounds by another test; the number above is its evidence",
    rules: [{ y: told.alarm_at, label: "stops the study", colour: "var(--bad)" }], lines: [{ label: "evidence", y: curves.evidence, colour: "var(--advised)" }] });
  drawChart(at("chart-reward"), { title: "summed reward", x, where, lines: [
    { label: "reward", y: curves.reward, colour: "var(--good)" }, { label: "estimated best", y: curves.best, colour: "var(--quiet)", dash: "4 3" }] });
  drawBars(at("chart-ages"), told.ages);
  document.body.dataset.seq = told.seq;
  if (!painted) painted = performance.now();
  document.body.dataset.painted = painted;
};

const cell = (row, words, kind) => row.appendChild(made("td", words, kind));

const drawRows = async () => {
  const page = await (await get(`/v1/studies/${shown}/decisions?limit=15${before ? `&before=${before}` : ""}`)).json();
  at("rows").replaceChildren(...page.rows.map((each) => {
    const row = made("tr");
    row.tabIndex = 0;
    row.dataset.id = each.id;
    cell(row, each.seq);
    cell(row, clock(each.at));
    cell(row, setting(each.action));
    cell(row, setting(each.applied));
    cell(row, shortNumber(each.reward));
    cell(row, shortNumber(each.cost), each.violated ? "over" : "");
    cell(row, each.violated ? "above τ" : each.status);
    row.onclick = () => openCertificate(each.id);
    row.onkeydown = (event) => event.key === "Enter" && openCertificate(each.id);
    return row;
  }));
  at("newest").hidden = before === null;
  at("older").disabled = page.before === null;
  at("older").onclick = () => { before = page.before; drawRows(); };
  at("newest").onclick = () => { before = null; drawRows(); };
};

const openCertificate = async (id) => {
  const whole_ = await (await get(`/v1/decisions/${id}`)).json();
  const { certificate, events } = whole_, body = at("certificate-body");
  const lines = whole_.explanation.split("\n").map((line) => line.trim()), list = lines.findIndex((line) => line.endsWith("if:"));
  at("certificate-title").textContent = `Decision ${id}`;
  body.replaceChildren(made("p", clock(certificate.at), "quiet"), made("p", setting(whole_.action), "big"));
  for (const line of lines.slice(1, list < 0 ? undefined : list)) body.append(made("p", line));
  if (list >= 0) {
    body.append(made("h3", lines[list]));
    const items = body.appendChild(made("ul"));
    for (const line of lines.slice(list + 1)) items.append(made("li", line.replace(/^- /, "")));
  }
  body.append(made("h3", "Since then"));
  if (!events.length) body.append(made("p", "Nothing was reported yet.", "quiet"));
  for (const event of events) {
    const values = Object.entries(event.body).filter(([name, value]) => value !== null && value !== false && name !== "outcome_seq" && name !== "changed");
    const told_ = values.map(([name, value]) => `${name.replace("_", " ")} ${typeof value === "number" ? shortNumber(value) : value}`).join(", ");
    body.append(made("p", `${clock(event.at)}: ${event.kind} by ${event.actor}${event.reason ? ` (${event.reason})` : ""}: ${told_ || "no values"}`));
  }
  const raw = body.appendChild(made("details"));
  raw.append(made("summary", "Every number"), Object.assign(made("pre"), { textContent: JSON.stringify(certificate, null, 2).split("\n").map(plain).join("\n") }));
  if (!at("certificate").open) at("certificate").showModal();
};

const drawStudies = async () => {
  const { studies } = await (await get("/v1/studies")).json();
  at("none").hidden = studies.length > 0;
  const cards = await Promise.all(studies.slice(0, 30).map(async ({ name }) => {
    const { counts, risk } = await (await get(`/v1/studies/${name}/series?points=10`)).json();
    const card = made("a", "", "card");
    card.href = `#${name}`;
    const head = card.appendChild(made("h2", name));
    head.append(made("span", counts.stopped ? "stopped" : "advising", counts.stopped ? "pill stopped" : "pill"));
    const rate = counts.outcomes ? percent(counts.violations / counts.outcomes) : "none";
    card.append(made("p", `${whole(counts.decisions)} decisions, ${whole(counts.open)} outcomes open`, "quiet"), made("p", `above τ: ${rate}; promised at most ${percent(risk)}`, "quiet"));
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
  if (before === null) await drawRows();
};

const tick = async () => {
  clearTimeout(timer);
  try {
    await look();
    live("on", told && !told.complete && shown ? "reading the log" : "live");
  } catch (error) {
    if (error instanceof Refused) {
      at("refused").textContent = sessionStorage.getItem("safedial-key") ? "This key does not open it." : "";
      show("door");
    }
    live("off", error instanceof Refused ? "no key" : "the service does not answer");
  }
  timer = setTimeout(tick, told && !told.complete ? POLL / 10 : document.hidden ? 5 * POLL : POLL);
};

const go = () => {
  shown = /^#[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(location.hash) ? location.hash.slice(1) : null;
  tag = before = told = null;
  at("trail").textContent = shown ?? "";
  document.title = shown ? `${shown} · safedial` : "safedial";
  tick();
};

at("door").onsubmit = (event) => {
  event.preventDefault();
  sessionStorage.setItem("safedial-key", at("key").value.trim());
  at("key").value = "";
  tick();
};
addEventListener("hashchange", go);
addEventListener("resize", () => told && shown && drawStudy());
document.addEventListener("visibilitychange", () => document.hidden || tick());
go();
