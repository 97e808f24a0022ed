//! Where the centre keeps what must outlive it: a folder, or for tests and emulation, memory that forgets what was not
//! synchronised when its machine stops, and only then.

use crate::exec::Stop;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Named files that are appended to, cut off, or replaced as a whole.
///
/// What [`Storage::append`] wrote is durable only after [`Storage::sync`]: a machine that stops before may keep any beginning of
/// it. A process that stops loses nothing, and makes nothing durable.
pub trait Storage {
    /// Bytes of a file; `None` where there is none.
    ///
    /// # Errors
    /// As the system has it; so all methods.
    fn len(&mut self, name: &str) -> io::Result<Option<u64>>;

    /// Fills `bytes` from this offset on.
    ///
    /// # Errors
    /// Also if the file ends before.
    fn read(&mut self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Adds bytes at the end of a file, which is made if there is none.
    ///
    /// # Errors
    /// Any number of the bytes may have been added then.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was appended durable.
    ///
    /// # Errors
    /// It may be durable or not then.
    fn sync(&mut self, name: &str) -> io::Result<()>;

    /// Cuts a file off, durably.
    ///
    /// # Errors
    /// It may be cut off or not then.
    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()>;

    /// Replaces a file, durably and as a whole: a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// The file is the old one or the new one then.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
}

/// Files in a folder, which no other centre may use meanwhile.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    open: BTreeMap<String, File>,
    stop: Stop,
    /// Held for as long as this lives: a centre's folder has one writer.
    _lock: File,
}

impl Files {
    /// The files of this folder, which is made if there is none.
    ///
    /// # Errors
    /// If it cannot be made, or another centre uses it.
    pub fn open(folder: &Path) -> io::Result<Files> {
        fs::create_dir_all(folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => {
                let words = format!(
                    "{} is in use by another centre: stop that one, or use another folder",
                    folder.display()
                );
                io::Error::new(io::ErrorKind::WouldBlock, words)
            }
            fs::TryLockError::Error(error) => error,
        })?;
        Ok(Files { folder: folder.to_path_buf(), open: BTreeMap::new(), stop: Stop::default(), _lock: lock })
    }

    /// The same, of which nothing is read once somebody has asked for the end.
    pub fn until(self, stop: Stop) -> Files {
        Files { stop, ..self }
    }

    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        let path = self.folder.join(name);
        match self.open.entry(name.to_string()) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let fresh = !path.exists();
                let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
                if fresh {
                    // The name must survive too.
                    File::open(&self.folder)?.sync_all()?;
                }
                Ok(entry.insert(file))
            }
        }
    }
}

impl Storage for Files {
    fn len(&mut self, name: &str) -> io::Result<Option<u64>> {
        match fs::metadata(self.folder.join(name)) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&mut self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if self.stop.is_asked() {
            return Err(io::Error::other("it was interrupted"));
        }
        let file = self.file(name)?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(bytes)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        let file = self.file(name)?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.open.remove(name);
        let part = self.folder.join(format!("{name}.part"));
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, self.folder.join(name))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// Files in memory, with crashes: after a planned number of changes nothing works any more. If it was the machine that stopped
/// ([`Memory::restarted`]), what was not synchronised is lost but for a beginning of any length; if it was the process
/// ([`Memory::reopened`]), it is there, and may be lost later.
#[derive(Clone, Default, Debug)]
pub struct Memory {
    files: BTreeMap<String, Kept>,
    changes: u64,
    /// The number of the change at which the machine stops.
    crash_at: Option<u64>,
}

#[derive(Clone, Default, Debug)]
struct Kept {
    bytes: Vec<u8>,
    durable: usize,
}

impl Memory {
    /// Stops working at the change after this many more. (Reading is no change.)
    pub fn crash_after(&mut self, changes: u64) {
        self.crash_at = Some(self.changes + changes);
    }

    /// What the next process finds after one that stopped, on a machine that goes on.
    #[must_use]
    pub fn reopened(mut self) -> Memory {
        self.crash_at = None;
        self
    }

    /// What is left after the machine has stopped, when `kept` of 1000 parts of what was not synchronised reached the disk.
    #[must_use]
    pub fn restarted(mut self, kept: u64) -> Memory {
        self.crash_at = None;
        for file in self.files.values_mut() {
            let torn = (file.bytes.len() - file.durable) as u64 * kept.min(1000) / 1000;
            file.bytes.truncate(file.durable + torn as usize);
            file.durable = file.bytes.len();
        }
        self
    }

    /// Changes so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The bytes of a file, to look at or to damage.
    pub fn bytes(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        self.files.get_mut(name).map(|file| &mut file.bytes)
    }

    /// Counts a change; whether it still happens.
    fn change(&mut self) -> io::Result<()> {
        if self.crash_at.is_some_and(|at| self.changes >= at) {
            return Err(io::Error::other("the machine has stopped"));
        }
        self.changes += 1;
        Ok(())
    }
}

impl Storage for Memory {
    fn len(&mut self, name: &str) -> io::Result<Option<u64>> {
        Ok(self.files.get(name).map(|file| file.bytes.len() as u64))
    }

    fn read(&mut self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let file = self.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let range = offset as usize..offset as usize + bytes.len();
        bytes.copy_from_slice(file.bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let stopped = self.change();
        // A machine that stops here may have written all of it, or nothing.
        let file = self.files.entry(name.to_string()).or_default();
        if stopped.is_ok() || file.durable == file.bytes.len() {
            file.bytes.extend_from_slice(bytes);
        }
        stopped
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.change()?;
        let file = self.files.entry(name.to_string()).or_default();
        file.durable = file.bytes.len();
        Ok(())
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        self.change()?;
        let file = self.files.entry(name.to_string()).or_default();
        file.bytes.truncate(length as usize);
        file.durable = file.bytes.len();
        Ok(())
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.change()?;
        self.files.insert(name.to_string(), Kept { bytes: bytes.to_vec(), durable: bytes.len() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(storage: &mut dyn Storage) {
        assert_eq!(storage.len("a").unwrap(), None);
        storage.append("a", b"hello ").unwrap();
        storage.append("a", b"world").unwrap();
        storage.sync("a").unwrap();
        let mut bytes = [0; 5];
        storage.read("a", 6, &mut bytes).unwrap();
        assert_eq!(&bytes, b"world");
        assert!(storage.read("a", 7, &mut bytes).is_err());
        storage.truncate("a", 5).unwrap();
        storage.append("a", b"!").unwrap();
        let mut bytes = [0; 6];
        storage.read("a", 0, &mut bytes).unwrap();
        assert_eq!((&bytes, storage.len("a").unwrap()), (b"hello!", Some(6)));
        storage.replace("a", b"new").unwrap();
        assert_eq!(storage.len("a").unwrap(), Some(3));
    }

    #[test]
    fn folders_and_memory_do_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::open(&folder.path().join("new")).unwrap();
        suite(&mut files);
        suite(&mut Memory::default());
        let second = Files::open(&folder.path().join("new")).unwrap_err().to_string();
        assert!(second.contains("is in use by another centre"), "{second}");
        drop(files);
        Files::open(&folder.path().join("new")).unwrap();
    }

    #[test]
    fn memory_forgets_what_was_not_synchronised() {
        let mut memory = Memory::default();
        memory.append("a", b"durable ").unwrap();
        memory.sync("a").unwrap();
        memory.crash_after(1);
        memory.append("a", b"1234").unwrap();
        assert!(memory.sync("a").is_err());
        let left = |kept| memory.clone().restarted(kept).bytes("a").cloned().unwrap();
        assert_eq!(
            (left(0), left(500), left(1000)),
            (b"durable ".to_vec(), b"durable 12".to_vec(), b"durable 1234".to_vec())
        );
        // A process that stops takes nothing with it; the machine may, later.
        let mut next = memory.reopened();
        assert_eq!(next.bytes("a").unwrap(), b"durable 1234");
        assert_eq!(next.restarted(0).bytes("a").unwrap(), b"durable ");
    }
}
