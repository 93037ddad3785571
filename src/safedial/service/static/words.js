"use strict";
// What the page says in words, with the study's own names: why it is stopped, what is guaranteed, what to do, how long ago.

const at = (id) => document.getElementById(id);
// Text of others shows as text: control characters and marks that turn the direction of writing as their escapes.
const plain = (words) => String(words ?? "").replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (each) => `\\u${each.codePointAt(0).toString(16).padStart(4, "0")}`);
const made = (tag, words, kind) => Object.assign(document.createElement(tag), { textContent: plain(words), className: kind ?? "" });
const block = (words) => Object.assign(made("pre"), { textContent: String(words ?? "").split("\n").map(plain).join("\n") });

const STOPS = {
  alarm: "Costs were above the limit more often than guaranteed.",
  drift: "New costs are higher than earlier rounds suggest, so earlier rounds no longer show what is safe.",
  bracket_drift: "Rounds exceed at settings that earlier rounds tolerated, more than rounds alike and within the stated bracket would.",
  student_drift: "New costs are higher than earlier rounds suggest, more than Gaussian noise of one size would make them.",
  start_refuted: "Costs were beyond the limit at the start setting, more often than guaranteed, so the start is not safe.",
  noise_broken: "Outcomes vary more than the study assumes.",
  assumption_broken: "Outcomes lie outside what the study assumes to be possible.",
  too_many_open: "Too many outcomes are open.",
  too_many_void: "Too many rounds ended without an outcome.",
  too_many_unwatched: "Too many rounds ended without an outcome that shows whether the guarantee was kept.",
  outcome_overdue: "An outcome has been open for longer than the study allows.",
  stop_rule: "The study's stop rule was met.",
};

// What set a setting, by the certificate's `limit`; the service's own words say it where this has none.
const WHY = {
  no_certified_action: "What is known beforehand, or the measurement error alone, is too large: no setting keeps the guarantee.",
  mask: "The study's rules give nothing in a case like this one.",
  cap: "The study's rules limit the setting in a case like this one.",
  step_up: "The study limits the step up from the previous setting.",
  no_expected_benefit: "No benefit is expected here, so nothing is given.",
  below_lowest_level: "The right setting is below the lowest one of the dial, so nothing is given.",
  exploration: "A coin chose the cautious first setting, to learn.",
  probe: "No benefit is expected here, so only a little is given, to learn.",
  lowest_level: "The safe setting is below the lowest one of the dial, so that one is given: it is at most the start setting, which was declared safe.",
  level: "The next level of the dial is above the safe setting.",
  full_dose: "The end of the dial: the largest setting is allowed here.",
  cost_bound: "A higher setting could break the guarantee.",
  conformal_bound: "A higher setting could break the guarantee.",
  student_bound: "A higher setting could break the guarantee.",
  reach: "A higher setting is too far beyond those tried so far. This is a precaution, not a proof.",
  no_information: "Too many outcomes have the same value to learn from, so the start setting is given.",
  open_rounds: "Outcomes that this advice needs are still open, so the start setting is given.",
  start_dose: "Too little is known about cases like this one, so the start setting is given.",
  count_rule: "At a higher setting, too many of the past cases could have gone beyond the limit.",
  climb_limit: "A higher setting is too far above those of the last cases. This is a precaution, not a proof.",
  request: "The proposal is within what the guarantee allows here.",
  start_only: "No benefit is expected here, so only the start setting is given.",
  shield_start: "Too few outcomes are known, or too many cases tolerate no more than the start, so the start setting is given.",
};

const whole = (value) => value.toLocaleString("en");
const percent = (value) => `${Number((100 * value).toPrecision(2))}\u00a0%`;
const clock = (text) => new Date(text).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
const stamp = (text) => new Date(text).toLocaleString("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
const day = (text) => new Date(text).toLocaleString("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
const many = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
const capital = (words) => words.replace(/^[a-z]/, (letter) => letter.toUpperCase());
const listed = (words) => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}` : words[0]);

const span = (seconds) => {
  for (const [size, word] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) if (seconds >= 2 * size) return many(Math.floor(seconds / size), word);
  return many(Math.floor(seconds), "second");
};
const since = (text) => span(Math.max(0, (Date.now() - new Date(text)) / 1000));

// Settings are rounded down, as on the certificate: no digit that a person reads is above what was certified.
const roundedDown = (value) => {
  if (value === 0) return "0";
  const digits = Math.min(20, Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value)))));
  const text = value.toFixed(digits), kept = Number(text) > value ? (Number(text) - 10 ** -digits).toFixed(digits) : text;
  return String(Number(kept));
};

const inUnit = (value, unit) => (value === null ? "–" : `${roundedDown(value)}${unit ? `\u00a0${unit}` : ""}`);
const measured = (value, unit) => `${shortNumber(value)}${unit && value !== null && value !== undefined ? `\u00a0${unit}` : ""}`;

// The study's own names: of what is measured, of the reward, of a unit.
const costName = () => told.labels.cost ?? "cost";
const rewardName = () => told.labels.reward ?? "reward";
// Whether a reward is shown: a policy that does not choose by it records 0 where none was reported.
const rewarded = (reward) => told.reads_reward || Boolean(reward);
const unitName = () => told.labels.unit ?? "unit";
const nameAndUnit = (name, unit) => (unit ? `${name} (${unit})` : name);
const named = (words) => (told?.labels.cost ? words.replace(/\bcosts\b/g, `${costName()} values`).replace(/\bCosts\b/g, `${capital(costName())} values`).replace(/\bcost\b/g, costName()) : words);

const stopWords = (rule) => named(STOPS[rule] || rule);

const whyWords = ({ limit }, why) => named(STOPS[limit] ? `${STOPS[limit]} So the fallback is advised, until a person resumes the study.` : WHY[limit] ?? `${capital(why)}.`);

// What became of a proposal.
const proposalWords = ({ proposal, proposal_answer: answer }, action, unit) => `${inUnit(proposal, unit)} was proposed: ${answer}${answer === "granted" ? "" : ` to ${inUnit(action, unit)}`}.`;

// Where a cost must not go: above its limit, or below it.
const beyond = ({ below }) => (below ? "below" : "above");

// The same for all costs of a study, in words.
const overLimit = ({ below, costs }) => (costs ? "beyond a limit" : `${beyond({ below })} the limit`);

const costWords = (cost) => (cost !== null && typeof cost === "object" ? Object.entries(cost).map(([name, value]) => `${name} ${measured(value, told.costs?.[name]?.unit)}`).join(", ") : measured(cost, told.labels.cost_unit));

const limitWords = ([name, { threshold, below, unit }]) => `the ${name} is ${beyond({ below })} ${measured(threshold, unit)}`;

const guaranteeWords = ({ threshold, risk, guarantee, below, costs, labels }) => {
  const one = [labels?.cost ?? "cost", { threshold, below, unit: labels?.cost_unit }], share = percent(risk);
  const bad = costs ? Object.entries(costs).map(limitWords).join(" or ") : limitWords(one);
  if (guarantee === "joint") return `In any round, ever, ${bad} with probability at most ${share}`;
  const until = { bracket: ", as long as new rounds are like earlier ones and costs keep to the stated bracket", conformal: ", as long as new rounds are like earlier ones", student: ", as long as the cost's noise is Gaussian" };
  return `In each round ${bad} with probability at most ${share}${named(until[guarantee] ?? "")}`;
};

// That no guarantee is proved for the latest decision, if so: it is the start setting, which people declared safe.
const unproved = ({ proved }) => (proved === "latest" ? "" : `${proved === "none" ? "Nothing is proved yet: the start setting" : "Nothing is proved for the latest decision: it is the start setting, which"} rests on the team's own judgement`);
// The guaranteed share, or the one that is to be guaranteed.
const atMost = (study) => `${unproved(study) ? "to be guaranteed, once it is proved: at most" : "guaranteed at most"} ${percent(study.risk)}`;

// A certificate's statement, its "P(cost > 20) <= 0.1" in words.
const spoken = ({ statement, spec, policy }) => {
  const limits = Object.entries(spec.costs ?? { [costName()]: { threshold: spec.threshold, direction: policy.direction, unit: told.labels.cost_unit } });
  const bad = limits.map(([name, { threshold, direction, unit }]) => limitWords([name, { threshold, below: direction === "below", unit }])).join(" or ");
  return named(statement).replace(/^P\(.*?\) <= (\S+) in this round/, (_, risk) => `In this round ${bad} with probability at most ${percent(Number(risk))}`).replace("<=", "≤");
};

// What one decision guarantees, from its certificate.
const guaranteed = (certificate) => {
  if (certificate.guarantee === "none") return "Nothing: while the study is stopped, or where nothing is certified, the fallback is advised.";
  if (certificate.guarantee === "declared") return `Nothing new: this is the start setting, which was declared safe when the study was created.`;
  if (["bracket", "student"].includes(certificate.guarantee) || certificate.policy.groups === "none") return `${spoken(certificate)}.`;
  if (certificate.spec.costs) return `${spoken(certificate)}, if what is listed below is true.`;
  const guarantee = certificate.guarantee === "certified" ? certificate.spec.guarantee : certificate.guarantee;
  const limit = measured(certificate.spec.threshold, told.labels.cost_unit);
  return `${guaranteeWords({ threshold: certificate.spec.threshold, risk: told.risk, guarantee, labels: told.labels }).replace("In each round", "In this round").replace(`above ${limit}`, `above the limit of ${limit}`)}, if what is listed below is true.`;
};

// How strong the evidence against the guarantee is, in words.
const evidenceWords = (evidence, alarm) => (evidence <= 1 ? "none" : evidence < Math.sqrt(alarm) ? "weak, as chance often produces it" : evidence < alarm ? "strong: look at the latest outcomes" : "enough to stop the study");

const GONE = { voided: "taken out", expired: "no longer waited for" };

// The values of an outcome, in words.
const valueWords = (body) => {
  const parts = [body.cost !== null && typeof body.cost === "object" ? costWords(body.cost) : `${costName()} ${costWords(body.cost)}`, ...(rewarded(body.reward) ? [`${rewardName()} ${measured(body.reward, told.labels.reward_unit)}`] : [])];
  if (body.applied_action !== null && body.applied_action !== undefined) parts.push(`applied ${setting(body.applied_action)}`);
  if (body.throttled) parts.push("lowered because of the outcome");
  if (body.unrelated) parts.push("for a reason said to have nothing to do with the outcome");
  if (body.observed_at) parts.push(`measured ${stamp(body.observed_at)}`);
  return parts.join(", ");
};

const vouched = ({ unrelated }) => `(${unrelated ? "said to have" : "not said to have"} nothing to do with the outcome)`;

// What was said about a decision since, in a sentence.
const eventWords = (event) => {
  const why = event.reason ? `: ${event.reason}` : "", who = `${stamp(event.at)}, by ${event.actor}`;
  if (GONE[event.kind]) return `${who}: ${GONE[event.kind]}${why} ${vouched(event.body)}.`;
  return `${who}: ${event.kind === "correction" ? `corrected${why}; now ` : ""}${valueWords(event.body)}.`;
};

// What an amendment changed: plain values as old → new, the rest by name.
const changeWords = (changed) => Object.entries(changed).map(([name, pair]) => (pair ? `${name} ${pair[0] ?? "none"} → ${pair[1] ?? "none"}` : name)).join(", ");

// What an event of the log did, in a sentence.
const deedWords = ({ kind, body, changed }) => {
  if (kind === "study_created") return "Study created";
  if (kind === "alarm") return `Stopped. ${stopWords(body.rule)}`;
  if (kind === "resumed") return `Resumed${body.rule ? ` after: ${stopWords(body.rule)}` : body.forget ? ", without the earlier rounds" : ""}${body.forget ? ` ${vouched(body)}` : ""}`;
  if (kind === "amended") return `Amended: other rules from here on${changed ? ` (${changeWords(changed)})` : ""}`;
  if (kind === "correction") return `Outcome corrected: ${valueWords(body)}`;
  if (GONE[kind]) return `Round ${GONE[kind]} ${vouched(body)}`;
  if (kind === "decided") return `Advised ${setting(body.action)}${body.unit ? ` for ${unitName()} ${shortUnit(body.unit)}` : ""}`;
  if (kind === "outcome") return `Outcome: ${valueWords(body)}`;
  return { imported: "Round from before the study imported", checkpoint: "Checkpoint given out", snapshot: "State confirmed" }[kind] ?? kind;
};
