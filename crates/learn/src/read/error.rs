//! What can be wrong with a file.

use crate::memory::{NoRoom, amount, limit};
use crate::plan::TooWide;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// What is wrong in a line: where, what stands there, and what was expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    /// Byte of the line, counted from 0.
    pub(super) at: usize,
    /// In a table, the column in the place of that.
    pub(super) column: Option<String>,
    /// What stands there, shortened.
    pub(super) found: String,
    /// What would be right.
    pub(super) expected: String,
}

impl Problem {
    /// About the word of `line` that has the byte `at` in it or after it.
    pub(super) fn word(line: &[u8], at: usize, expected: impl Into<String>) -> Problem {
        let blank = |byte: &u8| byte.is_ascii_whitespace();
        let from = line[..at.min(line.len())].iter().rposition(blank).map_or(0, |blank| blank + 1);
        let until = line[from..].iter().position(blank).map_or(line.len(), |length| from + length);
        let mut found = String::from_utf8_lossy(&line[from..until]).into_owned();
        if found.chars().count() > 40 {
            found = found.chars().take(40).collect::<String>() + "…";
        }
        Problem { at: from, column: None, found, expected: expected.into() }
    }

    /// About a cell of a table.
    #[cfg(feature = "tables")]
    pub(super) fn cell(column: &str, found: &str, expected: impl Into<String>) -> Problem {
        Problem { at: 0, column: Some(column.to_owned()), found: found.to_owned(), expected: expected.into() }
    }
}

/// A line, or a row of a table, that is no sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineError {
    /// The file.
    pub file: PathBuf,
    /// The line or the row, counted from 1.
    pub line: u64,
    pub(super) problem: Problem,
}

impl LineError {
    /// The byte of the line at which it goes wrong, counted from 1; of a table that is always 1.
    pub fn column(&self) -> usize {
        self.problem.at + 1
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = match self.problem.found.as_str() {
            "" => "the line ends".to_owned(),
            // A file may hold what would move the cursor of a terminal, or worse.
            found => format!("`{}`", found.replace(char::is_control, "\u{fffd}")),
        };
        let (file, expected) = (self.file.display(), &self.problem.expected);
        match &self.problem.column {
            Some(column) => {
                write!(to, "{file}: row {}, column `{column}`: {found}: expected {expected}", self.line)
            }
            None => write!(to, "{file}:{}:{}: {found}: expected {expected}", self.line, self.column()),
        }
    }
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It could not be opened.
    #[error("{}: cannot read it: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It broke off: the disk, or what was compressed is damaged.
    #[error("{}: cannot read on after line {line}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Lines, or rows of a table, read before.
        line: u64,
        /// Why.
        cause: io::Error,
    },
    /// It is of a form that is not read.
    #[error("{}: this is {what}\n  {instead}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// It is a table, and not one of samples.
    #[error("{}: {what}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what is wanted.
        what: String,
    },
    /// A line is wrong, and no more may be.
    #[error("{error}{}", match *skipped {
        0 => String::new(),
        1 => "\n  1 wrong line before it was left out".to_owned(),
        skipped => format!("\n  {skipped} wrong lines before it were left out"),
    })]
    Line {
        /// What is wrong.
        error: LineError,
        /// Wrong lines that were left out before.
        skipped: u64,
    },
    /// Its samples have more features than there is memory to plan.
    #[error("{}: {cause}", path.display())]
    Wide {
        /// The file.
        path: PathBuf,
        /// What would have been wanted.
        cause: TooWide,
    },
    /// There is no memory for more of its samples, or for their plan.
    #[error(
        "{}: after {rows} samples there is no memory for more: {} were asked for in vain{}: read fewer at a time (iter_svmlight \
         in Python, train --batch-rows)",
        path.display(), amount(cause.bytes), limit(cause.limited)
    )]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Samples read before.
        rows: u64,
        /// What was asked for.
        cause: NoRoom,
    },
    /// It has more samples than one set can have.
    #[error("{}: it has more than the {most} samples that can be learnt from at a time: read it in batches", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// How many there can be.
        most: usize,
    },
    /// Indices from 0 up to the number of features.
    #[error("{}: it has the index 0 and the index {width}, so more than the {width} features that were given", path.display())]
    Width {
        /// The file.
        path: PathBuf,
        /// Features that were given.
        width: u32,
    },
    /// Not one sample.
    #[error("{}: there is no sample in it: expected lines such as `1 3:0.5 7:1`", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Its end was asked for while it was read.
    #[error("{}: reading it was interrupted", path.display())]
    Interrupted {
        /// The file.
        path: PathBuf,
    },
}

impl ReadError {
    /// Whether nothing is wrong with the file, but there is no memory to read it with.
    pub fn is_memory(&self) -> bool {
        match self {
            ReadError::NoRoom { .. } => true,
            ReadError::Open { cause, .. } | ReadError::Io { cause, .. } => {
                cause.kind() == io::ErrorKind::OutOfMemory
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_file_moves_no_cursor() {
        let problem = Problem::word(b"\x1b[31m\x07 1:1", 0, "a label");
        let error = LineError { file: PathBuf::from("data.svm"), line: 3, problem };
        assert_eq!(error.to_string(), "data.svm:3:1: `\u{fffd}[31m\u{fffd}`: expected a label");
    }
}
