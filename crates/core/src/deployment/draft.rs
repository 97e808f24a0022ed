//! Reading a TOML table key by key, with the line of everything, so that each mistake can be shown where it is.

use toml::de::{DeTable, DeValue};

use super::error::Mistakes;
use super::values::{Address, nearest, parse_bytes, parse_span, suggest};
use crate::time::Span;

/// A value and the line it stands on.
#[derive(Clone, Debug)]
pub(crate) struct Located<T> {
    pub(crate) line: u32,
    pub(crate) value: T,
}

/// A list of strings, each with its line.
pub(crate) type Names = Located<Vec<Located<String>>>;

/// The text of a file and where its lines begin.
pub(crate) struct Source<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// The line of a byte offset, counted from 1.
    pub(crate) fn line(&self, offset: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|start| *start <= offset)).unwrap_or(u32::MAX)
    }

    /// A value as it is written, cut where it gets long.
    fn excerpt(&self, span: std::ops::Range<usize>) -> String {
        let written = self.text.get(span).unwrap_or("?");
        let first = written.lines().next().unwrap_or_default();
        if first.len() == written.len() && first.chars().count() <= 60 {
            return first.to_owned();
        }
        first.chars().take(57).chain("...".chars()).collect()
    }
}

/// What a value should have been.
pub(crate) struct Refusal {
    /// Completes the sentence `key = value ...`.
    pub(crate) wrong: String,
    pub(crate) right: String,
}

impl Refusal {
    pub(crate) fn new(wrong: impl Into<String>, right: impl Into<String>) -> Self {
        Self { wrong: wrong.into(), right: right.into() }
    }
}

/// One table of the file, read key by key; `finish` refuses what nobody asked for.
pub(crate) struct Section<'a> {
    source: &'a Source<'a>,
    table: &'a DeTable<'a>,
    /// The line where it begins.
    pub(crate) line: u32,
    /// How messages name it: `[network]`, `keyspace "bank"`.
    pub(crate) title: String,
    asked: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(
        source: &'a Source<'a>,
        table: &'a DeTable<'a>,
        line: u32,
        title: impl Into<String>,
    ) -> Self {
        Self { source, table, line, title: title.into(), asked: Vec::new() }
    }

    /// Notes something wrong with this section.
    pub(crate) fn refuse(
        &self,
        mistakes: &mut Mistakes,
        line: u32,
        wrong: impl std::fmt::Display,
        right: impl Into<String>,
    ) {
        let wrong = match (mistakes.is_full(), self.title.is_empty()) {
            (true, _) => String::new(),
            (false, true) => wrong.to_string(),
            (false, false) => format!("{}: {wrong}", self.title),
        };
        mistakes.at(line, wrong, right);
    }

    /// Reads a key, if it is there, by a rule that says what is wrong with a value it refuses.
    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        mistakes: &mut Mistakes,
        rule: impl FnOnce(&'a DeValue<'a>) -> Result<T, Refusal>,
    ) -> Option<Located<T>> {
        self.asked.push(key);
        let (name, value) = self.table.get_key_value(key)?;
        let line = self.source.line(name.span().start);
        match rule(value.get_ref()) {
            Ok(value) => Some(Located { line, value }),
            Err(refusal) => {
                let written = self.source.excerpt(value.span());
                self.refuse(
                    mistakes,
                    line,
                    format_args!("{key} = {written} {}", refusal.wrong),
                    refusal.right,
                );
                None
            }
        }
    }

    /// Whether the key is in the table, good or not; a mistake in its value is then already noted.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(crate) fn text(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<Located<String>> {
        self.read(key, mistakes, |value| as_text(value.as_str()).map(str::to_owned))
    }

    /// A key that must be there.
    pub(crate) fn required_text(
        &mut self,
        key: &'static str,
        example: &str,
        mistakes: &mut Mistakes,
    ) -> Option<Located<String>> {
        if !self.has(key) {
            self.refuse(
                mistakes,
                self.line,
                format_args!("{key} is missing"),
                format!("add {key} = {example:?}"),
            );
        }
        self.text(key, mistakes)
    }

    pub(crate) fn boolean(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<Located<bool>> {
        self.read(key, mistakes, |value| {
            value.as_bool().ok_or_else(|| Refusal::new("is not a yes or no", "write true or false"))
        })
    }

    pub(crate) fn integer(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
        mistakes: &mut Mistakes,
    ) -> Option<Located<u64>> {
        self.read(key, mistakes, |value| as_integer(integer_of(value), least, most))
    }

    pub(crate) fn span(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<Located<Span>> {
        self.read(key, mistakes, |value| as_span(value.as_str()))
    }

    pub(crate) fn address(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<Located<Address>> {
        self.read(key, mistakes, |value| {
            const RIGHT: &str = "write host:port, such as \"10.0.0.1:7000\" or \"[::1]:7000\"";
            let text = value.as_str().ok_or_else(|| Refusal::new("is not an address", RIGHT))?;
            Address::parse(text).map_err(|wrong| Refusal::new(wrong, RIGHT))
        })
    }

    /// A list of strings, each with its line.
    pub(crate) fn texts(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Option<Names> {
        let source = self.source;
        self.read(key, mistakes, |value| {
            let wanted = || Refusal::new("is not a list of names", "write [\"a\", \"b\", \"c\"]");
            let items = value.as_array().ok_or_else(wanted)?;
            items
                .iter()
                .map(|item| {
                    let text = item.get_ref().as_str().ok_or_else(wanted)?;
                    Ok(Located { line: source.line(item.span().start), value: text.to_owned() })
                })
                .collect()
        })
    }

    /// A list of lists of strings, each with its line.
    pub(crate) fn lists(
        &mut self,
        key: &'static str,
        mistakes: &mut Mistakes,
    ) -> Option<Located<Vec<Names>>> {
        let source = self.source;
        self.read(key, mistakes, |value| {
            let wanted = || {
                let right = "write [[\"a\", \"b\", \"c\"], [\"b\", \"c\", \"d\"]]";
                Refusal::new("is not a list of lists of names", right)
            };
            let lists = value.as_array().ok_or_else(wanted)?;
            let text = |item: &toml::Spanned<DeValue<'a>>| {
                let text = item.get_ref().as_str().ok_or_else(wanted)?;
                Ok(Located { line: source.line(item.span().start), value: text.to_owned() })
            };
            let list = |item: &toml::Spanned<DeValue<'a>>| {
                let items = item.get_ref().as_array().ok_or_else(wanted)?;
                let value = items.iter().map(text).collect::<Result<_, _>>()?;
                Ok(Located { line: source.line(item.span().start), value })
            };
            lists.iter().map(list).collect()
        })
    }

    /// A table inside this one: `[title.key]` or `key = { ... }`.
    pub(crate) fn section(
        &mut self,
        key: &'static str,
        title: impl Into<String>,
        mistakes: &mut Mistakes,
    ) -> Option<Section<'a>> {
        let source = self.source;
        let right = match self.title.as_str() {
            "" => format!("write [{key}] on a line of its own"),
            _ => format!("write {key} = {{ key = value }}"),
        };
        let found = self.read(key, mistakes, |value| {
            value.as_table().ok_or_else(|| Refusal::new("is not a table", right))
        })?;
        Some(Section::new(source, found.value, found.line, title))
    }

    /// The tables of `[[key]]`, each titled by its kind and its number until its name is known.
    pub(crate) fn sections(&mut self, key: &'static str, mistakes: &mut Mistakes) -> Vec<Section<'a>> {
        let source = self.source;
        let found = self.read(key, mistakes, |value| {
            let wanted =
                || Refusal::new("is not a list of tables", format!("write [[{key}]] on a line of its own"));
            let items = value.as_array().ok_or_else(wanted)?;
            items
                .iter()
                .enumerate()
                .map(|(index, item)| {
                    let table = item.get_ref().as_table().ok_or_else(wanted)?;
                    let line = source.line(item.span().start);
                    Ok(Section::new(source, table, line, format!("{key} {}", index + 1)))
                })
                .collect::<Result<Vec<_>, _>>()
        });
        found.map(|located| located.value).unwrap_or_default()
    }

    /// Every key and value, for tables whose keys are somebody else's.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, &'a str, &'a DeValue<'a>, String)> + '_ {
        self.table.iter().map(|(key, value)| {
            (
                self.source.line(key.span().start),
                &**key.get_ref(),
                value.get_ref(),
                self.source.excerpt(value.span()),
            )
        })
    }

    /// Refuses every key that was not asked for.
    pub(crate) fn finish(self, mistakes: &mut Mistakes) {
        for (line, key, _, _) in self.entries() {
            if !self.asked.contains(&key) {
                let wrong = format!("unknown key {key:?}");
                let asked = self.asked.iter().copied();
                let mut right = suggest(key, asked.clone());
                // Which these are, only the protocol knows.
                if self.asked.contains(&"parameters") && nearest(key, asked).is_none() {
                    right += "; a parameter of the protocol goes under [keyspace.parameters]";
                }
                self.refuse(mistakes, line, wrong, right);
            }
        }
    }
}

/// The number of an integer of any radix.
pub(crate) fn integer_of(value: &DeValue<'_>) -> Option<i128> {
    let integer = value.as_integer()?;
    i128::from_str_radix(integer.as_str(), integer.radix()).ok()
}

pub(crate) fn as_text(text: Option<&str>) -> Result<&str, Refusal> {
    text.ok_or_else(|| Refusal::new("is not a text", "put it in quotes"))
}

pub(crate) fn as_integer(number: Option<i128>, least: u64, most: u64) -> Result<u64, Refusal> {
    let range = || format!("write a whole number from {least} to {most}");
    let number = number.ok_or_else(|| Refusal::new("is not a whole number", range()))?;
    match u64::try_from(number) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(Refusal::new("is out of range", range())),
    }
}

pub(crate) fn as_span(text: Option<&str>) -> Result<Span, Refusal> {
    const RIGHT: &str = "write a number and its unit in quotes, such as \"30s\", \"1.5ms\" or \"250us\"";
    let text = text.ok_or_else(|| Refusal::new("is not a duration", RIGHT))?;
    parse_span(text).map_err(|wrong| Refusal::new(wrong, RIGHT))
}

pub(crate) fn as_bytes(text: Option<&str>) -> Result<u64, Refusal> {
    const RIGHT: &str = "write a number and its unit in quotes, such as \"64MiB\" or \"512B\"";
    let text = text.ok_or_else(|| Refusal::new("is not a size", RIGHT))?;
    parse_bytes(text).map_err(|wrong| Refusal::new(wrong, RIGHT))
}
