// Draws the report from the JSON in #data (made by report_data.cc; of a set of runs by jobs/set_report.cc). Plain SVG, no
// library, no network.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const escape = (s) => String(s).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const color = (i) => `var(--c${i % 8})`;

// ---- numbers as people read them
const num = (v) => {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  const a = Math.abs(v);
  if (a !== 0 && (a < 1e-3 || a >= 1e6)) return v.toExponential(2).replace("e+", "e");
  return Number(v.toPrecision(4)).toString();
};
const si = (v) => {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  for (const [u, s] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(v) >= u) return Number((v / u).toPrecision(3)) + s;
  return Math.abs(v) < 1e-3 && v !== 0 ? v.toExponential(0) : Number(v.toPrecision(3)).toString();
};
const whole = (v) => Math.round(v).toString().replace(/\B(?=(\d{3})+$)/g, " ");
const duration = (s) => {
  if (s === null || s === undefined || !isFinite(s)) return "–";
  if (s < 60) return Number(s.toPrecision(3)) + " s";
  s = Math.round(s);
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60, r = s % 60;
  const two = (n) => String(n).padStart(2, "0");
  return (d ? d + " d " : "") + (d || h ? h + ":" + two(m) : m) + ":" + two(r);
};

// ---- data
const stepOf = (i) => data.grid.first + i * data.grid.width + Math.floor((data.grid.width - 1) / 2);
const jobs = {};   // job -> name -> series with x filled in
for (const s of data.series) {
  const bar = s.name.indexOf("|");
  s.job = bar < 0 ? "" : s.name.slice(0, bar);
  s.label = bar < 0 ? s.name : s.name.slice(bar + 1);
  s.x = s.at ? s.at.map(stepOf) : s.mean.map((_, i) => stepOf(i));
  (jobs[s.job] ||= {})[s.label] = s;
}
const labels = [...new Set(data.series.map((s) => s.label))];
const byLabel = (label) => Object.values(jobs).map((j) => j[label]).filter(Boolean);
// Training's curve of a metric, and beside it those of validation sets: "accuracy", "validation/accuracy".
const judged = labels.filter((l) => l.includes("/"));
const withValidation = (label) => {
  const sets = judged.filter((l) => l.endsWith("/" + label));
  return sets.length === 0 ? byLabel(label) : byLabel(label).map((s) => ({ ...s, job: s.job || "training" })).concat(
    sets.flatMap((l) => byLabel(l).map((s) => ({ ...s, judged: true, job: (s.job ? s.job + " " : "") + l.slice(0, l.lastIndexOf("/")) }))));
};

// Exponential smoothing in both directions, averaged: one alone would lag behind a falling loss. Each is corrected for its
// start, so that the first points are not pulled to zero.
const pass = (values, amount) => {
  let sum = 0, weight = 0;
  return values.map((v) => { sum = amount * sum + (1 - amount) * v; weight = amount * weight + 1 - amount; return sum / weight; });
};
const smoothed = (values, amount) => {
  const back = pass([...values].reverse(), amount).reverse();
  return pass(values, amount).map((v, i) => (v + back[i]) / 2);
};

// ---- one chart
function ticks(low, high, count, log) {
  if (log) {
    const out = [], from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
    const steps = to - from > 3 ? [1] : to - from > 1 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
    const every = Math.max(1, Math.ceil((to - from) / 8));
    for (let e = from; e <= to; e += every) for (const s of steps) { const v = s * 10 ** e; if (v >= low && v <= high) out.push(v); }
    if (out.length > 1) return out;
  }
  const raw = (high - low) / count || 1, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * unit).find((k) => k >= raw);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}

// 20240131 as 2024-01-31; x counts the dates.
const dateAt = (chart, x) => String(chart.dates[Math.min(chart.dates.length - 1, Math.max(0, Math.round(x)))]).replace(/^(\d{4})(\d\d)(\d\d)$/, "$1-$2-$3");

function draw(chart) {
  const W = Math.max(chart.box.clientWidth, 160), H = chart.height, L = 52, R = 10, T = 8, B = 22;
  const lines = chart.series.map((s) => ({ ...s, show: chart.smooth && !s.judged ? smoothed(s.mean, chart.amount) : s.mean }));
  let low = Infinity, high = -Infinity, x0 = Infinity, x1 = -Infinity, least = Infinity;
  for (const s of lines) {
    for (const values of [s.least || s.mean, s.greatest || s.mean])
      for (const v of values) { low = Math.min(low, v); high = Math.max(high, v); if (v > 0) least = Math.min(least, v); }
    x0 = Math.min(x0, s.x[0]); x1 = Math.max(x1, s.x[s.x.length - 1]);
  }
  const log = chart.log && isFinite(least);
  if (log) { low = least; if (high <= low) high = low * 10; } else {
    if (chart.zero && low > 0) low = 0;
    const pad = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
    high += pad; if (!(chart.zero && low === 0)) low -= pad;
  }
  if (x1 <= x0) { x0 -= 1; x1 += 1; }
  const px = (x) => L + (x - x0) / (x1 - x0) * (W - L - R);
  const py = (y) => { const t = log ? (Math.log(Math.max(y, low)) - Math.log(low)) / (Math.log(high) - Math.log(low)) : (y - low) / (high - low); return T + (1 - t) * (H - T - B); };
  const path = (xs, ys) => "M" + xs.map((x, i) => px(x).toFixed(1) + " " + py(ys[i]).toFixed(1)).join("L");
  let svg = `<svg height="${H}" viewBox="0 0 ${W} ${H}" role="img" aria-label="${escape(chart.title)}">`;
  for (const v of ticks(low, high, Math.round(H / 45), log)) svg += `<line class="gridline" x1="${L}" x2="${W - R}" y1="${py(v).toFixed(1)}" y2="${py(v).toFixed(1)}"/><text x="${L - 8}" y="${(py(v) + 4).toFixed(1)}" text-anchor="end">${si(v)}</text>`;
  for (const v of ticks(x0, x1, Math.max(2, Math.floor(W / 110)), false)) svg += `<text x="${px(v).toFixed(1)}" y="${H - 5}" text-anchor="middle">${chart.dates ? dateAt(chart, v) : chart.time ? duration(v) : si(v)}</text>`;
  svg += `<line class="axis" x1="${L}" x2="${W - R}" y1="${H - B}" y2="${H - B}"/>`;
  if (chart.marks) for (const m of data.events) if ((m.kind === "resume" || m.kind === "warning" || m.kind === "fault") && m.step >= x0 && m.step <= x1)
    svg += `<line class="mark ${m.kind}" x1="${px(m.step).toFixed(1)}" x2="${px(m.step).toFixed(1)}" y1="${T}" y2="${H - B}"><title>${escape(m.text)}</title></line>`;
  lines.forEach((s, i) => {
    const c = color(chart.first + i), few = s.x.length <= 60;
    if (s.least) svg += `<path fill="${c}" opacity=".16" d="${path(s.x, s.greatest)}L${path([...s.x].reverse(), [...s.least].reverse()).slice(1)}Z"/>`;
    if (chart.smooth && !s.judged) svg += `<path fill="none" stroke="${c}" stroke-width="1" opacity=".38" d="${path(s.x, s.mean)}"/>`;
    svg += `<path fill="none" stroke="${c}" stroke-width="${chart.smooth ? 2 : 1.6}" stroke-linejoin="round" d="${path(s.x, s.show)}"/>`;
    if (few) s.x.forEach((x, k) => { svg += `<circle cx="${px(x).toFixed(1)}" cy="${py(s.show[k]).toFixed(1)}" r="2.2" fill="${c}"/>`; });
  });
  chart.box.innerHTML = svg + `<line class="cursor" y1="${T}" y2="${H - B}" visibility="hidden"/></svg><div class="tip"></div>`;
  const cursor = chart.box.querySelector(".cursor"), tip = chart.box.querySelector(".tip");
  chart.box.onmouseleave = () => { cursor.setAttribute("visibility", "hidden"); tip.style.display = "none"; };
  chart.box.onmousemove = (event) => {
    const at = x0 + (event.offsetX - L) / (W - L - R) * (x1 - x0);
    let text = "", where = 0;
    lines.forEach((s, i) => {
      let a = 0, b = s.x.length - 1;
      while (a < b) { const m = (a + b) >> 1; if (s.x[m] < at) a = m + 1; else b = m; }
      if (a > 0 && at - s.x[a - 1] < s.x[a] - at) a--;
      where = s.x[a];
      text += `<br><span class="key" style="background:${color(chart.first + i)}"></span>${escape(s.job || s.label)} <b>${num(s.show[a])}</b>` +
        (s.least ? ` <span class="soft">${num(s.least[a])} … ${num(s.greatest[a])}</span>` : chart.smooth ? ` <span class="soft">raw ${num(s.mean[a])}</span>` : "");
    });
    cursor.setAttribute("visibility", "visible"); cursor.setAttribute("x1", px(where)); cursor.setAttribute("x2", px(where));
    tip.innerHTML = (chart.dates ? dateAt(chart, where) : chart.time ? `after ${duration(where)}` : `step ${whole(where)}`) + text; tip.style.display = "block";
    const side = px(where) > W / 2; tip.style.left = side ? "" : px(where) + 12 + "px"; tip.style.right = side ? W - px(where) + 12 + "px" : ""; tip.style.top = "12px";
  };
}

const charts = [];
function chart(parent, options) {
  const series = (options.series || byLabel(options.label)).filter((s) => s.mean.length > 0);
  if (series.length === 0) return;
  const one = { height: 200, amount: 0.9, first: 0, zero: false, log: false, smooth: false, marks: false, ...options, series };
  const last = series.length === 1 ? series[0].mean[series[0].mean.length - 1] : null;
  const card = document.createElement("section");
  card.className = "card" + (one.wide ? " wide" : "");
  card.innerHTML = `<div class="head"><h2>${escape(one.title)}</h2><span class="now">${last === null ? "" : num(last)}</span><span class="tools">` +
    (one.smooth ? `<label>smoothing <input type="range" min="0" max="0.99" step="0.01" value="${one.amount}"></label>` : "") +
    `<button aria-pressed="${one.log}">log</button></span></div><div class="plot"></div>` +
    (series.length > 1 ? `<div class="legend">${series.map((s, i) => `<span><span class="key" style="background:${color(one.first + i)}"></span>${escape(s.job)}</span>`).join("")}</div>` : "");
  parent.append(card);
  one.box = card.querySelector(".plot");
  card.querySelector("button").onclick = (e) => { one.log = !one.log; e.target.setAttribute("aria-pressed", one.log); draw(one); };
  const range = card.querySelector("input");
  if (range) range.oninput = () => { one.amount = Number(range.value); draw(one); };
  charts.push(one);
}

// ---- head and tiles: a run's own, or those that a set of runs brings
const run = data.run, facts = data.facts, unit = run.unit || "samples", seconds = run.seconds || facts.seconds;
const fact = (name, value, small) => `<div><dt>${escape(name)}</dt><dd>${value}${small ? ` <small>${escape(small)}</small>` : ""}</dd></div>`;
const tiles = data.tiles ? data.tiles.map((t) => fact(t[0], escape(/^\d+$/.test(t[1]) ? whole(Number(t[1])) : t[1]), t[2].replace(/^of (\d+)$/, (_, n) => "of " + whole(Number(n))))).join("")
  : fact("steps", whole(facts.steps), run.total_steps > 0 ? "of " + whole(run.total_steps) : "") +
  fact("training time", duration(seconds)) + (facts.return ? fact("return", escape(facts.return)) : "") + (facts.score ? fact("score", escape(facts.score)) : "") +
  fact("loss", num(run.loss === undefined ? facts.loss : run.loss)) + fact("speed", si(facts.samples_per_s), unit + "/s") +
  (data.energy ? fact("energy", num(data.energy.kwh) + " kWh", [data.energy.mean_w ? num(data.energy.mean_w) + " W" : "", data.energy.cost !== undefined ? num(data.energy.cost) + " " + (data.energy.currency || "") : ""].filter(Boolean).join(", ")) : "") + fact("skipped updates", whole(facts.skipped)) +
  (run.exit_code === undefined ? "" : fact("exit code", run.exit_code));
const link = (href, text) => href ? `<a href="${escape(encodeURI(href))}">${escape(text)}</a>` : escape(text);
page.innerHTML = `<header><h1>${escape(run.title && run.title !== run.id ? run.title : run.recipe || run.id)}</h1><span class="pill ${escape(data.status)}">${escape(data.status)}</span>${(data.links || []).map((l) => link(l[1], l[0])).join(" ")}<button class="push" id="theme">dark / light</button></header>
<p class="id">${[run.id, run.digest && "digest " + run.digest.slice(0, 16), run.kind && "kind " + run.kind].filter(Boolean).map(escape).join(" &nbsp;·&nbsp; ")}</p>` + data.notes.map((n) => `<p class="note">${escape(n)}</p>`).join("") +
  `<dl class="facts">${tiles}</dl><div class="grid"></div>`;
document.getElementById("theme").onclick = () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
};
const grid = page.querySelector(".grid");
const card = (title, html, wide) => { const c = document.createElement("section"); c.className = "card" + (wide ? " wide" : ""); c.innerHTML = `<div class="head"><h2>${title}</h2></div>` + html; grid.append(c); return c; };
// A picture that is drawn anew at every width, so that its texts keep their size: paint(width) returns the SVG's inside.
const sketches = [];
const sketch = (height, paint) => { sketches.push({ height, paint }); return `<div class="plot" data-sketch="${sketches.length - 1}"></div>`; };
const drawSketches = () => page.querySelectorAll("[data-sketch]").forEach((box) => {
  const one = sketches[box.dataset.sketch], W = Math.max(box.clientWidth, 160);
  box.innerHTML = `<svg height="${one.height}" viewBox="0 0 ${W} ${one.height}">${one.paint(W)}</svg>`;
});
const scroll = (table) => `<div class="across">${table}</div>`;
// As much of a text as fits into so many pixels of the plots' small type.
const fitted = (text, room) => { const most = Math.max(1, Math.floor(room / 6.4)); return escape(text.length > most ? text.slice(0, most - 1) + "…" : text); };

// ---- the agents of a set, each with a link to the page of its run
if (data.agents && data.agents.length) card("Agents", scroll(`<table><tr><th>agent</th><th class="n">score</th><th class="n">rule of thumb</th><th class="n">return</th><th class="n">steps</th><th class="n">time</th><th>state</th><th>devices</th><th>digest</th></tr>` +
  data.agents.map((a, i) => `<tr><td class="name"><span class="key" style="background:${color(i)}"></span>${link(a.link, a.name)}</td><td class="n"><b>${a.score === null ? "–" : a.score.toFixed(2)}</b></td><td class="n">${a.rule === null ? "–" : a.rule.toFixed(2)}</td><td class="n">${num(a.return)}</td><td class="n">${whole(a.step)}${a.steps && a.steps !== a.step ? ` <span class="soft">of ${whole(a.steps)}</span>` : ""}</td><td class="n">${duration(a.seconds)}</td><td><span class="pill ${escape(a.state)}">${escape(a.state)}</span></td><td class="name">${escape(a.devices.join(" "))}</td><td class="mono">${escape(a.digest)}</td></tr>`).join("") + `</table>`), true);

// ---- how good the agents are: a row each, the score (or the return, where there is none) with its interval
if (data.evaluation.length) {
  const scored = data.evaluation.every((a) => a.score !== undefined);
  const at = (from) => scored ? { v: from.score, low: from.low, high: from.high } : { v: from.return, low: from.return_low, high: from.return_high };
  const rows = [];
  data.evaluation.forEach((a, i) => {
    const paint = color(a.place ?? i);   // an agent has one colour on all pages of its set
    rows.push({ name: a.name, at: at(a), agent: a, paint, big: true });
    (a.members || []).forEach((m) => rows.push({ name: m[0], at: at(m[1]), agent: a, paint: "var(--c7)" }));
    if (a.ensemble) rows.push({ name: "ensemble", at: at(a.ensemble), agent: a, paint });
  });
  const marks = scored ? [["random", "random", "var(--c7)"], ["rule", "rule of thumb", "var(--warn)"], ["solver", "solver", "var(--good)"]] : [["random_return", "random play", "var(--c7)"]];
  const known = marks.filter((m) => data.evaluation.some((a) => Number.isFinite(a[m[0]])));
  const all = rows.flatMap((r) => [r.at.v, r.at.low, r.at.high, ...(scored ? [0, 1.05] : [r.agent.random_return])]).filter((v) => Number.isFinite(v));
  let lowest = Math.min(...all), highest = Math.max(...all);
  if (!(highest > lowest)) { lowest -= 1; highest += 1; }
  const H = rows.length * 26 + 26;
  const plot = sketch(H, (W) => {
    const left = Math.min(190, W * 0.4), x = (v) => left + 6 + (v - lowest) / (highest - lowest) * (W - left - 24);
    let svg = "";
    ticks(lowest, highest, Math.max(2, Math.floor((W - left) / 80)), false).forEach((v) => { svg += `<line class="gridline" x1="${x(v).toFixed(1)}" x2="${x(v).toFixed(1)}" y1="0" y2="${H - 20}"/><text x="${x(v).toFixed(1)}" y="${H - 5}" text-anchor="middle">${num(v)}</text>`; });
    rows.forEach((r, i) => {
      const y = 14 + i * 26;
      svg += `<text x="${r.big ? 0 : 10}" y="${y + 4}">${fitted(r.name, left - (r.big ? 4 : 14))}</text>`;
      for (const [key, name, paint] of known) { const v = r.agent[key]; if (Number.isFinite(v) && v <= highest) svg += `<rect x="${(x(v) - 1).toFixed(1)}" y="${y - 9}" width="2" height="18" fill="${paint}"><title>${name} ${num(v)}</title></rect>`; }
      if (!Number.isFinite(r.at.v)) return;
      if (Number.isFinite(r.at.low) && Number.isFinite(r.at.high)) svg += `<line x1="${x(r.at.low).toFixed(1)}" x2="${x(r.at.high).toFixed(1)}" y1="${y}" y2="${y}" stroke="${r.paint}" stroke-width="3"/>`;
      svg += `<circle cx="${x(r.at.v).toFixed(1)}" cy="${y}" r="${r.big ? 5 : 3.5}" fill="${r.paint}"><title>${escape(r.name)} ${num(r.at.v)} (${num(r.at.low)} to ${num(r.at.high)})</title></circle>`;
    });
    return svg;
  });
  const three = (v) => v === undefined ? "–" : v.toFixed(3).replace(/^-(0\.0*)$/, "$1");
  const counted = data.evaluation.some((a) => Number.isFinite(a.episodes));   // each agent's own: --agent judges one again
  const heads = (scored ? ["score", "95 %", "return", "rule", "random", "oracle"] : ["return", "95 %", "random play", "steps"]).concat(counted ? ["episodes"] : []);
  const own = (a) => counted ? [Number.isFinite(a.episodes) ? String(a.episodes) : "–"] : [];
  const cells = (a) => scored ? [three(a.score), `${three(a.low)} … ${three(a.high)}`, num(a.return), three(a.rule), three(a.random), three(a.oracle)].concat(own(a)) : [num(a.return), `${num(a.return_low)} … ${num(a.return_high)}`, num(a.random_return), num(a.length)].concat(own(a));
  const terms = data.evaluation.some((a) => a.terms);
  card(!scored ? "Evaluation: return of greedy episodes" : known.some((m) => m[0] === "solver") ? "Evaluation: greedy episodes, 0 random play, 1 the solver" : "Evaluation: score of greedy episodes",
    plot + `<div class="legend">${known.map((m) => `<span><span class="key" style="background:${m[2]}"></span>${m[1]}</span>`).join("")}</div>` +
    scroll(`<table><tr><th>agent</th>${heads.map((h) => `<th class="n">${h}</th>`).join("")}${terms ? "<th>terms of an episode</th>" : ""}</tr>` + data.evaluation.map((a) =>
      `<tr><td class="name">${escape(a.name)}</td>${cells(a).map((c) => `<td class="n">${c}</td>`).join("")}${terms ? `<td>${(a.terms || []).map((t) => escape(t[0]) + " " + num(t[1])).join(", ")}</td>` : ""}</tr>`).join("") + `</table>`), true);
}

// ---- who of the devices worked on which agent of a set
if (data.course) {
  const { devices, parts } = data.course, H = devices.length * 26 + 24, end = Math.max(...parts.map((p) => p[3]));
  card("Who worked on what", sketch(H, (W) => {
    const left = Math.min(70, W * 0.2), x = (t) => left + t / end * (W - left - 8);
    let svg = devices.map((d, i) => `<text x="0" y="${17 + i * 26}">${fitted(d, left - 4)}</text><line class="gridline" x1="${left}" x2="${W - 8}" y1="${26 + i * 26}" y2="${26 + i * 26}"/>`).join("");
    for (const [device, job, begin, stop] of parts) {
      const wide = Math.max(1, x(stop) - x(begin) - 1), name = data.agents[job].name;
      svg += `<rect x="${x(begin).toFixed(1)}" y="${3 + device * 26}" width="${wide.toFixed(1)}" height="20" rx="3" fill="${color(job)}"><title>${escape(name)}: ${num(begin)} s to ${num(stop)} s</title></rect>`;
      if (wide > 40) svg += `<text class="inside" x="${(x(begin) + 5).toFixed(1)}" y="${17 + device * 26}">${fitted(name, wide - 8)}</text>`;
    }
    ticks(0, end, Math.max(2, Math.floor(W / 110)), false).forEach((v) => { svg += `<text x="${x(v).toFixed(1)}" y="${H - 5}" text-anchor="middle">${duration(v)}</text>`; });
    return svg;
  }), true);
}

// ---- a trader beside simple strategies, on days that it never saw
if (data.equity && data.equity.curves.length) {
  const percent = (v) => v === undefined ? "–" : num(100 * v) + " %";
  chart(grid, { series: data.equity.curves.map((c) => ({ job: c.name, label: c.name, x: c.values.map((v, i) => i), mean: c.values })), title: "Out of sample: what 100 became", wide: true, height: 280, dates: data.equity.dates });
  card("Out of sample", (data.equity.words || []).map((w) => `<p>${escape(w)}</p>`).join("") + scroll(`<table><tr><th>strategy</th><th class="n">return</th><th class="n">Sharpe</th><th class="n">95 % interval</th><th class="n">drawdown</th><th class="n">CVaR 95</th><th class="n">turnover</th></tr>` +
    data.equity.curves.map((c, i) => `<tr><td class="name"><span class="key" style="background:${color(i)}"></span>${escape(c.name)}</td><td class="n"><b>${percent(c.total_return)}</b></td><td class="n">${num(c.sharpe)}</td><td class="n">${c.sharpe_low === undefined ? "" : num(c.sharpe_low) + " to " + num(c.sharpe_high)}</td><td class="n">${percent(c.drawdown)}</td><td class="n">${percent(c.cvar95)}</td><td class="n">${num(c.turnover)}</td></tr>`).join("") + `</table>`), true);
}

// ---- which class was taken for which: rows are true classes, a cell has its count and its share of the row
for (const table of data.confusion || []) {
  const n = table.classes.length, at = (i, k) => table.cells[i * n + k] || 0;
  card(`Confusion matrix of ${escape(table.set)}, step ${whole(table.step)}`, scroll(`<table><tr><th>true \\ predicted</th>${table.classes.map((c) => `<th class="n">${escape(c)}</th>`).join("")}<th class="n">recall</th></tr>` +
    table.classes.map((c, i) => {
      const all = table.classes.reduce((sum, _, k) => sum + at(i, k), 0), part = (k) => all ? at(i, k) / all : 0;
      return `<tr><td class="name">${escape(c)}</td>` + table.classes.map((_, k) =>
        `<td class="n" style="background:color-mix(in srgb, var(--c0) ${(70 * part(k)).toFixed(0)}%, transparent)">${whole(at(i, k))}</td>`).join("") + `<td class="n"><b>${all ? num(part(i)) : "–"}</b></td></tr>`;
    }).join("") + `</table>`), true);
}

chart(grid, { label: "score", title: "Score while training, exploring: 0 random play, 1 the solver", wide: true, height: data.agents ? 260 : 200 });
chart(grid, { label: "average_return", title: "Return while training", wide: !data.agents, first: data.agents ? 0 : 1 });
chart(grid, { series: withValidation("loss"), title: "Loss", wide: !data.agents, height: data.agents ? 200 : 280, smooth: true, marks: true });
chart(grid, { label: "speed", title: `Speed (${unit}/s)`, zero: true, first: 2 });
chart(grid, { label: "lr", title: "Learning rate", zero: true, first: 3 });

// ---- time per phase
const total = data.phases.reduce((sum, p) => sum + p[1], 0);
if (total > 0) card("Time per phase",
  `<div class="stack">${data.phases.map((p, i) => `<span style="flex:${p[1] / total} 0 0;background:${color(p[0] === "other" ? 7 : i)}" title="${escape(p[0])} ${(100 * p[1] / total).toFixed(1)} %"></span>`).join("")}</div>
  <table><tr><th>phase</th><th class="n">share</th><th class="n">per step</th><th class="n">in all</th></tr>` + data.phases.map((p, i) =>
  `<tr><td><span class="key" style="background:${color(p[0] === "other" ? 7 : i)}"></span>${escape(p[0])}</td><td class="n">${(100 * p[1] / total).toFixed(1)} %</td><td class="n">${facts.steps ? num(1e3 * p[1] / facts.steps) + " ms" : "–"}</td><td class="n">${duration(p[1])}</td></tr>`).join("") + `</table>`);
chart(grid, { label: "grad_norm", title: "Gradient norm", first: 4 });
chart(grid, { label: "scale", title: "Loss scale", first: 5, log: true });
labels.filter((l) => !["loss", "speed", "lr", "grad_norm", "scale", "score", "average_return"].includes(l))
  .filter((l) => !judged.includes(l) || !labels.includes(l.slice(l.lastIndexOf("/") + 1)))
  .forEach((label, i) => chart(grid, { series: withValidation(label), title: label, first: i }));

// ---- the GPUs over time, and what they used
const gpuCurves = (key) => (data.gpus || []).map((g) => {
  const at = g[key].map((v, i) => i).filter((i) => g[key][i] !== null);
  return { job: g.name, label: g.name, x: at.map((i) => g.x[i]), mean: at.map((i) => g[key][i]) };
});
chart(grid, { series: gpuCurves("power"), title: "GPU power (W)", time: true, zero: true });
chart(grid, { series: gpuCurves("temp"), title: "GPU temperature (C)", time: true });
if (data.energy && data.energy.devices.length) card("Energy", `<table><tr><th>device</th><th class="n">kWh</th><th class="n">mean W</th><th class="n">peak W</th><th class="n">peak C</th><th class="n">${escape(data.energy.currency || "")}</th></tr>` + data.energy.devices.map((d) =>
  `<tr><td>${escape((d.index === undefined ? "" : "GPU " + d.index + " ") + (d.name || ""))}</td>` + ["kwh", "mean_w", "peak_w", "peak_c", "cost"].map((k) => `<td class="n">${d[k] === undefined ? "–" : num(d[k])}</td>`).join("") + `</tr>`).join("") + `</table>`);

if (data.explain) card("Where the time goes", `<p>${escape(data.explain.verdict)}</p><table>` + data.explain.shares.filter((s) => s[1] >= 0.005).sort((a, b) => b[1] - a[1]).map((s) => `<tr><td>${escape(s[0])}</td><td class="n">${(100 * s[1]).toFixed(1)} %</td></tr>`).join("") + `</table>` +
  data.explain.findings.map((f) => `<p>${escape(f.text)}: ${escape(f.why)}.<br>${escape(f.remedy)}${f.command ? `<br><code>${escape(f.command)}</code>` : ""}</p>`).join(""));

// ---- what happened when
const kinds = [...new Set(data.events.map((e) => e.kind))], last = Math.max(1, facts.steps, ...data.events.map((e) => e.step));
if (data.events.length + data.skips.length > 0) {
  const paint = { checkpoint: "var(--c2)", resume: "var(--c3)", warning: "var(--warn)", fault: "var(--bad)", guard: "var(--warn)", skip: "var(--bad)" };
  const marks = [...data.events.filter((e) => e.kind !== "finish"), ...data.skips.map((s) => ({ kind: "skip", step: s, text: "update skipped at step " + s }))];
  const rows = [...new Set(marks.map((m) => m.kind))];
  const H = rows.length * 22 + 24;
  const plot = sketch(H, (W) => {
    const left = 78, x = (s) => left + s / last * (W - left - 14);
    let svg = "";
    rows.forEach((kind, i) => {
      const y = 13 + i * 22;
      svg += `<text x="0" y="${y + 4}">${fitted(kind, left - 6)}</text><line class="gridline" x1="${left}" x2="${W - 10}" y1="${y}" y2="${y}"/>`;
      for (const m of marks) if (m.kind === kind) svg += `<rect x="${(x(m.step) - 1.5).toFixed(1)}" y="${y - 6}" width="3" height="12" rx="1" fill="${paint[kind] || "var(--c7)"}"><title>${escape(m.text)}</title></rect>`;
    });
    ticks(0, last, Math.max(2, Math.floor(W / 120)), false).forEach((v) => { if (Number.isInteger(v)) svg += `<text x="${x(v).toFixed(1)}" y="${H - 6}" text-anchor="middle">${si(v)}</text>`; });
    return svg;
  });
  const table = [...data.events].reverse().map((e) => `<tr><td class="n soft">${escape(e.t.replace("T", " ").replace("Z", ""))}</td><td class="n">${whole(e.step)}</td><td class="kind-${escape(e.kind)}">${escape(e.kind)}</td><td>${escape(e.text)}</td></tr>`).join("");
  card("Checkpoints and events", plot + (table ? `<div class="scroll events"><table><tr><th class="n">time (UTC)</th><th class="n">step</th><th>kind</th><th></th></tr>${table}</table></div>` : ""), true);
}

// ---- what it was
const given = (s) => s[2] && s[2] !== "default";
if (data.settings.length) card("Settings", `<div class="settings">${data.settings.map((s) => `<div class="${given(s) ? "set" : ""}"><span class="mono">${escape(s[0])}</span><b class="mono">${escape(s[1])}</b><i>${escape(s[2])}</i></div>`).join("")}</div>`, true);
const about = [["recipe", run.recipe], ["weights (SHA-256)", run.digest], ["kind", run.kind], ["started", run.started || facts.first], ["finished", run.finished || facts.last],
  ["host", data.env.host], ["processor", data.env.cpu], ["system", data.env.os], ...Object.entries(data.env.versions || {}), ...Object.entries(run.extra || {})].filter((r) => r[1]);
if (about.length) card("Identity", `<table>${about.map((r) => `<tr><td class="soft" style="width:30%;max-width:170px">${escape(r[0])}</td><td class="mono">${escape(typeof r[1] === "object" ? JSON.stringify(r[1]) : r[1])}</td></tr>`).join("")}</table>`, true);
const footer = document.createElement("footer");
footer.textContent = data.series.length === 0 ? "" : data.grid.width > 1 ? `A point of a curve stands for ${whole(data.grid.width)} steps: their mean, and for the loss a band from the least to the greatest. Every step is in metrics.jsonl.` : "Every step is shown.";
page.append(footer);

const drawAll = () => { charts.forEach(draw); drawSketches(); };
let width = 0;
new ResizeObserver(() => { if (page.clientWidth !== width) { width = page.clientWidth; drawAll(); } }).observe(page);
drawAll();
})();
