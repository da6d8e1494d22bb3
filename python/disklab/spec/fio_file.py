"""fio's job files as experiments: sections, and what each asks of a disk.

**Source:** fio's HOWTO of 3.33. Options that change nothing of the load are passed over; one that
changes it in a way that disklab does not have is named by file and line, all at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from disklab.catalog.quantity import plain_number
from disklab.catalog.suggest import did_you_mean
from disklab.errors import Problem, UserError
from disklab.reading import EXPERIMENT, LARGEST_WHOLE, MOST_SHOWN, digits, text
from disklab.spec.amounts import LONGEST_S, MOST_COUNT
from disklab.spec.fio import FIO_MIXES, FIO_READS

SUFFIXES = (".fio", ".job", ".ini")
FACTOR = "section"

SAME = {
    "readwrite": "rw",
    "blocksize": "bs",
    "wait_for_previous": "stonewall",
    "bs_split": "bssplit",
    "blocksize_unaligned": "bs_unaligned",
    "fileoffset": "offset",
    "fill_fs": "fill_device",
    "ratecycle": "rate_cycle",
    "ratemin": "rate_min",
    "ss_dur": "steadystate_duration",
    "ss_ramp": "steadystate_ramp_time",
}
"""Names that mean the same option."""

READ = frozenset(
    {
        *("rw", "rwmixread", "rwmixwrite", "bs", "bssplit", "iodepth", "numjobs", "ioengine"),
        *("direct", "buffered", "fsync", "fdatasync", "rate_iops", "size", "io_size", "filesize"),
        *("runtime", "time_based", "ramp_time", "stonewall", "name", "directory", "filename"),
    }
)
"""Options that are read."""

WITHOUT_EFFECT = frozenset(
    """
    filename_format group_reporting new_group thread description fallocate
    randrepeat allrandrepeat randseed norandommap softrandommap random_generator invalidate
    end_fsync fsync_on_close sync_file_range create_on_open create_serialize create_fsync
    create_only file_append unlink unlink_each_loop overwrite openfiles nrfiles file_service_type
    fadvise_hint refill_buffers scramble_buffers zero_buffers buffer_pattern
    buffer_compress_percentage buffer_compress_chunk dedupe_percentage mem iomem_align
    hugepage_size gtod_reduce gtod_cpu clocksource disable_lat disable_clat disable_slat
    disable_bw_measurement lat_percentiles clat_percentiles slat_percentiles percentile_list
    significant_figures log_avg_msec log_hist_msec log_max_value log_offset log_compression
    log_store_compressed write_bw_log write_lat_log write_iops_log write_hist_log write_iolog
    per_job_logs bwavgtime iopsavgtime disk_util unified_rw_reporting kb_base unit_base
    status_interval eta eta_newline exitall exitall_on_error exit_what continue_on_error
    allow_mounted_write allow_file_create cpus_allowed cpus_allowed_policy cpumask numa_cpu_nodes
    numa_mem_policy nice prio prioclass uid gid exec_prerun exec_postrun hipri fixedbufs
    registerfiles sqthread_poll sqthread_poll_cpu nonvectored userspace_reap libaio_vector
    iodepth_low iodepth_batch iodepth_batch_submit iodepth_batch_complete
    iodepth_batch_complete_min iodepth_batch_complete_max io_submit_mode ss steadystate
    max_latency stats warnings_fatal minimal output-format output blockalign ba
    do_verify verify_async verify_backlog verify_backlog_batch verify_dump verify_fatal
    verify_interval verify_offset verify_pattern verify_state_load verify_state_save
    experimental_verify rate_cycle log_entries unique_filename
    """.split()  # noqa: SIM905 - a hundred names, to be read
)
"""Options that change neither what a disk is asked nor when."""

DEFAULTS = {
    name: frozenset(values.split())
    for values, names in (
        (
            "0",
            """
            atomic block_error_percentiles bs_unaligned cgroup_nodelete dedupe_global error_dump
            filesize fill_device flow flow_id flow_sleep ignore_zone_limits io_size
            job_max_open_zones latency_run log_alternate_epoch log_hist_coarseness log_prio
            log_unix_epoch max_open_zones number_ios offset offset_align offset_increment pre_read
            ramp_time rate rate_ignore_thinktime rate_iops rate_iops_min rate_min read_beyond_wp
            read_iolog_chunked replay_no_stall runtime serialize_overlap size startdelay
            steadystate_duration steadystate_ramp_time thinktime thinktime_iotime thinktime_spin
            trim_percentage verify_only write_barrier zone_reset_frequency zone_reset_threshold
            zonecapacity zonerange zonesize zoneskip
            """,
        ),
        ("0 none", "lockmem sync verify zonemode lockfile write_hint"),
        ("1", "loops replay_scale thinktime_blocks trim_verify_zero"),
        ("5", "dedupe_working_set_percentage"),
        ("100", "latency_percentile replay_time_scale"),
        ("100 100,100,100", "percentage_random"),
        ("1000", "rate_cycle"),
        ("2097152 2m 2mib", "hugepage-size"),
        ("complete", "thinktime_blocks_type"),
        ("linear", "rate_process"),
        ("random", "random_distribution"),
        ("repeat", "dedupe_mode"),
        ("sequential", "rw_sequencer"),
    )
    for name in names.split()
}
"""What of fio's options is as good as no line. **Source:** `fio --cmdhelp=NAME` of 3.33; what it
has no default for is off when it is 0."""

WAITING = frozenset({"sync", "psync", "vsync", "pvsync", "pvsync2"})
"""Engines whose callers wait for each I/O, so that a depth means nothing."""
QUEUED = frozenset({"libaio", "io_uring", "posixaio", "windowsaio", "solarisaio"})

SIZE = re.compile(r"(\d+)\s*(?:([kmgtp])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)
POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
TIME = re.compile(r"(\d+)\s*(d|h|m|s|ms|msec|us|usec)?", re.IGNORECASE | re.ASCII)
TIMES_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}

LONGEST = "1h"
"""What a job without `runtime` may take; it ends when it has done its bytes."""


@dataclass(frozen=True)
class Option:
    """A value and where it stands."""

    value: str
    line: int


@dataclass
class Section:
    """One job of a file, with what the global sections before it say."""

    name: str
    line: int
    options: dict[str, Option]

    @property
    def walled(self) -> bool:
        """Whether it waits for those before it."""
        return self.options.get("stonewall", Option("0", 0)).value != "0"


@dataclass
class FioFile:
    """A job file as it is read, with what is wrong with it."""

    path: Path
    problems: list[Problem] = field(default_factory=list)

    def fault(self, line: int, value: str, rule: str, way_out: str) -> None:
        """Note that something cannot be read or done."""
        short = value if len(value) <= MOST_SHOWN else f"{value[:MOST_SHOWN]}..."
        self.problems.append(Problem(f"{self.path}:{line}", short, rule, way_out))

    def sections(self, content: str) -> list[Section]:
        """Return the jobs of a file in its order."""
        common: dict[str, Option] = {}
        jobs: list[Section] = []
        current: dict[str, Option] | None = None
        for number, raw in enumerate(content.splitlines(), start=1):
            line = raw.strip()
            if line.startswith("[") and line.endswith("]"):
                name = line[1:-1].strip()
                if name != "global":
                    jobs.append(Section(name, number, dict(common)))
                current = common if name == "global" else jobs[-1].options
            elif line and line[0] not in "#;":
                self._option(number, line, current)
        if not jobs and not self.problems:
            self.fault(1, str(self.path), "has no job", "write a section, such as [wal]")
        return jobs

    def _option(self, number: int, line: str, options: dict[str, Option] | None) -> None:
        """Take one line of a section."""
        key, sign, value = (part.strip() for part in line.partition("="))
        if options is None:
            rule = "comes before the first section"
            self.fault(number, line, rule, "write [global] or [NAME] above it")
        elif not key:
            self.fault(number, line, "has no option before `=`", "write for example rw=read")
        elif key.split()[0] == "include":
            self.fault(number, line, "files are not included", "write its lines here")
        elif "${" in value or "$(" in value:
            rule = "a variable comes from fio's environment, which disklab does not know"
            self.fault(number, line, rule, "write its value")
        else:
            name = SAME.get(key, key)
            options[name] = Option(value if sign else "1", number)
            if is_default(name, options[name].value):
                # Also of what [global] has set.
                del options[name]

    def number(self, option: Option | None, name: str, otherwise: int) -> int:
        """Return a count."""
        if option is None:
            return otherwise
        number = digits(option.value)
        if number is None:
            value = f"{name}={option.value}"
            self.fault(option.line, value, "is not a number of at most 19 digits", "write digits")
            return otherwise
        return number

    def bytes_(self, option: Option, name: str) -> int | None:
        """Return bytes, of which k and M are powers of 1024."""
        match = SIZE.fullmatch(option.value)
        if match is None:
            rule = "is not a size that disklab reads"
            self.fault(option.line, f"{name}={option.value}", rule, "write for example 22m or 4k")
            return None
        number = digits(match[1], (LARGEST_WHOLE - 1) >> POWERS[(match[2] or "").lower()])
        if number is None:
            rule = "is larger than anything that disklab knows"
            self.fault(option.line, f"{name}={option.value}", rule, "write for example 22m")
            return None
        return number << POWERS[(match[2] or "").lower()]

    def seconds(self, option: Option, name: str) -> float:
        """Return a time."""
        match = TIME.fullmatch(option.value)
        if match is None:
            rule = "is not a time that disklab reads"
            self.fault(option.line, f"{name}={option.value}", rule, "write for example 60s or 2m")
            return 0.0
        unit = (match[2] or "s").lower().removesuffix("ec")
        number = digits(match[1])
        if number is None or number * TIMES_S[unit] > LONGEST_S:
            rule = "is longer than 30 days, which is the longest trial"
            self.fault(option.line, f"{name}={option.value}", rule, "write for example 60s")
            return 0.0
        return number * TIMES_S[unit]

    def load(self, job: Section) -> dict[str, Any]:
        """Return a section as `workload.fio` has it."""
        options = job.options
        for name, option in options.items():
            if name not in READ and name not in WITHOUT_EFFECT:
                rule = "disklab has no such load"
                way_out = did_you_mean(name, sorted(READ), "leave the line out, or run fio itself")
                self.fault(option.line, f"{name}={option.value}", rule, way_out)
        rw = self._direction(options)
        fio: dict[str, Any] = {"rw": rw, "jobs": self.number(options.get("numjobs"), "numjobs", 1)}
        fio["depth"] = self._depth(options)
        fio |= self._blocks(options, rw)
        if rw in FIO_MIXES:
            written = 100 - self.number(options.get("rwmixwrite"), "rwmixwrite", 50)
            fio["rwmixread"] = self.number(options.get("rwmixread"), "rwmixread", written)
        if not self._direct(options):
            fio["direct"] = False
        for name in ("fsync", "fdatasync"):
            every = self.number(options.get(name), name, 0)
            if every and FIO_READS[rw] < 100:
                fio[name] = every
        if "rate_iops" in options:
            fio["rate_iops"] = self._rate(options["rate_iops"], fio)
        return fio | self._size(job)

    def _size(self, job: Section) -> dict[str, Any]:
        """Return how much a section does, unless its time says so."""
        options = job.options
        size = options.get("io_size") or options.get("size") or options.get("filesize")
        timed = self.number(options.get("time_based"), "time_based", 0) != 0
        if size is None and not timed and "runtime" not in options:
            rule = "says neither how much nor how long"
            self.fault(job.line, f"[{job.name}]", rule, "write size=1g, or runtime=60s")
        amount = None if size is None else self.bytes_(size, "size")
        if amount is None:
            return {}
        return {"size": amount} if timed else {"size": amount, "once": True}

    def _direction(self, options: Mapping[str, Option]) -> str:
        option = options.get("rw", Option("read", 0))  # fio's default
        rw = {"readwrite": "rw"}.get(option.value, option.value)
        if rw not in FIO_READS:
            rule = "disklab has no such pattern"
            way_out = did_you_mean(rw, [*FIO_READS], f"write one of {', '.join(FIO_READS)}")
            self.fault(option.line, f"rw={rw}", rule, way_out)
            return "read"
        return rw

    def _direct(self, options: Mapping[str, Option]) -> bool:
        if "buffered" in options and "direct" not in options:
            return self.number(options["buffered"], "buffered", 1) == 0
        return self.number(options.get("direct"), "direct", 0) == 1

    def _depth(self, options: Mapping[str, Option]) -> int:
        engine = options.get("ioengine", Option("psync", 0))
        if engine.value not in WAITING | QUEUED:
            rule = "disklab has no such engine"
            way_out = did_you_mean(
                engine.value, sorted(WAITING | QUEUED), "write libaio, io_uring or psync"
            )
            self.fault(engine.line, f"ioengine={engine.value}", rule, way_out)
        depth = self.number(options.get("iodepth"), "iodepth", 1)
        return 1 if engine.value in WAITING else depth

    def _blocks(self, options: Mapping[str, Option], rw: str) -> dict[str, Any]:
        if "bssplit" in options:
            return self._split(options["bssplit"])
        option = options.get("bs", Option("4k", 0))
        parts = option.value.split(",")
        chosen = parts[0] if FIO_READS[rw] or len(parts) == 1 else parts[1] or parts[0]
        if len(parts) > 1 and rw in FIO_MIXES and len(set(parts[:2])) > 1:
            rule = "reads and writes of a mix have one block size"
            way_out = "write two sections, one that reads and one that writes"
            self.fault(option.line, f"bs={option.value}", rule, way_out)
        return {"bs": self.bytes_(Option(chosen, option.line), "bs") or 4096}

    def _split(self, option: Option) -> dict[str, Any]:
        shown = f"bssplit={option.value}"
        if "," in option.value:
            rule = "reads and writes have one split"
            self.fault(option.line, shown, rule, "write one section for each")
            return {"bs": 4096}
        sizes = [part.partition("/") for part in option.value.split(":")]
        shares = [digits(share) for _, _, share in sizes]
        blocks = [self.bytes_(Option(size, option.line), "bssplit") for size, _, _ in sizes]
        left = 100 - sum(share for share in shares if share is not None)
        missing = shares.count(None)
        told = [left / missing if share is None else share for share in shares]
        written = sum(bool(share) for _, _, share in sizes)
        if left < 0 or (left and not missing) or None in blocks or written + missing > len(sizes):
            rule = "the shares of its sizes do not make 100"
            self.fault(option.line, shown, rule, "write for example 4k/60:64k/40")
            return {"bs": 4096}
        split = [
            {"bs": block, "share": f"{plain_number(share)}%"}
            for block, share in zip(blocks, told, strict=True)
            if share
        ]
        return {"bs": max(int(size["bs"]) for size in split if size["bs"]), "bssplit": split}

    def _rate(self, option: Option, fio: Mapping[str, Any]) -> int:
        """Return the I/Os a second of a job: fio caps each direction by itself."""
        caps = [digits(part, MOST_COUNT) or 0 for part in option.value.split(",")]
        if not all(caps):
            rule = "is not a number of I/Os a second"
            self.fault(option.line, f"rate_iops={option.value}", rule, "write for example 500")
            return 1
        read, write = caps[0], caps[-1]
        reads: float = fio.get("rwmixread", FIO_READS[fio["rw"]]) / 100
        bounds = [cap / share for cap, share in ((read, reads), (write, 1 - reads)) if share]
        return max(1, round(min(bounds)))


@dataclass(frozen=True)
class On:
    """The disk that a job file is asked of."""

    disks: tuple[str, ...]
    vm: str
    caching: str = "None"


def is_default(name: str, value: str) -> bool:
    """Return whether an option says what fio does without it; `0k` and `0s` are 0."""
    text = re.sub(r"^0+\D{0,4}$", "0", value.strip().lower(), flags=re.ASCII)
    return text in DEFAULTS.get(name, ())


def is_fio_file(path: Path) -> bool:
    """Return whether a path is that of a job file, by its name."""
    return path.suffix in SUFFIXES


def experiment_text(path: Path, on: On) -> str:
    """Return a job file as an experiment file. Raises UserError with all that it cannot say."""
    file = FioFile(path)
    jobs = file.sections(text(path, EXPERIMENT, "EXPERIMENT"))
    return _experiment_text(file, jobs, on)


def experiment_text_of(path: Path, jobs: Sequence[Section], on: On) -> str:
    """Return jobs that fio has run as an experiment file, one after the other."""
    apart = [replace(job, options={**job.options, "stonewall": Option("1", 1)}) for job in jobs]
    return _experiment_text(FioFile(path), apart, on)


def jobs_of_report(
    path: Path, report: Mapping[str, Any]
) -> tuple[list[Section], dict[str, list[Mapping[str, Any]]]]:
    """Return the jobs of fio's JSON output by their names: their options, and what they did."""
    common = {"runtime": "60", "time_based": "1", **_words(report.get("global options"))}
    sections: dict[str, Section] = {}
    jobs: dict[str, list[Mapping[str, Any]]] = {}
    group = None
    for job in report["jobs"]:
        name = str(job.get("jobname", "job"))
        options = common | _words(job.get("job options"))
        if name not in sections:
            read = {
                SAME.get(key, key): Option(value, 1)
                for key, value in options.items()
                if SAME.get(key, key) in READ and not is_default(SAME.get(key, key), value)
            }
            # Options without a value are not told; a stonewall begins a group.
            if group not in (None, job.get("groupid")):
                read["stonewall"] = Option("1", 1)
            group = job.get("groupid")
            sections[name] = Section(name, 1, read)
        elif "numjobs" not in options:
            rule = "two jobs of the output have this name"
            raise UserError(
                Problem(str(path), name, rule, "give each job a name, and run it again")
            )
        jobs.setdefault(name, []).append(job)
    return [*sections.values()], jobs


def _words(options: object) -> dict[str, str]:
    """Return options of fio's JSON output: an empty one stands for 1."""
    if not isinstance(options, Mapping):
        return {}
    return {str(key): str(value) or "1" for key, value in options.items()}


def _experiment_text(file: FioFile, jobs: Sequence[Section], on: On) -> str:
    path = file.path
    groups: list[list[Section]] = []
    for job in jobs:
        if not groups or job.walled:
            groups.append([])
        groups[-1].append(job)
    _one_volume(file, jobs)
    workloads = {" + ".join(job.name for job in group): _workload(file, group) for group in groups}
    if len(workloads) < len(groups):
        file.fault(1, str(path), "two of its jobs have one name", "give each a name of its own")
    if file.problems:
        raise UserError(*file.problems)
    base, *_ = workloads.values()
    tree: dict[str, Any] = {
        "title": f"fio's {path.name}",
        "source": f"the job file {path.name}",
        "device": {"vm": on.vm, "volume": {"disks": on.disks[0], "caching": on.caching}},
        "workload": base,
    }
    factors: dict[str, Any] = {}
    if len(on.disks) > 1:
        factors["device.volume.disks"] = [*on.disks]
    if len(workloads) > 1:
        # A level is laid over the first section: what that one alone says is taken back.
        own = base["fio"].keys()
        factors[FACTOR] = {
            name: {
                "workload": {
                    **each,
                    "fio": dict.fromkeys(sorted(own - each["fio"].keys())) | each["fio"],
                }
            }
            for name, each in workloads.items()
        }
    if factors:
        tree["factors"] = factors
    head = f"# Written by `disklab predict {path.name}` from fio's job file.\n"
    return head + yaml.safe_dump(tree, sort_keys=False, width=100)


def _one_volume(file: FioFile, jobs: Sequence[Section]) -> None:
    """Note where jobs lie in several directories or on several devices: there is one volume."""
    places: dict[str, Option] = {}
    for job in jobs:
        for name in ("directory", "filename"):
            option = job.options.get(name, Option("", 0))
            for part in option.value.split(":"):
                in_folder = name == "filename" and not part.startswith("/dev/")
                if place := part.rpartition("/")[0] if in_folder else part.rstrip("/"):
                    places.setdefault(place, option)
    if len(places) > 1:
        first, *others = places
        rule = f"is another place than {first}, and a prediction has one volume"
        way_out = "predict the jobs of each place by a file of their own; or write one directory"
        for place in others:
            file.fault(places[place].line, place, rule, way_out)


def _workload(file: FioFile, group: Sequence[Section]) -> dict[str, Any]:
    """Return sections that run at the same time as a workload."""
    first, *others = (file.load(job) for job in group)
    if others:
        first["name"] = group[0].name
        named = [{**load, "name": job.name} for load, job in zip(others, group[1:], strict=True)]
        first["beside"] = named
    work: dict[str, Any] = {"fio": first}
    for name, key in (("ramp_time", "warm_up"), ("runtime", "")):
        times = dict(_times(file, group, name))
        if len(set(times.values())) > 1:
            line = max(times)
            rule = f"sections that run at the same time have one {name}"
            file.fault(line, name, rule, "write it once, under [global]")
        if times and key:
            work[key] = f"{plain_number(max(times.values()))}s"
        if not key:
            work["stop"] = {
                "duration": f"{plain_number(max(times.values()))}s" if times else LONGEST
            }
    return work


def _times(file: FioFile, group: Sequence[Section], name: str) -> Iterator[tuple[int, float]]:
    """Yield line and seconds of an option of each section that has it."""
    for job in group:
        if name in job.options and (seconds := file.seconds(job.options[name], name)):
            yield job.options[name].line, seconds
