//! The control socket: one JSON object a line, answered by one JSON object a line, in order.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use disklab_disk::profile::VolumeProfile;
use disklab_disk::{Change, Fault};
use disklab_units::Dilation;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::backing::BackingChoice;
use crate::emulator::{CacheRange, Emulated};
use crate::error::EmulatorError;

/// Clients at a time. More are turned away.
const CLIENTS: usize = 16;
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
    Shutdown,
}

/// Listens at `path`, for root only, and serves in threads until the process ends.
pub fn serve(path: &Path, emulated: Arc<Mutex<Emulated>>) -> io::Result<()> {
    // A socket that an earlier, killed process left: we hold the host's lock.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || accept(&listener, &emulated))?;
    Ok(())
}

fn accept(listener: &UnixListener, emulated: &Arc<Mutex<Emulated>>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        let Ok(mut client) = client else {
            // Out of descriptors, most likely: give the others time to leave.
            std::thread::sleep(std::time::Duration::from_millis(100));
            continue;
        };
        if clients.load(Ordering::Relaxed) >= CLIENTS {
            let busy = EmulatorError::new(
                "control.sock",
                format!("{CLIENTS} clients"),
                "no more are served at a time",
                "try again later",
            );
            let _ = send(&mut client, &failure(&busy));
            continue;
        }
        clients.fetch_add(1, Ordering::Relaxed);
        let (emulated, counter) = (emulated.clone(), clients.clone());
        let thread = std::thread::Builder::new().name("client".to_owned());
        let started = thread.spawn(move || {
            let _ = talk(client, &emulated);
            counter.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn talk(mut client: UnixStream, emulated: &Mutex<Emulated>) -> io::Result<()> {
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
        let answer = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => {
                // A thread that panicked has aborted the process; the lock cannot be poisoned.
                let mut emulated = emulated.lock().unwrap_or_else(PoisonError::into_inner);
                answer(request, &mut emulated)
            }
            Err(error) => Err(EmulatorError::new(
                "request",
                String::from_utf8_lossy(&line[..len.min(200)])
                    .trim()
                    .to_owned(),
                error.to_string(),
                "send one JSON object a line, as in docs/contracts/3-control-socket.md",
            )),
        };
        let answer = match answer {
            Ok(mut value) => {
                value["ok"] = Value::Bool(true);
                value
            }
            Err(error) => failure(&error),
        };
        send(&mut client, &answer)?;
        if len as u64 == LINE_BYTES {
            // The rest of a line that is too long would be read as another request.
            return Ok(());
        }
    }
}

fn answer(request: Request, emulated: &mut Emulated) -> Result<Value, EmulatorError> {
    let to_value = |value: Result<Value, serde_json::Error>| {
        value.map_err(|error| {
            EmulatorError::new("answer", "", error.to_string(), "report this as a bug")
        })
    };
    match request {
        Request::Hello => to_value(serde_json::to_value(emulated.hello())),
        Request::Attach {
            volume,
            backing,
            block_bytes,
        } => {
            let attached = emulated.attach(*volume, backing, block_bytes)?;
            to_value(serde_json::to_value(attached))
        }
        Request::Detach {
            volume,
            delete_data,
        } => emulated.detach(&volume, delete_data).map(|()| json!({})),
        Request::List => Ok(json!({ "volumes": emulated.list()? })),
        Request::Show { volume } => to_value(serde_json::to_value(emulated.show(&volume)?)),
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
        Request::Shutdown => emulated.shutdown().map(|()| json!({})),
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
