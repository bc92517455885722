// Draws GPUs, runs and charts from samples (/live) and from what was kept (/history). Plain canvas, no library, no network.
"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const escape = (s) => String(s).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
let colors = {};   // of the theme, read once
const css = (name) => colors[name] ||= getComputedStyle(document.documentElement).getPropertyValue(name).trim();
if (location.search) history.replaceState(null, "", location.pathname);  // the token is in a cookie now

// ---- numbers as people read them; what is absent is a dash
const has = (v) => v !== undefined && v !== null && Number.isFinite(v);
const num = (v, digits = 3) => {
  if (!has(v)) return "–";
  const a = Math.abs(v);
  for (const [u, s] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) if (a >= u) return Number((v / (s === "k" ? 1e3 : u)).toPrecision(digits)) + s;
  if (a >= 1000) return Math.round(v).toString();
  return a !== 0 && a < 1e-3 ? v.toExponential(1) : Number(v.toPrecision(digits)).toString();
};
const bytes = (v) => {
  if (!has(v)) return "–";
  for (const [u, s] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (v >= u) return Number((v / u).toPrecision(3)) + " " + s;
  return Math.round(v) + " B";
};
const percent = (v) => has(v) ? Math.round(v) + " %" : "–";
const duration = (s) => {
  if (!has(s)) return "–";
  s = Math.round(s);
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60, two = (n) => String(n).padStart(2, "0");
  return (d ? d + " d " : "") + (d || h ? h + ":" + two(m) : m) + ":" + two(s % 60);
};
const H = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const clock = (t, long) => new Date(t * 1000).toLocaleString([], long ? { weekday: "short", ...H } : { ...H, second: "2-digit" });
const days = (t) => new Date(t * 1000).toLocaleDateString([], { weekday: "short", day: "numeric" });
const shortId = (id) => { const [head, rest] = id.split("/"); return head.slice(head.lastIndexOf("-") + 1) + (rest ? "/" + rest : ""); };
const WORDS = { application_clocks: "clocks set by hand", power_cap: "the power limit", hw_slowdown: "hardware slowdown", sync_boost: "sync boost", thermal_sw: "heat (driver)",
  thermal_hw: "heat (hardware)", power_brake: "power brake", display_clocks: "display clocks" };

// ---- theme
const wanted = () => { try { return localStorage.getItem("tandem-theme"); } catch { return null; } };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const paint = () => { document.documentElement.dataset.theme = wanted() || (dark.matches ? "dark" : "light"); colors = {}; drawAll(); };
$("theme").onclick = () => { try { localStorage.setItem("tandem-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark"); } catch { /* private mode */ } paint(); };
dark.addEventListener("change", () => paint());

// ---- what is known: source -> { t: [...], v: [[...], ...] }, for the range shown
const RANGES = [["10 min", 600, 1], ["6 h", 21600, 10], ["7 days", 604800, 60]];
const NAMES = { gpu: ["utilisation_percent", "memory_used_gb", "power_w", "temperature_c", "sm_clock_mhz", "fan_percent", "pcie_rx_gb", "pcie_tx_gb"],
  host: ["cpu_percent", "memory_used_gb"], run: ["loss", "steps_per_s", "samples_per_s", "average_return", "score"] };
let range = RANGES[0], store = {}, sample = JSON.parse($("first").textContent), loading = 0;
const kind = (source) => source.split(":")[0];

function add(source, t, values) {
  const s = store[source] ||= { t: [], v: values.map(() => []) };
  const at = Math.floor(t / range[2]) * range[2];
  if (s.t.length && s.t[s.t.length - 1] >= at) return;
  s.t.push(at);
  values.forEach((v, i) => (s.v[i] ||= Array(s.t.length - 1).fill(NaN)).push(has(v) ? v : NaN));
  if (s.t[0] < t - range[1] - 120 && s.t.length > 200) { s.t.splice(0, 100); s.v.forEach((v) => v.splice(0, 100)); }
}
function remember(x) {
  if (!x.time) return;   // the first look is still under way
  for (const s of Object.keys(store)) if (store[s].t[store[s].t.length - 1] < x.time - range[1]) delete store[s];
  add("host", x.time, [x.host.cpu_percent, x.host.memory_used_bytes / 1e9]);
  for (const g of x.gpus) add("gpu:" + g.index, x.time, [g.utilisation_percent, g.memory_used_bytes / 1e9, g.power_w, g.temperature_c, g.sm_clock_mhz, g.fan_percent, g.pcie_rx_bytes_per_s / 1e9, g.pcie_tx_bytes_per_s / 1e9]);
  for (const r of x.runs) if (r.status === "running") add("run:" + r.id, x.time, [r.window_loss ?? (r.stalled ? undefined : r.loss), r.steps_per_s, r.samples_per_s, r.average_return, r.score]);
}
async function load() {
  const mine = ++loading;
  try {
    const answer = await fetch("/history?seconds=" + range[1]);
    if (!answer.ok || mine !== loading) return;
    const kept = await answer.json();
    if (mine !== loading) return;
    store = {};
    for (const s of kept.series) store[s.source] = { t: s.t, v: s.v.map((v) => v.map((x) => x === null ? NaN : x)) };
    document.documentElement.dataset.loaded = range[1];
  } catch { /* the stream shows that the monitor is gone */ }
  drawAll();
}

// ---- charts
const CHARTS = [
  { id: "return", title: "Return", unit: "", kind: "run", value: 3 },
  { id: "score", title: "Score", unit: "", kind: "run", value: 4 },
  { id: "loss", title: "Loss", unit: "", kind: "run", value: 0 },
  { id: "rate", title: "Steps a second", unit: "/s", kind: "run", value: 1, low: 0 },
  { id: "util", title: "GPU utilisation", unit: "%", kind: "gpu", value: 0, low: 0, high: 100 },
  { id: "memory", title: "GPU memory", unit: "GB", kind: "gpu", value: 1, low: 0 },
  { id: "power", title: "GPU power", unit: "W", kind: "gpu", value: 2, low: 0 },
  { id: "heat", title: "GPU temperature", unit: "°C", kind: "gpu", value: 3 },
  { id: "clock", title: "SM clock", unit: "MHz", kind: "gpu", value: 4, low: 0 },
  { id: "pcie", title: "PCIe in", unit: "GB/s", kind: "gpu", value: 6, low: 0 },
  { id: "cpu", title: "CPU", unit: "%", kind: "host", value: 0, low: 0, high: 100 },
  { id: "ram", title: "Memory of the machine", unit: "GB", kind: "host", value: 1, low: 0 },
];
const label = (source) => source === "host" ? sample.host.name : kind(source) === "gpu" ? "GPU " + source.slice(4) : shortId(source.slice(4));
const sourcesOf = (chart) => Object.keys(store).filter((s) => kind(s) === chart.kind && store[s].v[chart.value] && store[s].v[chart.value].some(has))
  .sort((a, b) => a.localeCompare(b, undefined, { numeric: true })).slice(-16);

function niceTicks(low, high, count) {
  const raw = (high - low) / count, unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 2.5, 5, 10].map((k) => k * unit).find((s) => s >= raw);
  const out = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}
// Where less was measured than the range holds, all charts begin with the first of it.
const shownSpan = (end) => Math.min(range[1], Math.max(60 * range[2], 1.02 * (end - Math.min(...Object.values(store).map((s) => s.t[0])))));
const timeStep = (seconds, count) => [10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800].find((s) => seconds / s <= count) || 172800;

function draw(chart) {
  const canvas = chart.canvas;
  if (!canvas || !canvas.clientWidth) return;
  const w = canvas.clientWidth, h = canvas.clientHeight, k = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(w * k) || canvas.height !== Math.round(h * k)) { canvas.width = Math.round(w * k); canvas.height = Math.round(h * k); }
  const g = canvas.getContext("2d");
  g.setTransform(k, 0, 0, k, 0, 0);
  g.clearRect(0, 0, w, h);
  const sources = chart.sources = sourcesOf(chart);
  const end = Math.max(sample.time, ...sources.map((s) => store[s].t[store[s].t.length - 1]));
  const span = shownSpan(end), begin = end - span;
  let low = chart.low ?? Infinity, high = chart.high ?? -Infinity;
  for (const s of sources) {
    const { t, v } = store[s], values = v[chart.value];
    for (let i = 0; i < values.length; i++) if (t[i] >= begin && values[i] === values[i]) { if (values[i] < low) low = values[i]; if (values[i] > high) high = values[i]; }
  }
  const left = 46, right = w - 8, top = 8, bottom = h - 20;
  g.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  if (!(high >= low)) { g.fillStyle = css("--soft"); g.textAlign = "center"; g.fillText("nothing measured yet", w / 2, h / 2); return; }
  if (high === low) { high += Math.abs(high) * .1 || 1; if (chart.low === undefined) low -= Math.abs(low) * .1 || 1; }
  if (chart.high === undefined) high += (high - low) * .06;
  const x = (t) => left + (t - begin) / span * (right - left), y = (v) => bottom - (v - low) / (high - low) * (bottom - top);
  chart.scale = { left, right, begin, span };
  g.lineWidth = 1; g.strokeStyle = css("--grid"); g.fillStyle = css("--soft"); g.textBaseline = "middle"; g.textAlign = "right";
  for (const v of niceTicks(low, high, 4)) {
    const at = Math.round(y(v)) + .5;
    g.beginPath(); g.moveTo(left, at); g.lineTo(right, at); g.stroke();
    g.fillText(num(v), left - 6, at);
  }
  g.textBaseline = "alphabetic"; g.textAlign = "center";
  const step = timeStep(span, Math.max(2, Math.floor((right - left) / 70))), zone = new Date().getTimezoneOffset() * 60;
  for (let t = Math.ceil((begin - zone) / step) * step + zone; t <= end; t += step) {
    const at = x(t);
    const text = step >= 86400 ? days(t) : step < 60 ? clock(t) : new Date(t * 1000).toLocaleTimeString([], H);
    const half = g.measureText(text).width / 2;
    if (at - half > left - 10 && at + half < w) g.fillText(text, at, h - 5);
  }
  g.save(); g.beginPath(); g.rect(left, top - 2, right - left, bottom - top + 4); g.clip();
  g.lineWidth = 1.5; g.lineJoin = "round";
  sources.forEach((s) => {
    const { t, v } = store[s], values = v[chart.value];
    g.strokeStyle = css("--c" + colorOf(s));
    g.beginPath();
    // At most a few points for each column of pixels: first, least, most, last. Where nothing was measured, nothing is drawn.
    let pen = false, before = -Infinity, column = -1, first = 0, least = 0, most = 0, last = 0, open = false;
    const gap = Math.max(range[2] * 3.5, 5);
    const close = () => {
      if (!open) return;
      const at = left + column + .5;
      if (pen) g.lineTo(at, y(first)); else g.moveTo(at, y(first));
      if (most > least) { g.lineTo(at, y(least)); g.lineTo(at, y(most)); }
      g.lineTo(at, y(last)); pen = true; open = false;
    };
    for (let i = 0; i < values.length; i++) {
      const value = values[i];
      if (value !== value || t[i] < begin - range[2]) continue;
      if (t[i] - before > gap) { close(); pen = false; }
      const c = Math.round(x(t[i]) - left);
      if (!open || c !== column) { close(); column = c; first = least = most = value; open = true; }
      if (value < least) least = value; if (value > most) most = value;
      last = value; before = t[i];
    }
    close();
    g.stroke();
  });
  g.restore();
  if (chart.id === "heat") limitLine(g, chart, Math.min(...sample.gpus.map((c) => c.slowdown_c ?? Infinity)), y, low, high, left, right);
  const names = sources[0] === "host" ? "" : sources.map((s) => `<span><i style="background:var(--c${colorOf(s)})"></i>${escape(label(s))}</span>`).join("");
  if (chart.legend.dataset.names !== names) { chart.legend.innerHTML = names; chart.legend.dataset.names = names; }
}
const colorOf = (source) => {
  if (kind(source) === "gpu") return Number(source.slice(4)) % 8;
  if (source === "host") return 7;
  const ids = Object.keys(store).filter((s) => kind(s) === "run").sort();
  return Math.max(0, ids.indexOf(source)) % 8;
};
function limitLine(g, chart, v, y, low, high, left, right) {
  if (!has(v) || v < low || v > high) return;
  g.save(); g.strokeStyle = css("--bad"); g.setLineDash([5, 4]); g.beginPath(); g.moveTo(left, y(v)); g.lineTo(right, y(v)); g.stroke();
  const text = "the hardware slows down", at = y(v) + (y(v) > 24 ? -5 : 13);
  g.setLineDash([]); g.lineWidth = 3; g.strokeStyle = css("--card"); g.fillStyle = css("--bad"); g.textAlign = "left";
  g.strokeText(text, left + 4, at); g.fillText(text, left + 4, at); g.restore();
}
function point(chart, event) {
  const box = chart.canvas.getBoundingClientRect(), at = event.clientX - box.left, s = chart.scale;
  if (!s || at < s.left || at > s.right) { chart.tip.style.display = "none"; return; }
  const t = s.begin + (at - s.left) / (s.right - s.left) * s.span;
  let found = null;
  const rows = chart.sources.map((source) => {
    const times = store[source].t;
    let low = 0, high = times.length - 1;
    while (low < high) { const mid = (low + high) >> 1; if (times[mid] < t) low = mid + 1; else high = mid; }
    if (low > 0 && t - times[low - 1] < times[low] - t) low--;
    if (Math.abs(times[low] - t) > Math.max(range[2] * 3, s.span / 100)) return "";
    found = times[low];
    const v = store[source].v[chart.value][low];
    return `<div><i style="background:var(--c${colorOf(source)})"></i>${escape(label(source))} <b>${num(v, 4)}${chart.unit ? " " + chart.unit : ""}</b></div>`;
  }).join("");
  if (found === null) { chart.tip.style.display = "none"; return; }
  chart.tip.innerHTML = `<div class="soft">${clock(found, range[1] > 86400)}</div>` + rows;
  chart.tip.style.display = "block";
  chart.tip.style.left = Math.max(0, Math.min(at + 12, box.width - chart.tip.offsetWidth - 4)) + "px";
  chart.tip.style.top = "10px";
}
function layOut() {
  const shown = CHARTS.filter((c) => (c.value < 3 || c.kind !== "run" || sourcesOf(c).length) && (c.kind === "host" || (c.kind === "gpu" ? sample.gpus.length : sample.runs.length || Object.keys(store).some((s) => kind(s) === "run"))));
  const ids = shown.map((c) => c.id).join();
  if ($("charts").dataset.ids === ids) return;
  $("charts").dataset.ids = ids;
  $("charts").innerHTML = shown.map((c) => `<div class="card" id="chart-${c.id}"><div class="head"><h2>${c.title}</h2><span class="soft">${c.unit}</span></div><div class="plot"><canvas role="img" aria-label="${c.title}"></canvas><div class="tip"></div></div><div class="legend"></div></div>`).join("");
  for (const c of CHARTS) c.canvas = null;
  for (const c of shown) {
    const box = $("chart-" + c.id);
    c.canvas = box.querySelector("canvas"); c.tip = box.querySelector(".tip"); c.legend = box.querySelector(".legend");
    c.canvas.onpointermove = (event) => point(c, event);
    c.canvas.onpointerleave = () => { c.tip.style.display = "none"; };
  }
}
function drawAll() {
  layOut();
  const begin = performance.now();
  for (const c of CHARTS) draw(c);
  document.documentElement.dataset.drawMs = (performance.now() - begin).toFixed(1);
}

// ---- cards
const bar = (name, part, text, level = "") => `<div class="row"><label>${name}</label><div class="bar">${has(part) ? `<i class="${level}" style="width:${(Math.max(0, Math.min(1, part)) * 100).toFixed(1)}%"></i>` : ""}</div><b>${text}</b></div>`;
function gpuCard(g) {
  const head = `<div class="head"><span class="key" style="background:var(--c${g.index % 8})"></span><h2>GPU ${g.index}</h2><span class="soft">${escape((g.name || "").replace(/^NVIDIA (GeForce )?/, ""))}</span><span class="push"></span>`;
  if (g.trouble) return `<div class="card gpu">${head}<span class="pill bad">${g.lost ? "lost" : "trouble"}</span></div><p class="note bad">${escape(g.trouble)}</p></div>`;
  const heat = g.temperature_c / g.slowdown_c, held = (g.throttle || []).filter((r) => r !== "idle");
  const hot = has(heat) ? (g.temperature_c >= g.slowdown_c ? "bad" : g.temperature_c >= g.slowdown_c - 5 ? "warn" : "") : g.temperature_c >= 90 ? "bad" : g.temperature_c >= 85 ? "warn" : "";
  const shown = g.processes || [], more = shown.length > 4 ? `<div>and ${shown.length - 4} more</div>` : "";
  const processes = shown.slice(0, 4).map((p) => `<div>${p.pid} ${escape((p.name || "").replace(/.*\//, ""))} ${has(p.memory_bytes) ? bytes(p.memory_bytes) : ""} <span class="good">${escape(p.run || "")}</span></div>`).join("") + more;
  const pills = held.map((r) => `<span class="pill ${r.startsWith("thermal") || r.startsWith("hw") ? "bad" : "warn"}" title="held back by ${escape(WORDS[r] || r)}">${escape(WORDS[r] || r)}</span>`)
    .concat(g.visible === false ? `<span class="pill" title="CUDA_VISIBLE_DEVICES hides it from programs started where the monitor was">hidden</span>` : [],
      has(g.mig_instances) ? `<span class="pill" title="${escape((g.mig || []).map((m) => m.name).join(", "))}">MIG: ${g.mig_instances || "no"} instance${g.mig_instances === 1 ? "" : "s"}</span>` : []).join("");
  const fact = (name, value, level = "", title = "") => `<span title="${title}">${name}<b class="${level}">${value}</b></span>`;
  const unit = (v, u) => has(v) ? v + " " + u : "–", rate = (v) => has(v) ? bytes(v) + "/s" : "–";
  return `<div class="card gpu">${head}</div>`
    + bar("use", g.utilisation_percent / 100, percent(g.utilisation_percent))
    + bar("memory", g.memory_used_bytes / g.memory_total_bytes, `${has(g.memory_used_bytes) ? num(g.memory_used_bytes / 1e9) : "–"} / ${bytes(g.memory_total_bytes)}`, g.memory_used_bytes / g.memory_total_bytes > .97 ? "warn" : "")
    + bar("power", g.power_w / g.power_limit_w, `${has(g.power_w) ? Math.round(g.power_w) : "–"} / ${has(g.power_limit_w) ? Math.round(g.power_limit_w) : "–"} W`)
    + bar("heat", heat, `${has(g.temperature_c) ? g.temperature_c : "–"} / ${has(g.slowdown_c) ? g.slowdown_c : "–"} °C`, hot)
    + `<div class="small">` + fact("SM clock", unit(g.sm_clock_mhz, "MHz")) + fact("memory clock", unit(g.memory_clock_mhz, "MHz")) + fact("fan", percent(g.fan_percent))
    + fact("PCIe in", rate(g.pcie_rx_bytes_per_s)) + fact("PCIe out", rate(g.pcie_tx_bytes_per_s))
    + fact("ECC errors", has(g.ecc_corrected) || has(g.ecc_uncorrected) ? (g.ecc_corrected ?? "–") + " / " + (g.ecc_uncorrected ?? "–") : "–", g.ecc_uncorrected > 0 ? "bad" : "", "corrected / not corrected") + "</div>"
    + (pills ? `<div class="pills">${pills}</div>` : "") + (processes ? `<div class="note soft">${processes}</div>` : "") + "</div>";
}
// Return and score, of each agent where several learn in one run.
const figures = (r) => ["average_return", "score"].map((key) => {
  const of = r.agents ? Object.entries(r.agents).filter(([, a]) => has(a[key])) : has(r[key]) ? [["", r]] : [];
  return of.length ? `<div><dt>${key === "score" ? "score" : "return"}</dt><dd>${of.map(([name, a]) => (name ? `<span class="soft">${escape(name)}</span> ` : "") + num(a[key], 4)).join(", ")}</dd></div>` : "";
}).join("");
const LEVEL = { running: "accent", done: "good", stopped: "warn", failed: "bad", died: "bad" };
function runCard(r) {
  const left = r.status === "running" ? `<div><dt>left</dt><dd>${duration(r.seconds_left)}</dd></div>` : "";
  const rate = r.stalled ? `<span class="bad">no step for ${duration(r.since_step_s)}</span>` : has(r.steps_per_s) ? `${num(r.steps_per_s)} steps/s` : "–";
  const ranks = (r.ranks || []).map((k) => `<tr><td>${k.rank}</td><td>${escape(k.device)}</td><td>${k.shards ? (k.shards > 1 ? k.first_shard + "–" + (k.first_shard + k.shards - 1) : k.first_shard) : "none"}</td><td>${escape(k.state === "computing" && k.phase ? "computing " + k.phase : k.state || "–")}</td>`
    + `<td class="n">${num(k.shards_per_s)}</td><td class="n">${percent(k.busy_percent)}</td><td class="n">${percent(k.cpu_percent)}</td><td class="n">${bytes(k.memory_bytes)}</td><td class="n">${k.restarts || ""}</td></tr>`).join("");
  const level = Object.hasOwn(LEVEL, r.status) ? LEVEL[r.status] : "", ended = r.status !== "running";
  return `<div class="card run${ended ? " ended" : ""}"><div class="head"><h2>${escape(r.name || r.recipe || "run")}</h2><span class="mono soft">${escape(r.id)}</span>${r.host ? `<span class="soft">on ${escape(r.host)}</span>` : ""}<span class="push"></span><span class="pill ${level}">${escape(r.status)}</span></div>`
    + (r.total_steps ? `<div class="progress"><i class="${ended ? level : ""}" style="width:${Math.min(100, 100 * r.step / r.total_steps).toFixed(2)}%"></i></div>` : "")
    + `<dl class="facts"><div><dt>step</dt><dd>${r.step}${r.total_steps ? ` <span class="soft">of ${r.total_steps}</span>` : ""}</dd></div>${figures(r)}<div><dt>loss</dt><dd>${num(r.loss, 4)}</dd></div>`
    + (r.status === "running" ? `<div><dt>rate</dt><dd>${rate}</dd></div>` + (has(r.samples_per_s) ? `<div><dt>${escape(r.unit || "samples")}</dt><dd>${num(r.samples_per_s)}/s</dd></div>` : "") : "") + left
    + (Object.keys(r.phases || {}).length && r.status === "running" ? `<div><dt>phases</dt><dd>${Object.entries(r.phases).map(([n, s]) => escape(n) + " " + Math.round(s * 100) + " %").join(", ")}</dd></div>` : "") + "</dl>"
    + (ranks ? `<div class="wide"><table><thead><tr><th>rank</th><th>device</th><th>shards</th><th>does</th><th class="n">shards/s</th><th class="n">busy</th><th class="n">CPU</th><th class="n">memory</th><th class="n">restarts</th></tr></thead><tbody>${ranks}</tbody></table></div>` : "")
    + (r.warning ? `<p class="note warn">${escape(r.warning)}</p>` : "")
    + (r.event && r.event.text !== r.warning ? `<p class="note soft">${clock(r.event.time)} ${escape(r.event.text)}</p>` : "") + "</div>";
}
// The whole machine at one glance; of the GPUs sums and means over those that report them.
function tiles(x) {
  const tile = (name, value, more, part, level = "") => `<dl class="tile"><dt>${name}</dt><dd>${value}${more ? ` <small>${more}</small>` : ""}</dd>${has(part) ? `<div class="bar"><i class="${level}" style="width:${(Math.max(0, Math.min(1, part)) * 100).toFixed(1)}%"></i></div>` : ""}</dl>`;
  const sum = (key, of = x.gpus) => of.some((g) => has(g[key])) ? of.reduce((all, g) => all + (has(g[key]) ? g[key] : 0), 0) : undefined;
  const h = x.host, used = sum("utilisation_percent") / x.gpus.filter((g) => has(g.utilisation_percent)).length;
  const full = x.gpus.filter((g) => has(g.memory_used_bytes)), drawn = x.gpus.filter((g) => has(g.power_w));
  const hot = x.gpus.filter((g) => has(g.temperature_c)).sort((a, b) => b.temperature_c - a.temperature_c)[0];
  return (x.gpus.length ? tile(x.gpus.length === 1 ? "GPU use" : `use of ${x.gpus.length} GPUs`, percent(used), "", used / 100)
      + tile("GPU memory", has(sum("memory_used_bytes")) ? num(sum("memory_used_bytes") / 1e9) : "–", "of " + bytes(sum("memory_total_bytes", full)), sum("memory_used_bytes") / sum("memory_total_bytes", full))
      + tile("power", has(sum("power_w")) ? Math.round(sum("power_w")) + " W" : "–", has(sum("power_limit_w", drawn)) ? "of " + Math.round(sum("power_limit_w", drawn)) : "", sum("power_w") / sum("power_limit_w", drawn))
      + (hot ? tile("hottest", hot.temperature_c + " °C", "GPU " + hot.index, hot.temperature_c / hot.slowdown_c, hot.temperature_c >= hot.slowdown_c ? "bad" : hot.temperature_c >= hot.slowdown_c - 5 ? "warn" : "") : "") : "")
    + tile("CPU", percent(h.cpu_percent), has(h.cpus) ? `of ${h.cpus} core${h.cpus === 1 ? "" : "s"}` : "", h.cpu_percent / 100)
    + tile("memory", has(h.memory_used_bytes) ? num(h.memory_used_bytes / 1e9) : "–", "of " + bytes(h.memory_total_bytes), h.memory_used_bytes / h.memory_total_bytes);
}
const put = (node, html) => { if (node.dataset.html !== html) { node.innerHTML = html; node.dataset.html = html; } };
function show() {
  const h = sample.host;
  $("host").textContent = h.name;
  document.title = h.name + " · tandem monitor";
  if (!sample.time) { $("machine").textContent = "The first look is under way."; return; }
  $("machine").textContent = [sample.driver ? "driver " + sample.driver + (sample.driver_note ? " (" + sample.driver_note + ")" : "") : "", has(h.load) ? "load " + h.load.toFixed(2) : "",
    sample.history_trouble ? "history: " + sample.history_trouble : ""].filter(Boolean).join(" · ");
  put($("tiles"), tiles(sample));
  put($("gpus"), sample.gpus.map(gpuCard).join("") || `<div class="card empty soft"><b>No GPU</b>${escape(sample.gpu_trouble || "the driver knows of none")}. <span class="mono">tandem doctor</span> tells more.</div>`);
  put($("runs"), (sample.runs.map(runCard).join("") || `<div class="card empty soft"><b>No run is going on</b><span class="mono">tandem train tiny</span> starts one; it appears here by itself.</div>`)
    + (sample.runs_left_out ? `<div class="card soft">and ${sample.runs_left_out} more</div>` : ""));
}

// ---- live
let came = performance.now(), lost = 0, refused = false;   // when the last sample came; since when there is no connection
function said(text, level) { $("link").textContent = text; $("link").className = "pill " + level; }
function warn(text, level) {
  $("banner").hidden = !text;
  if ($("banner").textContent !== text) $("banner").textContent = text;
  $("banner").className = level;
  document.documentElement.classList.toggle("old", Boolean(text));
}
function look() {
  const waited = (performance.now() - came) / 1000, from = sample.time ? ` What you see is from ${clock(sample.time)}.` : "";
  if (refused) warn("The monitor refuses this page: it was started again, with another token. Open the address that it printed." + from, "bad");
  else if (lost) warn(`No connection to the monitor for ${duration((performance.now() - lost) / 1000)}: it has ended, or the way to it (ssh) is cut.${from} The page goes on by itself once it is back.`, "bad");
  else if (sample.time && waited > 5 + (sample.interval_s || 1)) {
    said(`no news for ${duration(waited)}: the driver does not answer`, "warn");
    warn(`The driver has not answered for ${duration(waited)}.${from} See whether nvidia-smi hangs too.`, "warn");
  } else warn("", "");
}
setInterval(look, 1000);
function listen() {
  const source = new EventSource("/live");
  source.onmessage = (event) => {
    const next = JSON.parse(event.data);
    if (!next.time) return;
    const back = lost;
    lost = 0; refused = false;
    sample = next;
    remember(sample);
    came = performance.now();
    said(clock(sample.time), "good");
    document.documentElement.dataset.samples = Number(document.documentElement.dataset.samples || 0) + 1;
    show();
    if (back) { look(); load(); }   // what was measured meanwhile
    else if (range[2] === 1 || Math.floor(sample.time) % range[2] === 0 || !$("charts").dataset.ids) drawAll();
  };
  source.onerror = async () => {
    lost ||= performance.now();
    said("no connection", "bad");
    look();
    if (source.readyState !== EventSource.CLOSED) return;   // the browser tries again
    let status = 0;
    try { status = (await fetch("/sample.json")).status; } catch { /* nobody there */ }
    refused = status === 401 || status === 403;
    if (refused) said("refused", "bad");
    look();
    setTimeout(listen, refused ? 10000 : 2000);
  };
}
put($("ranges"), RANGES.map(([name]) => `<button>${name}</button>`).join(""));
const buttons = [...$("ranges").children];
const choose = (i) => { range = RANGES[i]; store = {}; buttons.forEach((b, j) => b.setAttribute("aria-pressed", j === i)); drawAll(); load(); };
buttons.forEach((b, i) => { b.onclick = () => choose(i); });
new ResizeObserver(() => drawAll()).observe($("page"));
said("connecting", "");
document.documentElement.dataset.theme = wanted() || (dark.matches ? "dark" : "light");
show();
remember(sample);
requestAnimationFrame(() => setTimeout(() => { choose(0); listen(); }));   // the figures are painted before the charts are made
})();
