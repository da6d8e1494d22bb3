// From a choice of the page to its job, its experiment file, its price, and what is wrong with it.
// The rules are Python's: `offer` has each as a tree (knob/trace.py), which `ruled` evaluates for a choice's amounts.
'use strict';

const KIB = 2 ** 10, GIB = 2 ** 30, SECTOR = 4096, CHUNK = 65536;
const VOLUME = 'cluster.volumes.data';
const READ_AHEAD = 131072;
const DEVICE_FILE = 5 * GIB;

// The choice that the page opens with, and every key that a choice has.
const USUAL = {
  engine: 'postgresql', vm: 'aws/r8g.2xlarge', client: '', nodes: 1, copies: 1,
  disk: 'aws/gp3', count: 1, size: 1000, iops: 3000, mbps: 250, caching: 'None', latency: '', log: 'data',
  ahead: -1, rows: 300000000, columns: 5, bytes: 200, read: 80, keys: 'uniform', threads: 32, rate: 0,
  slots: 0, settings: '', memory: 'cold', cache: 'written', credits: 100,
  rw: 'randread', block: 8, jobs: 1, depth: 32, script: 'oltp_read', tables: 20,
};
// What differs in the other choice that the page opens with.
const OTHER = {iops: 12000};

// Python's numbers: whole ones and fractions are exact ([numerator, denominator]), floats are JavaScript's.
const isFloat = (amount) => typeof amount === 'number';
const float = (amount) => (isFloat(amount) ? amount : Number(amount[0]) / Number(amount[1]));
const floored = ([n, d]) => [n / d - (n % d !== 0n && n < 0n ? 1n : 0n), 1n];
const opposite = ([n, d]) => [-n, d];
const evenly = (amount) => (Math.abs(amount % 1) === 0.5 ? 2 * Math.round(amount / 2) : Math.round(amount));
const EXACT = {
  '+': ([a, b], [c, d]) => [a * d + c * b, b * d], '-': ([a, b], [c, d]) => [a * d - c * b, b * d], '*': ([a, b], [c, d]) => [a * c, b * d],
  '/': ([a, b], [c, d]) => [a * d, b * c], '//': ([a, b], [c, d]) => floored([a * d, b * c]), '%': (x, y) => EXACT['-'](x, EXACT['*'](y, EXACT['//'](x, y))),
  floor: floored, ceil: (x) => opposite(floored(opposite(x))), trunc: ([n, d]) => [n / d, 1n], round: (x) => [BigInt(evenly(float(x))), 1n],
};
const FLOATS = {
  '+': (x, y) => x + y, '-': (x, y) => x - y, '*': (x, y) => x * y, '/': (x, y) => x / y, '//': (x, y) => Math.floor(x / y),
  floor: Math.floor, ceil: Math.ceil, trunc: Math.trunc, round: evenly,
};

function evaluated(tree, amounts) {
  if (typeof tree === 'string') return [BigInt(amounts[tree]), 1n];
  if (isFloat(tree)) return [BigInt(tree), 1n];
  const [sign, ...operands] = tree;
  if (sign === ':') return operands.map(BigInt);
  if (sign === 'float') return operands[0];
  const values = operands.map((operand) => evaluated(operand, amounts));
  if (sign === 'div') return float(values[0]) / float(values[1]);
  if (!values.some(isFloat)) return EXACT[sign](...values);
  const result = FLOATS[sign](...values.map(float));
  return sign in Math || sign === 'round' ? [BigInt(result), 1n] : result;
}

function holds([sign, ...operands], amounts) {
  const values = operands.map((operand) => evaluated(operand, amounts));
  if (values.some(isFloat)) values.forEach((value, at) => { values[at] = float(value); });
  const [x, y] = isFloat(values[0]) ? values : [values[0][0] * values[1][1], values[1][0] * values[0][1]];
  return sign === '<' ? x < y : x === y;
}

// Amounts in the words of catalog/quantity.py.
const UNITS = {TiB: 2 ** 40, GiB: GIB, MiB: 2 ** 20, KiB: KIB, TB: 1e12, GB: 1e9, MB: 1e6, kB: 1e3, B: 1};
const largest = (names, fits) => names.find((name) => fits(UNITS[name]));
const WORDS = {
  '': String,
  bytes: (amount) => { const unit = largest(Object.keys(UNITS), (each) => amount && amount % each === 0) ?? 'B'; return `${amount / UNITS[unit]}${unit}`; },
  rate: (amount) => { const unit = largest(['MB', 'MiB', 'kB', 'KiB', 'B'], (each) => amount % each === 0); return `${amount / UNITS[unit]} ${unit}/s`; },
  about: (amount) => { const unit = largest(['TiB', 'GiB', 'MiB', 'KiB'], (each) => amount >= each); return unit ? `${Number((amount / UNITS[unit]).toPrecision(4))} ${unit}` : `${amount.toFixed(0)} B`; },
};
const worded = (amounts) => (part) => {
  if (!Array.isArray(part)) return part;
  const [tree, form] = part;
  return typeof amounts[tree] === 'string' ? amounts[tree] : WORDS[form](float(evaluated(tree, amounts)));
};

// What a rule says of a choice: a new object, which the caller may change.
function ruled(node, amounts) {
  if (node === null || typeof node !== 'object') return node;
  if (Array.isArray(node)) return node.map((part) => ruled(part, amounts));
  if ('if' in node) return ruled(holds(node.if, amounts) ? node.then : node.else, amounts);
  if ('of' in node) return float(evaluated(node.of, amounts));
  if ('text' in node) return node.text.map(worded(amounts)).join('');
  return Object.fromEntries(Object.entries(node).map(([key, part]) => [key, ruled(part, amounts)]));
}

const problem = (place, value, rule, way_out) => ({place, value: String(value), rule, way_out});
const isLocal = (choice) => choice.disk === 'local' || choice.disk === 'nvme';

const written = (offer, choice) => (isLocal(choice) ? `${choice.count === 1 ? '' : `${choice.count} x `}${choice.disk}` : ruled(offer.disks[choice.disk].written, choice));

// Messages of the catalogue name the places of a cluster; those of a device have others.
const placed = (choice, problems) => problems.map((broken) => {
  const named = (text) => (choice.engine === 'fio' ? text.replaceAll(VOLUME, 'device.volume').replace(/\bcluster\.(vm|host_cache)\b/g, 'device.$1') : text);
  return {...broken, place: named(broken.place), rule: named(broken.rule), way_out: named(broken.way_out)};
});

// The volume of a choice, or the rules that VM, disks and caching break together.
function volumeOf(offer, choice) {
  const vm = offer.vms[choice.vm], facts = offer.disks[choice.disk], local = vm.local[choice.disk];
  const disk = local ?? ruled(facts.bought, choice);
  if (disk.problems) return {problems: placed(choice, disk.problems)};
  const bytes = local ? local.size_bytes : disk.bought[0], disks = written(offer, choice);
  const problems = choice.caching === 'None' ? [] : [...(local ? offer.cached_local[choice.disk] : [...facts.caching, ...vm.caching])].map((broken) => ({...broken, value: choice.caching}));
  const most = choice.disk === 'nvme' ? vm.nvme_disks : vm.most_disks, {source} = vm, {count} = choice;
  const one = written(offer, {...choice, count: 1});
  if (local || most !== null) problems.push(...ruled(offer.too_many[local ? choice.disk : 'data'], {count, most, vm: choice.vm, source, disk: one}));
  if (!local) {
    if (facts.premium) problems.push(...vm.premium);
    problems.push(...(vm.refused[choice.disk] ?? []).map((broken) => ({...broken, value: `'${disks}'`})));
    const [own_vendor, size] = choice.vm.split('/'), [vendor, name] = choice.disk.split('/');
    if (vendor !== own_vendor) problems.push(...ruled(offer.of_another, {own_vendor, vm: size, vendor, disk: name, disks}));
    problems.push(...ruled(offer.too_much, {size_bytes: bytes, count, disk: one}));
  }
  if (problems.length) return {problems: placed(choice, problems)};
  const {name, medium, limits, latency} = local?.disk ?? {...disk, latency: facts.latency[choice.latency || 'default'] ?? facts.latency.default};
  const unit = count === 1 ? SECTOR : CHUNK, made = {name, medium, limits, latency: offer.latencies[latency]};
  return {
    volume: {name: 'data', size_bytes: Math.floor(bytes / unit) * unit * count, caching: choice.caching, chunk_bytes: count === 1 ? null : CHUNK, disks: Array(count).fill(made)},
    bought: disk.bought,
  };
}

function amountProblems(offer, choice) {
  const ends = {yugabytedb: offer.ends.sysbench, fio: {}}[choice.engine] ?? offer.ends.rows;
  return Object.entries(ends).flatMap(([key, {whole, below, above, most}]) => {
    if (key === 'threads' && choice.rate && choice.engine !== 'yugabytedb') return [];
    const amount = key === 'copies' ? copiesOf(offer, choice) : choice[key];
    const broken = !Number.isInteger(amount) ? whole : amount < 1 ? below : amount > most ? above : null;
    return broken ? [{...broken, value: String(amount)}] : [];
  });
}

// What only an address can ask for: a control of the page keeps to these ends by itself.
const NUMBERS = {
  count: ['volume.disks', 1, 1024, 4], size: ['volume.disks', 0, 1e9, 1024], iops: ['volume.disks', 0, 1e9, 5000],
  mbps: ['volume.disks', 0, 1e9, 200], ahead: ['volume.read_ahead', -1, 1 << 20, 128], columns: ['dataset.row', 1, 10000, 5],
  bytes: ['dataset.row', 1, 1 << 20, 818], read: ['workload.operations', 0, 100, 90], rate: ['workload.load.rate', 0, 1e9, 10000],
  slots: ['database.settings', 0, 4096, 32], credits: ['before.credits', 0, 100, 100],
  block: ['workload.fio.bs', 1, 65536, 8], jobs: ['workload.fio.jobs', 1, 256, 4], depth: ['workload.fio.depth', 1, 1024, 32],
};

function numberProblems(choice) {
  return Object.entries(NUMBERS).flatMap(([key, [place, least, most, example]]) => {
    const amount = choice[key], isWhole = Number.isInteger(amount) || (key === 'rate' && Number.isFinite(amount));
    if (isWhole && amount >= least && amount <= most) return [];
    return [problem(place, amount, `is not a whole number from ${least} to ${most}`, `write for example ${example}`)];
  });
}

// By their lines in the file, as the command line has them.
const LINES = ['cluster.nodes', 'cluster.vm', 'device.vm', VOLUME, 'device.volume', 'database', 'dataset', 'workload'];
const lineOf = ({place}) => LINES.findIndex((line) => place.startsWith(line));

function problemsOf(offer, choice) {
  const problems = [...amountProblems(offer, choice), ...numberProblems(choice)];
  return (problems.length ? problems : brokenRules(offer, choice)).sort((a, b) => lineOf(a) - lineOf(b));
}

function brokenRules(offer, choice) {
  const {volume, problems = []} = volumeOf(offer, choice);
  if (choice.engine === 'fio') return problems;
  if (logVolume(choice)) problems.push(...(offer.vms[choice.vm].local.local.problems ?? []));
  const rules = answersOf(offer, choice);
  // Without a volume nobody knows whether the data fit.
  const amounts = {...amountsOf(choice), size_bytes: problems.length ? 1e300 : volume.size_bytes};
  amounts.disks = written(offer, choice);
  amounts.larger = ruled(offer.vms[choice.vm].larger, {count: {local: 0, nvme: choice.count}[choice.disk] ?? 1e6});
  problems.unshift(...ruled(rules.impossible, amounts));
  return problems.length ? problems : ruled(rules.unmodelled, amounts);
}

const answersOf = (offer, choice) => (choice.engine === 'yugabytedb' ? offer.engines.yugabytedb.answers[choice.script] : offer.engines[choice.engine].settings[choice.settings].answers);
const amountsOf = (choice) => ({...choice, rate_per_ks: Math.round(choice.rate * 1000)});
const copiesOf = (offer, choice) => (offer.engines[choice.engine].whole ? choice.nodes : choice.copies);
const logVolume = (choice) => choice.engine !== 'yugabytedb' && choice.log === 'local' && choice.disk !== 'local';

function hostOf(offer, choice, volume, logName) {
  const vm = offer.vms[choice.vm];
  const host = structuredClone({
    version: 1, name: choice.vm, seed: 1, cached: vm.cached, uncached: vm.caps[choice.disk] ?? vm.uncached,
    // OS disks of 2020 did not count what their cache acknowledged: catalog/resolve.py, UNCHARGED.
    cache: vm.cache && {...vm.cache, latency: offer.latencies[vm.cache.latency], charges_writes: choice.latency !== '2020'}, volumes: [volume],
  });
  if (logName) {
    const {disk, size_bytes: bytes} = vm.local.local;
    host.volumes.push({name: logName, size_bytes: Math.floor(bytes / SECTOR) * SECTOR, caching: 'None', chunk_bytes: null, disks: [{...disk, latency: offer.latencies[disk.latency]}]});
  }
  // The disks of a stripe share one object until here.
  for (const made of host.volumes) made.disks = made.disks.map((disk) => structuredClone(disk));
  if (choice.credits < 100) {
    const limits = [...host.uncached, ...host.cached, ...host.volumes.flatMap((made) => made.disks.flatMap((disk) => disk.limits))];
    for (const {burst} of limits) if (burst && burst.credits !== null) burst.start = Math.trunc(burst.credits * (choice.credits / 100));
  }
  return host;
}

const HOST_CACHE = {empty: 'cold', written: 'written', warm: 'warm'};

// The job of a choice that has no problems: Python's, on the VMs and in the state that were chosen.
function jobOf(offer, choice) {
  const {volume} = volumeOf(offer, choice), {engine: name} = choice, engine = offer.engines[name];
  if (name === 'fio') return {device: deviceJob(offer, choice, volume)};
  const amounts = amountsOf(choice), job = ruled(answersOf(offer, choice).job, amounts);
  const vm = offer.vms[choice.vm], client = offer.vms[choice.client || choice.vm], logName = logVolume(choice) ? engine.log_volume : null;
  const {cores, network_bytes_per_s} = vm, {page_cache_bytes, collector, ...own} = engine.memory ? ruled(engine.memory, {...choice, ...vm}) : vm[name];
  Object.assign(job.cluster, {host: hostOf(offer, choice, volume, logName), cores, network_bytes_per_s, page_cache_bytes});
  Object.assign(job.client, {cores: client.cores, network_bytes_per_s: client.network_bytes_per_s});
  if (collector) job.cluster.collector = collector;
  Object.assign(job.database, own.database ?? own);
  Object.assign(job.before, {page_cache: choice.memory, host_cache: HOST_CACHE[choice.cache]});
  Object.assign(job.parameters, carried(engine.costs, vm.speed, client.speed));
  if (name !== 'yugabytedb') {
    Object.assign(job.cluster, {commitlog_volume: logName, read_ahead_bytes: choice.ahead < 0 ? READ_AHEAD : choice.ahead * KIB});
    job.workload.keys = choice.keys;
  }
  return {[engine.key]: job};
}

function deviceJob(offer, choice, volume) {
  const job = structuredClone(offer.device), block = choice.block * KIB;
  job.host = hostOf(offer, choice, volume, null);
  job.host_cache = HOST_CACHE[choice.cache];
  const file = Math.floor(Math.floor(Math.floor(volume.size_bytes * 9 / 10) / choice.jobs) / block) * block;
  Object.assign(job.fio, {
    random: choice.rw.startsWith('rand'), read_ppm: {randread: 100, randwrite: 0, randrw: 50, read: 100, write: 0, rw: 50}[choice.rw] * 10000,
    block_bytes: block, jobs: choice.jobs, depth: choice.depth, size_bytes: Math.min(DEVICE_FILE, file),
  });
  return job;
}

// CPU times by the speed of a vCPU: databases/calibration.py.
function carried({values, speeds}, server, client) {
  const slower = {server: (speeds.server ?? server) / server, client: (speeds.client ?? client) / client};
  const times = (name) => values[name] * slower[name.startsWith('client_') ? 'client' : 'server'];
  return Object.fromEntries(Object.keys(values).map((name) => [name, Math.round(times(name))]));
}

// USD a month of all nodes with their disks; null: a price is not known.
function priceOf(offer, choice) {
  const vm = offer.vms[choice.vm].usd, {bought: [size, iops, bytes] = []} = volumeOf(offer, choice);
  const listed = isLocal(choice) ? 0 : ruled(offer.disks[choice.disk].usd, {size, iops: iops ?? 0, bytes: bytes ?? 0});
  if (vm === null || listed === null) return null;
  return Math.round((vm + (listed.usd ?? listed) * choice.count) * (choice.engine === 'fio' ? 1 : choice.nodes) * 100) / 100;
}

// The same as a file: what `disklab predict` and `disklab rehearse` take.
function experimentOf(offer, choice, title = 'From the knob') {
  const {engine: name, nodes, vm, client, caching, latency, ahead, memory, threads, rows} = choice, engine = offer.engines[name];
  const disks = written(offer, choice), before = `host_cache: ${choice.cache}, credits: ${choice.credits}%`;
  const reads = ahead >= 0 && engine?.settings ? `, read_ahead: ${ahead}KiB` : '';
  const volume = `disks: ${/[(,]/.test(disks) ? `"${disks}"` : disks}, caching: ${caching}${latency ? `, latency: "${latency}"` : ''}${reads}`;
  const lines = [`title: ${title}`];
  if (name === 'fio') {
    lines.push('device:', `  vm: ${vm}`, `  volume: {${volume}}`,
      `workload: {fio: {rw: ${choice.rw}, bs: ${choice.block}k, jobs: ${choice.jobs}, depth: ${choice.depth}}, stop: {duration: ${offer.seconds}s}}`, `before: {${before}}`);
    return [...lines, ''].join('\n');
  }
  const settings = engine.settings ? engine.settings[choice.settings].text.slice(1, -1).split(', ').filter(Boolean) : [];
  if (choice.slots && name === 'cassandra') settings.push(`concurrent_reads: ${choice.slots}`, `concurrent_writes: ${choice.slots}`);
  lines.push('cluster:', `  nodes: ${nodes}`, `  vm: ${vm}`, '  volumes:', `    data: {${volume}, filesystem: xfs}`);
  if (engine.settings && choice.log === 'local') lines.push(`    ${engine.log_volume}: {disks: local}`);
  if (client) lines.push(`client: {nodes: 1, vm: ${client}}`);
  lines.push(`database: {engine: ${name}, replication_factor: ${copiesOf(offer, choice)}${settings.length ? `, settings: {${settings.join(', ')}}` : ''}}`);
  if (engine.settings) {
    lines.push(`dataset: {rows: ${rows}, row: ${choice.columns} x ${choice.bytes}B}`, 'workload:', `  operations: {read: ${choice.read}%, write: ${100 - choice.read}%}`,
      `  keys: ${choice.keys}`, `  load: {${choice.rate ? `rate: ${choice.rate}/s` : `threads: ${threads}`}}`, `  stop: {operations: ${offer.operations}}`);
  } else lines.push(`workload: {sysbench: {script: ${choice.script}, tables: ${choice.tables}, rows_per_table: ${rows}, threads: ${threads}}, ${engine.course}}`);
  return [...lines, `before: {page_cache: ${memory}, ${before}}`, ''].join('\n');
}
