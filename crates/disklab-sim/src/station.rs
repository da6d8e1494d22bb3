//! Places where requests queue: cores, slots, links. Each knows how busy it was and who waited.

use std::collections::VecDeque;

/// What a station did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests served.
    pub served: u64,
    /// Time of service, added up over its servers, in nanoseconds.
    pub busy_ns: u64,
    /// Time that requests waited for it, added up, in nanoseconds.
    pub waited_ns: u64,
}

/// Several servers with one queue, first come, first served.
///
/// A request goes to the server that is free first, so its end is known when it arrives: no event
/// is needed for it. Requests must arrive in the order of time.
#[derive(Clone, Debug)]
pub struct Servers {
    free_at: Vec<u64>,
    usage: Usage,
    endless: bool,
}

impl Servers {
    /// `count` idle servers; `endless`: one for every request.
    pub fn new(count: u32, endless: bool) -> Servers {
        Servers {
            free_at: vec![0; count.max(1) as usize],
            usage: Usage::default(),
            endless,
        }
    }

    /// Serves a request that arrives at `now`; returns when it is done.
    #[inline]
    pub fn serve(&mut self, now: u64, service_ns: u64) -> u64 {
        let mut first = 0;
        for (index, &at) in self.free_at.iter().enumerate() {
            if at <= now {
                first = index;
                break;
            }
            if at < self.free_at[first] {
                first = index;
            }
        }
        self.serve_on(first, now, service_ns)
    }

    /// Serves a request of somebody who has run on a server before: that one if it is idle, else any
    /// that is, else he waits for his own. **Source:** the scheduler of Linux (`select_idle_sibling`): a thread that
    /// wakes up looks for an idle processor, and without one it waits in the queue of the last it ran on.
    #[inline]
    pub fn serve_at_home(&mut self, home: usize, now: u64, service_ns: u64) -> u64 {
        let home = home % self.free_at.len();
        let idle = if self.free_at[home] <= now {
            Some(home)
        } else {
            self.free_at.iter().position(|&at| at <= now)
        };
        self.serve_on(idle.unwrap_or(home), now, service_ns)
    }

    #[inline]
    fn serve_on(&mut self, server: usize, now: u64, service_ns: u64) -> u64 {
        self.usage.served += 1;
        self.usage.busy_ns += service_ns;
        if self.endless {
            return now + service_ns;
        }
        let start = self.free_at[server].max(now);
        self.usage.waited_ns += start - now;
        self.free_at[server] = start + service_ns;
        start + service_ns
    }

    /// Stops every server for a span from `now` on; work under way goes on afterwards.
    pub fn pause(&mut self, now: u64, span_ns: u64) {
        for at in &mut self.free_at {
            *at = (*at).max(now) + span_ns;
        }
    }

    /// How many servers.
    pub fn count(&self) -> u64 {
        self.free_at.len() as u64
    }

    /// What they did.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Starts the counts again at zero.
    pub fn reset(&mut self) {
        self.usage = Usage::default();
    }
}

/// Slots that a request holds for as long as it takes.
#[derive(Clone, Debug)]
pub struct Slots {
    count: u32,
    used: u32,
    waiting: VecDeque<(u32, u64)>,
    changed_at: u64,
    usage: Usage,
}

impl Slots {
    /// `count` free slots.
    pub fn new(count: u32) -> Slots {
        Slots {
            count,
            used: 0,
            waiting: VecDeque::new(),
            changed_at: 0,
            usage: Usage::default(),
        }
    }

    /// Takes a slot for `request`; false: it waits for its turn.
    #[inline]
    pub fn enter(&mut self, now: u64, request: u32) -> bool {
        if self.used == self.count {
            self.waiting.push_back((request, now));
            return false;
        }
        self.account(now);
        self.used += 1;
        true
    }

    /// Gives a slot back; returns the request that has it now.
    #[inline]
    pub fn leave(&mut self, now: u64) -> Option<u32> {
        self.usage.served += 1;
        if let Some((request, since)) = self.waiting.pop_front() {
            self.usage.waited_ns += now - since;
            return Some(request);
        }
        self.account(now);
        self.used -= 1;
        None
    }

    #[inline]
    fn account(&mut self, now: u64) {
        self.usage.busy_ns += u64::from(self.used) * (now - self.changed_at);
        self.changed_at = now;
    }

    /// How many slots.
    pub fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// What they did up to `now`, or up to the last time at which one was taken or given back.
    pub fn usage(&mut self, now: u64) -> Usage {
        self.account(now.max(self.changed_at));
        self.usage
    }

    /// Starts the counts again at zero.
    pub fn reset(&mut self, now: u64) {
        self.account(now);
        self.usage = Usage::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_to_the_server_that_is_free_first() {
        let mut servers = Servers::new(2, false);
        assert_eq!(servers.serve(0, 10), 10);
        assert_eq!(servers.serve(0, 4), 4);
        assert_eq!(servers.serve(1, 10), 14, "waits for the second");
        assert_eq!(servers.serve(20, 5), 25);
        assert_eq!(servers.usage().waited_ns, 3);
        servers.pause(21, 100);
        assert_eq!(servers.serve(22, 1), 122);
        assert_eq!(servers.serve(22, 1), 123);
        assert_eq!(servers.serve(22, 10), 133);
        assert_eq!(servers.serve(22, 1), 126, "after what was interrupted");
    }

    #[test]
    fn a_request_waits_for_the_server_that_it_was_on_when_none_is_idle() {
        let mut servers = Servers::new(2, false);
        assert_eq!(servers.serve_at_home(1, 0, 10), 10);
        assert_eq!(servers.serve_at_home(1, 0, 4), 4, "the other is idle");
        assert_eq!(
            servers.serve_at_home(3, 1, 10),
            20,
            "its own, though the other is free first"
        );
        assert_eq!(servers.serve_at_home(0, 2, 1), 5);
        assert_eq!(servers.usage().waited_ns, 9 + 2);
    }

    #[test]
    fn slots_go_to_whoever_waits_longest() {
        let mut slots = Slots::new(1);
        assert!(slots.enter(0, 7));
        assert!(!slots.enter(2, 8));
        assert!(!slots.enter(3, 9));
        assert_eq!(slots.leave(10), Some(8));
        assert_eq!(slots.leave(11), Some(9));
        assert_eq!(slots.leave(15), None);
        let usage = slots.usage(20);
        assert_eq!((usage.busy_ns, usage.waited_ns, usage.served), (15, 16, 3));
    }
}
