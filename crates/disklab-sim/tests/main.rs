//! The simulator as its users see it: a job in, a report out.

mod faults;
mod jobs;
mod journal;
mod known_answers;
mod links;
mod mariadb;
mod operations;
mod postgresql;
mod postgresql_faults;
mod postgresql_standbys;
mod quick;
mod replicas;
mod sizes;
mod sql;
mod suite;
mod tables;
mod tail;
mod traces;
