//! Directories that nobody else can change, and files in them that are nobody else's.
//!
//! The engine is root. In a directory of another user, a link with the right name would make it truncate any file. So a
//! directory is opened once, without following a link, and refused unless it is this user's alone; what is made in it is
//! made through its descriptor, new, and never through a link.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::EmulatorError;

/// Group and others may not write.
const OTHERS_WRITE: u32 = 0o022;

/// See the module.
pub struct OwnDir {
    directory: File,
    path: PathBuf,
}

impl OwnDir {
    /// Makes a directory with those above it, unless it is there, and opens it by its whole path. Links may lead to it.
    pub fn make(path: &Path) -> Result<OwnDir, EmulatorError> {
        let path = make_whole(path)?;
        OwnDir::open(path.clone(), &path)
    }

    /// The same for a directory in one that others may write in, such as `/tmp`.
    pub fn make_in(parent: &Path, name: &str) -> Result<OwnDir, EmulatorError> {
        let path = make_whole(parent)?;
        let directory = File::open(&path).map_err(|error| failed(&path, "open", &error))?;
        OwnDir { directory, path }.child(name)
    }

    /// Opens a directory in this one, made unless it is there.
    pub fn child(&self, name: &str) -> Result<OwnDir, EmulatorError> {
        let path = self.path.join(name);
        match DirBuilder::new().mode(0o700).create(self.at(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed(&path, "make the directory", &error))
            }
            _ => OwnDir::open(path, &self.at(name)),
        }
    }

    /// `path` is for people, `place` for the kernel.
    fn open(path: PathBuf, place: &Path) -> Result<OwnDir, EmulatorError> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(place)
            .and_then(|directory| Ok((directory.metadata()?, directory)));
        let (found, directory) = opened.map_err(|error| failed(&path, "open", &error))?;
        // SAFETY: cannot fail and touches no memory.
        let us = unsafe { libc::geteuid() };
        if found.uid() != us || found.mode() & OTHERS_WRITE != 0 {
            return Err(EmulatorError::new(
                path.display().to_string(),
                format!("owner {}, mode {:o}", found.uid(), found.mode() & 0o7777),
                format!("user {us} runs disklab, and only that user may be able to write there"),
                "choose a directory of your own with DISKLAB_RUN_DIR or DISKLAB_DATA_DIR, or change its owner and mode",
            ));
        }
        Ok(OwnDir { directory, path })
    }

    /// Its path, for people and for what has no other way.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name in it, for the kernel: whatever happens to the path, it is in this directory.
    pub fn at(&self, name: &str) -> PathBuf {
        PathBuf::from(format!(
            "/proc/self/fd/{}/{name}",
            self.directory.as_raw_fd()
        ))
    }

    /// Replaces a file in one step, so that no reader sees half of it, whatever other hosts write there.
    pub fn replace(&self, name: &str, text: &str) -> Result<(), EmulatorError> {
        let next = self.at(&format!("{name}.{}.new", std::process::id()));
        // What a killed process of the same number left.
        let _ = fs::remove_file(&next);
        let done = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&next)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&next, self.at(name)));
        done.map_err(|error| failed(&self.path.join(name), "write", &error))
    }
}

fn make_whole(path: &Path) -> Result<PathBuf, EmulatorError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| failed(path, "make the directory", &error))?;
    fs::canonicalize(path).map_err(|error| failed(path, "resolve", &error))
}

/// What the kernel refused about a path.
pub fn failed(path: &Path, doing: &str, error: &io::Error) -> EmulatorError {
    let way_out = match error.raw_os_error() {
        // The mount of a killed engine.
        Some(libc::ENOTCONN | libc::ECONNABORTED) => {
            "run `disklab clean`: an earlier host of that name was killed"
        }
        Some(libc::ELOOP | libc::ENOTDIR) => "something else is in its place: move it away",
        _ => "choose another place with --run-dir and --data-dir, or run it as root",
    };
    EmulatorError::system(path.display().to_string(), doing, error, way_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("disklab-own-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a temporary directory");
        path
    }

    #[test]
    fn a_link_in_place_of_a_directory_is_not_followed() {
        let root = scratch("link");
        fs::create_dir(root.join("victim")).expect("a directory");
        symlink(root.join("victim"), root.join("hosts")).expect("a link");
        let own = OwnDir::make(&root).expect("ours");
        let refused = own.child("hosts").err().expect("a link was followed");
        assert!(refused.to_string().contains("hosts"), "{refused}");
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn a_link_in_place_of_a_file_leads_nowhere() {
        let root = scratch("file");
        let victim = root.join("victim");
        fs::write(&victim, "precious").expect("a file");
        let own = OwnDir::make(&root.join("run")).expect("ours");
        let next = format!("pid.{}.new", std::process::id());
        for name in ["pid", &next] {
            symlink(&victim, root.join("run").join(name)).expect("a link");
        }
        own.replace("pid", "17").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("there"), "precious");
        let written = root.join("run/pid");
        assert!(!fs::symlink_metadata(&written).expect("there").is_symlink());
        assert_eq!(fs::read_to_string(written).expect("there"), "17");
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn what_others_may_write_is_refused() {
        let root = scratch("others");
        for mode in [0o770, 0o707] {
            fs::set_permissions(&root, fs::Permissions::from_mode(mode)).expect("ours");
            let refused = OwnDir::make(&root).err().expect("others may write there");
            let named = format!("mode {mode:o}");
            assert!(refused.to_string().contains(&named), "{refused}");
        }
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("ours");
        assert!(OwnDir::make(&root).is_ok(), "others may only look");
        fs::remove_dir_all(&root).expect("removed");
    }
}
