//! The connections of the control socket: bounded, and idle ones give way to new ones.
//!
//! A connection that says nothing costs a thread and a place. Were new ones turned away for it, sixteen forgotten
//! clients would make a healthy host look dead.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Connections at a time. Four times what may be at work, so that there is always an idle one to close.
pub const CONNECTIONS: usize = 64;
/// Requests at work at a time. They wait for each other; more would only grow the queue.
pub const AT_WORK: usize = 16;

/// All of them.
#[derive(Default)]
pub struct Connections {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    connections: Vec<Connection>,
    /// Connections so far: their numbers.
    count: u64,
}

struct Connection {
    number: u64,
    /// To close it.
    stream: UnixStream,
    /// When it was last at work.
    since: Instant,
    works: bool,
}

/// The place of one connection, given back when dropped.
pub struct Place {
    all: Arc<Connections>,
    number: u64,
}

impl Connections {
    /// A place for a new connection. Where all are taken, the connection is closed that has been idle for longest.
    pub fn admit(self: &Arc<Connections>, client: &UnixStream) -> io::Result<Place> {
        let stream = client.try_clone()?;
        let mut open = self.lock();
        if open.connections.len() >= CONNECTIONS {
            let idle = open.connections.iter().enumerate();
            let longest = idle
                .filter(|(_, connection)| !connection.works)
                .min_by_key(|(_, connection)| connection.since);
            let (index, _) = longest.expect("fewer may be at work than there are places");
            let closed = open.connections.swap_remove(index);
            // Its thread reads the end; one that has just ended by itself is closed already.
            let _ = closed.stream.shutdown(Shutdown::Both);
        }
        open.count += 1;
        let number = open.count;
        open.connections.push(Connection {
            number,
            stream,
            since: Instant::now(),
            works: false,
        });
        Ok(Place {
            all: self.clone(),
            number,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Begins a request. False: so many are at work that it must be refused, or the connection was closed.
    pub fn work(&self) -> bool {
        let mut open = self.all.lock();
        let at_work = open.connections.iter().filter(|one| one.works).count();
        let number = self.number;
        match open.connections.iter_mut().find(|one| one.number == number) {
            Some(own) if at_work < AT_WORK => {
                own.works = true;
                true
            }
            _ => false,
        }
    }

    /// Ends a request.
    pub fn rest(&self) {
        let mut open = self.all.lock();
        let number = self.number;
        if let Some(own) = open.connections.iter_mut().find(|one| one.number == number) {
            own.works = false;
            own.since = Instant::now();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let number = self.number;
        let mut open = self.all.lock();
        open.connections.retain(|one| one.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{ErrorKind, Read};

    /// Connections that have places, each with the client's end.
    fn fill(all: &Arc<Connections>, count: usize) -> Vec<(Place, UnixStream)> {
        let connect = |_| {
            let (server, client) = UnixStream::pair().expect("two ends");
            client.set_nonblocking(true).expect("a socket");
            (all.admit(&server).expect("a place"), client)
        };
        (0..count).map(connect).collect()
    }

    fn is_closed(client: &mut UnixStream) -> bool {
        match client.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    #[test]
    fn the_longest_idle_one_gives_way() {
        let all = Arc::new(Connections::default());
        let mut first = fill(&all, CONNECTIONS);
        // The first has just said something, the second is at work.
        assert!(first[0].0.work() && first[1].0.work());
        first[0].0.rest();
        let mut more = fill(&all, 3);
        let closed: Vec<usize> = (0..CONNECTIONS)
            .filter(|&index| is_closed(&mut first[index].1))
            .collect();
        assert_eq!(closed, [2, 3, 4]);
        assert!(more.iter_mut().all(|(_, client)| !is_closed(client)));
        assert!(!first[2].0.work(), "a closed connection began a request");
        // A place that was given back needs nobody to give way.
        first.truncate(CONNECTIONS - 1);
        fill(&all, 1);
        assert!(!is_closed(&mut first[5].1));
    }

    #[test]
    fn no_more_are_at_work_than_may_be() {
        let all = Arc::new(Connections::default());
        let some = fill(&all, AT_WORK + 1);
        assert!(some[..AT_WORK].iter().all(|(place, _)| place.work()));
        assert!(!some[AT_WORK].0.work());
        some[0].0.rest();
        assert!(some[AT_WORK].0.work());
    }
}
