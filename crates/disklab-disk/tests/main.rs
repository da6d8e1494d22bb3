//! The disk model as its users see it: I/Os in, moments out.

mod closed_forms;
mod driver;
mod host_cache;
mod journal;
mod live;
mod random_runs;
mod refusals;
