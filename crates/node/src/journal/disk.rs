//! The few things the journal asks of a disk, so that tests can hand it a faulty one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One directory of files.
pub trait Disk: Clone + Send + 'static {
    /// An open file.
    type File: DiskFile;

    /// The names in the directory, in any order.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes a file of `capacity` zero bytes, really written, and syncs it; the directory is not synced.
    ///
    /// # Errors
    /// The operating system's; a full disk among them.
    fn create(&self, name: &str, capacity: u64) -> io::Result<Self::File>;

    /// Opens a file to read and write.
    ///
    /// # Errors
    /// The operating system's.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes names durable.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_names(&self) -> io::Result<()>;

    /// The file's path, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// A file of fixed length.
pub trait DiskFile: Send + 'static {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn length(&self) -> io::Result<u64>;

    /// Fills `into` from `offset`.
    ///
    /// # Errors
    /// The operating system's; the file ends too early.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, inside the file's length.
    ///
    /// # Errors
    /// The operating system's; some bytes may have been written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written durable. After an error the content is unknown.
    ///
    /// # Errors
    /// The operating system's.
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory of the file system.
#[derive(Clone, Debug)]
pub struct RealDisk {
    directory: Arc<Path>,
}

impl RealDisk {
    /// The directory at `path`, which exists.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { directory: path.into() }
    }
}

impl Disk for RealDisk {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        std::fs::read_dir(&self.directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn create(&self, name: &str, capacity: u64) -> io::Result<File> {
        // Zeroes are written, not just reserved: a sync then changes no length and no extent, which halves its time.
        let path = self.directory.join(name);
        let made = zero_filled(&path, capacity);
        if made.is_err() {
            // A half-made file would keep the space that was missing; that it cannot be removed changes nothing.
            let _ = std::fs::remove_file(&path);
        }
        made
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.directory.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.directory.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

fn zero_filled(path: &Path, capacity: u64) -> io::Result<File> {
    const CHUNK: u64 = 1 << 20;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let zeroes = vec![0; CHUNK.min(capacity) as usize];
    let mut offset = 0;
    while offset < capacity {
        let length = CHUNK.min(capacity - offset);
        file.write_all_at(&zeroes[..length as usize], offset)?;
        offset += length;
    }
    file.sync_all()?;
    Ok(file)
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
