//! What is asked of a cluster when its run is over: its caches for the next cell, and everything that a report counts.

use disklab_disk::{CacheContents, VolumeCounters};

use crate::client::Clients;
use crate::database::cassandra::Cassandra;
use crate::job::{Before, CacheState};
use crate::node::Node;
use crate::pagecache::PageCache;
use crate::record::Recorder;

impl Cassandra {
    /// What page caches and host caches hold at the end, by node.
    pub fn into_caches(mut self) -> Vec<(PageCache, Option<CacheContents>)> {
        let nodes = self.nodes.iter_mut().map(|node| &mut node.storage);
        nodes
            .map(|storage| (storage.leave_page_cache(), storage.leave_host_cache()))
            .collect()
    }

    /// Begins with those that the cell before left, where this one wants them so.
    pub fn take_caches(&mut self, left: Vec<(PageCache, Option<CacheContents>)>, before: &Before) {
        for (node, (pages, host)) in self.nodes.iter_mut().zip(left) {
            if before.page_cache == CacheState::AsLeft {
                node.storage.take_page_cache(pages);
            }
            if let (CacheState::AsLeft, Some(host)) = (before.host_cache, host) {
                node.storage.take_host_cache(host);
            }
        }
    }

    /// What was recorded.
    pub fn recorder(&self) -> &Recorder {
        &self.course.recorder
    }

    /// The nodes.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// The clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Counters of a node's volumes when measuring began, in order of attachment.
    pub fn before(&self, node: usize) -> &[VolumeCounters] {
        &self.before[node]
    }

    /// Whether every operation of the run was sent.
    pub fn did_all(&self) -> bool {
        self.course.did_all()
    }

    /// Events scheduled.
    pub fn events(&self) -> u64 {
        self.course.queue.scheduled()
    }

    /// Operations that an open loop could not send in time and never sent.
    pub fn unsent(&self) -> u64 {
        self.unsent.len() as u64
    }
}
