// Single I/Os as the simulator had them, in slow motion: what each waits for, and what serves it.
const MOST_IOS = 240, LISTED = 25, MEDIAN_S = 1.5;
const GATE = 440, LEFT = 14, RIGHT = 886, EACH = 11, ROW = 38, HEAD = 22, ROOM = 'room in the host cache';
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const replay = {sides: {}, playing: !calm.matches, at: 0, last: 0};

// The same job as a sketch, which tells I/Os from its middle on one by one.
const journalJob = (job, {elapsed_s}) => ({...fidelity(job, 'sketch'), journal: {from_ns: Math.round(elapsed_s * 5e8), most: MOST_IOS}});

const middle = (numbers) => [...numbers].sort((x, y) => x - y)[numbers.length >> 1] ?? 0;
const isCached = ({route}) => route === 'hit' || route === 'write-back';
const waitsAt = (io, ms) => io.waits.find(([, from, to]) => from <= ms && ms < to)?.[0] ?? ROOM;

// `journal`: of the simulator's answer; null: it has not come, or there is none.
function showPicture(side, journal) {
  if (replay.sides[side]?.journal === journal) return;
  const ios = (journal ?? []).map((io) => ({
    ...io, arrived: io.arrived_ns / 1e6, passed: io.passed_ns / 1e6, ended: io.ended_ns / 1e6,
    waits: io.waits.map(([limit, from, to]) => [limit, from / 1e6, to / 1e6]),
  }));
  // It begins when the first of them ends: those that came before the list are over then.
  const first = Math.min(...ios.map(({ended}) => ended)), last = ios.at(-1)?.arrived ?? 0;
  const [from, to] = first < last ? [first, last] : [ios[0]?.arrived ?? 0, Math.max(...ios.map(({ended}) => ended))];
  const names = ios.flatMap((io) => [...io.waits.map(([limit]) => limit), ...(io.waits.length || io.passed === io.arrived ? [] : [ROOM])]);
  replay.sides[side] = {journal, ios, from, length: Math.max(to - from, 1e-6), limits: [...new Set(names)]};
  redrawn();
}

const shownSides = () => Object.entries(replay.sides).filter(([, {ios}]) => ios.length);
const longest = () => Math.max(...shownSides().map(([, {length}]) => length), 1e-6);
// Milliseconds of the system's in a second of the reader's.
const clockOf = () => Math.max(Math.min(...shownSides().map(([, {ios}]) => middle(ios.map(({arrived, ended}) => ended - arrived)))), 1e-3) / MEDIAN_S;

function redrawn() {
  const sides = shownSides(), svg = drawn('svg', {viewBox: '0 0 900 10'});
  let y = 0;
  for (const [side, own] of sides) {
    own.y = y;
    y += HEAD + ROW * Math.max(2, own.limits.length) + 10;
    svg.append(...stagesOf(side, own));
    for (const io of own.ios) svg.append(io.dot = drawn('circle', {r: 5, class: `dot ${side}${io.route.startsWith('w') || io.route === 'destage' ? ' writes' : ''}`}));
  }
  svg.setAttribute('viewBox', `0 0 900 ${Math.max(y, 10)}`);
  document.getElementById('clock').textContent = sides.length
    ? `1 ms here takes ${shown(1 / clockOf())} s. Each dot is an I/O of the first node's disks as it was simulated; hollow ones write.` : '';
  document.getElementById('ios').replaceChildren(...Object.entries(replay.sides).map(([side, own]) => made('li', {}, `${side.toUpperCase()}: ${summaryOf(own)}`)));
  document.getElementById('picture').replaceChildren(...(sides.length ? [figureOf(svg, "I/Os waiting for limits, left, and served by the host cache or by disks, right.", tableOf(
    `The first ${LISTED} of each, in milliseconds`, ['I/O', 'came', 'waited for', 'waited', 'served by', 'served'], sides.flatMap(([side, own]) => rowsOf(side, own))))] : []));
  drawAll();
}

function stagesOf(side, own) {
  const {limits, y} = own, high = ROW * Math.max(2, limits.length), binds = limits.length > 0;
  own.labels = new Map(limits.map((name, row) => [name, drawn('text', {x: LEFT, y: y + HEAD + row * ROW + 13}, name)]));
  return [
    drawn('text', {x: LEFT - 6, y: y + 14, class: 'ink'}, `${side.toUpperCase()}: ${binds ? 'queue at' : 'no I/O waits for a limit'}`), drawn('text', {x: GATE + 12, y: y + 14, class: 'ink'}, 'served by'),
    drawn('rect', {x: LEFT - 6, y: y + HEAD, width: GATE - LEFT, height: high, rx: 6, class: `stage${binds ? ' binds' : ''}`}),
    drawn('rect', {x: GATE + 6, y: y + HEAD, width: RIGHT - GATE, height: high, rx: 6, class: 'stage'}),
    ...own.labels.values(), ...['host cache', 'disks'].map((name, row) => drawn('text', {x: GATE + 12, y: y + HEAD + row * ROW + 13}, name)),
  ];
}

function summaryOf({journal, ios, length}) {
  if (journal === null) return 'its I/Os come when the knobs rest.';
  if (!ios.length) return 'no I/O reached a disk: memory had everything.';
  const group = (list, name) => (list.length ? `${list.length} by ${name} (${shown(middle(list.map(({passed, ended}) => ended - passed)))} ms in the median)` : '');
  const served = [group(ios.filter(isCached), 'the host cache'), group(ios.filter((io) => !isCached(io)), 'disks')].filter(Boolean).join(', ');
  const waits = new Map();
  for (const io of ios) if (io.passed > io.arrived) { const limit = io.waits.at(-1)?.[0] ?? ROOM; waits.set(limit, [...(waits.get(limit) ?? []), io]); }
  const held = [...waits].map(([limit, list]) => `${list.length} waited for ${limit} (${shown(middle(list.map(({arrived, passed}) => passed - arrived)))} ms in the median)`);
  return `${ios.length} I/Os within ${shown(length)} ms: served ${served}; ${held.join(', ') || 'none waited for a limit'}.`;
}

function rowsOf(side, {ios}) {
  return ios.slice(0, LISTED).map((io, index) => [
    `${side.toUpperCase()} ${index + 1}: ${io.route}, ${shown(io.bytes / 1024)} KiB, ${io.disk}`, shown(io.arrived - ios[0].arrived),
    [...new Set(io.waits.map(([limit]) => limit))].join(', ') || (io.passed > io.arrived ? ROOM : '-'), shown(io.passed - io.arrived),
    isCached(io) ? 'host cache' : io.disk, shown(io.ended - io.passed),
  ]);
}

function drawAll() {
  for (const [, own] of shownSides()) drawAt(own, own.from + replay.at % own.length);
  const moment = document.getElementById('moment');
  moment.max = longest();
  moment.value = replay.at;
}

// Puts each dot where its I/O is at a time: those that wait in a row before the gate, the others on their way to their end.
function drawAt({ios, limits, labels, y}, ms) {
  const waiting = new Map(limits.map((name) => [name, 0]));
  for (const io of ios) {
    const under = io.arrived <= ms && ms < io.ended;
    io.dot.setAttribute('visibility', under ? 'visible' : 'hidden');
    if (!under) continue;
    let x = GATE + 18 + (RIGHT - GATE - 30) * (ms - io.passed) / (io.ended - io.passed), row = isCached(io) ? 0 : 1;
    if (ms < io.passed) {
      const limit = waitsAt(io, ms), rank = waiting.get(limit) ?? 0;
      waiting.set(limit, rank + 1);
      [x, row] = [Math.max(LEFT + 4, GATE - 18 - rank * EACH), limits.indexOf(limit)];
    }
    io.dot.setAttribute('cx', x);
    io.dot.setAttribute('cy', y + HEAD + row * ROW + 26);
  }
  for (const [name, label] of labels) label.textContent = `${name}: ${waiting.get(name)} wait`;
}

function frame(now) {
  const passed = Math.min(100, now - replay.last) / 1000 * clockOf();
  replay.last = now;
  if (replay.playing && shownSides().length) {
    replay.at = (replay.at + passed) % longest();
    drawAll();
  }
  requestAnimationFrame(frame);
}

function startPicture() {
  const button = document.getElementById('play'), moment = document.getElementById('moment');
  const tell = () => { button.textContent = replay.playing ? 'Pause' : 'Play'; };
  button.addEventListener('click', () => { replay.playing = !replay.playing; tell(); });
  moment.addEventListener('input', () => {
    Object.assign(replay, {playing: false, at: Number(moment.value)});
    moment.setAttribute('aria-valuetext', `${shown(replay.at)} ms`);
    tell();
    drawAll();
  });
  tell();
  requestAnimationFrame(frame);
}
