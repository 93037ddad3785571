"use strict";
// Small line charts in SVG: lines, points, a band, rules, a logarithmic axis, and the values under the pointer.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 218, LEFT = 46, RIGHT = 10, TOP = 22, BOTTOM = 34;

const svg = (tag, attributes, parent) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return parent ? parent.appendChild(node) : node;
};

const shortNumber = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
};

const ticks = (low, high, count) => {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= raw);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
};

const powers = (low, high) => {
  const found = [];
  for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; power++) found.push(10 ** power);
  return found.length > 5 ? found.filter((_, at) => at % Math.ceil(found.length / 5) === 0) : found;
};

// What a screen reader says of a chart: its name, its axes, and the latest value of each line.
const summary = ({ title, axis, value, lines }) => {
  const last = lines.map(({ label, y }) => [label, y.findLast((each) => each !== null)]).filter(([, y]) => y !== undefined);
  return `${title}: ${value} by ${axis}. Latest: ${last.map(([label, y]) => `${label} ${shortNumber(y)}`).join(", ")}.`;
};

// told: {x, lines: [{label, y, colour, dash, points, hot}], band: {low, high}, rules: [{y, label, colour, from, to}], title, axis, value, log, least, floor, none}
const drawChart = (room, told) => {
  const text = JSON.stringify([told, room.clientWidth]);
  if (room.drawn === text) return;
  room.drawn = text;
  const known = [...told.lines.map((line) => line.y), told.band?.low, told.band?.high].filter(Boolean).flat().filter((y) => y !== null);
  if (!told.x.length || !known.length) {
    room.replaceChildren(Object.assign(document.createElement("div"), { className: "empty", textContent: told.none || "nothing yet" }));
    return;
  }
  const wide = Math.max(260, room.clientWidth), all = [...known, ...(told.rules || []).map((rule) => rule.y)];
  let low = Math.min(...all, told.floor ?? Infinity), high = Math.max(...all);
  if (told.log) low = Math.max(low, told.least);
  if (high <= low) high = low + (Math.abs(low) || 1);
  const room4 = told.log ? 1 : (high - low) * 0.06;
  const [bottom, top] = told.log ? [low / 1.4, high * 1.6] : [told.floor !== undefined && low >= told.floor ? low : low - room4, high + room4];
  const scale = told.log ? Math.log : (value) => value;
  const first = told.x[0], last = told.x[told.x.length - 1];
  const px = (x) => LEFT + (last > first ? (x - first) / (last - first) : 0.5) * (wide - LEFT - RIGHT);
  const py = (y) => TOP + (1 - (scale(Math.max(y, bottom)) - scale(bottom)) / (scale(top) - scale(bottom))) * (HEIGHT - TOP - BOTTOM);
  const root = svg("svg", { viewBox: `0 0 ${wide} ${HEIGHT}`, role: "img", "aria-label": summary(told) });

  for (const y of told.log ? powers(bottom, top) : ticks(bottom, top, 4)) {
    svg("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: py(y), y2: py(y) }, root);
    svg("text", { x: LEFT - 6, y: py(y) + 4, "text-anchor": "end" }, root).textContent = shortNumber(y);
  }
  for (const x of last > first ? ticks(first, last, Math.max(3, Math.min(6, wide / 90))) : [first])
    svg("text", { x: px(x), y: HEIGHT - 18, "text-anchor": "middle" }, root).textContent = shortNumber(x);
  if (told.axis) svg("text", { class: "axis-name", x: (LEFT + wide - RIGHT) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, root).textContent = told.axis;
  if (told.value) svg("text", { class: "value-name", x: 0, y: 10 }, root).textContent = told.value;
  if (told.band) {
    const there = told.x.map((x, at) => [x, told.band.low[at], told.band.high[at]]).filter(([, a, b]) => a !== null && b !== null);
    const up = there.map(([x, , b]) => `${px(x)},${py(b)}`), down = there.map(([x, a]) => `${px(x)},${py(a)}`).reverse();
    svg("polygon", { points: [...up, ...down].join(" "), fill: "var(--band)" }, root);
  }
  for (const line of told.lines) {
    if (line.points) {
      line.y.forEach((y, at) => {
        if (y === null) return;
        const hot = line.hot && line.hot[at];
        svg("circle", { cx: px(told.x[at]), cy: py(y), r: hot ? 3.2 : 1.6, fill: hot ? "var(--bad)" : line.colour, opacity: hot ? 1 : 0.65 }, root);
      });
      continue;
    }
    let path = "", pen = "M";
    line.y.forEach((y, at) => {
      if (y === null) return;
      path += `${pen}${px(told.x[at]).toFixed(1)},${py(y).toFixed(1)}`;
      pen = "L";
    });
    svg("path", { d: path, fill: "none", stroke: line.colour, "stroke-width": 1.6, "stroke-linejoin": "round", "stroke-dasharray": line.dash || "none" }, root);
  }
  for (const rule of told.rules || []) {
    const x1 = rule.from > first ? px(rule.from) : LEFT, x2 = rule.to < last ? px(rule.to) : wide - RIGHT;
    if (rule.from > last || rule.to < first) continue;
    svg("line", { class: "rule", x1, x2, y1: py(rule.y), y2: py(rule.y), stroke: rule.colour, "stroke-dasharray": "5 4" }, root);
    svg("text", { x: Math.max(x2, LEFT + 100), y: py(rule.y) - 5, "text-anchor": "end", style: `fill: ${rule.colour}` }, root).textContent = rule.label;
  }
  const pointer = svg("line", { class: "axis", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" }, root);

  const legend = Object.assign(document.createElement("div"), { className: "legend" });
  let here = null;
  const write = (at) => {
    here = at;
    pointer.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) for (const end of ["x1", "x2"]) pointer.setAttribute(end, px(told.x[at]));
    legend.replaceChildren(...told.lines.map((line) => {
      const part = document.createElement("span");
      const mark = part.appendChild(document.createElement("i"));
      mark.style.setProperty("--colour", line.colour);
      part.append(at === null ? line.label : `${line.label} ${shortNumber(line.y[at])}`);
      return part;
    }), ...(at === null ? [] : [Object.assign(document.createElement("span"), { textContent: told.where ? told.where(at) : "" })]));
  };
  write(null);
  const box = Object.assign(document.createElement("div"), { className: "chart", tabIndex: 0 });
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `${told.title}; the arrow keys read its values${told.pick ? ", Enter opens the certificate" : ""}`);
  box.append(root, legend);
  box.onpointermove = (event) => {
    const at0 = (event.clientX - root.getBoundingClientRect().left) * (wide / root.clientWidth || 1);
    let near = 0;
    told.x.forEach((x, at) => { if (Math.abs(px(x) - at0) < Math.abs(px(told.x[near]) - at0)) near = at; });
    write(near);
  };
  box.onpointerleave = box.onblur = () => { legend.removeAttribute("aria-live"); write(null); };
  box.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Enter" && here !== null && told.pick) told.pick(here);
    if (!step) return;
    event.preventDefault();
    legend.setAttribute("aria-live", "polite");
    write(Math.max(0, Math.min(told.x.length - 1, (here ?? (step > 0 ? -1 : told.x.length)) + step)));
  };
  if (told.pick) box.onclick = (event) => { box.onpointermove(event); told.pick(here); };
  room.replaceChildren(box);
};

const drawBars = (room, rows) => {
  const most = Math.max(1, ...rows.map((row) => row.open));
  const box = Object.assign(document.createElement("div"), { className: "bars" });
  for (const row of rows) {
    const bar = document.createElement("div");
    bar.appendChild(document.createElement("i")).style.width = `${(100 * row.open) / most}%`;
    box.append(Object.assign(document.createElement("span"), { textContent: row.age }), bar, Object.assign(document.createElement("b"), { textContent: row.open.toLocaleString("en") }));
  }
  room.replaceChildren(box);
};
