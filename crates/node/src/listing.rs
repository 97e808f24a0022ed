//! Small files of a data directory that must not be taken for something else: lines under a head, written whole and read whole,
//! with a checksum. A bit of them that a disk has turned would disown a node, or show other data under the same name.

use crate::journal::{JournalError, put};
use crate::node::StartError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Such a file.
pub(crate) struct Listing {
    pub(crate) name: &'static str,
    /// Its first line, and before it in time those of earlier versions that wrote a checksum, the newest first.
    pub(crate) heads: &'static [&'static str],
    /// The first line of what the first version wrote, which has no checksum.
    pub(crate) older: &'static str,
    /// What the formats are called that are read.
    pub(crate) reads: &'static str,
    /// What a line is.
    pub(crate) line: &'static str,
}

/// What to do where such a file is lost.
const PUT_BACK: &str = "Put it back as it was. Where that is lost and this node is the only one of its deployment, it can be made \
                        again (docs/operations.md, \"What a data directory is\"); else put a node of another name in the place of this \
                        one (the same page, \"A node that has lost its disk, or whose journal is damaged\")";

const SUM: &str = "checksum ";

/// Bytes that such a file takes.
const ROOM: u64 = 4 << 10;

/// What such a file says.
pub(crate) struct Found<T> {
    /// A value a line.
    pub(crate) entries: Vec<T>,
    /// Whether an earlier version wrote it.
    pub(crate) older: bool,
}

impl Listing {
    pub(crate) fn path(&self, data: &Path) -> PathBuf {
        data.join(self.name)
    }

    /// What keeps a node with such a file from starting.
    pub(crate) fn unfit(&self, data: &Path, cause: impl ToString) -> StartError {
        StartError::Layout { path: self.path(data), cause: cause.to_string() }
    }

    /// The same where it cannot be written.
    pub(crate) fn unwritten(&self, data: &Path, cause: io::Error) -> StartError {
        JournalError::io(self.path(data), "write", ROOM, cause).into()
    }

    /// The same where there is no such file, and should be.
    pub(crate) fn missing(&self, data: &Path) -> StartError {
        self.unfit(data, format!("it is missing, though there is data beside it. {PUT_BACK}"))
    }

    /// The lines as this makes something of them; nothing where there is no such file.
    ///
    /// # Errors
    /// It cannot be read, is of another format, or is damaged.
    pub(crate) fn read<T>(
        &self,
        data: &Path,
        entry: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<Found<T>>, StartError> {
        let damaged = |what: &str| self.unfit(data, format!("it is damaged: {what}. {PUT_BACK}"));
        let text = match fs::read_to_string(self.path(data)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(damaged("it is no text")),
            Err(error) => return Err(JournalError::io(self.path(data), "read", 0, error).into()),
        };
        let head = text.lines().next();
        let older = head != self.heads.first().copied();
        let body = match head {
            Some(head) if head == self.older => text.as_str(),
            Some(head) if self.heads.contains(&head) => {
                let end = text.trim_end_matches('\n').rfind('\n').map_or(0, |end| end + 1);
                let (body, sum) = text.split_at(end);
                if sum.trim_end() != format!("{SUM}{:08x}", crc32c::crc32c(body.as_bytes())) {
                    return Err(damaged("its checksum is another"));
                }
                body
            }
            Some(head) if self.is_of_another_format(head) => {
                let reads = self.reads;
                return Err(self.unfit(data, format!("it is of another format; this version reads {reads}")));
            }
            _ => return Err(damaged("its first line is not one that a node writes")),
        };
        let entries: Option<Vec<T>> = body.lines().skip(1).map(entry).collect();
        match entries {
            Some(entries) => Ok(Some(Found { entries, older })),
            None => Err(damaged(&format!("a line is not {}", self.line))),
        }
    }

    /// Whether a first line is that of a version of which this one knows nothing.
    fn is_of_another_format(&self, head: &str) -> bool {
        let (name, _) = self.older.split_once("1:").unwrap_or_default();
        let number = |head: &str| head.strip_prefix(name)?.split(':').next()?.parse::<u32>().ok();
        let known = |found| self.heads.iter().chain([&self.older]).any(|known| number(known) == Some(found));
        number(head).is_some_and(|found| !known(found))
    }

    /// Writes these lines, durably or not at all.
    pub(crate) fn write(&self, data: &Path, lines: impl Iterator<Item = String>) -> io::Result<()> {
        let mut text = format!("{}\n", self.heads[0]);
        for line in lines {
            text += &line;
            text.push('\n');
        }
        text += &format!("{SUM}{:08x}\n", crc32c::crc32c(text.as_bytes()));
        put(data, self.name, text.as_bytes())
    }
}
