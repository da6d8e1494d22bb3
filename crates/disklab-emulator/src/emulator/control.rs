//! The control socket: one JSON object a line, answered by one JSON object a line, in order.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use disklab_disk::profile::VolumeProfile;
use disklab_disk::{Change, Fault};
use disklab_units::Dilation;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::backing::BackingChoice;
use crate::connections::{AT_WORK, Connections, Place};
use crate::emulator::{CacheRange, DETACH_WAIT, Data, Emulated, Identity};
use crate::error::EmulatorError;

/// A request line: a volume of many disks with long distributions has some tens of KiB.
const LINE_BYTES: u64 = 1 << 20;

/// What can be asked. Unknown fields are refused.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
enum Request {
    Hello,
    Attach {
        volume: Box<VolumeProfile>,
        #[serde(default)]
        backing: BackingChoice,
        /// Logical block of the device, 512 or 4096 bytes.
        #[serde(default)]
        block_bytes: Option<u32>,
    },
    Detach {
        volume: String,
        #[serde(default)]
        delete_data: bool,
    },
    List,
    Show {
        volume: String,
    },
    Set {
        volume: String,
        change: Change,
    },
    Fail {
        volume: String,
        fault: Fault,
    },
    Warm {
        volume: String,
        /// Nothing: all that was written.
        #[serde(default)]
        ranges: Option<Vec<CacheRange>>,
    },
    DropCache {
        volume: String,
    },
    /// The burst credits of the whole host, as a share of their buckets.
    Credits {
        ppm: u32,
    },
    /// Seconds of this machine for each second of the host, from now on.
    TimeDilation {
        factor: NonZeroU32,
    },
    Shutdown {
        /// The data of its volumes are removed next.
        #[serde(default)]
        discard: bool,
    },
}

/// Listens at `path`, for root only, and serves in threads until the process ends.
///
/// `hello` is answered whatever else is at work: silence would mean that the host is dead.
pub fn serve(
    path: &Path,
    emulated: Arc<Mutex<Emulated>>,
    identity: Arc<Identity>,
) -> io::Result<()> {
    // A socket that an earlier, killed process left: we hold the host's lock.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || accept(&listener, &emulated, &identity))?;
    Ok(())
}

fn accept(listener: &UnixListener, emulated: &Arc<Mutex<Emulated>>, identity: &Arc<Identity>) {
    let connections = Arc::new(Connections::default());
    for client in listener.incoming() {
        let admitted = client.and_then(|client| {
            let place = connections.admit(&client)?;
            Ok((client, place))
        });
        let Ok((client, place)) = admitted else {
            // Out of descriptors, most likely: give the others time to leave.
            std::thread::sleep(std::time::Duration::from_millis(100));
            continue;
        };
        let (emulated, identity) = (emulated.clone(), identity.clone());
        let thread = std::thread::Builder::new().name("client".to_owned());
        // Without a thread both ends are dropped, which the client sees.
        let _ = thread.spawn(move || talk(client, &place, &emulated, &identity));
    }
}

fn talk(
    mut client: UnixStream,
    place: &Place,
    emulated: &Mutex<Emulated>,
    identity: &Identity,
) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    loop {
        let mut line = Vec::new();
        let len = reader
            .by_ref()
            .take(LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        if len == 0 {
            return Ok(());
        }
        let request = serde_json::from_slice::<Request>(&line);
        let asks_for_end = matches!(request, Ok(Request::Shutdown { .. }));
        let answer = match request {
            Ok(Request::Hello) => to_value(identity.hello()),
            Ok(request) if place.work() => {
                // A thread that panicked has aborted the process; the lock cannot be poisoned.
                let mut emulated = emulated.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = answer(request, &mut emulated);
                place.rest();
                if asks_for_end && answer.is_ok() {
                    // The process must not be gone before its answer is on its way. Nobody attaches anything meanwhile;
                    // what a client that has gone has asked for is done as well.
                    let sent = send(&mut client, &told(answer));
                    emulated.end();
                    return sent;
                }
                answer
            }
            Ok(_) => Err(EmulatorError::new(
                "control.sock",
                format!("{AT_WORK} requests"),
                "no more are at work at a time",
                "try again later",
            )),
            Err(error) => Err(EmulatorError::new(
                "request",
                String::from_utf8_lossy(&line[..len.min(200)])
                    .trim()
                    .to_owned(),
                error.to_string(),
                "send one JSON object a line, as in docs/contracts/3-control-socket.md",
            )),
        };
        send(&mut client, &told(answer))?;
        if len as u64 == LINE_BYTES {
            // The rest of a line that is too long would be read as another request.
            return Ok(());
        }
    }
}

/// An answer as the client gets it.
fn told(answer: Result<Value, EmulatorError>) -> Value {
    match answer {
        Ok(mut value) => {
            value["ok"] = Value::Bool(true);
            value
        }
        Err(error) => failure(&error),
    }
}

fn to_value(answer: impl Serialize) -> Result<Value, EmulatorError> {
    serde_json::to_value(answer).map_err(|error| {
        EmulatorError::new("answer", "", error.to_string(), "report this as a bug")
    })
}

fn answer(request: Request, emulated: &mut Emulated) -> Result<Value, EmulatorError> {
    match request {
        Request::Hello => to_value(emulated.identity().hello()),
        Request::Attach {
            volume,
            backing,
            block_bytes,
        } => {
            let attached = emulated.attach(*volume, backing, block_bytes)?;
            to_value(attached)
        }
        Request::Detach {
            volume,
            delete_data,
        } => {
            let data = if delete_data {
                Data::Remove
            } else {
                Data::Keep
            };
            let problem = emulated.detach(&volume, data, Instant::now() + DETACH_WAIT)?;
            Ok(json!({ "problem": problem }))
        }
        Request::List => Ok(json!({ "volumes": emulated.list()? })),
        Request::Show { volume } => to_value(emulated.show(&volume)?),
        Request::Set { volume, change } => Ok(json!({ "profile": emulated.set(&volume, change)? })),
        Request::Fail { volume, fault } => emulated.fail(&volume, fault).map(|()| json!({})),
        Request::Warm { volume, ranges } => {
            Ok(json!({ "cache": emulated.warm(&volume, ranges.as_deref())? }))
        }
        Request::DropCache { volume } => Ok(json!({ "cache": emulated.drop_cache(&volume)? })),
        Request::Credits { ppm } => emulated.set_credits(ppm).map(|()| json!({})),
        Request::TimeDilation { factor } => {
            emulated.dilate(Dilation::new(factor)).map(|()| json!({}))
        }
        Request::Shutdown { discard } => {
            let data = if discard { Data::Abandon } else { Data::Keep };
            Ok(json!({ "problems": emulated.shutdown(data)? }))
        }
    }
}

fn failure(error: &EmulatorError) -> Value {
    json!({ "ok": false, "error": error })
}

fn send(client: &mut UnixStream, answer: &Value) -> io::Result<()> {
    let mut line = answer.to_string();
    line.push('\n');
    client.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    /// What a line becomes on its way: bytes changed, and its end cut off.
    fn spoiled(mut bytes: Vec<u8>, changes: &[(Index, u8)], keep: Index) -> Vec<u8> {
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        bytes.truncate(keep.index(bytes.len() + 1));
        bytes
    }

    /// The requests that mutation of a living socket begins with, too.
    fn corpus() -> Vec<Vec<u8>> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpora/control");
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        files.iter().map(|file| fs::read(file).unwrap()).collect()
    }

    proptest! {
        // PROPTEST_CASES asks for more: see `make fuzz`.
        #![proptest_config(ProptestConfig {
            cases: ProptestConfig::default().cases.max(4096),
            ..ProptestConfig::default()
        })]

        #[test]
        fn fuzz_a_line_is_a_request_or_an_error_with_its_place(
            which: Index, whole in proptest::bool::weighted(0.1), changes in vec((any::<Index>(), any::<u8>()), 0..6), keep: Index
        ) {
            let corpus = corpus();
            let line = corpus[which.index(corpus.len())].clone();
            let line = if whole { line } else { spoiled(line, &changes, keep) };
            match serde_json::from_slice::<Request>(&line) {
                Ok(Request::Attach { volume, .. }) => prop_assert!(!volume.disks.is_empty() || !whole),
                Ok(_) => (),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
