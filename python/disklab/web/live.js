// Draws the state of a run each time that the server sends it. Nothing is kept between two states
// but the elements themselves, and every text is set as text: names come from files of others.

const SVG = "http://www.w3.org/2000/svg";
// The token came with the address. It stays in this tab, at this port, and goes along with every
// request of this page; a cookie would go to every port of this machine.
function kept() {
  const address = new URL(location.href), given = address.searchParams.get("token");
  if (given !== null) {
    sessionStorage.setItem("token", given);
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }
  return sessionStorage.getItem("token") || "";
}
const TOKEN = kept();
const ask = (address, options = {}) =>
  fetch(address, { ...options, headers: { ...options.headers, authorization: `Bearer ${TOKEN}` } });
const seconds = (count) => new Promise((done) => setTimeout(done, count * 1000));

const main = document.getElementById("main");
const link = document.getElementById("link");

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "onclick") made.addEventListener("click", value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((one) => one !== null && one !== undefined));
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const rounded = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
const rate = (value) => (value === null || value === undefined ? "–" : `${rounded(value)}/s`);
function latency(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return `${rounded(ms * 1000)} µs`;
  return ms < 1000 ? `${rounded(ms)} ms` : `${rounded(ms / 1000)} s`;
}
function time(seconds) {
  const whole = Math.max(Math.round(seconds), 0);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

const STATUS = {
  running: "running", paused: "paused", ended: "finished", unknown: "no events stored",
  stopped: "stopped; go on with disklab rehearse --resume",
};

function course(points) {
  const width = 900, height = 220, left = 64, right = 64, top = 12, bottom = 24;
  const svg = drawn("svg", { class: "course", viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(drawn("title", {}, "Rate and, where it is known, 99th percentile of what was measured, over time"));
  const from = points[0][0], span = Math.max(points[points.length - 1][0] - from, 1);
  const x = (t) => left + ((t - from) / span) * (width - left - right);
  for (const [index, kind] of [[1, "rate"], [2, "tail"]]) {
    if (!points.some((one) => one[index] !== null)) continue;
    const axis = axisOf(points.map((one) => one[index] || 0), { most: 4 });
    const y = (value) => height - bottom - axis.at(value) * (height - top - bottom);
    let path = "", pen = "M";
    for (const one of points) {
      if (one[index] === null) { pen = "M"; continue; }
      path += `${pen}${x(one[0]).toFixed(1)} ${y(one[index]).toFixed(1)}`;
      pen = "L";
    }
    for (const value of axis.ticks) {
      const at = y(value), shown = index === 1 ? rate(value) : latency(value);
      if (index === 1) svg.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at }));
      svg.append(drawn("text", index === 1
        ? { x: left - 6, y: at + 4, "text-anchor": "end" }
        : { x: width - right + 6, y: at + 4 }, shown));
    }
    svg.append(drawn("path", { class: kind, d: path || "M0 0" }));
  }
  svg.append(drawn("text", { x: left, y: height - 6 }, new Date(from * 1000).toLocaleTimeString()));
  svg.append(drawn("text", { x: width - right, y: height - 6, "text-anchor": "end" },
    new Date((from + span) * 1000).toLocaleTimeString()));
  return svg;
}

function table(heads, rows) {
  const cell = (name, value) => {
    const number = value && value.number;
    return element(name, number ? { class: "n" } : (value && value.class ? { class: value.class } : {}),
      value && typeof value === "object" && !(value instanceof Node) ? value.text : value);
  };
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((one) => cell("th", one)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((one) => cell("td", one)))))));
}
const n = (text) => ({ text, number: true });

function bar(share) {
  const svg = drawn("svg", { width: "100%", height: "100%", viewBox: "0 0 100 10", preserveAspectRatio: "none" });
  svg.append(drawn("rect", { x: 0, y: 0, width: Math.min(Math.max(share, 0), 1) * 100, height: 10 }));
  return element("span", { class: share >= 0.95 ? "bar full" : "bar" }, svg);
}

function disks(seen) {
  const volumes = {}, limits = [];
  for (const [key, value] of Object.entries(seen)) {
    const [source, metric] = [key.slice(0, key.indexOf(": ")), key.slice(key.indexOf(": ") + 2)];
    if (source.startsWith("disk ")) (volumes[source.slice(5)] = volumes[source.slice(5)] || {})[metric] = value;
    if (source.startsWith("emulator ") && metric.startsWith("utilisation "))
      limits.push([source.slice(9), metric.slice(12), value, seen[`${source}: credits_ratio ${metric.slice(12)}`]]);
  }
  const parts = [];
  const names = Object.keys(volumes).sort();
  if (names.length) parts.push(element("h2", {}, "Disks"), table(
    ["volume", n("reads"), n("writes"), n("MB/s read"), n("MB/s written")],
    names.map((name) => [name, ...["read_iops", "write_iops"].map((one) => n(rate(volumes[name][one]))),
      ...["read_bytes_per_s", "write_bytes_per_s"].map((one) => n(rounded((volumes[name][one] || 0) / 1e6)))])));
  limits.sort((a, b) => b[2] - a[2]);
  if (limits.length) parts.push(element("h2", {}, "Limits, the fullest first"), table(
    ["volume", "limit", "in use", n(""), n("burst credits left")],
    limits.slice(0, 12).map(([volume, name, used, credits]) => [volume, name, bar(used),
      n(`${Math.round(used * 100)} %`), n(credits === undefined ? "–" : `${Math.round(credits * 100)} %`)])));
  return parts;
}

// What had the focus keeps it, though its element is a new one: somebody without a mouse is there.
function put(...parts) {
  const had = document.activeElement;
  const named = (one) => `${one.getAttribute("href")} ${one.textContent}`;
  const place = main.contains(had) ? named(had) : null;
  main.replaceChildren(...parts.filter(Boolean));
  if (place === null) return;
  for (const one of main.querySelectorAll("a, button")) if (named(one) === place) { one.focus(); return; }
}

async function leave(run, wanted) {
  const answer = await ask(`/api/runs/${encodeURIComponent(run)}/after-trial`,
    { method: "POST", headers: { "x-disklab": "1" }, body: wanted });
  if (!answer.ok) link.textContent = await answer.text();
}

function buttons(state) {
  if (!["running", "paused"].includes(state.status) || state.mode !== "rehearse") return null;
  const made = (text, wanted) => element("button", { type: "button", onclick: () => leave(state.id, wanted) }, text);
  const wish = { pause: "Pauses after this trial. ", stop: "Stops after this trial. " }[state.wish] || "";
  const shown = state.wish === "go-on"
    ? [made("Pause after this trial", "pause"), made("Stop after this trial", "stop")]
    : [made("Go on", "go-on"), state.wish === "pause" ? made("Stop after this trial", "stop") : null];
  return element("p", {}, state.status === "paused" ? "Paused. " : wish, ...shown.filter(Boolean));
}

function card(name, value) {
  return element("div", { class: "card" }, element("span", {}, name), element("b", {}, value));
}

function show(state) {
  const now = state.now || {}, load = now.load || {};
  const running = state.status === "running" || state.status === "paused";
  const counts = Object.entries(state.counts).map(([name, count]) => `${count} ${name}`).join(", ");
  const parts = [
    element("h1", {}, state.title || state.id),
    element("p", { class: "quiet" }, `${state.mode} · ${STATUS[state.status] || state.status} · ${state.id}`),
  ];
  if (state.problem) parts.push(element("p", {}, `Its events: ${state.problem}`));
  document.title = `${running && state.left_s !== null ? time(state.left_s) + " left · " : ""}${state.title || state.id}`;
  if (running) {
    parts.push(element("p", {}, now.position ? `Trial ${now.position} of ${now.of}: ${now.name}. ` : "",
      now.phase ? `${now.phase}${now.detail ? ": " + now.detail : ""}` : ""));
    parts.push(element("div", { class: "cards" },
      card("time left", state.left_s === null ? "–" : `about ${time(state.left_s)}`),
      card("operations", rate(load.ops_per_s)), card("99th percentile", latency(load.p99_ms)),
      card("errors", String(load.errors || 0)), card("done", counts || "none yet")));
  } else parts.push(element("p", {}, counts ? `Trials: ${counts}.` : ""));
  if (state.report) parts.push(element("p", {}, element("a", { href: state.report }, "Open the report")));
  parts.push(buttons(state));
  if (state.warnings.length) parts.push(element("h2", {}, "Warnings"),
    element("ul", {}, ...state.warnings.map((one) => element("li", {}, one))));
  // fio tells its percentiles at its end only.
  const tails = state.course.some((one) => one[2] !== null);
  if (state.course.length > 1) parts.push(
    element("h2", {}, tails ? "Rate (line, left) and 99th percentile (dashed, right)" : "Rate"), course(state.course));
  if (running) parts.push(...disks(state.seen));
  if (state.trials.length) parts.push(element("h2", {}, "Trials"), table(
    ["trial", "", n("operations"), n("p50"), n("p99"), "remarks"],
    state.trials.slice().reverse().map((one) => [one.name, { text: one.status, class: one.status },
      n(rate(one.ops_per_s)), n(latency(one.p50_ms)), n(latency(one.p99_ms)), one.why.join("; ")])));
  put(...parts);
}

class Locked extends Error {}

// What an answer tells; without the token there is none, and asking again changes nothing.
async function content(answer) {
  if (answer.status === 403) throw new Locked(await answer.text());
  return answer.json();
}

function lock(error) {
  link.textContent = "";
  put(element("p", {}, error.message));
}

// Server-sent events, which a browser's own reader asks for without headers.
async function* events(answer) {
  if (answer.status === 403) throw new Locked(await answer.text());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n\n");
    rest = whole.pop();
    for (const one of whole)
      for (const line of one.split("\n")) if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
  }
}

async function follow(run) {
  for (;;) {
    try {
      for await (const state of events(await ask(`/api/runs/${run}/events`))) {
        link.textContent = "live";
        show(state);
      }
    } catch (error) {
      if (error instanceof Locked) return lock(error);
    }
    link.textContent = "connection lost; trying again";
    await seconds(1);
  }
}

async function list() {
  try {
    const runs = await content(await ask("/api/runs"));
    link.textContent = "";
    if (runs.length === 1) { location.replace(`/runs/${encodeURIComponent(runs[0].id)}`); return; }
    const rows = runs.map((one) => [
      element("a", { href: `/runs/${encodeURIComponent(one.id)}` }, one.title || one.id), one.mode,
      one.began ? one.began.slice(0, 16).replace("T", " ") : "",
      { text: one.problem || STATUS[one.status] || one.status, class: one.status === "ended" ? "ok" : "" },
      n(one.left_s === null ? "–" : time(one.left_s)),
      Object.entries(one.counts).map(([name, count]) => `${count} ${name}`).join(", ")]);
    put(element("h1", {}, "Runs"),
      runs.length ? table(["run", "mode", "began, UTC", "", n("left"), "trials"], rows)
        : element("p", {}, "No runs here yet: disklab predict FILE makes one in seconds."));
  } catch (error) {
    if (error instanceof Locked) return lock(error);
    link.textContent = "connection lost; trying again";
  }
  setTimeout(list, 3000);
}

// The simulator's page, or how to have one.
async function linkKnob() {
  const answer = await ask("/api/knob");
  if (!answer.ok) return;
  const { address } = await answer.json();
  const how = "Turn the knob: run disklab knob once, which builds it";
  document.querySelector("header a").after(address ? element("a", { href: address }, "Turn the knob") : element("span", { class: "quiet" }, how));
}

linkKnob().catch(() => {});
const path = location.pathname.match(/^\/runs\/([^/]+)$/);
if (path) follow(path[1]); else list();
