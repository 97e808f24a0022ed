//! What can be wrong with a file that people write: where, what, and what would be right.

use std::fmt;
use std::sync::Arc;

/// One mistake in a configuration file.
///
/// It is shown as `file:line: what is wrong`, then, on a line of its own, what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as the person named it (or the command line option that was wrong).
    pub file: Arc<str>,
    /// The line, counted from 1; 0 when no line is to blame.
    pub line: u32,
    /// What is wrong.
    pub wrong: String,
    /// What would be right.
    pub right: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}\n  {}", self.file, self.wrong, self.right),
            line => write!(f, "{}:{line}: {}\n  {}", self.file, self.wrong, self.right),
        }
    }
}

/// Mistakes that are told of one configuration; more are counted. A file of 1 MiB may have hundreds of thousands.
const TOLD_MAX: usize = 100;

/// The mistakes of a configuration, in the order of their lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// Those that are told.
    list: Vec<ConfigError>,
    /// How many more there are.
    more: usize,
}

impl ConfigErrors {
    /// A single mistake.
    pub fn one(
        file: impl Into<Arc<str>>,
        line: u32,
        wrong: impl Into<String>,
        right: impl Into<String>,
    ) -> Self {
        let error = ConfigError { file: file.into(), line, wrong: wrong.into(), right: right.into() };
        Self { list: vec![error], more: 0 }
    }

    /// The mistakes that are told, in the order of their lines.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.list.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for ConfigErrors {}

/// Gathers mistakes while a file is read, so that a person sees all of them at once, or as many as anybody reads.
#[derive(Debug)]
pub(crate) struct Mistakes {
    file: Arc<str>,
    list: Vec<ConfigError>,
    more: usize,
}

impl Mistakes {
    pub(crate) fn in_file(file: impl Into<Arc<str>>) -> Self {
        Self { file: file.into(), list: Vec::new(), more: 0 }
    }

    pub(crate) fn file(&self) -> &Arc<str> {
        &self.file
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the next mistake is only counted: what is said of it need not be made.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= TOLD_MAX
    }

    /// Notes a mistake on a line of this file.
    pub(crate) fn at(&mut self, line: u32, wrong: impl Into<String>, right: impl Into<String>) {
        let (wrong, right) = (wrong.into(), right.into());
        self.note(ConfigError { file: self.file.clone(), line, wrong, right });
    }

    /// Takes in the mistakes found in another file, which are shown after this file's own.
    pub(crate) fn absorb(&mut self, other: ConfigErrors) {
        self.more += other.more;
        other.list.into_iter().for_each(|error| self.note(error));
    }

    fn note(&mut self, error: ConfigError) {
        match self.is_full() {
            true => self.more += 1,
            false => self.list.push(error),
        }
    }

    /// `value` if nothing was wrong, else every mistake.
    pub(crate) fn unless_any<T>(self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.list.is_empty() => Ok(value),
            _ => {
                // A value is withheld only after the reason was noted; the assertion keeps the error list non-empty.
                assert!(!self.list.is_empty(), "a configuration was refused without a reason");
                let Self { file: own, mut list, more } = self;
                list.sort_by(|a, b| (a.file != own, &a.file, a.line).cmp(&(b.file != own, &b.file, b.line)));
                Err(ConfigErrors { list, more })
            }
        }
    }
}
