// The page: scenes, or two choices, their answers, and the address that holds both.
const SIDES = ['a', 'b'];
const IDLE_MS = 250;  // after the last turn, before an answer is refined
const state = {offer: null, a: null, b: null, answers: {}, turn: 'threads', at: null, preset: null, promise: 0, round: 0, view: 'scene'};
const get = (id) => document.getElementById(id);

// A simulator that answers one question after the other; what is out of date is dropped.
class Lane {
  // `address`: of the worker's text.
  constructor(module, address) { Object.assign(this, {module, address, waiting: [], current: null, number: 0}); this.begin(); }

  begin() {
    this.worker = new Worker(this.address);
    this.worker.onmessage = ({data}) => this.answered(data);
    this.worker.postMessage({module: this.module});
  }

  ask(job) { return new Promise((resolve) => { this.waiting.push({job, resolve}); this.next(); }); }

  next() {
    if (this.current || !this.waiting.length) return;
    this.current = this.waiting.shift();
    this.worker.postMessage({number: this.number += 1, text: JSON.stringify({cell: 0, seed: 1, ...this.current.job})});
  }

  answered({number, text, failure, bytes = 0}) {
    if (!this.current || number !== this.number) return;
    const {resolve} = this.current;
    this.bytes = bytes;  // of the module's memory
    this.current = null;
    resolve(failure ? {event: 'failed', failure} : JSON.parse(text));
    this.next();
  }

  // Ends what is under way too: nobody waits for it any more.
  drop() {
    this.waiting = [];
    if (this.current) { this.worker.terminate(); this.current = null; this.begin(); }
  }
}

async function unpacked(id) {
  const packed = Uint8Array.from(atob(get(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
}

// What the form asks, by what is simulated: key, label, kind, databases, when, and what the word means.
const ROWS = ['cassandra', 'postgresql', 'mariadb', 'mysql'], NOT_FIO = [...ROWS, 'yugabytedb'];
const vendorOf = (name) => name.split('/')[0];
const disksOf = ({disks}, {vm, disk}) => {
  const own = Object.keys(disks).filter((name) => vendorOf(name) === vendorOf(vm)).sort((x, y) => disks[y].has.iops - disks[x].has.iops);
  const kept = disk in disks && !own.includes(disk) ? [[disk, `${disk} (not for this VM)`]] : [];
  return [...kept, ...own, ['nvme', "the VM's own NVMe"], ['local', "the VM's temporary disk"]];
};
const FIELDS = [
  ['engine', 'Database', (offer) => [...Object.entries(offer.engines).map(([key, {title}]) => [key, title]), ['fio', 'none: fio alone']], null, null, 'What reads and writes. fio is a test program that uses the disk by itself.'],
  ['vm', 'VM size', 'search', null, null, 'The machine of each server; it has a limit of its own for disks. Type a part of the name.'],
  ['disk', 'Disk', disksOf, null, null, "A cloud disk is reached over the network and outlives the VM. The VM's own disks are faster, and empty once it stops."],
  ['count', 'Disks a server', 1, null, null, 'Several are used as one (striped): their speeds add up.'],
  ['threads', 'Threads', 'range', NOT_FIO, null, 'Clients that each wait for an answer before they ask again.'],
  ['depth', 'Queue depth', 1, ['fio'], null, 'Requests that each job keeps under way.'],
  ['nodes', 'Servers', 1, NOT_FIO, null, 'That hold the data together (nodes).'], ['copies', 'Copies of a row', 1, ['cassandra', 'yugabytedb'], null, 'On how many servers each row is kept.'],
  ['size', 'GiB a disk', 1, null, (offer, {disk}) => offer.disks[disk]?.has.size, 'The size that is bought.'],
  ['iops', 'IOPS a disk', 'range', null, (offer, {disk}) => offer.disks[disk]?.has.iops, 'Requests a second that are bought. 0: what is included.'],
  ['mbps', 'MB/s a disk', 0, null, (offer, {disk}) => offer.disks[disk]?.has.mbps, 'Megabytes a second that are bought. 0: what is included.'],
  ['caching', 'Host caching', () => ['None', 'ReadOnly', 'ReadWrite'], null, null, 'Some VMs of Azure keep copies on the SSD of their host: ReadOnly of what is read, ReadWrite also of what is written, before it is safe.'],
  ['latency', 'Service times', (offer, {disk}) => [['', 'newest'], ...Object.keys(offer.disks[disk]?.latency ?? {}).filter((date) => date !== 'default')], null, null, 'Which published measurement says how long the disk takes for a request.'],
  ['log', 'Log on', () => [['data', 'the data disks'], ['local', "the VM's temporary disk"]], ROWS, null, 'Where the database writes first what must not be lost.'],
  ['rate', 'Rate a second', 0, ROWS, null, 'Requests that come whether or not earlier ones are answered. 0: as fast as the threads.'],
  ['ahead', 'Read-ahead', () => [[-1, "the kernel's 128 KiB"], ...[0, 4, 8, 16, 32, 64, 128, 256, 512].map((kib) => [kib, `${kib} KiB`])], ROWS, null, 'What the kernel reads beyond what was asked for.'],
  ['rows', 'Rows (a table)', 1, NOT_FIO, null, 'How much data there is: beyond memory, reads go to the disk.'], ['columns', 'Columns', 1, ROWS, null, 'Of a row.'], ['bytes', 'Bytes a column', 1, ROWS, null, 'Of a row.'],
  ['read', 'Reads, %', 'range', ROWS, null, 'The rest writes.'], ['keys', 'Keys', () => ['uniform', 'gaussian', 'zipfian'], ROWS, null, 'Which rows are asked for: all alike (uniform), or a few far more often.'],
  ['slots', 'Read and write slots', 0, ['cassandra'], null, 'Requests that Cassandra works on at once. 0: its default.'],
  ['settings', 'Settings', (offer) => Object.keys(offer.engines.cassandra.settings).map((name) => [name, name || 'default']), ['cassandra'], null, "Cassandra's own, or those of a published study."],
  ['script', 'sysbench', (offer) => Object.keys(offer.engines.yugabytedb.answers), ['yugabytedb'], null, 'What a transaction does: ten reads of one row each, or one insert.'], ['tables', 'Tables', 1, ['yugabytedb'], null, 'Of sysbench, all alike.'],
  ['rw', 'Pattern', () => ['randread', 'randwrite', 'randrw', 'read', 'write', 'rw'], ['fio'], null, "In fio's words: rand is in random order, rw reads and writes by halves."],
  ['block', 'KiB a request', () => [4, 8, 16, 32, 64, 128, 256, 1024], ['fio'], null, 'How much is read or written at a time.'], ['jobs', 'Jobs', 1, ['fio'], null, 'Copies of fio that run side by side.'],
  ['memory', 'Page cache', () => ['cold', 'warm'], NOT_FIO, null, 'Whether memory holds data already when it begins (warm), or nothing (cold).'],
  ['cache', 'Host cache holds', () => [['empty', 'nothing'], ['written', 'what was written'], ['warm', 'all that fits']], null, null, 'What the SSD of the host holds when it begins.'],
  ['credits', 'Credits, %', 'range', null, null, 'How much of what was saved up for bursts is there when it begins.'],
  ['client', "Client's VM size", 'search', NOT_FIO, null, 'The machine that asks. Empty: one as the servers.'],
];
const FIRST = ['engine', 'vm', 'disk', 'count', 'threads', 'depth'];
const WORK = ['engine', 'read', 'rows', 'columns', 'bytes', 'keys', 'script', 'tables', 'rw', 'block'];
const RANGES = {threads: [1, 1024], read: [0, 100], credits: [0, 100], iops: [0, 80000]};
const TURNS = {
  threads: [8, 32, 64, 128, 256, 512], copies: [1, 3, 5], count: [1, 2, 4, 8], read: [0, 25, 50, 75, 100], credits: [0, 25, 50, 100], ahead: [0, 8, 16, 32, 64, 128, 256, 512],
  caching: ['None', 'ReadOnly'], iops: [3000, 5000, 10000, 20000, 40000], rate: [1000, 5000, 10000, 20000, 40000], depth: [1, 8, 32, 64, 256], tables: [10, 20, 30],
};
const labelOf = (key) => FIELDS.find(([name]) => name === key)[1];

const options = (list) => list.map((one) => (Array.isArray(one) ? one : [one, String(one)])).map(([value, text]) => made('option', {value}, text));
const asked = ([, , , engines, when], choice) => (!engines || engines.includes(choice.engine)) && (!when || when(state.offer, choice));

// A form with the fields that come first, and the rest behind a word; it stays open.
function formOf(side) {
  const form = get(`form-${side}`), focused = document.activeElement?.name, own = form.contains(document.activeElement), open = form.querySelector('details')?.open ?? false;
  const fields = FIELDS.filter((field) => asked(field, state[side])), labels = (list) => list.map((field) => labelled(side, field));
  const more = made('details', {open}, made('summary', {}, 'More'), made('div', {}, ...labels(fields.filter(([key]) => !FIRST.includes(key)))));
  form.replaceChildren(...labels(fields.filter(([key]) => FIRST.includes(key))), more);
  if (own && focused) [...form.querySelectorAll(`[name=${focused}]`)].at(0)?.focus();
}

function labelled(side, [key, label, kind, , , help]) {
  const value = state[side][key], id = `help-${side}-${key}`, told_ = {name: key, 'aria-describedby': id}, parts = [label];
  if (typeof kind === 'function') {
    const control = made('select', told_, ...options(kind(state.offer, state[side])));
    control.value = value;
    parts.push(control);
  } else if (kind === 'search') {
    parts.push(made('input', {...told_, type: 'search', list: 'vm-sizes', value, autocomplete: 'off', spellcheck: 'false'}));
  } else {
    parts.push(made('input', {...told_, type: 'number', min: kind === 'range' ? RANGES[key][0] : kind, step: 1, value: Number.isNaN(value) ? '' : value}));
  }
  if (kind === 'range') {
    const [min, max] = RANGES[key];
    parts.push(made('input', {name: key, type: 'range', min, max, value, 'aria-label': `${label}, as a slider`}));
  }
  return made('label', {}, ...parts, made('small', {id}, help));
}

// Nothing is changed but what was touched: what does not fit together is said, with the way out.
function turned(side, control) {
  const {name, value} = control, {vms} = state.offer;
  if ((name === 'vm' || name === 'client') && !(value in vms) && !(name === 'client' && !value)) {
    const many = Object.keys(vms).filter((size) => size.toLowerCase().includes(value.toLowerCase())).length;
    get(`help-${side}-${name}`).textContent = many ? `${many} sizes have this in their name: pick one.` : 'No size that we know has this in its name.';
    return;
  }
  state[side][name] = typeof USUAL[name] === 'number' ? (value === '' ? NaN : Number(value)) : value;
  for (const other of get(`form-${side}`).querySelectorAll(`[name=${name}]`)) if (other !== control) other.value = value;
  if (['engine', 'vm', 'disk'].includes(name)) formOf(side);
  if (name === 'engine') turnsOf();
  answer(side);
}

function turnsOf() {
  const able = Object.keys(TURNS).filter((key) => SIDES.some((side) => FIELDS.some((field) => field[0] === key && asked(field, state[side]))));
  if (!able.includes(state.turn)) { state.turn = able[0]; state.at = null; }
  get('turn').replaceChildren(...options(able.map((key) => [key, FIELDS.find((field) => field[0] === key)[1]])));
  get('turn').value = state.turn;
}

const fidelity = (job, name) => {
  if (name === 'quick' || !job.device) return {fidelity: name, ...job};
  // A device's run is cut short for a sketch.
  return {fidelity: name, device: {...job.device, fio: {...job.device.fio, runtime_ns: 1e9}}};
};

const jobFor = (choice) => (problemsOf(state.offer, choice).length ? null : jobOf(state.offer, choice));

async function answer(side) {
  const choice = state[side], round = state.round += 1, begun = performance.now();
  saved();
  state.refining.drop();
  const problems = problemsOf(state.offer, choice);
  state.answers[side] = {choice: {...choice}, problems, report: null, journal: null, refined: false, round, after: null};
  if (problems.length) { show(); refineSoon(); return; }
  const job = jobOf(state.offer, choice);
  const own = state.lanes[side];
  own.drop();
  const report = await own.ask(fidelity(job, 'sketch'));
  if (state.answers[side].round !== round) return;
  received(side, report);
  show();
  told(begun);
  refineSoon();
}

function received(side, report) {
  const own = state.answers[side];
  if (report.event === 'cell') Object.assign(own, {report, problems: []});
  else own.problems = report.reasons ?? [problem('simulator', '', `it ended: ${report.failure}`, 'turn a knob, or reload the page')];
}

function refineSoon() {
  clearTimeout(state.timer);
  state.timer = setTimeout(refine, IDLE_MS);
}

async function refine() {
  const round = state.round, lane = state.refining;
  const outdated = () => state.round !== round;
  if (SIDES.some((side) => !state.answers[side] || (!state.answers[side].report && !state.answers[side].problems.length))) { refineSoon(); return; }
  for (const side of SIDES) {
    if (state.answers[side].refined || !state.answers[side].report) continue;
    const job = jobOf(state.offer, state[side]);
    const watched = await lane.ask(journalJob(job, state.answers[side].report));
    if (outdated()) return;
    state.answers[side].journal = watched.journal ?? [];
    showPicture(side, state.answers[side].journal);
    const report = await lane.ask(fidelity(job, 'quick'));
    if (outdated()) return;
    received(side, report);
    state.answers[side].refined = true;
    if (report.credits?.some(({lasts_s}) => lasts_s !== null)) {
      const after = await lane.ask(fidelity(jobOf(state.offer, {...state[side], credits: 0}), 'sketch'));
      if (outdated()) return;
      state.answers[side].after = after.ops_per_s ?? null;
    }
    show();
  }
  const lines = await sweep(outdated, 'sketch');
  if (outdated()) return;
  document.body.dataset.refined = round;
  // A sketch lasts few windows of a throttle: a full one shows in the refined line.
  await sweep(outdated, 'quick', lines);
}

async function sweep(outdated, name, begun = SIDES.map((css) => ({css, points: [], published: []}))) {
  const places = state.at ?? TURNS[state.turn], lines = begun;
  const preset = state.preset !== null && state.offer.presets[state.preset];
  if (preset && preset.turn === state.turn) {
    for (const line of lines) {
      const {at = [], rate = []} = preset.published[line.css] ?? {};
      line.published = at.map((value, index) => [value, rate[index]]).filter(([, figure]) => figure);
    }
  }
  showSweep(lines, places, name);
  for (const value of places) {
    for (const line of lines) {
      const job = jobFor({...state[line.css], [state.turn]: value});
      const report = job && await state.refining.ask(fidelity(job, name));
      if (outdated()) return lines;
      if (report?.ops_per_s) line.points = [...line.points.filter(([place]) => place !== value), [value, report.ops_per_s]].sort(([x], [y]) => places.indexOf(x) - places.indexOf(y));
    }
    showSweep(lines, places, name);
  }
  return lines;
}

function showSweep(lines, places, name) {
  const published = lines.some((line) => line.published.length);
  const cell = (points, value) => { const point = points.find(([place]) => place === value); return point ? shown(point[1]) : ''; };
  const names = places.some((value) => typeof value === 'string') ? places : null;
  const rows = places.map((value) => [String(value), ...lines.map(({points}) => cell(points, value)), ...(published ? lines.map((line) => cell(line.published, value)) : [])]);
  const caption = `Operations a second as the knob is turned, A whole and B dashed; ${name === 'quick' ? 'quick fidelity, from the left' : 'sketches'}${published ? '; squares are published' : ''}.`;
  putFigure('sweep', figureOf(linesOf(lines, {xs: places, names, log: !names && isWide(places), unit: 'operations a second', across: labelOf(state.turn), wide: widthOf('sweep')}), caption, () => tableOf(
    'Operations a second', [get('turn').selectedOptions[0]?.text ?? state.turn, 'A', 'B', ...(published ? ['A, published', 'B, published'] : [])], rows)));
}

// What the page says.
const usd = (amount) => (amount === null ? 'not known' : `${Math.round(amount).toLocaleString('en')} USD`);
const ratio = (number) => (number >= 10 ? Math.round(number).toLocaleString('en') : number.toFixed(1));

// The simulator calls what binds `latency` where every limit has room.
const LIMITS = {
  'disk IOPS': "the disk's requests a second", 'disk MB/s': "the disk's megabytes a second", 'vm uncached IOPS': "the VM's requests a second to disks", 'vm uncached MB/s': "the VM's megabytes a second to disks",
  'vm cached IOPS': "the VM's requests a second to cached disks", 'vm cached MB/s': "the VM's megabytes a second to cached disks", 'node CPU': "the servers' processors", 'client CPU': "the client's processors",
};
const inWords = (resource) => LIMITS[resource.replace(/^data (?=disk )/, '')] ?? resource;
const bound = ({resource, utilisation: used}) => (resource === 'latency' ? 'no limit is reached: each request just takes its time' : used < 0.8 ? `nearest limit: ${inWords(resource)}, ${Math.round(used * 100)} % used` : `limited by ${inWords(resource)}`);

// What the two sides do differently: where there is any, their rates are no comparison of disks.
const otherWork = () => WORK.filter((key) => SIDES.some((side) => asked(FIELDS.find(([name]) => name === key), state[side])) && !Object.is(state.a[key], state.b[key]));

function sentence() {
  const able = SIDES.filter((side) => state.answers[side]?.report);
  if (!able.length) return 'Neither can be simulated: see what is wrong below.';
  const binds = able.map((side) => `${side.toUpperCase()}: ${bound(state.answers[side].report.bottleneck)}.`).join(' ');
  if (able.length < 2) return binds;
  const [a, b] = SIDES.map((side) => state.answers[side].report.ops_per_s), [first, second] = a >= b ? ['A', 'B'] : ['B', 'A'];
  const times_ = Math.max(a, b) / Math.min(a, b), other = otherWork();
  if (other.length) return `A and B do different work (${other.map((key) => labelOf(key).toLowerCase()).join(', ')}): their rates are not compared. ${binds}`;
  return `${times_ < 1.05 ? 'A and B are equally fast (within 5 %).' : `${first} serves ${ratio(times_)} times the operations of ${second}.`} ${binds}`;
}

const GROUPS = [['client, network', ['unsent', 'client', 'network']], ['processor, pauses', ['cpu', 'pause', 'overhead', 'retry']], ['slots', ['slots']], ['held by others', ['held']], ['limits', ['limits']], ['disk', ['disk']]];

function show() {
  get('says').textContent = sentence();
  for (const side of SIDES) {
    const problems = state.answers[side]?.problems ?? [];
    get(`problems-${side}`).replaceChildren(...problems.map(({place, value, rule, way_out}) => made('li', {}, `${place}: ${value}: ${rule}; ${way_out}`)));
  }
  showBrief();
  showAnswer();
  showTail();
  showCredits();
  showFile();
  for (const side of SIDES) if (state.answers[side]) showPicture(side, state.answers[side].journal);
}

function showBrief() {
  const row = (side) => {
    const {report, choice} = state.answers[side] ?? {};
    return [side.toUpperCase(), ...(report ? [shown(report.ops_per_s), `${shown(report.latency_ms.p99)} ms`, usd(priceOf(state.offer, choice))] : ['…', '…', '…'])];
  };
  get('brief').replaceChildren(tableOf('', ['', 'a second', '99 % within', 'a month'], SIDES.map(row)));
}

function showAnswer() {
  const of = (tell) => SIDES.map((side) => { const own = state.answers[side]; return own?.report ? tell(own.report, own) : '-'; });
  const ms = (percentile) => of(({latency_ms}) => `${shown(latency_ms[percentile])} ms`);
  const rows = [
    ['Operations a second', ...of(({ops_per_s}) => shown(ops_per_s))], ['Median', ...ms('p50')], ['95 % within', ...ms('p95')], ['99 % within', ...ms('p99')],
    ['What limits it', ...of(({bottleneck}) => `${bound(bottleneck)}${bottleneck.place ? `, ${bottleneck.place}` : ''}`)],
    ['Then', ...of(({resources}) => resources.slice(1, 3).map(({resource, utilisation}) => `${inWords(resource)} ${Math.min(100, Math.round(utilisation * 100))} %`).join(', '))],
    ['Price a month', ...of((_, {choice}) => usd(priceOf(state.offer, choice)))],
    ['After the credits', ...of((_, {after}) => (after === null ? '-' : `${shown(after)} a second`))],
  ];
  get('answer').replaceChildren(tableOf('Predicted', ['', 'A', 'B'], rows));
  const refined = SIDES.filter((side) => state.answers[side]?.refined).map((side) => side.toUpperCase());
  get('fidelity').textContent = refined.length ? `${refined.join(' and ')}: quick fidelity.` : 'A sketch, which is refined when you stop turning.';
  get('over').hidden = !state.promise;
  get('studies').hidden ||= Number(document.body.dataset.studies) !== state.promise;
  const able = SIDES.filter((side) => state.answers[side]?.report);
  const sides = able.map((side) => ({side: side.toUpperCase(), price: priceOf(state.offer, state[side]), p99: state.answers[side].report.latency_ms.p99}));
  get('buy').textContent = state.promise ? boughtOf(sides, state.promise) : '';
}

// Which of two sides to buy for a promise.
function boughtOf(sides, promise) {
  const [first, second] = sides.filter(({p99}) => p99 <= promise).sort((x, y) => (x.price ?? Infinity) - (y.price ?? Infinity));
  if (!first) return 'Neither keeps it.';
  if (second?.price === first.price) return `Both keep it for the same price (${usd(first.price)} a month).`;
  return `Buy ${first.side}: ${second ? 'the cheaper of two that keep it' : 'it alone keeps it'} (${usd(first.price)} a month).`;
}

// The promise over the studies: of each, the cheaper of its two sides that keeps it, at quick fidelity.
async function overStudies() {
  const {promise, offer} = state, number = state.studies = (state.studies ?? 0) + 1;
  state.lanes.studies ??= new Lane(state.module, state.address);
  const lane = state.lanes.studies, rows = [], outdated = () => state.studies !== number;
  lane.drop();
  get('studies').hidden = false;
  for (const preset of offer.presets) {
    const sides = [];
    for (const side of SIDES) {
      const choice = {...USUAL, ...preset.base, ...preset[side]}, job = jobFor(choice);
      const report = job && await lane.ask(fidelity(job, 'quick'));
      if (outdated()) return;
      sides.push({side: side.toUpperCase(), choice, price: priceOf(offer, choice), p99: report?.latency_ms?.p99 ?? Infinity});
    }
    rows.push([preset.name, boughtOf(sides, promise), ...sides.map(({choice, price, p99}) => `${written(offer, choice)} on ${choice.vm.split('/')[1]}${choice.caching === 'None' ? '' : `, ${choice.caching}`}: ${shown(p99)} ms, ${usd(price)}`)]);
    get('studies').replaceChildren(tableOf(`99 % within ${shown(promise)} ms`, ['Study', 'What to buy', 'A', 'B'], rows));
  }
  document.body.dataset.studies = promise;
}

function showTail() {
  const bars = SIDES.flatMap((side) => Object.entries(state.answers[side]?.report?.tail ?? {}).map(([percentile, parts]) => ({
    label: `${side.toUpperCase()} ${percentile}`, parts: GROUPS.map(([, names]) => names.reduce((sum, name) => sum + (parts[name] ?? 0), 0)),
  })));
  if (!bars.length) { get('tail').replaceChildren(made('p', {class: 'quiet'}, 'The model does not split these times.')); return; }
  const rows = bars.map(({label, parts}) => [label, ...parts.map((part) => `${shown(part)} ms`)]);
  putFigure('tail', figureOf(barsOf(bars, 'ms', widthOf('tail')), 'What the median, the 95th and the 99th percentile consist of.',
    () => tableOf('Milliseconds by stretch of the way', ['', ...GROUPS.map(([name]) => name)], rows)), keyOf(GROUPS.map(([name], index) => [`p${index}`, name])));
}

const HOURS = Array.from({length: 25}, (_, hour) => hour);

function showCredits() {
  const lines = [], rows = [];
  for (const side of SIDES) {
    const credits = state.answers[side]?.report?.credits ?? [];
    const tightest = credits.filter(({lasts_s}) => lasts_s !== null).sort((x, y) => x.lasts_s - y.lasts_s)[0] ?? credits[0];
    if (!tightest) continue;
    const begun = state.answers[side].choice.credits, hours = tightest.lasts_s === null ? Infinity : tightest.lasts_s / 3600;
    const left = (at) => Math.max(0, begun * (1 - at / hours)), at = hours < 24 ? [...HOURS, hours].sort((x, y) => x - y) : HOURS;
    lines.push({css: side, points: at.map((hour) => [hour, left(hour)])});
    rows.push([`${side.toUpperCase()}, ${tightest.place}`, hours === Infinity ? 'never' : `after ${shown(hours)} h`, ...[1, 4, 12, 24].map((hour) => `${Math.round(left(hour))} %`)]);
  }
  if (!lines.length) { get('credits').replaceChildren(made('p', {class: 'quiet'}, 'Neither has burst credits.')); return; }
  const chart = linesOf(lines, {xs: HOURS, unit: '% of the credits that run out first, under this load', across: 'hours', wide: widthOf('credits'), end: 100});
  putFigure('credits', figureOf(chart, 'Credits over the hours.', () => tableOf('Credits', ['', 'gone', '1 h', '4 h', '12 h', '24 h'], rows)));
}

function showFile() {
  const choice = state[get('whose').value];
  get('file').textContent = experimentOf(state.offer, choice);
  get('rehearse').textContent = choice.engine === 'yugabytedb' ? 'disklab rehearse does not run YugabyteDB' : 'disklab rehearse knob.yaml';
}

// The address holds what differs from the usual choice, or the scene.
function saved() {
  const address = new URLSearchParams();
  for (const side of SIDES) for (const [key, value] of Object.entries(state[side])) if (!Object.is(value, USUAL_OF[side][key])) address.set(`${side}.${key}`, value);
  address.set('turn', state.turn);
  if (state.promise) address.set('promise', state.promise);
  if (state.preset !== null) address.set('study', state.preset);
  history.replaceState(null, '', `#${address}`);
}

const USUAL_OF = {a: USUAL, b: {...USUAL, ...OTHER}};

// Whether a choice of the address is one that the page has.
function isKnown(side, key, given) {
  const {offer} = state, kind = FIELDS.find(([name]) => name === key)?.[2];
  if (kind === 'search') return given in offer.vms || (key === 'client' && !given);
  if (key === 'disk') return given in offer.disks || given === 'local' || given === 'nvme';
  if (typeof kind === 'function') return kind(offer, state[side]).some((entry) => String([entry].flat()[0]) === given);
  return kind !== undefined && given !== '' && Number.isFinite(Number(given));
}

function loaded() {
  const address = new URLSearchParams(location.hash.slice(1)), {offer} = state, unknown = [];
  for (const side of SIDES) {
    const own = [...address].filter(([key]) => key.startsWith(`${side}.`)).map(([key, value]) => [key.slice(2), value]);
    state[side] = {...(own.length || !address.has('study') ? USUAL_OF[side] : {...USUAL, ...offer.presets[address.get('study')]?.base, ...offer.presets[address.get('study')]?.[side]})};
    // The disk first: it decides which service times there are.
    for (const [key, given] of own.sort(([x], [y]) => (y === 'disk') - (x === 'disk'))) {
      if (isKnown(side, key, given)) state[side][key] = typeof USUAL[key] === 'number' ? Number(given) : given;
      else unknown.push(`${side}.${key}=${given}`);
    }
  }
  const number = (key, list) => { const at = Number(address.get(key) || NaN); if (address.has(key) && !list[at]) unknown.push(`${key}=${address.get(key)}`); return list[at] ? at : null; };
  const chosenScene = number('scene', offer.scenes);
  state.preset = number('study', offer.presets);
  state.promise = Math.max(0, Number(address.get('promise')) || 0);
  state.turn = address.get('turn') in TURNS ? address.get('turn') : 'threads';
  for (const [key, value] of address) if (!/^([ab]\.|own$|(scene|study|promise|turn)$)/.test(key)) unknown.push(value ? `${key}=${value}` : key);
  state.at = state.preset !== null && offer.presets[state.preset].turn === state.turn ? offer.presets[state.preset].at : null;
  get('promise').value = state.promise || '';
  get('notice').hidden = !unknown.length;
  get('notice').textContent = `This link asks for something that this page does not have: ${unknown.join(', ')}. The page shows its own example instead.`;
  tellStudy();
  opened(chosenScene === null && (address.size || unknown.length) ? 'own' : chosenScene ?? 0);
}

// Shows a scene by its number, or the form.
function opened(view) {
  state.view = view;
  state.round += 1;
  scene.round += 1;
  clearTimeout(state.timer);
  for (const lane of [...SIDES.map((side) => state.lanes[side]), state.refining]) lane.drop();
  document.body.dataset.view = view === 'own' ? 'own' : 'scene';
  for (const button of get('views').children) if (button.value === String(view)) button.setAttribute('aria-current', 'page'); else button.removeAttribute('aria-current');
  replay.sides = {};
  replay.fixed = null;
  if (view === 'own') began(); else openScene(view);
}

const tellStudy = () => {
  get('about').hidden = state.preset === null;
  get('about').textContent = state.preset === null ? '' : state.offer.presets[state.preset].about;
};

function presetChosen(number) {
  const preset = state.offer.presets[number];
  for (const side of SIDES) state[side] = {...USUAL, ...preset.base, ...preset[side]};
  Object.assign(state, {preset: number, turn: preset.turn, at: preset.at});
  tellStudy();
  began();
}

function began() {
  for (const side of SIDES) formOf(side);
  turnsOf();
  for (const side of SIDES) answer(side);
}

// How long a turn took to its answer, for whoever measures it.
function told(begun) {
  document.body.dataset.ms = (performance.now() - begun).toFixed(1);
  document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
}

async function start() {
  const [offered, bytes] = await Promise.all([unpacked('offer'), unpacked('module')]);
  state.offer = JSON.parse(new TextDecoder().decode(offered));
  const module = state.module = await WebAssembly.compile(bytes);
  const address = state.address = URL.createObjectURL(new Blob([get('worker').textContent], {type: 'text/javascript'}));
  state.lanes = Object.fromEntries(SIDES.map((side) => [side, new Lane(module, address)]));
  state.refining = new Lane(module, address);
  const button = (text, attributes, pressed) => { const element = made('button', {type: 'button', ...attributes}, text); element.addEventListener('click', pressed); return element; };
  const views = [...state.offer.scenes.map(({name}, number) => [name, number]), ['Now your own', 'own']];
  get('views').append(...views.map(([name, value]) => button(name, {value}, () => { history.replaceState(null, '', value === 'own' ? '#own' : `#scene=${value}`); loaded(); })));
  get('presets').append(...state.offer.presets.map(({name}, number) => button(name, {}, () => presetChosen(number))));
  get('vm-sizes').append(...Object.keys(state.offer.vms).map((value) => made('option', {value})));
  for (const side of SIDES) {
    const form = get(`form-${side}`);
    form.addEventListener('input', ({target}) => turned(side, target));
    form.addEventListener('submit', (event) => event.preventDefault());
  }
  get('skip').addEventListener('click', (event) => { event.preventDefault(); get('stage').focus(); });
  get('slide').addEventListener('input', ({target}) => turnScene(Number(target.value)));
  get('turn').addEventListener('change', ({target}) => { state.turn = target.value; state.at = null; saved(); state.round += 1; state.refining.drop(); refineSoon(); });
  get('promise').addEventListener('input', ({target}) => { state.promise = Number(target.value) || 0; saved(); showAnswer(); });
  get('over').addEventListener('click', overStudies);
  get('whose').addEventListener('change', showFile);
  get('copy').addEventListener('click', () => navigator.clipboard?.writeText(get('file').textContent));
  addEventListener('hashchange', loaded);
  startPicture();
  loaded();
}

start().catch((error) => { get('says').textContent = `The simulator does not start in this browser: ${error.message}`; });
