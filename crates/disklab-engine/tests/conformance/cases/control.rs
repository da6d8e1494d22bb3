//! The control socket under clients that take long or say nothing.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disklab_disk::profile::{Caching, VolumeProfile};
use serde_json::{Value, json};

use crate::emulated::{Bench, Failure, PATIENCE, volume};
use crate::{Check, ensure};

fn connect(bench: &Bench) -> Result<BufReader<UnixStream>, Failure> {
    let client = UnixStream::connect(bench.host_directory().join("control.sock"))?;
    client.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(client))
}

fn ask(client: &mut BufReader<UnixStream>, request: &Value) -> Result<Value, Failure> {
    client
        .get_mut()
        .write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    client.read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Who takes a host without an answer for dead must not be misled by its work.
pub fn hello_while_busy(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let size_bytes = 1 << 39;
    host.attach_profile(&VolumeProfile {
        caching: Caching::ReadOnly,
        ..volume("data", size_bytes)
    })?;
    // Takes most of a second on an idle machine, and a client is served in well under a millisecond.
    let range = json!({"offset_bytes": 0, "len_bytes": size_bytes});
    let warm = json!({"op": "warm", "volume": "data", "ranges": [range]});
    let mut long = connect(bench)?;
    let warm_ended = Arc::new(AtomicBool::new(false));
    let ended = warm_ended.clone();
    let warming = std::thread::spawn(move || {
        let answer = ask(&mut long, &warm).map_err(|error| error.to_string());
        ended.store(true, Ordering::SeqCst);
        answer
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    let answer = ask(&mut connect(bench)?, &json!({"op": "hello"}))?;
    let meanwhile = !warm_ended.load(Ordering::SeqCst);
    let warmed = warming.join().map_err(|_| "the warming thread")??;
    ensure!(answer["ok"] == true, "hello: {answer}");
    ensure!(warmed["ok"] == true, "warm: {warmed}");
    ensure!(meanwhile, "hello waited for another client's request");
    Ok(())
}

/// Connections that say nothing, or half a line, keep nobody out.
pub fn idle_clients_give_way(bench: &Bench) -> Check {
    let mut host = bench.start()?;
    let mut idle = Vec::new();
    for number in 0..200 {
        let mut client = connect(bench)?;
        // Only what was answered has surely been admitted.
        ask(&mut client, &json!({"op": "hello"}))?;
        if number % 2 == 1 {
            client.get_mut().write_all(b"{\"op\": ")?;
        }
        idle.push(client);
        if number % 40 == 0 {
            // One that is asked now and then, as a rehearsal's is, has been idle for less long than they.
            host.must(&json!({"op": "list"}))?;
        }
    }
    let mut late = connect(bench)?;
    for request in [json!({"op": "hello"}), json!({"op": "list"})] {
        let answer = ask(&mut late, &request)?;
        ensure!(answer["ok"] == true, "{request}: {answer}");
    }
    host.must(&json!({"op": "hello"})).map(drop)
}
