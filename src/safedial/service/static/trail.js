"use strict";
// The audit trail: who did what, when and why; and whether the log is as it was written.

let trailBefore = null;

const STANDS_OUT = ["alarm", "resumed", "amended"];

const drawTrail = async () => {
  const asked = ++questions;
  const page = await (await get(`/v1/studies/${shown}/trail?limit=25${trailBefore ? `&before=${trailBefore}` : ""}${at("trail-whole").checked ? "&whole=1" : ""}`)).json();
  if (asked !== questions) return;
  at("trail-rows").replaceChildren(...page.events.map((each) => {
    const row = made("tr", "", STANDS_OUT.includes(each.kind) ? "stands-out" : "");
    rowHead(row).append(String(each.seq));
    cell(row, stamp(each.at));
    cell(row, each.actor, "name");
    const about = STANDS_OUT.includes(each.kind) ? null : each.decision_id;
    const deed = cell(row, `${deedWords(each)}${about ? ", decision " : ""}`, "said");
    if (about) deed.append(certificateLink({ id: about, seq: about.split(".")[1] }));
    cell(row, each.kind === "alarm" ? "" : each.reason, "said");
    return row;
  }));
  at("trail-newest").hidden = trailBefore === null;
  at("trail-older").disabled = page.before === null;
  at("trail-older").onclick = () => { trailBefore = page.before; drawTrail(); };
};

at("trail-newest").onclick = () => { trailBefore = null; drawTrail(); };
at("trail-whole").onchange = () => { trailBefore = null; drawTrail(); };
at("verify").onclick = async () => {
  at("verified").textContent = "Checking every event and recomputing every decision …";
  const report = await get(`/v1/studies/${shown}/verify`).then((answer) => answer.json(), () => null);
  at("verified").className = report?.ok ? "" : "warn";
  at("verified").textContent = report === null ? "The log could not be checked now; try again." : report.ok ? `${many(report.events, "event")} and ${many(report.decisions, "decision")} checked: all agree. Checkpoint ${report.seq}:${report.hash}` : `Event ${report.first_bad ?? "–"}: ${plain(report.problem)}`;
};
