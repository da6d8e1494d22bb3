//! Databases: how a request passes through the cluster's parts.

pub mod build;
pub mod cassandra;
pub mod etcd;
mod fill;
pub mod mariadb;
mod outage;
pub mod postgresql;
mod replicas;
pub mod sessions;
mod transactions;
mod wal;
pub mod yugabytedb;
