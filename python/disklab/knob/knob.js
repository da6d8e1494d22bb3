// The page: two choices, their answers, and the address that holds both.
const SIDES = ['a', 'b'];
const IDLE_MS = 250;  // after the last turn, before an answer is refined
const state = {offer: null, a: null, b: null, answers: {}, turn: 'threads', at: null, preset: null, promise: 0, round: 0};
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

// What the form asks, by what is simulated.
const ROWS = ['cassandra', 'postgresql'], NOT_FIO = [...ROWS, 'yugabytedb'];
const FIELDS = [
  ['engine', 'Database', (offer) => [...Object.entries(offer.engines).map(([key, {title}]) => [key, title]), ['fio', 'none: fio on a disk']]],
  ['vm', 'VM', (offer) => Object.keys(offer.vms), null, 'broad'],
  ['nodes', 'Nodes', 1, NOT_FIO], ['copies', 'Copies of a row', 1, ['cassandra', 'yugabytedb']],
  ['disk', 'Disk', (offer, {vm}) => [['local', 'local: temp disk'], ['nvme', 'nvme: local'], ...Object.keys(offer.disks).filter((name) => name.split('/')[0] === vm.split('/')[0])]],
  ['count', 'Disks', 1], ['size', 'GiB each', 1, null, '', (offer, {disk}) => offer.disks[disk] && !offer.disks[disk].size_gib.fixed],
  ['iops', 'IOPS each', 'range', null, 'broad', (offer, {disk}) => chosen(offer.disks[disk]?.iops)],
  ['mbps', 'MB/s each (0: included)', 0, null, '', (offer, {disk}) => chosen(offer.disks[disk]?.mb_per_s)],
  ['caching', 'Host caching', () => ['None', 'ReadOnly', 'ReadWrite']],
  ['latency', 'Service times', (offer, {disk}) => [['', 'newest'], ...Object.keys(offer.disks[disk]?.latency ?? {}).filter((date) => date !== 'default')]],
  ['log', 'Log on', () => [['data', 'the data disks'], ['local', 'the temp disk']], ROWS],
  ['threads', 'Threads', 'range', NOT_FIO, 'broad'], ['rate', 'Rate a second (0: as fast as the threads)', 0, ROWS],
  ['ahead', 'Read-ahead', () => [[-1, "the kernel's 128 KiB"], ...[0, 4, 8, 16, 32, 64, 128, 256, 512].map((kib) => [kib, `${kib} KiB`])], ROWS],
  ['rows', 'Rows (a table)', 1, NOT_FIO], ['columns', 'Columns', 1, ROWS], ['bytes', 'Bytes of each', 1, ROWS], ['read', 'Reads, %', 'range', ROWS],
  ['keys', 'Keys', () => ['uniform', 'gaussian', 'zipfian'], ROWS], ['slots', 'Read and write slots (0: usual)', 0, ['cassandra']],
  ['settings', 'Settings', (offer) => Object.keys(offer.engines.cassandra.settings).map((name) => [name, name || 'usual']), ['cassandra']],
  ['script', 'sysbench', (offer) => Object.keys(offer.engines.yugabytedb.transactions), ['yugabytedb']], ['tables', 'Tables', 1, ['yugabytedb']],
  ['rw', 'fio rw', () => ['randread', 'randwrite', 'randrw', 'read', 'write', 'rw'], ['fio']],
  ['block', 'KiB of an I/O', () => [4, 8, 16, 32, 64, 128, 256, 1024], ['fio']], ['jobs', 'Jobs', 1, ['fio']], ['depth', 'Depth', 1, ['fio']],
  ['memory', 'Page cache', () => ['cold', 'warm'], NOT_FIO], ['cache', 'Host cache holds', () => [['empty', 'nothing'], ['written', 'what was written'], ['warm', 'all that fits']]],
  ['credits', 'Credits, %', 'range'],
  ['client', "Client's VM", (offer) => [['', 'as the nodes'], ...Object.keys(offer.vms)], NOT_FIO, 'broad'],
];
const RANGES = {threads: [1, 1024], read: [0, 100], credits: [0, 100], iops: [0, 80000]};
const TURNS = {
  threads: [8, 32, 64, 128, 256, 512], copies: [1, 3, 5], count: [1, 2, 4, 8], read: [0, 25, 50, 75, 100], credits: [0, 25, 50, 100], ahead: [0, 8, 16, 32, 64, 128, 256, 512],
  caching: ['None', 'ReadOnly'], iops: [3000, 5000, 10000, 20000, 40000], rate: [1000, 5000, 10000, 20000, 40000], depth: [1, 8, 32, 64, 256], tables: [10, 20, 30],
};

const options = (list) => list.map((one) => (Array.isArray(one) ? one : [one, String(one)])).map(([value, text]) => made('option', {value}, text));
const asked = ([, , , engines, , when], choice) => (!engines || engines.includes(choice.engine)) && (!when || when(state.offer, choice));

// A form's select; the one that it has where the same is offered: a list of all VMs is a thousand elements.
function selectOf(form, name, list) {
  const offered = JSON.stringify(list), own = form.elements.namedItem(name);
  if (own?.offered === offered) return own;
  const control = made('select', {name}, ...options(list));
  control.offered = offered;
  return control;
}

function formOf(side) {
  const form = get(`form-${side}`), choice = state[side], focused = document.activeElement?.name, own = form.contains(document.activeElement);
  form.replaceChildren(...FIELDS.filter((field) => asked(field, choice)).map(([key, label, kind, , css]) => {
    const value = choice[key];
    let control;
    if (typeof kind === 'function') {
      control = selectOf(form, key, kind(state.offer, choice));
      control.value = value;
    } else {
      control = made('input', {name: key, type: 'number', min: kind === 'range' ? RANGES[key][0] : kind, step: 1, value: Number.isNaN(value) ? '' : value});
    }
    const parts = [label, control];
    if (kind === 'range') {
      const [min, max] = RANGES[key];
      parts.push(made('input', {name: key, type: 'range', min, max, value, 'aria-label': `${label}, as a slider`}));
    }
    return made('label', {class: css || null}, ...parts);
  }));
  if (own && focused) form.elements.namedItem(focused)?.focus?.();
}

function turned(side, control) {
  const number = typeof USUAL[control.name] === 'number';
  state[side][control.name] = number ? (control.value === '' ? NaN : Number(control.value)) : control.value;
  for (const other of get(`form-${side}`).querySelectorAll(`[name=${control.name}]`)) if (other !== control) other.value = control.value;
  if (['engine', 'vm', 'disk'].includes(control.name)) { settled(side); formOf(side); }
  if (control.name === 'engine') turnsOf();
  answer(side);
}

// A disk of another vendor, and dates that the disk does not have, go with the VM or the disk that is picked.
function settled(side) {
  const choice = state[side], vendor = choice.vm.split('/')[0];
  if (!isLocal(choice) && choice.disk.split('/')[0] !== vendor) choice.disk = Object.keys(state.offer.disks).find((name) => name.split('/')[0] === vendor);
  if (choice.disk === 'local') choice.count = 1;
  if (!(choice.latency in (state.offer.disks[choice.disk]?.latency ?? {}))) choice.latency = '';
  if (isLocal(choice)) choice.caching = 'None';
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
  const ms = performance.now() - begun;
  document.body.dataset.ms = ms.toFixed(1);
  document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
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
      line.published = at.map((value, index) => [places.indexOf(value), rate[index]]).filter(([place, value]) => place >= 0 && value);
    }
  }
  showSweep(lines, places, name);
  for (const [index, value] of places.entries()) {
    for (const line of lines) {
      const job = jobFor({...state[line.css], [state.turn]: value});
      const report = job && await state.refining.ask(fidelity(job, name));
      if (outdated()) return lines;
      if (report?.ops_per_s) line.points = [...line.points.filter(([place]) => place !== index), [index, report.ops_per_s]].sort(([x], [y]) => x - y);
    }
    showSweep(lines, places, name);
  }
  return lines;
}

function showSweep(lines, places, name) {
  const published = lines.some((line) => line.published.length);
  const cell = (points, index) => { const found = points.find(([place]) => place === index); return found ? shown(found[1]) : ''; };
  const rows = places.map((value, index) => [String(value), ...lines.map(({points}) => cell(points, index)), ...(published ? lines.map((line) => cell(line.published, index)) : [])]);
  const caption = `Operations a second as the knob is turned, A whole and B dashed; ${name === 'quick' ? 'quick fidelity, from the left' : 'sketches'}${published ? '; squares are published' : ''}.`;
  putFigure('sweep', figureOf(linesOf(lines, places, 'operations a second'), caption, () => tableOf(
    'Operations a second', [get('turn').selectedOptions[0]?.text ?? state.turn, 'A', 'B', ...(published ? ['A, published', 'B, published'] : [])], rows)));
}

// What the page says.
const usd = (amount) => (amount === null ? 'not known' : `${Math.round(amount).toLocaleString('en')} USD`);
const ratio = (number) => (number >= 10 ? Math.round(number).toLocaleString('en') : number.toFixed(1));

// The simulator calls what binds `latency` where every limit has room.
const bound = ({resource, utilisation}) => (resource === 'latency' ? 'no limit is full, latency decides' : `${utilisation < 0.8 ? 'nearest limit' : 'limited by'}: ${resource} (${Math.round(utilisation * 100)} % used)`);

function sentence() {
  const able = SIDES.filter((side) => state.answers[side]?.report);
  if (!able.length) return 'Neither can be simulated: see what is wrong below.';
  const one = (side) => {
    const {report} = state.answers[side];
    return `${side.toUpperCase()} does ${shown(report.ops_per_s)} a second, 99 % within ${shown(report.latency_ms.p99)} ms; ${bound(report.bottleneck)}.`;
  };
  if (able.length < 2) return one(able[0]);
  const [a, b] = SIDES.map((side) => state.answers[side].report.ops_per_s), [first, second] = a >= b ? ['A', 'B'] : ['B', 'A'];
  const times_ = Math.max(a, b) / Math.min(a, b);
  const lead = times_ < 1.05 ? 'A and B are equally fast (within 5 %).' : `${first} serves ${ratio(times_)} times the operations of ${second}.`;
  return `${lead} ${SIDES.map(one).join(' ')}`;
}

const GROUPS = [['client, network', ['unsent', 'client', 'network']], ['processor, pauses', ['cpu', 'pause', 'overhead', 'retry']], ['slots', ['slots']], ['held by others', ['held']], ['limits', ['limits']], ['disk', ['disk']]];

function show() {
  get('says').textContent = sentence();
  for (const side of SIDES) {
    const problems = state.answers[side]?.problems ?? [];
    get(`problems-${side}`).replaceChildren(...problems.map(({place, value, rule, way_out}) => made('li', {}, `${place}: ${value}: ${rule}; ${way_out}`)));
  }
  showAnswer();
  showTail();
  showCredits();
  showFile();
  for (const side of SIDES) if (state.answers[side]) showPicture(side, state.answers[side].journal);
}

function showAnswer() {
  const of = (tell) => SIDES.map((side) => { const own = state.answers[side]; return own?.report ? tell(own.report, own) : '-'; });
  const ms = (percentile) => of(({latency_ms}) => `${shown(latency_ms[percentile])} ms`);
  const rows = [
    ['Operations a second', ...of(({ops_per_s}) => shown(ops_per_s))], ['Median', ...ms('p50')], ['95 % within', ...ms('p95')], ['99 % within', ...ms('p99')],
    ['What binds', ...of(({bottleneck}) => `${bound(bottleneck)}${bottleneck.place ? `, ${bottleneck.place}` : ''}`)],
    ['Then', ...of(({resources}) => resources.slice(1, 3).map(({resource, utilisation}) => `${resource} ${Math.round(utilisation * 100)} %`).join(', '))],
    ['Price a month', ...of((_, {choice}) => usd(priceOf(state.offer, choice)))],
    ['After the credits', ...of((_, {after}) => (after === null ? '-' : `${shown(after)} a second`))],
  ];
  get('answer').replaceChildren(tableOf('Predicted', ['', 'A', 'B'], rows));
  const refined = SIDES.filter((side) => state.answers[side]?.refined).map((side) => side.toUpperCase());
  get('fidelity').textContent = refined.length ? `${refined.join(' and ')}: quick fidelity.` : 'A sketch; it is refined when the knobs rest.';
  const kept = SIDES.filter((side) => state.answers[side]?.report && state.answers[side].report.latency_ms.p99 <= state.promise)
    .sort((x, y) => (priceOf(state.offer, state[x]) ?? Infinity) - (priceOf(state.offer, state[y]) ?? Infinity));
  get('over').hidden = !state.promise;
  get('studies').hidden ||= Number(document.body.dataset.studies) !== state.promise;
  get('buy').textContent = !state.promise ? '' : kept.length ? `Buy ${kept[0].toUpperCase()}: the cheaper that keeps it (${usd(priceOf(state.offer, state[kept[0]]))} a month).` : 'Neither keeps it.';
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
    rows.push([preset.name, boughtOf(sides, promise), ...sides.map(({choice, price, p99}) => `${expressionOf(offer, choice)} on ${choice.vm.split('/')[1]}${choice.caching === 'None' ? '' : `, ${choice.caching}`}: ${shown(p99)} ms, ${usd(price)}`)]);
    get('studies').replaceChildren(tableOf(`99 % within ${shown(promise)} ms`, ['Study', 'What to buy', 'A', 'B'], rows));
  }
  document.body.dataset.studies = promise;
}

function boughtOf(sides, promise) {
  const kept = sides.filter(({p99}) => p99 <= promise).sort((x, y) => (x.price ?? Infinity) - (y.price ?? Infinity));
  if (!kept.length) return 'neither keeps it';
  return `${kept[0].side}${kept.length > 1 ? ', the cheaper of two that keep it' : ', which alone keeps it'}`;
}

function showTail() {
  const bars = SIDES.flatMap((side) => Object.entries(state.answers[side]?.report?.tail ?? {}).map(([percentile, parts]) => ({
    label: `${side.toUpperCase()} ${percentile}`, parts: GROUPS.map(([, names]) => names.reduce((sum, name) => sum + (parts[name] ?? 0), 0)),
  })));
  if (!bars.length) { get('tail').replaceChildren(made('p', {class: 'quiet'}, 'The model does not split these times.')); return; }
  const rows = bars.map(({label, parts}) => [label, ...parts.map((part) => `${shown(part)} ms`)]);
  putFigure('tail', figureOf(barsOf(bars, 'ms'), 'What the median, the 95th and the 99th percentile consist of.',
    () => tableOf('Milliseconds by stretch of the way', ['', ...GROUPS.map(([name]) => name)], rows)), keyOf(GROUPS.map(([name], index) => [`p${index}`, name])));
}

const HOURS = [0, 1, 2, 3, 4, 6, 8, 12, 24];

function showCredits() {
  const lines = [], rows = [];
  for (const side of SIDES) {
    const credits = state.answers[side]?.report?.credits ?? [];
    const tightest = credits.filter(({lasts_s}) => lasts_s !== null).sort((x, y) => x.lasts_s - y.lasts_s)[0] ?? credits[0];
    if (!tightest) continue;
    const begun = state.answers[side].choice.credits, hours = tightest.lasts_s === null ? Infinity : tightest.lasts_s / 3600;
    const left = (at) => Math.max(0, begun * (1 - at / hours));
    lines.push({css: side, points: HOURS.map((at, index) => [index, left(at)])});
    rows.push([`${side.toUpperCase()}, ${tightest.place}`, hours === Infinity ? 'never' : `after ${shown(hours)} h`, ...HOURS.map((at) => `${Math.round(left(at))} %`)]);
  }
  if (!lines.length) { get('credits').replaceChildren(made('p', {class: 'quiet'}, 'Neither has burst credits.')); return; }
  putFigure('credits', figureOf(linesOf(lines, HOURS.map((at) => `${at} h`), '% of the bucket that empties first, under this load'), 'Credits over the hours.',
    () => tableOf('Credits', ['', 'gone', ...HOURS.map((at) => `${at} h`)], rows)));
}

function showFile() {
  const choice = state[get('whose').value];
  get('file').textContent = experimentOf(state.offer, choice);
  get('rehearse').textContent = choice.engine === 'yugabytedb' ? 'disklab rehearse does not run YugabyteDB' : 'disklab rehearse knob.yaml';
}

// The address holds what differs from the usual choice.
function saved() {
  const found = new URLSearchParams();
  for (const side of SIDES) for (const [key, value] of Object.entries(state[side])) if (!Object.is(value, USUAL[key])) found.set(`${side}.${key}`, value);
  found.set('turn', state.turn);
  if (state.promise) found.set('promise', state.promise);
  if (state.preset !== null) found.set('study', state.preset);
  history.replaceState(null, '', `#${found}`);
}

function loaded() {
  const found = new URLSearchParams(location.hash.slice(1)), {offer} = state;
  const list = (key, side) => { const kind = FIELDS.find(([name]) => name === key)?.[2]; return typeof kind === 'function' ? kind(offer, state[side]).map((one) => String(Array.isArray(one) ? one[0] : one)) : null; };
  for (const side of SIDES) {
    state[side] = {...USUAL};
    for (const key of Object.keys(USUAL)) {
      const given = found.get(`${side}.${key}`);
      if (given === null) continue;
      const able = list(key, side);
      if (!able || able.includes(given)) state[side][key] = typeof USUAL[key] === 'number' ? Number(given) : given;
    }
  }
  if (!found.has('b.disk') && !found.has('b.caching') && !found.has('study') && !found.has('b.vm')) state.b.caching = 'ReadOnly';
  const study = Number(found.get('study') ?? NaN);
  state.preset = Number.isInteger(study) && offer.presets[study] ? study : null;
  state.promise = Math.max(0, Number(found.get('promise')) || 0);
  state.turn = found.get('turn') in TURNS ? found.get('turn') : 'threads';
  state.at = state.preset !== null && offer.presets[state.preset].turn === state.turn ? offer.presets[state.preset].at : null;
  get('promise').value = state.promise || '';
  tellStudy();
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

async function start() {
  const [offered, bytes] = await Promise.all([unpacked('offer'), unpacked('module')]);
  state.offer = JSON.parse(new TextDecoder().decode(offered));
  const module = state.module = await WebAssembly.compile(bytes);
  const address = state.address = URL.createObjectURL(new Blob([get('worker').textContent], {type: 'text/javascript'}));
  state.lanes = Object.fromEntries(SIDES.map((side) => [side, new Lane(module, address)]));
  state.refining = new Lane(module, address);
  get('presets').append(...state.offer.presets.map(({name}, number) => {
    const button = made('button', {type: 'button'}, name);
    button.addEventListener('click', () => presetChosen(number));
    return button;
  }));
  for (const side of SIDES) {
    const form = get(`form-${side}`);
    form.addEventListener('input', ({target}) => turned(side, target));
    form.addEventListener('submit', (event) => event.preventDefault());
  }
  get('turn').addEventListener('change', ({target}) => { state.turn = target.value; state.at = null; saved(); state.round += 1; state.refining.drop(); refineSoon(); });
  get('promise').addEventListener('input', ({target}) => { state.promise = Number(target.value) || 0; saved(); showAnswer(); });
  get('over').addEventListener('click', overStudies);
  get('whose').addEventListener('change', showFile);
  get('copy').addEventListener('click', () => navigator.clipboard?.writeText(get('file').textContent));
  addEventListener('hashchange', () => { loaded(); began(); });
  startPicture();
  loaded();
  began();
}

start().catch((error) => { get('says').textContent = `The simulator does not start in this browser: ${error.message}`; });
