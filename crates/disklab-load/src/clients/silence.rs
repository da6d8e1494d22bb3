//! Connections to hosts that may vanish without a word.
//!
//! A host that loses its power or its link sends nothing that would end a connection, and the kernel tries for a quarter
//! of an hour. Operations on it wait until then, and with them every thread of a closed loop: of three replicas that
//! had carried 900 op/s the two that lived carried 92.
//!
//! TCP_USER_TIMEOUT would end such a connection, and that of a server, too, which lives and does not read: while its
//! window is closed the kernel counts the time, whatever the far kernel answers (tcp_probe_timer of Linux 6.18).
//! PostgreSQL that writes what it was sent to a busy disk lost its loads so. The answers are looked at here instead.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A connection ends when the far kernel has answered nothing for so long. It answers whatever its disks and its database
/// do, so only a host or a network that is gone is silent. Longer than a network's own repairs (a lost packet is sent
/// again after 0.2, 0.6 and 1.4 s), and short beside the time-outs of operations.
const SILENCE: Duration = Duration::from_secs(3);
/// A connection on which nobody waits to be heard is asked after so long, and each second.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// Questions without an answer after which an idle connection ends.
const QUESTIONS: u32 = 3;
/// How often it is looked whether the far kernel answers.
const LOOK: Duration = Duration::from_millis(250);

/// Ends a connection when its far end is silent, as long as it is kept. It is kept beside what owns the connection.
#[derive(Debug)]
pub struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Begins to watch a connection. Only for a runtime of one thread: there a watch that was dropped never runs again, so
/// that the number of a closed socket, which may be another's by then, is not used.
pub fn watch(tcp: &TcpStream) -> io::Result<Watch> {
    let tcp_level = libc::IPPROTO_TCP;
    let seconds = ASK_AFTER.as_secs() as i32;
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (tcp_level, libc::TCP_KEEPIDLE, seconds),
        (tcp_level, libc::TCP_KEEPINTVL, seconds),
        (tcp_level, libc::TCP_KEEPCNT, QUESTIONS as i32),
    ];
    let socket = tcp.as_raw_fd();
    for (level, option, value) in options {
        let length = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the value is as long as is said, and outlives the call.
        let set =
            unsafe { libc::setsockopt(socket, level, option, (&raw const value).cast(), length) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(Watch(tokio::task::spawn_local(end_when_silent(socket))))
}

async fn end_when_silent(socket: RawFd) {
    let mut silence = Silence::default();
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(answers) = Answers::of(socket) else {
            return;
        };
        if silence.saw(answers, Instant::now().into_std()) {
            // SAFETY: takes a number; who reads or writes is told that the connection is over.
            unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
            return;
        }
    }
}

/// How the far kernel answers.
#[derive(Clone, Copy, Debug)]
struct Answers {
    /// What was sent again, or asked, and not answered since.
    unanswered: u32,
    /// Since the last answer.
    heard: Duration,
}

impl Answers {
    /// Asks the kernel.
    fn of(socket: RawFd) -> io::Result<Answers> {
        // **Source:** struct tcp_info of <linux/tcp.h>, whose fields keep their places: bytes first, of which the third
        // and the fourth count what was sent again and what was asked; then words of 32 bits.
        const RETRANSMITS: usize = 2;
        const PROBES: usize = 3;
        const LAST_ACK_RECEIVED: usize = 56;
        const LENGTH: usize = 60;
        let mut info = MaybeUninit::<[u8; LENGTH]>::zeroed();
        let mut length = LENGTH as libc::socklen_t;
        // SAFETY: the kernel writes at most so many bytes, all of which were set to zero.
        let (got, info) = unsafe {
            let got = libc::getsockopt(
                socket,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            );
            (got, info.assume_init())
        };
        if got != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut heard = [0; 4];
        heard.copy_from_slice(&info[LAST_ACK_RECEIVED..LENGTH]);
        Ok(Answers {
            unanswered: u32::from(info[RETRANSMITS]) + u32::from(info[PROBES]),
            heard: Duration::from_millis(u32::from_ne_bytes(heard).into()),
        })
    }
}

/// Since when the far kernel owes an answer.
#[derive(Default)]
struct Silence {
    since: Option<std::time::Instant>,
}

impl Silence {
    /// Takes a look; returns whether it has been silent for too long.
    fn saw(&mut self, answers: Answers, now: std::time::Instant) -> bool {
        if answers.unanswered == 0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if answers.heard < now.duration_since(since) {
            self.since = Some(now);
            return false;
        }
        now.duration_since(since) >= SILENCE
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Instant;

    use tokio::io::AsyncWriteExt;
    use tokio::task::LocalSet;

    use super::*;

    /// Longer than any silence that ends a connection.
    const BUSY: Duration = Duration::from_secs(5);

    #[test]
    fn a_server_that_lives_and_does_not_read_keeps_its_connection() {
        const BYTES: usize = 32 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut busy, _) = listener.accept().unwrap();
            std::thread::sleep(BUSY);
            let mut bytes = Vec::new();
            busy.read_to_end(&mut bytes).unwrap();
            bytes.len()
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async move {
            let mut tcp = TcpStream::connect(address).await.unwrap();
            let watched = watch(&tcp).unwrap();
            tcp.write_all(&vec![7; BYTES]).await.unwrap();
            tcp.shutdown().await.unwrap();
            drop(watched);
        });
        assert_eq!(server.join().unwrap(), BYTES);
    }

    #[test]
    fn what_is_not_answered_for_long_is_silent_and_an_answer_begins_anew() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let answers = |unanswered, heard_ms| Answers {
            unanswered,
            heard: Duration::from_millis(heard_ms),
        };
        let mut silence = Silence::default();
        // Idle for long before the first packet that was lost.
        assert!(!silence.saw(answers(0, 60_000), at(0)));
        assert!(!silence.saw(answers(1, 60_250), at(250)));
        assert!(!silence.saw(answers(3, 63_000), at(3_000)));
        assert!(silence.saw(answers(4, 63_250), at(3_250)));
        // Heard in between, though something else is owed already.
        let mut silence = Silence::default();
        assert!(!silence.saw(answers(1, 1_000), at(0)));
        assert!(!silence.saw(answers(1, 200), at(2_900)));
        assert!(!silence.saw(answers(2, 3_100), at(5_800)));
        assert!(silence.saw(answers(2, 3_200), at(5_900)));
    }
}
