//! Plans in files, beside the data that they are of.
//!
//! All numbers are little-endian. `u32 × k` is an array of k numbers.
//!
//! | part | content |
//! |---|---|
//! | magic | `isoplan` and a line feed, 8 bytes |
//! | version | u32, [`VERSION`] |
//! | what | u32: bit 0 general form, bit 1 an order, bit 2 seams |
//! | rule, n, d | u32 each |
//! | fingerprint | u64, of the data |
//! | lengths | u64 each: reads (entries of a compact plan), writes, first reads, first writes, ends |
//! | order | u32 × n, if any |
//! | compact | versions: u32 × entries |
//! | general | reads of each transaction: u32 × n; reads (parameter, version): u32 × 2 each; the writes alike (parameter, writer, readers) |
//! | seams | if any: first reads, first writes: u32 each; ends (parameter, writer): u32 × 2 each; general: their readers, u32 each |
//! | checksum | u64, xxh3 of everything before it |

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bytemuck::cast_slice_mut;
use xxhash_rust::xxh3::Xxh3;

use crate::data::Dataset;
use crate::exec::roster::Kept;
use crate::plan::batch::{End, PlannedBatch, Seams};
use crate::plan::{Annotations, Plan, PlanMismatch, ReadOp, WriteOp, verify};
use crate::task::{Rule, Task};
use crate::write::Target;

/// Version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"isoplan\n";
const GENERAL: u32 = 1;
const ORDER: u32 = 2;
const SEAMS: u32 = 4;

/// Why a plan cannot be read, or must not be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    /// The file cannot be opened, read, written or renamed.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// It does not begin as a plan does.
    #[error("this is not a plan: it begins with `{}`, a plan with `{}`", found.escape_ascii(), MAGIC.escape_ascii())]
    Magic {
        /// Its first bytes.
        found: [u8; 8],
    },
    /// It was written by another version of this program.
    #[error("the plan has format {found}, this program reads format {VERSION}: plan the data again")]
    Version {
        /// The format's number.
        found: u32,
    },
    /// It ends before all of it was read.
    #[error("the plan is cut off within {part}: copy it again, or plan the data again")]
    Truncated {
        /// What it ends in.
        part: &'static str,
    },
    /// Its bytes are not those that were written.
    #[error(
        "the plan is damaged (its checksum is {found:016x}, written was {wanted:016x}): copy it again, or plan the data again"
    )]
    Damaged {
        /// Checksum of the bytes at hand.
        found: u64,
        /// Checksum in the file.
        wanted: u64,
    },
    /// It goes on behind its checksum.
    #[error("something follows the plan: copy it again, or plan the data again")]
    Longer,
    /// Its parts contradict one another or the data.
    #[error("the plan contradicts itself or the data: {what}; plan the data again")]
    Inconsistent {
        /// What is wrong, and where.
        what: String,
    },
    /// It is of other data or for another task.
    #[error(transparent)]
    Mismatch(#[from] PlanMismatch),
}

impl Plan {
    /// Writes the plan to a file, as [`Target`] does: it is there whole or not at all.
    ///
    /// # Errors
    /// If the file cannot be written; one that was there before is untouched then.
    pub fn save(&self, path: &Path) -> Result<(), PlanFileError> {
        let written = (|| {
            let mut target = BufWriter::with_capacity(1 << 20, Target::create(path)?);
            write_plan(&mut target, self, None)?;
            target.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
        })();
        written.map_err(|cause| PlanFileError::Io { path: path.to_path_buf(), cause })
    }

    /// Reads a plan from a file. Whose it is must still be asked: [`Plan::load_for`] does both.
    ///
    /// # Errors
    /// If the file cannot be read, is no plan, of another format, cut off, damaged, or contradicts itself.
    pub fn load(path: &Path) -> Result<Plan, PlanFileError> {
        let failed = |cause| PlanFileError::Io { path: path.to_path_buf(), cause };
        let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
        let plan = read_plan(&mut file).map_err(|error| match error {
            PlanFileError::Io { cause, .. } => failed(cause),
            other => other,
        })?;
        Ok(plan.0)
    }

    /// Reads the plan of these samples for this task from a file.
    ///
    /// # Errors
    /// As [`Plan::load`], and if the plan is of other data or for another rule. That its samples touch the parameters that were planned
    /// is looked at here only: a plan that is used with other data than it was made of or loaded for must be of data that does.
    pub fn load_for<T: Task>(path: &Path, task: &T, data: &Dataset<'_>) -> Result<Plan, PlanFileError> {
        let plan = Plan::load(path)?;
        plan.check(task, data)?;
        plan.validate(data)?;
        plan.check_sets(task, data)?;
        Ok(plan)
    }

    /// Appends the plan, in the format of its file.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        #[allow(clippy::expect_used)] // Writing to memory does not fail.
        write_plan(bytes, self, None).expect("memory takes all");
    }

    /// Reads what [`Plan::encode`] wrote.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn decode(mut bytes: &[u8]) -> Result<Plan, PlanFileError> {
        Ok(read_plan(&mut bytes)?.0)
    }

    /// Whether the plan can be executed over these samples: every transaction refers to earlier ones, parameters exist, and
    /// an order names each row once. It does not plan again, so it cannot find numbers that are possible but wrong; a
    /// checksum does.
    ///
    /// # Errors
    /// What is impossible.
    pub fn validate(&self, data: &Dataset<'_>) -> Result<(), PlanFileError> {
        if self.transactions as usize != data.len() {
            return Err(PlanMismatch::Data { plan: self.transactions, data: data.len() }.into());
        }
        self.validate_alone()?;
        let Annotations::Compact(versions) = &self.annotations else { return Ok(()) };
        if versions.len() != data.entries() || self.parameters != data.width() {
            return wrong(format!(
                "it has {} entries and {} parameters, the data {} and {}",
                versions.len(),
                self.parameters,
                data.entries(),
                data.width()
            ));
        }
        for transaction in 1..=self.transactions {
            let at = transaction as usize - 1;
            let row = self.order.as_ref().map_or(at, |order| order[at] as usize);
            if versions[data.range(row)].iter().any(|&version| version >= transaction) {
                return wrong(format!("transaction {transaction} waits for itself or a later one"));
            }
        }
        Ok(())
    }

    /// What can be seen of that without the samples.
    fn validate_alone(&self) -> Result<(), PlanFileError> {
        let samples = self.transactions as usize;
        if let Some(order) = &self.order {
            let mut seen = vec![false; samples];
            let twice = order.iter().position(|&row| {
                row as usize >= seen.len() || std::mem::replace(&mut seen[row as usize], true)
            });
            if order.len() != samples || twice.is_some() {
                return wrong(format!("its order is no permutation of {samples} rows"));
            }
        }
        let Annotations::General { reads_at, reads, writes_at, writes } = &self.annotations else {
            return Ok(());
        };
        let rises = |at: &[u64], len: usize| {
            at.len() == samples + 1
                && at[0] == 0
                && at[at.len() - 1] == len as u64
                && at.windows(2).all(|pair| pair[0] <= pair[1])
        };
        if !rises(reads_at, reads.len()) || !rises(writes_at, writes.len()) {
            return wrong("its offsets do not describe its reads and writes".to_string());
        }
        for transaction in 1..=self.transactions {
            let at = transaction as usize - 1;
            let reads = &reads[reads_at[at] as usize..reads_at[at + 1] as usize];
            let writes = &writes[writes_at[at] as usize..writes_at[at + 1] as usize];
            let read =
                reads.iter().any(|read| read.version >= transaction || read.parameter >= self.parameters);
            let write =
                writes.iter().any(|write| write.writer >= transaction || write.parameter >= self.parameters);
            if read || write {
                return wrong(format!(
                    "transaction {transaction} waits for itself or a later one, or for a parameter that is not there"
                ));
            }
        }
        Ok(())
    }
}

fn wrong(what: String) -> Result<(), PlanFileError> {
    Err(PlanFileError::Inconsistent { what })
}

impl PlannedBatch {
    /// Appends the batch's plan and seams in the format of this module.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        #[allow(clippy::expect_used)] // Writing to memory does not fail.
        write_plan(bytes, &self.plan, Some(&self.seams)).expect("memory takes all");
    }

    /// Reads what [`PlannedBatch::encode`] wrote, and checks it against the samples that it is of: a compact plan that is let
    /// through is the one that planning gives.
    ///
    /// # Errors
    /// If it is damaged, of other samples, or impossible.
    pub fn decode<T: Task>(
        mut bytes: &[u8],
        task: &T,
        data: &Dataset<'_>,
    ) -> Result<PlannedBatch, PlanFileError> {
        let (plan, seams) = read_plan(&mut bytes)?;
        plan.check(task, data)?;
        plan.validate(data)?;
        if matches!(plan.annotations, Annotations::Compact(_)) != (task.rule() == Rule::Features) {
            let what = "its form is not that of batches under its rule".to_string();
            return Err(PlanFileError::Inconsistent { what });
        }
        if plan.order.is_some() {
            let what =
                "its samples have an order of their own, where those of a batch are in that of the data";
            return Err(PlanFileError::Inconsistent { what: what.to_string() });
        }
        let Some(seams) = seams else {
            return Err(PlanFileError::Inconsistent { what: "it has no seams".to_string() });
        };
        let batch = PlannedBatch { plan, seams };
        batch.plan.check_sets(task, data)?;
        batch.validate_seams(data)?;
        Ok(batch)
    }

    /// Every annotation that refers to what was there before the batch is listed, and nothing else is. A compact plan is the one
    /// that planning gives.
    fn validate_seams(&self, data: &Dataset<'_>) -> Result<(), PlanFileError> {
        let fine = match &self.plan.annotations {
            Annotations::Compact(versions) => {
                let features = data.features();
                self.seams.writes.is_empty()
                    && self.seams.reads.len() == self.seams.ends.len()
                    && zeros_are(versions.iter().copied(), &self.seams.reads)
                    && self
                        .seams
                        .reads
                        .iter()
                        .zip(&self.seams.ends)
                        .all(|(&place, end)| features[place as usize] == end.parameter && end.writer > 0)
                    && self.seams.ends.iter().all(|end| end.parameter < self.plan.parameters)
                    && verify::is_plan_of(data, versions, &self.seams)
            }
            Annotations::General { reads, writes, .. } => {
                zeros_are(reads.iter().map(|read| read.version), &self.seams.reads)
                    && zeros_are(writes.iter().map(|write| write.writer), &self.seams.writes)
            }
        };
        let ends = self.seams.ends.iter();
        let inside = ends
            .clone()
            .all(|end| end.parameter < self.plan.parameters && end.writer <= self.plan.transactions);
        if fine && inside {
            Ok(())
        } else {
            let what = "its seams are not where it touches parameters first".to_string();
            Err(PlanFileError::Inconsistent { what })
        }
    }
}

/// Whether these are the places of the zeros.
fn zeros_are(numbers: impl Iterator<Item = u32>, places: &[u32]) -> bool {
    let zeros = (0_u32..).zip(numbers).filter(|(_, number)| *number == 0).map(|(place, _)| place);
    zeros.eq(places.iter().copied())
}

fn write_plan(to: &mut impl Write, plan: &Plan, seams: Option<&Seams>) -> io::Result<()> {
    let mut out = Hashed { inner: to, hash: Xxh3::new() };
    let (general, lengths) = match &plan.annotations {
        Annotations::Compact(versions) => (0, [versions.len(), 0]),
        Annotations::General { reads, writes, .. } => (GENERAL, [reads.len(), writes.len()]),
    };
    let what = general | plan.order.as_ref().map_or(0, |_| ORDER) | seams.map_or(0, |_| SEAMS);
    out.write_all(&MAGIC)?;
    for number in [VERSION, what, plan.rule, plan.transactions, plan.parameters] {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(&plan.fingerprint.to_le_bytes())?;
    let ends = seams.map_or([0; 3], |seams| [seams.reads.len(), seams.writes.len(), seams.ends.len()]);
    for length in lengths.into_iter().chain(ends) {
        out.write_all(&(length as u64).to_le_bytes())?;
    }
    if let Some(order) = &plan.order {
        out.numbers(order)?;
    }
    match &plan.annotations {
        Annotations::Compact(versions) => out.numbers(versions)?,
        Annotations::General { reads_at, reads, writes_at, writes } => {
            out.numbers(&sizes(reads_at))?;
            for reads in reads.chunks(CHUNK) {
                let numbers: Vec<u32> =
                    reads.iter().flat_map(|read| [read.parameter, read.version]).collect();
                out.numbers(&numbers)?;
            }
            out.numbers(&sizes(writes_at))?;
            for writes in writes.chunks(CHUNK) {
                let parts = |write: &WriteOp| [write.parameter, write.writer, write.readers];
                out.numbers(&writes.iter().flat_map(parts).collect::<Vec<u32>>())?;
            }
        }
    }
    if let Some(seams) = seams {
        out.numbers(&seams.reads)?;
        out.numbers(&seams.writes)?;
        let ends = seams.ends.iter().flat_map(|end| [end.parameter, end.writer]);
        out.numbers(&ends.collect::<Vec<u32>>())?;
        out.numbers(&seams.readers)?;
    }
    let checksum = out.hash.digest();
    to.write_all(&checksum.to_le_bytes())?;
    to.flush()
}

fn sizes(offsets: &[u64]) -> Vec<u32> {
    offsets.windows(2).map(|pair| (pair[1] - pair[0]) as u32).collect()
}

fn offsets(sizes: &[u32]) -> Vec<u64> {
    let mut sum = 0_u64;
    let rest = sizes.iter().map(|&size| {
        sum += u64::from(size);
        sum
    });
    std::iter::once(0).chain(rest).collect()
}

/// Reads to the end of what there is.
fn read_plan(from: &mut impl Read) -> Result<(Plan, Option<Seams>), PlanFileError> {
    let mut from = Hashed { inner: from, hash: Xxh3::new() };
    let mut magic = [0; 8];
    from.fill(&mut magic, "its header")?;
    if magic != MAGIC {
        return Err(PlanFileError::Magic { found: magic });
    }
    let version = from.u32()?;
    if version != VERSION {
        return Err(PlanFileError::Version { found: version });
    }
    let [what, rule, transactions, parameters] = [from.u32()?, from.u32()?, from.u32()?, from.u32()?];
    let fingerprint = from.u64()?;
    let [reads, writes, first_reads, first_writes, ends] =
        [from.u64()?, from.u64()?, from.u64()?, from.u64()?, from.u64()?];
    let samples = u64::from(transactions);
    let order = match what & ORDER {
        0 => None,
        _ => Some(from.array(samples, "its order")?),
    };
    let annotations = if what & GENERAL == 0 {
        Annotations::Compact(from.array(reads, "its versions")?)
    } else {
        let reads_at = offsets(&from.array(samples, "its sizes of read sets")?);
        let read = from.array(reads.saturating_mul(2), "its reads")?;
        let reads = read.chunks_exact(2).map(|part| ReadOp { parameter: part[0], version: part[1] });
        let writes_at = offsets(&from.array(samples, "its sizes of write sets")?);
        let write = from.array(writes.saturating_mul(3), "its writes")?;
        let writes = write.chunks_exact(3).map(|part| WriteOp {
            parameter: part[0],
            writer: part[1],
            readers: part[2],
        });
        Annotations::General { reads_at, reads: reads.collect(), writes_at, writes: writes.collect() }
    };
    let seams = match what & SEAMS {
        0 => None,
        _ => {
            let reads = from.array(first_reads, "its first reads")?;
            let writes = from.array(first_writes, "its first writes")?;
            let numbers = from.array(ends.saturating_mul(2), "its last writers")?;
            let end = |part: &[u32]| End { parameter: part[0], writer: part[1] };
            let left = if what & GENERAL == 0 { 0 } else { ends };
            let readers = from.array(left, "its last readers")?;
            Some(Seams { reads, writes, ends: numbers.chunks_exact(2).map(end).collect(), readers })
        }
    };
    let found = from.hash.digest();
    let wanted = from.u64().map_err(|error| match error {
        PlanFileError::Truncated { .. } => PlanFileError::Truncated { part: "its checksum" },
        other => other,
    })?;
    if found != wanted {
        return Err(PlanFileError::Damaged { found, wanted });
    }
    let more = from.inner.take(1).read_to_end(&mut Vec::new());
    if more.map_err(|cause| PlanFileError::Io { path: PathBuf::new(), cause })? > 0 {
        return Err(PlanFileError::Longer);
    }
    let kept = Kept::default();
    let plan = Plan { transactions, parameters, rule, fingerprint, order, annotations, kept };
    plan.validate_alone()?;
    Ok((plan, seams))
}

/// Numbers that are converted at a time.
const CHUNK: usize = 1 << 14;

/// Hashes what passes through.
struct Hashed<'a, I> {
    inner: &'a mut I,
    hash: Xxh3,
}

impl<I: Write> Hashed<'_, I> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.inner.write_all(bytes)
    }

    fn numbers(&mut self, numbers: &[u32]) -> io::Result<()> {
        if cfg!(target_endian = "little") {
            return self.write_all(bytemuck::cast_slice(numbers));
        }
        numbers.iter().try_for_each(|number| self.write_all(&number.to_le_bytes()))
    }
}

impl<I: Read> Hashed<'_, I> {
    fn fill(&mut self, bytes: &mut [u8], part: &'static str) -> Result<(), PlanFileError> {
        self.inner.read_exact(bytes).map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof => PlanFileError::Truncated { part },
            _ => PlanFileError::Io { path: PathBuf::new(), cause },
        })?;
        self.hash.update(bytes);
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, PlanFileError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes, "its header")?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> Result<u64, PlanFileError> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes, "its header")?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Grows as it reads, so that a length that was damaged costs no more memory than the file has.
    fn array(&mut self, length: u64, part: &'static str) -> Result<Vec<u32>, PlanFileError> {
        let mut numbers = Vec::new();
        let mut left = length;
        while left > 0 {
            let chunk = left.min(CHUNK as u64 * 16) as usize;
            let start = numbers.len();
            numbers.resize(start + chunk, 0_u32);
            self.fill(cast_slice_mut(&mut numbers[start..]), part)?;
            left -= chunk as u64;
        }
        if cfg!(target_endian = "big") {
            numbers.iter_mut().for_each(|number| *number = u32::from_le(*number));
        }
        Ok(numbers)
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
