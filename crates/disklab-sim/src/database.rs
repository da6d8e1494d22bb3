//! Databases: how a request passes through the cluster's parts.

pub mod build;
pub mod cassandra;
mod draws;
pub mod etcd;
mod fill;
pub mod mariadb;
mod outage;
pub mod postgresql;
mod recovery;
mod replicas;
mod servers;
pub mod sessions;
mod transactions;
mod wal;
pub mod yugabytedb;
