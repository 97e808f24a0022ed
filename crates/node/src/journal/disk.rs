//! The few things the journal asks of a disk, so that tests can hand it a faulty one.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
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

    /// Whether the file of this name is the one that is open as `file`: where it is not, nobody finds what is written to that.
    ///
    /// # Errors
    /// The operating system's; that there is none of this name is none.
    fn holds(&self, name: &str, file: &Self::File) -> io::Result<bool>;

    /// Bytes that may still be written, where the file system tells.
    fn free(&self) -> Option<u64>;

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

/// What tells a file from every other of this machine, under whatever name.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }

    /// Whether this path leads to it.
    pub fn is_at(self, path: &Path) -> io::Result<bool> {
        match std::fs::metadata(path) {
            Ok(found) => Ok(Self::of(&found) == self),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// A directory of the file system.
#[derive(Clone, Debug)]
pub struct RealDisk {
    directory: Arc<Path>,
    cached: bool,
}

impl RealDisk {
    /// The directory at `path`, which exists. What is written goes past the page cache where the file system can do
    /// that: it is synced at once and read only at a start, so that the cache would cost a page and its write-back
    /// each time and give nothing.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { directory: path.into(), cached: false }
    }

    /// The same by way of the page cache: for who does not sync, and so does not want to wait for a write.
    #[must_use]
    pub fn cached(self) -> Self {
        Self { cached: true, ..self }
    }

    fn file(&self, path: &Path, file: File) -> RealFile {
        RealFile { file, direct: if self.cached { None } else { Direct::open(path) } }
    }

    fn zero_filled(&self, path: &Path, capacity: u64) -> io::Result<RealFile> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let mut file = self.file(path, file);
        let zeroes = vec![0; capacity.min(CHUNK as u64) as usize];
        let mut offset = 0;
        while offset < capacity {
            let length = (capacity - offset).min(CHUNK as u64);
            file.write_at(offset, &zeroes[..length as usize])?;
            offset += length;
        }
        file.file.sync_all()?;
        Ok(file)
    }
}

impl Disk for RealDisk {
    type File = RealFile;

    fn list(&self) -> io::Result<Vec<String>> {
        std::fs::read_dir(&self.directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn create(&self, name: &str, capacity: u64) -> io::Result<RealFile> {
        // Zeroes are written, not just reserved: a sync then changes no length and no extent, which halves its time.
        let path = self.directory.join(name);
        let made = self.zero_filled(&path, capacity);
        if made.is_err() {
            // A half-made file would keep the space that was missing; that it cannot be removed changes nothing.
            let _ = std::fs::remove_file(&path);
        }
        made
    }

    fn open(&self, name: &str) -> io::Result<RealFile> {
        let path = self.directory.join(name);
        Ok(self.file(&path, OpenOptions::new().read(true).write(true).open(&path)?))
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

    fn holds(&self, name: &str, file: &RealFile) -> io::Result<bool> {
        // Asked of the open file each time: some file systems number a file by its path, which a rename changes.
        FileId::of(&file.file.metadata()?).is_at(&self.directory.join(name))
    }

    fn free(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&*self.directory).ok()?;
        // Some that have no bound tell nothing.
        (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Bytes of one write at most past the page cache, and while a file is made.
const CHUNK: usize = 256 << 10;

/// A file of [`RealDisk`].
#[derive(Debug)]
pub struct RealFile {
    file: File,
    direct: Option<Direct>,
}

impl RealFile {
    /// Whether writes go past the page cache.
    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }
}

impl DiskFile for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(direct) = &mut self.direct {
            match direct.write_at(offset, bytes) {
                // Sectors here may be larger than ours, or the file system may ask for more than alignment.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.direct = None,
                written => return written,
            }
        }
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// How the operating system is asked for writes past the page cache.
#[cfg(target_os = "linux")]
const DIRECT: Option<i32> = Some(rustix::fs::OFlags::DIRECT.bits() as i32);
#[cfg(not(target_os = "linux"))]
const DIRECT: Option<i32> = None;

/// A file whose writes go past the page cache.
#[derive(Debug)]
struct Direct {
    file: File,
    /// Where bytes are brought to, so that they lie as such a write wants them: as long as the largest so far.
    aligned: Vec<u8>,
}

impl Direct {
    /// What memory has to be aligned to, at the most that is asked for anywhere.
    const ALIGNMENT: usize = 4_096;

    /// Nothing where the file system, or the operating system, has no such writes.
    fn open(path: &Path) -> Option<Direct> {
        let file = OpenOptions::new().write(true).custom_flags(DIRECT?).open(path).ok()?;
        Some(Direct { file, aligned: Vec::new() })
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut offset = offset;
        for chunk in bytes.chunks(CHUNK) {
            if self.aligned.len() < chunk.len() + Self::ALIGNMENT {
                self.aligned = vec![0; chunk.len().next_power_of_two() + Self::ALIGNMENT];
            }
            let begin = self.aligned.as_ptr().align_offset(Self::ALIGNMENT).min(Self::ALIGNMENT);
            let aligned = &mut self.aligned[begin..begin + chunk.len()];
            aligned.copy_from_slice(chunk);
            self.file.write_all_at(aligned, offset)?;
            offset += chunk.len() as u64;
        }
        Ok(())
    }
}
