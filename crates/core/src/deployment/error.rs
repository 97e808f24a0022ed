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

/// All the mistakes of a configuration, in the order of their lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// A single mistake.
    pub fn one(
        file: impl Into<Arc<str>>,
        line: u32,
        wrong: impl Into<String>,
        right: impl Into<String>,
    ) -> Self {
        Self(vec![ConfigError { file: file.into(), line, wrong: wrong.into(), right: right.into() }])
    }

    /// The mistakes, in the order of their lines.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Gathers mistakes while a file is read, so that a person sees all of them at once.
#[derive(Debug)]
pub(crate) struct Mistakes {
    file: Arc<str>,
    list: Vec<ConfigError>,
}

impl Mistakes {
    pub(crate) fn in_file(file: impl Into<Arc<str>>) -> Self {
        Self { file: file.into(), list: Vec::new() }
    }

    pub(crate) fn file(&self) -> &Arc<str> {
        &self.file
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Notes a mistake on a line of this file.
    pub(crate) fn at(&mut self, line: u32, wrong: impl Into<String>, right: impl Into<String>) {
        self.list.push(ConfigError {
            file: self.file.clone(),
            line,
            wrong: wrong.into(),
            right: right.into(),
        });
    }

    /// Takes in the mistakes found in another file, which are shown after this file's own.
    pub(crate) fn absorb(&mut self, other: ConfigErrors) {
        self.list.extend(other.0);
    }

    /// `value` if nothing was wrong, else every mistake.
    pub(crate) fn unless_any<T>(self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.list.is_empty() => Ok(value),
            _ => {
                // A value is withheld only after the reason was noted; the assertion keeps the error list non-empty.
                assert!(!self.list.is_empty(), "a configuration was refused without a reason");
                let own = self.file;
                let mut list = self.list;
                list.sort_by(|a, b| (a.file != own, &a.file, a.line).cmp(&(b.file != own, &b.file, b.line)));
                Err(ConfigErrors(list))
            }
        }
    }
}
