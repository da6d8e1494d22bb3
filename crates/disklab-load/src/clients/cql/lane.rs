//! A connection to one node, on which many operations are under way at once.
//!
//! Answers are compared where they were received, and requests are written where they are sent from; whatever came with
//! one read is answered by one write.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use tokio::io::AsyncWrite;

use super::frames::{Answer, Head};
use super::statements::{Ids, Statements, refused};
use super::talk::{Access, NotOpen, Talk};
use crate::clients::pauses::Pauses;
use crate::clients::stream::Stream as Bytes;
use crate::content::Step;
use crate::versions::Version;
use crate::workloads::Failure;

/// A connection that lasted for so long was a good one: it is made again as soon as the first time.
const LASTING: Duration = Duration::from_secs(1);

/// Requests that a connection can tell apart. **Source:** the native protocol, version 4, section 2.3.
const MOST_STREAMS: usize = 1 << 15;

/// A node and the connection to it, which is made anew when it is lost.
pub struct Lane {
    address: SocketAddr,
    statements: Rc<Statements>,
    access: Access,
    pauses: RefCell<Pauses>,
    state: RefCell<State>,
}

struct State {
    /// What the open connection calls the statements; or why there is none.
    ids: Result<Ids, Failure>,
    out: Output,
    streams: Streams,
    /// Whoever sends and receives.
    driver: Option<Waker>,
}

/// A connection on which nothing is under way.
pub struct Opened {
    talk: Talk,
    ids: Ids,
}

impl Lane {
    /// A node that there is no connection to yet.
    pub fn new(
        address: SocketAddr,
        statements: Rc<Statements>,
        access: Access,
        pauses: Pauses,
    ) -> Lane {
        Lane {
            address,
            statements,
            access,
            pauses: RefCell::new(pauses),
            state: RefCell::new(State {
                ids: Err(no_connection(address, &"not connected yet")),
                out: Output::default(),
                streams: Streams::default(),
                driver: None,
            }),
        }
    }

    /// Where the node is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Why an operation would fail at once; none while there is a connection.
    pub fn closed(&self) -> Option<Failure> {
        self.state.borrow().ids.as_ref().err().cloned()
    }

    /// Whether there is a connection, as far as is known.
    pub fn is_open(&self) -> bool {
        self.state.borrow().ids.is_ok()
    }

    /// Connects and prepares the statements.
    pub async fn open(&self) -> Result<Opened, NotOpen> {
        let mut talk = Talk::open(self.address, &self.access).await?;
        let mut ids = Ids::default();
        for statement in &self.statements.texts {
            ids.0.push(match statement {
                Some(text) => talk.prepare(text).await?,
                None => Vec::new(),
            });
        }
        Ok(Opened { talk, ids })
    }

    /// From now on operations go over this connection.
    pub fn accept(&self, opened: Opened) -> Talk {
        self.state.borrow_mut().ids = Ok(opened.ids);
        opened.talk
    }

    /// Keeps a connection open, for ever; `talk` is the first one, which was accepted.
    pub async fn serve(self: Rc<Lane>, mut talk: Option<Talk>) {
        loop {
            let made = match talk.take() {
                Some(talk) => Ok(talk),
                None => self.open().await.map(|opened| self.accept(opened)),
            };
            match made {
                Ok(talk) => {
                    let since = Instant::now();
                    let why = self.converse(talk).await;
                    self.close(&why);
                    if since.elapsed() >= LASTING {
                        self.pauses.borrow_mut().reset();
                    }
                }
                Err(why) => {
                    self.state.borrow_mut().ids = Err(no_connection(self.address, &why));
                }
            }
            let pause = self.pauses.borrow_mut().next();
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a step's request with the next ones; the answer is to be waited for.
    pub fn ask(self: &Rc<Lane>, step: Step) -> Result<Waiting, Failure> {
        let State {
            ids,
            out,
            streams,
            driver,
        } = &mut *self.state.borrow_mut();
        let ids = ids.as_ref().map_err(Failure::clone)?;
        let stream = streams.take(step).ok_or_else(|| Failure {
            kind: "no_stream".into(),
            text: format!(
                "{}: {MOST_STREAMS} requests without an answer",
                self.address
            ),
        })?;
        if out.is_empty()
            && let Some(driver) = driver
        {
            driver.wake_by_ref();
        }
        self.statements.request(step, ids, stream, &mut out.bytes);
        Ok(Waiting {
            lane: self.clone(),
            stream,
            over: false,
        })
    }

    /// Ends all that is under way: the connection has been lost, or is not wanted any more.
    pub fn close(&self, why: &dyn fmt::Display) {
        let mut state = self.state.borrow_mut();
        state.ids = Err(no_connection(self.address, why));
        state.out = Output::default();
        state.driver = None;
        state.streams.fail_all(&Failure {
            kind: "connection_lost".into(),
            text: format!("the connection to {} was lost: {why}", self.address),
        });
    }

    /// Sends and receives until the connection is lost; returns why it was.
    async fn converse(&self, mut talk: Talk) -> io::Error {
        poll_fn(|context| match self.poll_talk(&mut talk, context) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        })
        .await
    }

    fn poll_talk(&self, talk: &mut Talk, context: &mut Context<'_>) -> io::Result<()> {
        let Talk { stream, input, .. } = talk;
        {
            let State { out, driver, .. } = &mut *self.state.borrow_mut();
            driver.get_or_insert_with(|| context.waker().clone());
            out.send(stream, context)?;
        }
        if input.poll_fill(stream, context)?.is_ready() {
            while let Some((head, body)) = input.frame().map_err(io::Error::other)? {
                self.answered(head, body).map_err(io::Error::other)?;
            }
            // Those that were answered go first, and their next requests go out together.
            context.waker().wake_by_ref();
        }
        Ok(())
    }

    fn answered(&self, head: Head, body: &[u8]) -> Result<(), String> {
        let answer = Answer::read(head, body)?;
        let streams = &mut self.state.borrow_mut().streams;
        // What is not asked for (-1) are events, for which nobody has registered.
        let number = u16::try_from(head.stream).map_err(|_| "an event".to_string())?;
        streams.answered(number, |step| self.statements.examine(step, &answer))?;
        match answer {
            // A node forgets statements when their table is changed. The next connection prepares them again.
            Answer::Error(code @ 0x2500, text) => Err(refused(code, &text).text),
            _ => Ok(()),
        }
    }
}

fn no_connection(address: SocketAddr, why: &dyn fmt::Display) -> Failure {
    Failure {
        kind: "no_connection".into(),
        text: format!("no connection to {address}: {why}"),
    }
}

/// The answer of one request. Dropping it gives the operation up; its answer is dropped when it comes.
pub struct Waiting {
    lane: Rc<Lane>,
    stream: u16,
    over: bool,
}

impl Future for Waiting {
    type Output = Result<Version, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let lane = self.lane.clone();
        let streams = &mut lane.state.borrow_mut().streams;
        let answer = ready!(streams.poll_answer(self.stream, context));
        self.over = true;
        Poll::Ready(answer)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.over {
            self.lane.state.borrow_mut().streams.give_up(self.stream);
        }
    }
}

/// Requests by their numbers.
#[derive(Default)]
struct Streams {
    all: Vec<Stream>,
    /// Free ones. The last to come is the first to go: its memory is warm.
    free: Vec<u16>,
}

enum Stream {
    Free,
    Asked(Step, Option<Waker>),
    Answered(Result<Version, Failure>),
    /// Nobody waits for its answer, which is still to come.
    GivenUp,
}

impl Streams {
    /// A number for a request; none when all of them wait for an answer.
    fn take(&mut self, step: Step) -> Option<u16> {
        let asked = Stream::Asked(step, None);
        if let Some(number) = self.free.pop() {
            self.all[usize::from(number)] = asked;
            return Some(number);
        }
        if self.all.len() == MOST_STREAMS {
            return None;
        }
        self.all.push(asked);
        Some((self.all.len() - 1) as u16)
    }

    /// An answer has come; `examine` says what it is worth.
    fn answered(
        &mut self,
        number: u16,
        examine: impl FnOnce(Step) -> Result<Version, Failure>,
    ) -> Result<(), String> {
        let unasked = || format!("an answer to the request {number}, which was not asked");
        let stream = self.all.get_mut(usize::from(number)).ok_or_else(unasked)?;
        match stream {
            Stream::Asked(step, waker) => {
                let (step, waker) = (*step, waker.take());
                *stream = Stream::Answered(examine(step));
                waker.into_iter().for_each(Waker::wake);
            }
            Stream::GivenUp => self.release(number),
            Stream::Free | Stream::Answered(_) => return Err(unasked()),
        }
        Ok(())
    }

    fn poll_answer(
        &mut self,
        number: u16,
        context: &mut Context<'_>,
    ) -> Poll<Result<Version, Failure>> {
        match &mut self.all[usize::from(number)] {
            Stream::Asked(_, waker) => {
                // Whoever waits is one task: its waker stays the same.
                waker.get_or_insert_with(|| context.waker().clone());
                Poll::Pending
            }
            Stream::Answered(answer) => {
                let answer = std::mem::replace(answer, Ok(0));
                self.release(number);
                Poll::Ready(answer)
            }
            Stream::Free | Stream::GivenUp => unreachable!("whoever waits holds the number"),
        }
    }

    fn give_up(&mut self, number: u16) {
        match self.all[usize::from(number)] {
            Stream::Answered(_) => self.release(number),
            _ => self.all[usize::from(number)] = Stream::GivenUp,
        }
    }

    fn release(&mut self, number: u16) {
        self.all[usize::from(number)] = Stream::Free;
        self.free.push(number);
    }

    /// No answer will come any more.
    fn fail_all(&mut self, failure: &Failure) {
        for number in 0..self.all.len() {
            match &mut self.all[number] {
                Stream::Asked(_, waker) => {
                    let waker = waker.take();
                    self.all[number] = Stream::Answered(Err(failure.clone()));
                    waker.into_iter().for_each(Waker::wake);
                }
                Stream::GivenUp => self.release(number as u16),
                Stream::Free | Stream::Answered(_) => {}
            }
        }
    }
}

/// Requests that are to be sent; the first `sent` bytes of them have been.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sends as much as the socket takes; the context is woken when it takes more.
    fn send(&mut self, stream: &mut Bytes, context: &mut Context<'_>) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            let rest = &self.bytes[self.sent..];
            match Pin::new(&mut *stream).poll_write(context, rest)? {
                Poll::Ready(sent) => self.sent += sent,
                Poll::Pending => return Ok(()),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        // Encrypted bytes may still wait in front of the socket, which wakes us when it takes them.
        let _pending = Pin::new(stream).poll_flush(context)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Step = Step::Read(1);

    fn poll(streams: &mut Streams, number: u16) -> Poll<Result<Version, Failure>> {
        streams.poll_answer(number, &mut Context::from_waker(Waker::noop()))
    }

    fn failure() -> Failure {
        no_connection(([127, 0, 0, 1], 9042).into(), &"gone")
    }

    #[test]
    fn a_number_is_used_again_when_its_answer_has_been_taken_or_has_come_too_late() {
        let mut streams = Streams::default();
        let (first, second) = (streams.take(READ).unwrap(), streams.take(READ).unwrap());
        assert_ne!(first, second);
        assert!(poll(&mut streams, first).is_pending());
        streams.give_up(first);
        // Its answer is still to come: the number is not free.
        assert_eq!(streams.take(READ), Some(2));
        streams
            .answered(first, |_| panic!("nobody waits for it"))
            .unwrap();
        assert_eq!(streams.take(READ), Some(first));
        streams.answered(second, |_| Err(failure())).unwrap();
        assert!(streams.answered(second, |_| Ok(0)).is_err(), "twice");
        assert_eq!(poll(&mut streams, second), Poll::Ready(Err(failure())));
        assert_eq!(streams.take(READ), Some(second));
        assert!(streams.answered(99, |_| Ok(0)).is_err(), "never asked");
    }

    #[test]
    fn a_lost_connection_fails_what_waits_and_frees_what_was_given_up() {
        let mut streams = Streams::default();
        let numbers = [0, 1, 2].map(|_| streams.take(READ).unwrap());
        streams.give_up(numbers[0]);
        streams.answered(numbers[1], |_| Ok(0)).unwrap();
        streams.fail_all(&failure());
        assert_eq!(streams.free, [numbers[0]]);
        // An answer that had come before counts.
        assert_eq!(poll(&mut streams, numbers[1]), Poll::Ready(Ok(0)));
        assert_eq!(poll(&mut streams, numbers[2]), Poll::Ready(Err(failure())));
    }

    #[test]
    fn there_are_so_many_numbers_and_no_more() {
        let mut streams = Streams::default();
        for _ in 0..MOST_STREAMS {
            assert!(streams.take(READ).is_some_and(|number| number < 1 << 15));
        }
        assert_eq!(streams.take(READ), None);
    }
}
