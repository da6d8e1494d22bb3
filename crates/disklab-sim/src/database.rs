//! Databases: how a request passes through the cluster's parts.

pub mod build;
pub mod cassandra;
mod event;
mod replicas;
pub mod yugabytedb;
