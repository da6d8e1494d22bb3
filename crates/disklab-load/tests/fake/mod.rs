//! A small database that speaks Cassandra's native protocol, version 4, and can be told to misbehave.
//!
//! It keeps rows in memory, answers what is asked about the cluster, and does with requests
//! exactly what [`Manners`] say. Not a mock: the load engine cannot tell it from a Cassandra of one or two nodes.

mod protocol;

use std::collections::{HashMap, HashSet};
use std::io::{BufReader, BufWriter, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use protocol::{Answer, Node, Request, Statement};

/// How the database behaves towards reads and writes of rows.
#[derive(Debug, Default)]
pub struct Manners {
    /// Rows that are answered as if they did not exist.
    pub hidden: HashSet<i64>,
    /// Rows of which one byte is altered.
    pub altered: HashSet<i64>,
    /// Writes that are acknowledged and dropped.
    pub dropped_writes: HashSet<i64>,
    /// From the first row asked for: nothing is answered from the first time to the second.
    pub stall: Option<(Duration, Duration)>,
    /// Every row request is answered by this error: code and text.
    pub refuse: Option<(i32, &'static str)>,
    /// User and password that every connection has to tell first.
    pub login: Option<(&'static str, &'static str)>,
    /// Requests on rows, as they came: the key, and whether it was a write.
    pub seen: Vec<(i64, bool)>,
    /// Whether `seen` is kept.
    pub watch: bool,
}

#[derive(Default)]
struct State {
    manners: Manners,
    rows: HashMap<i64, Vec<Vec<u8>>>,
    first_request: Option<Instant>,
    connections: Vec<TcpStream>,
    dead: bool,
}

/// The database. It listens until it is dropped.
pub struct Fake {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Fake {
    /// One node, at a free port of the loopback address.
    pub fn start(manners: Manners) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        Fake::serve(listener, manners, Node { address, token: 0 }, Vec::new())
    }

    /// Two nodes of one cluster, each of which has every second half of the rows. As with Cassandra their ports are the
    /// same and their addresses are not.
    pub fn pair() -> [Fake; 2] {
        let first = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = first.local_addr().expect("a bound address").port();
        let second = TcpListener::bind(("127.0.0.2", port)).expect("the same port");
        let listeners = [(first, -1), (second, i64::MAX)];
        let nodes = listeners.each_ref().map(|(listener, token)| Node {
            address: listener.local_addr().expect("a bound address"),
            token: *token,
        });
        let [(first, _), (second, _)] = listeners;
        [(first, nodes[0], nodes[1]), (second, nodes[1], nodes[0])].map(|(listener, own, other)| {
            Fake::serve(listener, Manners::default(), own, vec![other])
        })
    }

    fn serve(listener: TcpListener, manners: Manners, own: Node, others: Vec<Node>) -> Fake {
        let state = Arc::new(Mutex::new(State {
            manners,
            ..State::default()
        }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut state = shared.lock().unwrap();
                if state.dead {
                    return;
                }
                state.connections.push(stream.try_clone().unwrap());
                drop(state);
                let shared = shared.clone();
                let others = others.clone();
                // An end of the connection, or a frame that is none, ends the thread.
                std::thread::spawn(move || serve(stream, own, &others, &shared));
            }
        });
        Fake {
            address: own.address,
            state,
        }
    }

    /// Changes how it behaves, or looks at what it has seen.
    pub fn manners<T>(&self, change: impl FnOnce(&mut Manners) -> T) -> T {
        change(&mut self.state.lock().unwrap().manners)
    }

    /// The keys that it holds, in order.
    pub fn keys(&self) -> Vec<i64> {
        let mut keys: Vec<i64> = self.state.lock().unwrap().rows.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// Closes every connection, and listens on.
    pub fn hang_up(&self) {
        for connection in self.state.lock().unwrap().connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Closes every connection and listens no more.
    pub fn die(&self) {
        let mut state = self.state.lock().unwrap();
        state.dead = true;
        for connection in state.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        // Wakes the listener, which then sees that it is dead.
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.die();
    }
}

fn serve(stream: TcpStream, own: Node, others: &[Node], state: &Mutex<State>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut input = BufReader::with_capacity(1 << 16, stream.try_clone().ok()?);
    let mut output = BufWriter::with_capacity(1 << 16, stream);
    let mut statements: Vec<Statement> = Vec::new();
    let login = state.lock().unwrap().manners.login;
    let mut is_known = login.is_none();
    loop {
        let frame = protocol::read(&mut input)?;
        let answer = match Request::parse(&frame)? {
            Request::Startup if !is_known => Answer::authenticate(),
            Request::Login(token) => {
                let wanted = login.map(|(user, password)| format!("\0{user}\0{password}"));
                is_known = wanted.is_some_and(|wanted| wanted.as_bytes() == token);
                if is_known {
                    Answer::authenticated()
                } else {
                    Answer::error(0x0100, "Provided username or password are incorrect")
                }
            }
            _ if !is_known => Answer::error(0x000A, "the node does not know who asks"),
            Request::Startup | Request::Register => Answer::ready(),
            Request::Query(text) => Statement::new(text).about_cluster(own, others),
            Request::Prepare(text) => {
                let statement = Statement::new(text);
                let columns = statement.row_columns()?;
                statements.push(statement.clone());
                Answer::prepared(&statement, columns, statements.len() - 1)
            }
            Request::Execute { id, values } => {
                let statement = statements.get(id)?;
                row_request(statement, statement.row_columns()?, values, state)?
            }
        };
        output.write_all(&answer.frame(frame.stream)).ok()?;
        // Answers to what has already arrived go out together, as a real server's do.
        if input.buffer().is_empty() {
            output.flush().ok()?;
        }
    }
}

fn row_request(
    statement: &Statement,
    columns: usize,
    mut values: Vec<Vec<u8>>,
    state: &Mutex<State>,
) -> Option<Answer> {
    let key = i64::from_be_bytes(values.first()?.as_slice().try_into().ok()?);
    let mut state = wait_out_a_stall(state);
    let State { manners, rows, .. } = &mut *state;
    if manners.watch {
        manners.seen.push((key, statement.is_write()));
    }
    if let Some((code, text)) = manners.refuse {
        return Some(Answer::error(code, text));
    }
    if statement.is_write() {
        if !manners.dropped_writes.contains(&key) {
            rows.insert(key, values.split_off(1));
        }
        return Some(Answer::void());
    }
    let row = rows.get(&key).filter(|_| !manners.hidden.contains(&key));
    let Some(row) = row else {
        return Some(Answer::rows(columns, &[]));
    };
    if manners.altered.contains(&key) {
        let mut row = row.clone();
        let column = row.len() - 1;
        let byte = row[column].len() - 1;
        row[column][byte] ^= 1;
        return Some(Answer::rows(columns, &row));
    }
    Some(Answer::rows(columns, row))
}

/// Waits until no stall is on. The connection's later requests wait behind this one.
fn wait_out_a_stall(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    let mut locked = state.lock().unwrap();
    let now = Instant::now();
    let first = *locked.first_request.get_or_insert(now);
    let Some((from, to)) = locked.manners.stall else {
        return locked;
    };
    if !(from..to).contains(&(now - first)) {
        return locked;
    }
    drop(locked);
    sleep((first + to).saturating_duration_since(now));
    state.lock().unwrap()
}
