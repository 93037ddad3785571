"use strict";
// The certificate of one decision: on the screen, and on one printed page.

const SHEET = { width: 180, height: 262 }; // millimetres of A4 within its margins

const openCertificate = (id) => { location.hash = id; };

const certificateLink = ({ id, seq }) => Object.assign(made("a", seq), { href: `#${id}`, title: `Certificate of decision ${seq}` });

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

const rawValues = ({ raw_context: raw, features }) => (Array.isArray(raw) ? raw.map((value, place) => [`feature ${place + 1}`, shortNumber(value)])
  : Object.entries(raw).map(([name, value]) => [name, `${Number(value.toPrecision(6))} ${features.units?.[name] ?? ""}`.trim()]));

const certificateParts = ({ certificate, events, why, explanation, action, hash }) => {
  const { meta, dial, extrapolated, resumed, amended, proposal, unit: whose } = certificate, parts = [];
  parts.push(made("p", inUnit(action, dial.unit), "big"));
  if (proposal !== undefined) parts.push(made("p", proposalWords(certificate, action, dial.unit), "answer"));
  for (const name of extrapolated) parts.push(made("p", `${name} lies outside the range stated for it; the caller allowed that.`, "warn"));
  parts.push(made("h3", "Why this setting"), made("p", whyWords(certificate, why)));
  const values = rawValues(certificate);
  parts.push(made("h3", "For"), pairs([...(proposal === undefined ? [] : [["proposed", inUnit(proposal, dial.unit)]]), ...(whose === undefined ? [] : [[unitName(), whose]]), ...Object.entries(meta ?? {}), ...values.slice(0, 40)]));
  parts.push(made("h3", "What is guaranteed"), made("p", guaranteed(certificate)));
  for (const each of amended ?? []) parts.push(made("p", `The study was amended by a person on ${day(each.at)}, for decisions after number ${each.seq} (${each.changed.join(", ")}): ${each.begins_phase ? "the guarantee counts from there" : "the guarantee and its evidence go on"}.`, "warn"));
  for (const each of resumed ?? []) parts.push(made("p", `The study was resumed by a person on ${day(each.at)}${each.forget ? ", without the earlier rounds," : ""} after: ${stopWords(each.rule)}`, "warn"));
  parts.push(made("h3", "What came of it"));
  if (!events.length) parts.push(made("p", "Nothing has been reported yet.", "quiet"));
  for (const event of events) parts.push(made("p", eventWords(event)));
  const rests = made("ul");
  for (const line of certificate.assumptions) rests.append(made("li", named(line)));
  parts.push(made("h3", "More", "no-print"));
  if (certificate.guarantee !== "none") parts.push(Object.assign(folded("What the guarantee rests on", rests), { id: "rests" }));
  const more = [folded("How it was computed", block(explanation)), folded("Every number", block(JSON.stringify(certificate, null, 2)))];
  for (const each of more) each.classList.add("no-print");
  return [...parts, ...more, made("p", `Event ${certificate.seq}, hash ${hash}`, "quiet hash")];
};

let drawnCertificate = "";

const drawCertificate = async (id) => {
  let record;
  try {
    record = await (await get(`/v1/decisions/${encodeURIComponent(id)}`)).json();
  } catch (error) {
    if (!["status 404", "status 422"].includes(error.message)) throw error;
    at("certificate-title").textContent = `This study has no decision ${plain(id)}.`;
    at("certificate-of").textContent = "";
    at("certificate-body").replaceChildren();
    return;
  }
  const text = JSON.stringify(record);
  if (text === drawnCertificate || id !== decision) return;
  drawnCertificate = text;
  const { key, visit = key, unit: whose, at: when } = record.certificate;
  at("certificate-of").textContent = `Study ${told.name}, certificate of decision ${record.id}, ${stamp(when)}`;
  at("certificate-title").textContent = visit ? `Visit: ${plain(visit)}` : `Decision ${record.id}`;
  at("certificate-back").href = whose === undefined ? `#${shown}` : `#${shown}/${encodeURIComponent(whose)}`;
  at("certificate-back").textContent = whose === undefined ? "All decisions" : `${capital(unitName())} ${shortUnit(whose)}`;
  at("certificate-body").replaceChildren(...certificateParts(record));
};

// Whatever stands on it, the certificate is one page: it is set at the paper's width and made smaller until it fits.
addEventListener("beforeprint", () => {
  const sheet = at("certificate"), rests = at("rests");
  if (sheet.hidden) return;
  if (rests) rests.open = true;
  document.body.classList.add("printing");
  let zoom = 1;
  for (; zoom > 0.3; zoom -= 0.04) {
    sheet.style.width = `${SHEET.width / zoom}mm`;
    if (sheet.scrollHeight * zoom * 25.4 / 96 <= SHEET.height) break;
  }
  sheet.style.zoom = zoom;
});
addEventListener("afterprint", () => {
  document.body.classList.remove("printing");
  at("certificate").style.width = at("certificate").style.zoom = "";
});
at("print").onclick = () => print();
