//! One moment at which the generators of a load begin together.

use std::path::Path;
use std::time::Duration;

use crate::clock::unix_nanos;
use crate::error::{LoadError, Problem};

/// How often a generator looks for the moment: it lies half a second ahead or more when it is written down.
const LOOK: Duration = Duration::from_millis(5);

/// After so long nobody will say it: by then all generators were ready, or one of them was refused.
const MOST_WAIT: Duration = Duration::from_secs(120);

/// tokio's timers are up to a millisecond late; the rest is waited for awake.
const AWAKE: Duration = Duration::from_millis(2);

/// A moment of this host's clock lies at most so far ahead, or it was not written for this run.
const MOST_AHEAD: Duration = Duration::from_secs(60);

/// Waits for a file that says when to begin, in nanoseconds since 1970 of this host's clock, and then until that
/// moment. One that has passed is now. The file comes whole, under another name first, as an agent writes files.
pub async fn wait_for(file: &Path) -> Result<(), LoadError> {
    let looks = MOST_WAIT.as_millis() / LOOK.as_millis();
    for _ in 0..looks {
        match std::fs::read_to_string(file) {
            Ok(text) => return until(file, &text).await,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                tokio::time::sleep(LOOK).await;
            }
            Err(error) => return Err(refused(file, "", error.to_string())),
        }
    }
    let rule = format!("nobody has written down when to begin for {MOST_WAIT:?}");
    Err(refused(file, "", rule))
}

async fn until(file: &Path, text: &str) -> Result<(), LoadError> {
    let rule =
        "it is a moment of this host's clock: nanoseconds since 1970, at most a minute ahead";
    let moment: u64 = text
        .trim()
        .parse()
        .map_err(|_| refused(file, text, rule.to_owned()))?;
    let left = |now: u64| Duration::from_nanos(moment.saturating_sub(now));
    let ahead = left(unix_nanos());
    if ahead > MOST_AHEAD {
        return Err(refused(file, text, rule.to_owned()));
    }
    tokio::time::sleep(ahead.saturating_sub(AWAKE)).await;
    while !left(unix_nanos()).is_zero() {
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn refused(file: &Path, value: &str, rule: String) -> LoadError {
    let place = format!("begin_file {}", file.display());
    Problem::new(
        place,
        value,
        rule,
        "start the load again; without begin_file it begins at once",
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(name: &str, text: Option<String>) -> (Result<(), LoadError>, Duration) {
        let file = std::env::temp_dir().join(format!("begin-{}-{name}", std::process::id()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let started = std::time::Instant::now();
        let writes = text.map(|text| {
            let file = file.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                let other = file.with_extension("new");
                std::fs::write(&other, text).expect("a file");
                std::fs::rename(other, file).expect("its name");
            })
        });
        let told = runtime.block_on(wait_for(&file));
        let took = started.elapsed();
        if let Some(writes) = writes {
            writes.join().expect("it was written");
        }
        let _ = std::fs::remove_file(&file);
        (told, took)
    }

    #[test]
    fn it_begins_at_the_moment_and_never_before() {
        let moment = unix_nanos() + 200_000_000;
        let (told, _) = begin("ahead", Some(moment.to_string()));
        assert_eq!(told, Ok(()));
        assert!(unix_nanos() >= moment);
    }

    #[test]
    fn a_moment_that_has_passed_is_now() {
        let (told, took) = begin(
            "passed",
            Some(format!("{}\n", unix_nanos() - 1_000_000_000)),
        );
        assert_eq!(told, Ok(()));
        assert!(took >= Duration::from_millis(30), "{took:?}");
    }

    #[test]
    fn what_is_no_moment_of_this_run_is_refused() {
        let far = unix_nanos() + 3_600_000_000_000;
        for text in [far.to_string(), "soon".to_owned()] {
            let (told, _) = begin("wrong", Some(text.clone()));
            let error = told.expect_err("it is refused").to_string();
            assert!(error.contains(&text), "{error}");
        }
    }
}
