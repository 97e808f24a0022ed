//! A disk in memory that fails on demand: for tests of the journal and of whatever stands on it.
//!
//! It keeps what was synced apart from what was only written, loses or tears the latter in a crash, and can refuse
//! any operation. Sectors are written whole or not at all, unless the crash is [`Crash::Torn`] through the byte at
//! which the power went.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, DiskFile};
use super::format::SECTOR;

/// What to refuse. Each counts down over the operations of its kind and strikes at zero.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// This write fails and writes nothing.
    pub write: Option<u64>,
    /// This write fails after half of its bytes.
    pub short_write: Option<u64>,
    /// This sync fails; what it should have made durable never will be, though reads still show it (fsyncgate).
    pub sync: Option<u64>,
    /// This sync of the names fails, after which they are as durable as before.
    pub names: Option<u64>,
    /// So many more bytes may be written, then the power goes: the write is cut there and everything after it fails.
    pub power: Option<u64>,
    /// So many more bytes of files may be made, then the disk is full.
    pub space: Option<u64>,
}

/// What is left of unsynced writes.
#[derive(Copy, Clone, Debug)]
pub enum Crash {
    /// All of them: only the process died.
    Process,
    /// None.
    Clean,
    /// Of each sector the new or the old bytes, drawn from this seed; and of unsynced names likewise, all or none.
    Torn(u64),
}

/// The disk; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    names_durable: BTreeMap<String, usize>,
    faults: Faults,
    dead: bool,
    written: u64,
    syncs: u64,
}

#[derive(Debug, Default)]
struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

impl FaultyDisk {
    /// Sets what will fail.
    pub fn fail(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Ends everything unsynced as `crash` says, and all faults; the disk works again.
    pub fn crash(&self, crash: Crash) {
        let state = &mut *self.state();
        let mut random = match crash {
            Crash::Torn(seed) => seed | 1,
            Crash::Process | Crash::Clean => 0,
        };
        let mut keep = || match crash {
            Crash::Process => true,
            Crash::Clean => false,
            Crash::Torn(_) => {
                // xorshift: this only has to be varied and repeatable.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random & 1 == 0
            }
        };
        for content in &mut state.files {
            for sector in std::mem::take(&mut content.dirty) {
                let range = sector * SECTOR..((sector + 1) * SECTOR).min(content.seen.len());
                if keep() {
                    content.durable[range.clone()].copy_from_slice(&content.seen[range]);
                }
            }
            content.seen.clone_from(&content.durable);
        }
        if keep() {
            state.names_durable = state.names.clone();
        }
        state.names = state.names_durable.clone();
        state.faults = Faults::default();
        state.dead = false;
    }

    /// Flips one bit of a file, on the disk and in the cache.
    pub fn flip(&self, name: &str, bit: u64) {
        let state = &mut *self.state();
        let index = state.names[name];
        let content = &mut state.files[index];
        for bytes in [&mut content.seen, &mut content.durable] {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }

    /// Removes a file, durably.
    pub fn lose(&self, name: &str) {
        let state = &mut *self.state();
        state.names.remove(name);
        state.names_durable.remove(name);
    }

    /// The length of each file in bytes.
    #[must_use]
    pub fn lengths(&self) -> BTreeMap<String, u64> {
        let state = self.state();
        state
            .names
            .iter()
            .map(|(name, index)| (name.clone(), state.files[*index].seen.len() as u64))
            .collect()
    }

    /// A file's bytes.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.files[state.names[name]].seen.clone()
    }

    /// How many bytes have been written in all, for drawing the byte at which the power goes.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.state().written
    }

    /// How many syncs have succeeded.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn named(&self, name: &str) -> io::Result<(MutexGuard<'_, State>, usize)> {
        let state = self.alive()?;
        let index = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok((state, index))
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.dead { Err(io::Error::other("injected: the power is off")) } else { Ok(state) }
    }
}

fn strikes(fault: &mut Option<u64>) -> bool {
    match fault {
        Some(0) => {
            *fault = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

impl Disk for FaultyDisk {
    type File = FaultyFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.alive()?.names.keys().cloned().collect())
    }

    fn create(&self, name: &str, capacity: u64) -> io::Result<FaultyFile> {
        let mut state = self.alive()?;
        if let Some(space) = &mut state.faults.space {
            *space = space.checked_sub(capacity).ok_or(io::ErrorKind::StorageFull)?;
        }
        let zeroes = vec![0; capacity as usize];
        let index = state.files.len();
        state.files.push(Content { seen: zeroes.clone(), durable: zeroes, dirty: BTreeSet::new() });
        state.names.insert(name.into(), index);
        Ok(FaultyFile { disk: self.clone(), index })
    }

    fn open(&self, name: &str) -> io::Result<FaultyFile> {
        let index = self.named(name)?.1;
        Ok(FaultyFile { disk: self.clone(), index })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, index) = self.named(from)?;
        state.names.remove(from);
        state.names.insert(to.into(), index);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut state, _) = self.named(name)?;
        state.names.remove(name);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.alive()?;
        if strikes(&mut state.faults.names) {
            return Err(io::Error::other("injected sync error"));
        }
        state.names_durable = state.names.clone();
        Ok(())
    }

    fn holds(&self, name: &str, file: &FaultyFile) -> io::Result<bool> {
        Ok(self.state().names.get(name) == Some(&file.index))
    }

    fn free(&self) -> Option<u64> {
        self.state().faults.space
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("data/journal").join(name)
    }
}

/// An open file of a [`FaultyDisk`].
#[derive(Debug)]
pub struct FaultyFile {
    disk: FaultyDisk,
    index: usize,
}

impl DiskFile for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.alive()?.files[self.index].seen.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.disk.alive()?;
        let bytes = state.files[self.index].seen.get(offset as usize..offset as usize + into.len());
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.disk.alive()?;
        let mut length = bytes.len();
        let mut outcome = Ok(());
        if strikes(&mut state.faults.write) {
            return Err(io::Error::other("injected write error"));
        }
        if strikes(&mut state.faults.short_write) {
            length /= 2;
            outcome = Err(io::Error::other("injected short write"));
        }
        if let Some(power) = &mut state.faults.power {
            if (*power as usize) < length {
                length = *power as usize;
                outcome = Err(io::Error::other("injected: the power went"));
                state.dead = true;
            }
            *power -= length as u64;
        }
        state.written += length as u64;
        let content = &mut state.files[self.index];
        let offset = offset as usize;
        assert!(offset + bytes.len() <= content.seen.len(), "a journal's files keep their length");
        content.seen[offset..offset + length].copy_from_slice(&bytes[..length]);
        if length > 0 {
            content.dirty.extend(offset / SECTOR..=(offset + length - 1) / SECTOR);
        }
        outcome
    }

    fn sync(&mut self) -> io::Result<()> {
        let state = &mut *self.disk.alive()?;
        let content = &mut state.files[self.index];
        if strikes(&mut state.faults.sync) {
            // The kernel marks the pages clean and reports the error once; the next sync would succeed.
            content.dirty.clear();
            return Err(io::Error::other("injected sync error"));
        }
        for sector in std::mem::take(&mut content.dirty) {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(content.seen.len());
            content.durable[range.clone()].copy_from_slice(&content.seen[range]);
        }
        state.syncs += 1;
        Ok(())
    }
}
