//! `disklab-engine check`: does the model accept these host profiles?

use std::io::{self, BufRead, Write};

use disklab_disk::profile::HostProfile;
use disklab_disk::{Host, Reason};
use disklab_units::Instant;
use serde_json::json;

/// Reads one host profile a line and answers one JSON line each: `{"ok": true}`, or the error in its
/// parts. Changes nothing. Returns whether all were accepted.
pub fn check(profiles: impl BufRead, mut answers: impl Write) -> io::Result<bool> {
    let mut all = true;
    for line in profiles.lines() {
        let answer = match accept(&line?) {
            Ok(()) => json!({"ok": true}),
            Err(error) => {
                all = false;
                json!({"ok": false, "error": error})
            }
        };
        writeln!(answers, "{answer}")?;
    }
    answers.flush()?;
    Ok(all)
}

fn accept(line: &str) -> Result<(), Reason> {
    let profile: HostProfile = serde_json::from_str(line).map_err(|error| Reason {
        place: "profile".to_owned(),
        value: format!("column {}", error.column()),
        rule: error.to_string(),
        way_out: "give a host profile as in crates/disklab-disk/src/profile.rs".to_owned(),
    })?;
    Host::new(profile, Instant::EPOCH)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_every_line() {
        let good = r#"{"version":1,"name":"x","seed":1,"cached":[],"uncached":[],"cache":null,"volumes":[]}"#;
        let newer = good.replace(":1,\"name", ":9,\"name");
        let profiles = format!("{good}\n{newer}\nnonsense\n");
        let mut answers = Vec::new();
        assert!(!check(profiles.as_bytes(), &mut answers).expect("no I/O here"));
        let answers = String::from_utf8(answers).expect("JSON is UTF-8");
        let lines: Vec<&str> = answers.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], r#"{"ok":true}"#);
        assert!(lines[1].contains("this model reads version 1"), "{answers}");
        assert!(lines[2].contains("give a host profile"), "{answers}");
    }
}
