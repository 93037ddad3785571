"use strict";
// What the page says in words: why a study is stopped, what is promised, how long ago.

const STOPS = {
  alarm: "Costs were above the limit more often than promised.",
  drift: "New costs are higher than earlier rounds suggest, so earlier rounds no longer show what is safe.",
  bracket_drift: "Rounds exceed at settings that earlier rounds tolerated, more than rounds alike and within the stated bracket would.",
  student_drift: "New costs are higher than earlier rounds suggest, more than Gaussian noise of one size would make them.",
  start_refuted: "Costs were beyond the limit at the start setting, more often than promised, so the start is not safe.",
  noise_broken: "Outcomes vary more than the study assumes.",
  assumption_broken: "Outcomes lie outside what the study assumes to be possible.",
  too_many_open: "Too many outcomes are open.",
  too_many_void: "Too many rounds ended without an outcome.",
  too_many_unwatched: "Too many rounds ended without an outcome that shows whether the promise was kept.",
  outcome_overdue: "An outcome has been open for longer than the study allows.",
  stop_rule: "The study's stop rule was met.",
};

const whole = (value) => value.toLocaleString("en");
const percent = (value) => `${Number((100 * value).toPrecision(2))}\u00a0%`;
const clock = (text) => new Date(text).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = (text) => new Date(text).toLocaleString("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
const many = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

const since = (text) => {
  const seconds = Math.max(0, (Date.now() - new Date(text)) / 1000);
  for (const [size, word] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) if (seconds >= 2 * size) return many(Math.floor(seconds / size), word);
  return many(Math.floor(seconds), "second");
};

// Settings are rounded down, as on the certificate: no digit that a person reads is above what was certified.
const roundedDown = (value) => {
  if (value === 0) return "0";
  const digits = Math.min(20, Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value)))));
  const text = value.toFixed(digits), kept = Number(text) > value ? (Number(text) - 10 ** -digits).toFixed(digits) : text;
  return String(Number(kept));
};

const inUnit = (value, unit) => (value === null ? "–" : `${roundedDown(value)}${unit ? `\u00a0${unit}` : ""}`);

const stopWords = (rule) => STOPS[rule] || rule;

// Where a cost must not go: above its limit, or below it.
const beyond = ({ below }) => (below ? "below" : "above");

// The same for all costs of a study, in words.
const overLimit = ({ below, costs }) => (costs ? "beyond a limit" : `${beyond({ below })} the limit`);

const costWords = (cost) => (cost !== null && typeof cost === "object" ? Object.entries(cost).map(([name, value]) => `${name} ${shortNumber(value)}`).join(", ") : shortNumber(cost));

const limitWords = ([name, { threshold, below, unit }]) => `the ${name} is ${beyond({ below })} ${shortNumber(threshold)}${unit ? `\u00a0${unit}` : ""}`;

const promiseWords = ({ threshold, risk, promise, below, costs }) => {
  const limit = shortNumber(threshold), share = percent(risk);
  const bad = costs ? Object.entries(costs).map(limitWords).join(" or ") : `the cost is ${beyond({ below })} ${limit}`;
  if (promise === "bracket") return `In each round ${bad} with probability at most ${share}, as long as new rounds are like earlier ones and costs keep to the stated bracket`;
  if (promise === "joint") return costs ? `In any round, ever, ${bad} with probability at most ${share}` : `The cost is above ${limit} in any round, ever, with probability at most ${share}`;
  if (promise === "conformal") return `In each round the cost is above ${limit} with probability at most ${share}, as long as new rounds are like earlier ones`;
  if (promise === "student") return `In each round ${bad} with probability at most ${share}, as long as the cost's noise is Gaussian`;
  return `In each round ${bad} with probability at most ${share}`;
};

// What one decision promises, from its certificate.
const promised = (certificate, risk) => {
  const limit = shortNumber(certificate.spec.threshold);
  if (certificate.promise === "none") return "Nothing: while the study is stopped, or where nothing is certified, the fallback is advised.";
  if (certificate.promise === "declared") return `Nothing new: this is the start setting, which was declared safe when the study was created.`;
  if (["bracket", "student"].includes(certificate.promise) || certificate.learned_start || certificate.policy.groups === "none") return `${certificate.statement.replace("<=", "≤")}.`;
  if (certificate.spec.costs) return `${certificate.statement.replace("<=", "≤")}, if what is listed below is true.`;
  return `${promiseWords({ threshold: certificate.spec.threshold, risk, promise: certificate.promise === "certified" ? certificate.spec.promise : certificate.promise }).replace("In each round", "In this round").replace(`above ${limit}`, `above the limit of ${limit}`)}, if what is listed below is true.`;
};

const GONE = { voided: "taken out", expired: "no longer waited for" };

// What was said about a decision since, in a sentence.
const eventWords = (event, unit) => {
  const { body } = event, why = event.reason ? `: ${event.reason}` : "";
  const who = `${clock(event.at)}, by ${event.actor}`;
  if (GONE[event.kind]) return `${who}: ${GONE[event.kind]}${why} (${body.unrelated ? "said to have" : "not said to have"} nothing to do with the outcome).`;
  const parts = [body.cost !== null && typeof body.cost === "object" ? costWords(body.cost) : `cost ${shortNumber(body.cost)}`, `reward ${shortNumber(body.reward)}`];
  if (body.applied_action !== null) parts.push(`applied ${inUnit(body.applied_action, unit)}`);
  if (body.throttled) parts.push("lowered because of the outcome");
  if (body.unrelated) parts.push("for a reason said to have nothing to do with the outcome");
  if (body.observed_at) parts.push(`measured ${clock(body.observed_at)}`);
  return `${who}: ${event.kind === "correction" ? `corrected${why}; now ` : ""}${parts.join(", ")}.`;
};
