// From a choice of the page to its job, its experiment file, its price, and what is wrong with it.
// `offer` is what offer.py took from the catalogue; tests hold every rule here against Python's.
'use strict';

const KIB = 2 ** 10, GIB = 2 ** 30, SECTOR = 4096, CHUNK = 65536, PPM = 1e6;
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

// Exact fractions: [numerator, denominator], as Python has them.
const fraction = ([n, d]) => [BigInt(n), BigInt(d)];
const times = ([a, b], [c, d]) => [a * c, b * d];
const plus = ([a, b], [c, d]) => [a * d + c * b, b * d];
const less = ([a, b], [c, d]) => a * d < c * b;
const floor = ([n, d]) => Number(n / d);
const whole = (n) => [BigInt(n), 1n];
const up = (n, d) => Number((n + d - 1n) / d);

function amountAt(formula, size, iops) {
  if (formula.steps.length) {
    const step = formula.steps.find(([most]) => most === null || size <= most) ?? formula.steps.at(-1);
    return fraction(step[1]);
  }
  if (formula.value) return clipped(formula, fraction(formula.value));
  const [slope, by] = formula.per_gib ? [formula.per_gib, size] : [formula.per_iops, iops];
  return clipped(formula, times(fraction(slope), whole(by)));
}

function clipped(formula, amount) {
  const least = fraction(formula.at_least), most = formula.at_most && fraction(formula.at_most);
  const raised = less(amount, least) ? least : amount;
  return most && less(most, raised) ? most : raised;
}

// Amounts in the words of catalog/quantity.py.
const UNITS = [['TiB', 2 ** 40], ['GiB', GIB], ['MiB', 2 ** 20], ['KiB', KIB], ['TB', 1e12], ['GB', 1e9], ['MB', 1e6], ['kB', 1e3], ['B', 1]];
const bytesText = (amount) => {
  const [unit, factor] = UNITS.find(([, each]) => amount && amount % each === 0) ?? ['B', 1];
  return `${amount / factor}${unit}`;
};
const rateText = (amount) => {
  const named = Object.fromEntries(UNITS);
  const unit = ['MB', 'MiB', 'kB', 'KiB', 'B'].find((name) => amount % named[name] === 0);
  return `${amount / named[unit]} ${unit}/s`;
};
// `%.4g`
const digits = (number) => String(Number(number.toPrecision(4)));
const about = (amount) => {
  const large = UNITS.slice(0, 4).find(([, each]) => amount >= each);
  return large ? `${digits(amount / large[1])} ${large[0]}` : `${amount.toFixed(0)} B`;
};

const problem = (place, value, rule, way_out) => ({place, value: String(value), rule, way_out});
const isLocal = (choice) => choice.disk === 'local' || choice.disk === 'nvme';
const chosen = (rate) => Boolean(rate && rate.most);

function expressionOf(offer, choice) {
  const disk = offer.disks[choice.disk], asked = [];
  if (disk && !disk.size_gib.fixed) asked.push(bytesText(choice.size * GIB));
  if (disk && choice.iops && chosen(disk.iops)) asked.push(`${choice.iops} IOPS`);
  if (disk && choice.mbps && chosen(disk.mb_per_s)) asked.push(rateText(choice.mbps * disk.mb_bytes));
  const name = choice.disk + (asked.length ? `(${asked.join(', ')})` : '');
  return choice.count === 1 ? name : `${choice.count} x ${name}`;
}

// What is bought, or the rules that it breaks: catalog/provisioning.py.
function provision(offer, choice) {
  const disk = offer.disks[choice.disk], name = choice.disk, place = placeOf(choice, 'disks'), problems = [];
  const {least, most, fixed} = disk.size_gib;
  const size = fixed ? most : choice.size;
  if (size < least || size > most) {
    const rule = `${name} has whole GiB from ${least} to ${most} (${disk.sources.default})`;
    return {problems: [problem(place, about(size * GIB), rule, 'choose a size in that range')]};
  }
  let iops = iopsOf(disk, name, size, choice, place, problems);
  const bytes = bytesOf(disk, name, size, iops, choice, place, problems);
  const each = disk.iops_per_mb_per_s;
  if (each && iops !== null && bytes !== null) iops = Math.min(iops, Math.floor(bytes * each / disk.mb_bytes));
  return problems.length ? {problems} : {size, iops, bytes};
}

// What a disk has without being asked, with its share of what the VM has.
function includedIn(rate, size, iops, count) {
  const amount = plus(amountAt(rate.included, size, iops), [BigInt(rate.of_vm), BigInt(count)]);
  const most = rate.included.at_most && fraction(rate.included.at_most);
  return most && less(most, amount) ? most : amount;
}

function iopsOf(disk, name, size, {iops: wish, count}, place, problems) {
  const rate = disk.iops;
  if (!rate) return null;
  if (!wish || !chosen(rate)) return floor(includedIn(rate, size, 0, count));
  const low = rate.least ? floor(amountAt(rate.least, size, 0)) : 1, high = floor(amountAt(rate.most, size, 0));
  if (low <= wish && wish <= high) return wish;
  const rule = `${name} gives ${low} to ${high} IOPS at ${size} GiB = ${rate.most.text} (${disk.sources.iops})`;
  let way = `ask for ${low} to ${high} IOPS`;
  const {per_gib: slope, at_most: end} = rate.most;
  if (slope && wish > high && !(end && less(fraction(end), whole(wish)))) {
    const needed = up(BigInt(wish) * BigInt(slope[1]), BigInt(slope[0]));
    if (needed <= disk.size_gib.most) way = `ask for at most ${high} IOPS, or for at least ${needed} GiB`;
  }
  problems.push(problem(place, `${wish} IOPS on ${size} GiB`, rule, way));
  return null;
}

function bytesOf(disk, name, size, iops, {mbps: wish, count}, place, problems) {
  const rate = disk.mb_per_s, unit = whole(disk.mb_bytes);
  if (!rate) return null;
  if (!wish || !chosen(rate)) return floor(times(includedIn(rate, size, iops ?? 0, count), unit));
  if (iops === null) return null;
  const low = floor(times(rate.least ? amountAt(rate.least, size, iops) : whole(1), unit));
  const most = amountAt(rate.most, size, iops), high = floor(times(most, unit)), bytes = wish * disk.mb_bytes;
  if (low <= bytes && bytes <= high) return bytes;
  const rule = `${name} gives ${rateText(low)} to ${rateText(high)} at ${iops} IOPS = ${rate.most.text} (${disk.sources.mb_per_s})`;
  let way = `ask for ${rateText(low)} to ${rateText(high)}`;
  const slope = rate.most.per_iops;
  if (bytes > high && slope) {
    const needed = up(BigInt(wish) * BigInt(slope[1]), BigInt(slope[0]));
    if (!less(amountAt(rate.most, size, needed), whole(wish))) way = `ask for at most ${rateText(high)}, or for at least ${needed} IOPS`;
  }
  problems.push(problem(place, `${rateText(bytes)} with ${iops} IOPS`, rule, way));
  return null;
}

// Token buckets of a disk: catalog/provisioning.py.
function limitsOf(disk, bought) {
  let bursts = disk.burst;
  if (bursts && bursts.below_gib !== null && bought.size >= bursts.below_gib) bursts = null;
  const limits = [];
  const add = (scope, unit, per_s, burst = null) => limits.push({
    scope, unit, per_s, io_unit_bytes: unit === 'ios' ? disk.io_unit_bytes : null, window_ns: 0, burst,
  });
  const byDirection = (read, write, unit, factor) => {
    for (const [scope, formula] of [['read', read], ['write', write]]) {
      if (formula) add(scope, unit, Math.max(1, floor(times(amountAt(formula, bought.size, 0), whole(factor)))));
    }
  };
  if (bought.iops !== null) add('all', 'ios', bought.iops, burstOf(bursts, bursts?.iops, bought.iops, bursts?.credit_ios));
  byDirection(disk.read_iops, disk.write_iops, 'ios', 1);
  const bytesAt = (formula) => formula && floor(times(amountAt(formula, bought.size, 0), whole(disk.mb_bytes)));
  const top = bytesAt(bursts?.mb_per_s), stated = bytesAt(bursts?.credit_mb);
  if (bought.bytes !== null) add('all', 'bytes', bought.bytes, burstOf(bursts, top, bought.bytes, stated));
  byDirection(disk.read_mb_per_s, disk.write_mb_per_s, 'bytes', disk.mb_bytes);
  return limits;
}

function burstOf(facts, top, base, stated) {
  if (!facts || !top || top <= base) return null;
  if (facts.endless) return {per_s: top, credits: null, start: null};
  return {per_s: top, credits: stated ?? (top - base) * facts.minutes * 60, start: null};
}

const placeOf = (choice, key) => (choice.engine === 'fio' ? `device.volume.${key}` : `${VOLUME}.${key}`);
const vmPlace = (choice) => (choice.engine === 'fio' ? 'device.vm' : 'cluster.vm');

// Messages of the catalogue name the places of a cluster; those of a device have others.
const placed = (choice, problems, value) => problems.map((one) => {
  const named = (text) => (choice.engine === 'fio' ? text.replaceAll(VOLUME, 'device.volume').replace(/\bcluster\.(vm|host_cache)\b/g, 'device.$1') : text);
  return {place: named(one.place), value: value ?? one.value, rule: one.rule, way_out: named(one.way_out)};
});

// The volume of a choice, or the rules that VM, disks and caching break together: catalog/resolve.py.
function volumeOf(offer, choice) {
  const vm = offer.vms[choice.vm];
  if (isLocal(choice)) {
    const local = vm.local[choice.disk];
    if (local.problems) return {problems: placed(choice, local.problems)};
    const problems = [...cachingProblems(offer, choice), ...countProblems(offer, choice)];
    return problems.length ? {problems} : {volume: striped(offer, choice, local.disk, local.size_bytes)};
  }
  const disk = offer.disks[choice.disk], bought = provision(offer, choice);
  if (bought.problems) return bought;
  const problems = [...cachingProblems(offer, choice), ...countProblems(offer, choice)];
  if (disk.premium) problems.push(...placed(choice, vm.premium));
  const vendor = choice.vm.split('/')[0];
  if (vendor !== disk.vendor) {
    const rule = `${choice.disk} is a disk of ${disk.vendor}, ${choice.vm} a VM of ${vendor}`;
    problems.push(problem(placeOf(choice, 'disks'), `'${expressionOf(offer, choice)}'`, rule, `choose a disk of ${vendor}`));
  }
  const most = offer.most_volume_bytes, all = bought.size * GIB * choice.count;
  if (all > most) {
    const rule = `a volume has at most 1 PB, and this one ${about(all)}`, way = `use at most ${Math.floor(most / (bought.size * GIB))} of these disks`;
    problems.push(problem(placeOf(choice, 'disks'), `'${expressionOf(offer, choice)}'`, rule, way));
  }
  if (problems.length) return {problems};
  const latency = disk.latency[choice.latency || 'default'] ?? disk.latency.default;
  const made = {name: choice.disk, medium: disk.medium, limits: limitsOf(disk, bought), latency};
  return {volume: striped(offer, choice, made, bought.size * GIB), bought};
}

function cachingProblems(offer, choice) {
  if (choice.caching === 'None') return [];
  if (isLocal(choice)) {
    const place = placeOf(choice, 'caching'), rule = `'${choice.disk}' lies on the host itself, with no host cache before it`;
    return [problem(place, choice.caching, rule, `use ${place}: None`)];
  }
  return placed(choice, [...offer.disks[choice.disk].caching, ...offer.vms[choice.vm].caching], choice.caching);
}

function countProblems(offer, choice) {
  const vm = offer.vms[choice.vm], count = choice.count;
  const [what, most] = {local: ['temp disk', 1], nvme: ['NVMe disks', vm.nvme_disks]}[choice.disk] ?? ['data disks', vm.most_disks];
  if (most === null || count <= most) return [];
  const rule = `${choice.vm} ${isLocal(choice) ? 'has' : 'takes'} ${most} ${what}, not ${count} (${vm.source})`;
  const way = most ? `use at most ${most} more, or a larger VM` : 'choose another host or VM';
  return [problem(placeOf(choice, 'disks'), `'${expressionOf(offer, choice)}'`, rule, way)];
}

function striped(offer, choice, disk, bytes) {
  const unit = choice.count === 1 ? SECTOR : CHUNK;
  const made = {...disk, latency: offer.latencies[disk.latency]};
  return {
    name: 'data', size_bytes: Math.floor(bytes / unit) * unit * choice.count, caching: choice.caching,
    chunk_bytes: choice.count === 1 ? null : CHUNK, disks: Array(choice.count).fill(made),
  };
}

// Counts beyond their ends, in the words of spec/amounts.py.
const ENDS = {
  nodes: ['cluster.nodes', 1, 1000, '6'], copies: ['database.replication_factor', 1, 1000, '6'],
  threads: ['workload.load.threads', 1, 100000, '128'], rows: ['dataset.rows', 1, 1e12, '10M'],
};

const OF_SYSBENCH = {
  threads: ['workload.sysbench.threads', 1, 100000, '128'], rows: ['workload.sysbench.rows_per_table', 1, 1e12, '10M'],
  tables: ['workload.sysbench.tables', 1, 1e12, '10M'],
};
const KEYS = {fio: [], yugabytedb: ['nodes', 'copies', 'tables', 'rows', 'threads']};

function amountProblems(choice) {
  const keys = KEYS[choice.engine] ?? ['nodes', 'copies', 'rows', ...(choice.rate ? [] : ['threads'])];
  const ends = choice.engine === 'yugabytedb' ? {...ENDS, ...OF_SYSBENCH} : ENDS;
  const problems = [];
  for (const key of keys) {
    const [place, least, most, example] = ends[key], amount = key === 'copies' ? copiesOf(choice) : choice[key];
    if (!Number.isInteger(amount)) {
      const rule = 'is not a whole number; k, M and G are thousands, millions and billions';
      problems.push(problem(place, amount, rule, `write for example ${example}`));
    } else if (amount < least || amount > most) {
      problems.push(problem(place, amount, `must be ${amount < least ? `from ${least}` : `up to ${most}`}`, `write for example ${example}`));
    }
  }
  return problems;
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
    return [problem(place, amount, `is no whole number from ${least} to ${most}`, `write for example ${example}`)];
  });
}

// By their lines in the file, as the command line has them.
const LINES = ['cluster.nodes', 'cluster.vm', 'device.vm', VOLUME, 'device.volume', 'database', 'dataset', 'workload'];
const lineOf = ({place}) => LINES.findIndex((line) => place.startsWith(line));

function problemsOf(offer, choice) {
  const problems = [...amountProblems(choice), ...numberProblems(choice)];
  return (problems.length ? problems : brokenRules(offer, choice)).sort((a, b) => lineOf(a) - lineOf(b));
}

function brokenRules(offer, choice) {
  const made = volumeOf(offer, choice), problems = [];
  if (choice.engine === 'fio') return made.problems ?? [];
  if (copiesOf(choice) > choice.nodes) {
    const rule = `each copy lies on a node of its own, and the cluster has ${choice.nodes}`;
    problems.push(problem('database.replication_factor', choice.copies, rule, `use ${choice.copies} nodes, or fewer copies`));
  }
  const volumes = [...(made.problems ?? []), ...(logVolume(choice) ? placed(choice, offer.vms[choice.vm].local.local.problems ?? []) : [])];
  problems.push(...volumes);
  if (!volumes.length && choice.engine !== 'yugabytedb') problems.push(...roomProblems(offer, choice, made.volume.size_bytes));
  return problems.length || !WHOLE.includes(choice.engine) ? problems : serverProblems(offer.engines[choice.engine], choice);
}

// `StoredRow.of` of database_facts.py.
function storedRow(stored, choice) {
  let row = choice.columns * (choice.bytes + stored.column_bytes) + stored.row_bytes;
  if (stored.page_room_bytes !== null) row = Math.ceil(stored.page_bytes / Math.max(1, Math.floor(stored.page_room_bytes / row)));
  const least = Math.max(...Object.keys(stored.filled_ratio).map(Number).filter((from) => from <= row));
  return Math.ceil(row / stored.filled_ratio[least]) + stored.entry_bytes;
}

function roomProblems(offer, choice, bytes) {
  const {headroom, stored} = offer.engines[choice.engine], copies = copiesOf(choice), {nodes, rows} = choice;
  const row = storedRow(stored, choice), need = rows * row * copies / nodes;
  if (need * headroom <= bytes) return [];
  const rule = `${rows} rows of ${row} B x ${copies} copies / ${nodes} nodes = ${about(need)} a node, ${about(need * headroom)} with room for `
    + `compaction (x ${headroom}); ${expressionOf(offer, choice)} of ${choice.vm} holds ${about(bytes)}`;
  const fits = Math.trunc(bytes / headroom * nodes / copies / row);
  return [problem('dataset.rows', rows, rule, `use at most ${fits} rows, more nodes, or ${largerOf(offer, choice)}`)];
}

// What no job is made of, in Python's words.
function serverProblems({title, servers, row: layout, too_long: long}, choice) {
  const {nodes, columns, bytes} = choice, row = rowInPage(layout, choice);
  const most = Object.keys(servers).length, rule = `this page has ${title} with at most ${most} servers`;
  const problems = [...(servers[nodes] ? servers[nodes].problems ?? [] : [problem('cluster.nodes', nodes, rule, 'write an experiment file')])];
  const filled = (text) => text.replace(/\{(row|columns|bytes)\}/g, (_, name) => ({row, columns, bytes})[name]);
  if (row > layout.most_bytes && !servers[nodes]?.alone) problems.push(problem(...[long.place, long.value, long.rule, long.way_out].map(filled)));
  return problems;
}

// Of local disks, all that the VM has: spec/feasible.py.
function largerOf(offer, choice) {
  const most = offer.vms[choice.vm].nvme_disks, count = choice.disk === 'nvme' ? choice.count : 0;
  if (!isLocal(choice) || count >= most) return 'larger disks';
  return `disks: ${most > 1 ? `${most} x ` : ''}nvme, which the VM has`;
}

// Of these each server holds all rows.
const WHOLE = ['postgresql', 'mariadb', 'mysql'];
const copiesOf = (choice) => (WHOLE.includes(choice.engine) ? choice.nodes : choice.copies);
const logVolume = (choice) => choice.engine !== 'yugabytedb' && choice.log === 'local' && choice.disk !== 'local';

function hostOf(offer, choice, volume, logName) {
  const vm = offer.vms[choice.vm];
  const host = structuredClone({
    version: 1, name: choice.vm, seed: 1, cached: vm.cached, uncached: vm.uncached,
    // OS disks of 2020 did not count what their cache acknowledged: catalog/resolve.py, UNCHARGED.
    cache: vm.cache && {...vm.cache, latency: offer.latencies[vm.cache.latency], charges_writes: choice.latency !== '2020'}, volumes: [volume],
  });
  if (logName) {
    const local = vm.local.local;
    const disk = {...local.disk, latency: offer.latencies[local.disk.latency]};
    host.volumes.push({name: logName, size_bytes: Math.floor(local.size_bytes / SECTOR) * SECTOR, caching: 'None', chunk_bytes: null, disks: [disk]});
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

// The job of a choice that has no problems: prediction/cells.py and what it calls.
function jobOf(offer, choice) {
  const {volume} = volumeOf(offer, choice);
  if (choice.engine === 'fio') return {device: deviceJob(offer, choice, volume)};
  if (choice.engine === 'yugabytedb') return {sql: sysbenchJob(offer, choice, volume)};
  return {[offer.engines[choice.engine].key]: rowsJob(offer, choice, volume)};
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

// sysbench on YugabyteDB: databases/yugabytedb/simulated.py and databases/statements.py.
function sysbenchJob(offer, choice, volume) {
  const engine = offer.engines.yugabytedb, vm = offer.vms[choice.vm], client = offer.vms[choice.client || choice.vm], own = vm.yugabytedb;
  const job = structuredClone(engine.job), tablets = engine.tablets_per_node * choice.nodes;
  const beside = own.block_cache_bytes + engine.beside_bytes + Math.trunc(choice.threads / choice.nodes * engine.connection_bytes);
  const page_cache_bytes = Math.max(own.memory_bytes - beside, Math.trunc(own.memory_bytes * engine.least_ratio));
  Object.assign(job.cluster, {
    nodes: choice.nodes, host: hostOf(offer, choice, volume, null), cores: vm.cores, page_cache_bytes, network_bytes_per_s: vm.network_bytes_per_s,
  });
  job.client = {nodes: 1, cores: client.cores, network_bytes_per_s: client.network_bytes_per_s};
  Object.assign(job.database, {replication_factor: choice.copies, block_cache_bytes: own.block_cache_bytes});
  for (const table of job.tables) {
    const many = table.name === engine.status ? 1 : choice.tables;
    table.tablets = tablets * many;
    if (table.name !== engine.status) table.rows = choice.tables * choice.rows;
  }
  Object.assign(job.workload, {transactions: structuredClone(engine.transactions[choice.script]), sessions: choice.threads});
  job.before = {page_cache: choice.memory, host_cache: HOST_CACHE[choice.cache]};
  Object.assign(job.parameters, carried(engine.costs, vm.speed, client.speed));
  return job;
}

function rowsJob(offer, choice, volume) {
  const engine = offer.engines[choice.engine], vm = offer.vms[choice.vm], client = offer.vms[choice.client || choice.vm];
  const job = structuredClone(engine.job), own = vm[choice.engine], logName = logVolume(choice) ? engine.log_volume : null;
  Object.assign(job.cluster, {
    nodes: choice.nodes, host: hostOf(offer, choice, volume, logName), cores: vm.cores, page_cache_bytes: own.page_cache_bytes,
    network_bytes_per_s: vm.network_bytes_per_s, commitlog_volume: logName, read_ahead_bytes: choice.ahead < 0 ? READ_AHEAD : choice.ahead * KIB,
  });
  job.client = {nodes: 1, cores: client.cores, network_bytes_per_s: client.network_bytes_per_s};
  job.before = {...job.before, page_cache: choice.memory, host_cache: HOST_CACHE[choice.cache]};
  const load = choice.rate
    ? {open: {rate_per_ks: Math.round(choice.rate * 1000), arrivals: engine.arrivals, max_in_flight: engine.max_in_flight}}
    : {closed: {threads: choice.threads}};
  Object.assign(job.workload, {load, keys: choice.keys});
  Object.assign(job.parameters, carried(engine.costs, vm.speed, client.speed));
  return choice.engine === 'cassandra' ? cassandraJob(engine, choice, own, job) : serverJob(engine, choice, own, job);
}

// CPU times by the speed of a vCPU: databases/calibration.py.
function carried({values, speeds}, server, client) {
  const slower = {server: (speeds.server ?? server) / server, client: (speeds.client ?? client) / client};
  const times = (name) => values[name] * slower[name.startsWith('client_') ? 'client' : 'server'];
  return Object.fromEntries(Object.keys(values).map((name) => [name, Math.round(times(name))]));
}

function cassandraJob(engine, choice, own, job) {
  job.cluster.collector = own.collector;
  if (engine.ownership_ppm.length === choice.nodes) job.cluster.ownership_ppm = engine.ownership_ppm;
  job.database = {...engine.settings[choice.settings].database, replication_factor: choice.copies};
  if (choice.slots) Object.assign(job.database, {concurrent_reads: choice.slots, concurrent_writes: choice.slots});
  job.dataset = {rows: choice.rows, columns: choice.columns, column_bytes: choice.bytes};
  job.workload.read_ppm = choice.read * PPM / 100;
  return job;
}

const aligned = (size, unit) => Math.ceil(size / unit) * unit;

// `RowInPage.of` of database_facts.py.
function rowInPage(layout, {columns, bytes}) {
  let end = layout.beside_bytes;
  for (let column = 0; column < columns; column += 1) end = (bytes > layout.short_value_bytes ? aligned(end, layout.long_alignment) + layout.long_header_bytes : end + 1) + bytes;
  return aligned(end, layout.alignment) + layout.pointer_bytes;
}

function serverJob(engine, choice, own, job) {
  const values = choice.columns * choice.bytes, shares = {read: choice.read, write: 100 - choice.read};
  job.database = {...job.database, ...own.database, ...engine.servers[choice.nodes].database};
  Object.assign(job.tables[0], {rows: choice.rows, row_bytes: rowInPage(engine.row, choice)});
  job.workload.transactions = job.workload.transactions.filter(({name}) => shares[name] > 0);
  for (const kind of job.workload.transactions) {
    kind.share_ppm = shares[kind.name] * PPM / 100;
    for (const statement of kind.statements) {
      statement.bytes += values - 80;  // the base's row is 2 x 40 B
      for (const access of statement.accesses) if ('written_bytes' in access) access.written_bytes = values;
    }
  }
  return job;
}

// USD a month of all nodes with their disks; null: a price is not known. results/pricing.py.
function priceOf(offer, choice) {
  const vm = offer.vms[choice.vm].usd, made = volumeOf(offer, choice);
  const disks = isLocal(choice) ? 0 : diskPrice(offer.disks[choice.disk], made.bought);
  if (vm === null || disks === null) return null;
  return Math.round((vm + disks * choice.count) * (choice.engine === 'fio' ? 1 : choice.nodes) * 100) / 100;
}

function diskPrice({usd, mb_bytes: unit}, {size, iops, bytes}) {
  if (usd === null) return null;
  if ('fixed' in usd) return usd.fixed;
  return usd.per_gib * size + usd.per_iops * Math.max(0, (iops ?? 0) - usd.iops_included)
    + usd.per_mb_per_s * Math.max(0, (bytes ?? 0) / unit - usd.mb_per_s_included);
}

// The same as a file: what `disklab predict` and `disklab rehearse` take.
function experimentOf(offer, choice, title = 'From the knob') {
  const quoted = (text) => (/[(,]/.test(text) ? `"${text}"` : text);
  const disks = [`disks: ${quoted(expressionOf(offer, choice))}`, `caching: ${choice.caching}`];
  if (choice.latency) disks.push(`latency: "${choice.latency}"`);
  const before = [`host_cache: ${choice.cache}`, `credits: ${choice.credits}%`];
  if (choice.engine === 'fio') {
    return [`title: ${title}`, 'device:', `  vm: ${choice.vm}`, `  volume: {${disks.join(', ')}}`,
      `workload: {fio: {rw: ${choice.rw}, bs: ${choice.block}k, jobs: ${choice.jobs}, depth: ${choice.depth}}, stop: {duration: ${offer.seconds}s}}`,
      `before: {${before.join(', ')}}`, ''].join('\n');
  }
  const engine = offer.engines[choice.engine];
  const cluster = ['cluster:', `  nodes: ${choice.nodes}`, `  vm: ${choice.vm}`, '  volumes:'], client = choice.client ? [`client: {nodes: 1, vm: ${choice.client}}`] : [];
  if (choice.engine === 'yugabytedb') {
    const {script, tables, rows, threads} = choice;
    return [`title: ${title}`, ...cluster, `    data: {${disks.join(', ')}, filesystem: xfs}`, ...client,
      `database: {engine: yugabytedb, replication_factor: ${choice.copies}}`,
      `workload: {sysbench: {script: ${script}, tables: ${tables}, rows_per_table: ${rows}, threads: ${threads}}, ${engine.course}}`,
      `before: {page_cache: ${choice.memory}, ${before.join(', ')}}`, ''].join('\n');
  }
  if (choice.ahead >= 0) disks.push(`read_ahead: ${choice.ahead}KiB`);
  const settings = engine.settings[choice.settings].text.slice(1, -1).split(', ').filter(Boolean);
  if (choice.slots && choice.engine === 'cassandra') settings.push(`concurrent_reads: ${choice.slots}`, `concurrent_writes: ${choice.slots}`);
  const load = choice.rate ? `rate: ${choice.rate}/s` : `threads: ${choice.threads}`;
  return [`title: ${title}`, ...cluster,
    `    data: {${disks.join(', ')}, filesystem: xfs}`, ...(choice.log === 'local' ? [`    ${engine.log_volume}: {disks: local}`] : []),
    ...client,
    `database: {engine: ${choice.engine}, replication_factor: ${copiesOf(choice)}${settings.length ? `, settings: {${settings.join(', ')}}` : ''}}`,
    `dataset: {rows: ${choice.rows}, row: ${choice.columns} x ${choice.bytes}B}`,
    'workload:', `  operations: {read: ${choice.read}%, write: ${100 - choice.read}%}`, `  keys: ${choice.keys}`, `  load: {${load}}`,
    `  stop: {operations: ${offer.operations}}`, `before: {page_cache: ${choice.memory}, ${before.join(', ')}}`, ''].join('\n');
}
