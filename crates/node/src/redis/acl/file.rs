//! The ACL file, in the format of Redis: a line `user NAME RULE ...` for each user.
//!
//! It is read when the node starts and at ACL LOAD, and written by ACL SAVE. Both happen on the shard's
//! thread, which is otherwise spared files: they are rare, asked for by an administrator, and small.

use super::Users;
use super::rules::{User, has_spaces};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The largest file that is read.
const BYTES_MAX: u64 = 16 << 20;

/// Why an ACL file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is none.
    #[error("no ACL file is configured")]
    None,
    /// It cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Some of its lines are none, each said with its number, as Redis says it.
    #[error("{0}")]
    Lines(String),
}

impl Users {
    /// Reads the users from the file in the place of those there are.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub(super) fn load(&mut self) -> Result<(), FileError> {
        let path = self.file.clone().ok_or(FileError::None)?;
        let io = |cause| FileError::Io { path: path.clone(), cause };
        let length = std::fs::metadata(&path).map_err(|cause| match cause.kind() {
            ErrorKind::NotFound => {
                io(std::io::Error::new(cause.kind(), format!("{cause}; an empty file will do")))
            }
            _ => io(cause),
        });
        let length = length?.len();
        if length > BYTES_MAX {
            return Err(io(std::io::Error::other("larger than 16 MiB")));
        }
        let text = std::fs::read(&path).map_err(io)?;
        let mut users = Users::initial(&self.deployed);
        let mut seen = BTreeMap::new();
        let mut errors = String::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let place = format!("{}:{}", path.display(), index + 1);
            match read_line(line) {
                Ok(None) => {}
                Ok(Some((name, user))) => {
                    if let Some(first) = seen.insert(name.clone(), index + 1) {
                        let twice = "Duplicate user found. A user can only be defined once in config files";
                        errors += &format!("{place}: {twice} (as on line {first}). ");
                    }
                    users.insert(name, user);
                }
                Err(error) => errors += &format!("{place}{error}. "),
            }
        }
        if !errors.is_empty() {
            return Err(FileError::Lines(errors));
        }
        self.users = users;
        self.settle();
        Ok(())
    }

    /// Writes the users to the file, whole or not at all.
    ///
    /// # Errors
    /// There is no file, or it cannot be written.
    pub(super) fn save(&self) -> Result<(), FileError> {
        let path = self.file.as_ref().ok_or(FileError::None)?;
        let mut text = Vec::new();
        for (name, user) in &self.users {
            text.extend_from_slice(&line(name, user));
            text.push(b'\n');
        }
        write(path, &text).map_err(|cause| FileError::Io { path: path.clone(), cause })
    }
}

/// A user as a line, as ACL LIST shows it.
pub(super) fn line(name: &str, user: &User) -> Vec<u8> {
    [b"user ", name.as_bytes(), b" ", &user.describe()].concat()
}

fn read_line(line: &[u8]) -> Result<Option<(String, User)>, String> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return Ok(None) };
    let name = words.next().and_then(|name| std::str::from_utf8(name).ok());
    let Some(name) = name.filter(|_| first == b"user") else {
        return Err(" should start with user keyword followed by the username".to_owned());
    };
    let mut user = User::new();
    for rule in words {
        user.apply(rule).map_err(|error| format!(": {error}"))?;
    }
    Ok(Some((name.to_owned(), user)))
}

fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    // It holds hashes that are quickly tried.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Whether a user can have this name: a line of the file must be able to hold it.
pub(super) fn is_name(name: &[u8]) -> bool {
    !has_spaces(name) && std::str::from_utf8(name).is_ok()
}
