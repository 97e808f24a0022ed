//! The questions, in the order in which they are asked, and how answers are read.

use super::{Aim, Answers, MAPS, Map, Touched};
use crate::Usage;
use crate::output::clean_line;
use isochrone_core::{Matrix, RegionId};
use std::io::{BufRead, Read, Write};

/// At a terminal a question is asked so often before an answer that is none ends it.
const ATTEMPTS: usize = 3;
/// The longest answer, bytes.
const ANSWER_MAX: u64 = 4_096;
/// How many there are.
const QUESTIONS: usize = 5;
/// More users than a region of a deployment file can have.
const USERS_MAX: u32 = 1_000_000;
/// More regions than keyspaces can be told to survive.
const LOST_MAX: usize = 3;

/// Asks somebody.
pub(super) struct Questions<'a> {
    input: &'a mut dyn BufRead,
    output: &'a mut dyn Write,
    /// Whether somebody types the answers: then what is wrong is asked again.
    terminal: bool,
    asked: usize,
}

impl<'a> Questions<'a> {
    pub(super) fn new(
        input: &'a mut dyn BufRead,
        output: &'a mut dyn Write,
        terminal: bool,
    ) -> Questions<'a> {
        Questions { input, output, terminal, asked: 0 }
    }

    /// Asks all of them.
    ///
    /// # Errors
    /// An answer that is none: at once where answers are piped, the third at a terminal.
    pub(super) fn ask(mut self) -> anyhow::Result<Answers> {
        let mut maps = Vec::new();
        for map in MAPS {
            maps.push((map, map.matrix()?));
        }
        let mut where_users =
            "Where are your users? Regions of one map, with shares where they differ: US East=70, Euro=30"
                .to_owned();
        for (map, matrix) in &maps {
            let what = format!("{}:", map.what);
            where_users += &format!("\n  {what:<26}{}", names(matrix.names()));
        }
        let all = maps.first().map(|(_, matrix)| names(matrix.names())).unwrap_or_default();
        let (map, matrix, users) = self.question(&where_users, &all, |text| users(&maps, text))?;

        let where_data = "In which of its regions may data lie, and machines stand? `any`, or a list";
        let sites = self.question(where_data, "any", |text| sites(&matrix, text))?;

        let most = LOST_MAX.min(sites.len().saturating_sub(1) / 2);
        let loss = format!(
            "How many of these regions may be lost at once, without loss of data or service? 0 to {most}: n take 2n + 1 \
             replicas"
        );
        let lost = self.question(&loss, &most.min(1).to_string(), |text| lost(most, text))?;

        let touch = "What does a request touch? `transactions`: keys of several partitions, all or nothing. Else keys of \
                     one: how many in a hundred change what another one is changing?";
        let touched = self.question(touch, "0", touched)?;

        let matters = "What is to be short? `mean` over all users, `worst`: that of the region that waits longest, or the \
                       name of the region that matters";
        let aim = self.question(matters, "mean", |text| aim(&matrix, &users, text))?;
        Ok(Answers { map, matrix, users, sites, lost, touched, aim })
    }

    /// Asks one; an empty answer is the default.
    fn question<T>(
        &mut self,
        text: &str,
        default: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        self.asked += 1;
        let number = self.asked;
        let attempts = if self.terminal { ATTEMPTS } else { 1 };
        let mut wrong = String::new();
        for _ in 0..attempts {
            self.show(&format!("{number} of {QUESTIONS}  {text}\n  [{default}] "));
            let line = self.line(number)?;
            let answer = match line.trim() {
                "" => default,
                answer => answer,
            };
            if !self.terminal {
                // What was typed is on the screen already.
                self.show(&format!("{}\n", clean_line(answer)));
            }
            match read(answer) {
                Ok(answer) => return Ok(answer),
                Err(why) => wrong = why,
            }
            if self.terminal {
                self.show(&format!("  {wrong}\n"));
            }
        }
        Err(Usage(format!("question {number} of `plan --ask`: {wrong}")).into())
    }

    /// Whoever does not see the questions may answer all the same.
    fn show(&mut self, text: &str) {
        let _ = self.output.write_all(text.as_bytes());
        let _ = self.output.flush();
    }

    /// The next line; where piped answers have ended, an empty one.
    fn line(&mut self, number: usize) -> anyhow::Result<String> {
        let refused = |why: &str| Usage(format!("question {number} of `plan --ask`: {why}"));
        let mut line = Vec::new();
        let input = &mut *self.input;
        let read = input.take(ANSWER_MAX).read_until(b'\n', &mut line);
        if let Err(cause) = read {
            return Err(
                refused(&format!("the answer cannot be read: {cause}\n  type it, or pipe it in")).into()
            );
        }
        if line.len() as u64 == ANSWER_MAX && line.last() != Some(&b'\n') {
            return Err(refused(&format!(
                "the answer is longer than {ANSWER_MAX} bytes\n  give names and numbers"
            ))
            .into());
        }
        if line.is_empty() && self.terminal {
            self.show("\n");
            return Err(refused("there is no answer\n  an empty line takes what stands in brackets").into());
        }
        String::from_utf8(line).map_err(|_| refused("the answer is no text\n  give it as UTF-8").into())
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A word of somebody's as it is shown again.
fn shown(word: &str) -> String {
    let word: String = word.chars().take(60).collect();
    format!("{word:?}")
}

fn region(matrix: &Matrix, word: &str) -> Option<RegionId> {
    let named = |region: &RegionId| matrix.name(*region).eq_ignore_ascii_case(word);
    matrix.regions().find(named)
}

/// `NAME` or `NAME=N`, separated by commas, all of one map.
fn users(maps: &[(&'static Map, Matrix)], text: &str) -> Result<(&'static Map, Matrix, Vec<u32>), String> {
    let mut words: Vec<(&str, u32)> = Vec::new();
    for word in text.split(',') {
        let (name, share) = word.split_once('=').unwrap_or((word, "1"));
        let (name, share) = (name.trim(), share.trim());
        let right = || format!("{}: N of NAME=N is a whole number from 1 to {USERS_MAX}", shown(word.trim()));
        let share = share.parse::<u32>().map_err(|_| right())?;
        if !(1..=USERS_MAX).contains(&share) {
            return Err(right());
        }
        words.push((name, share));
    }
    let all = |matrix: &Matrix| words.iter().all(|(name, _)| region(matrix, name).is_some());
    let Some((map, matrix)) = maps.iter().find(|(_, matrix)| all(matrix)) else {
        let given = words.iter().map(|(name, _)| shown(name)).collect::<Vec<_>>().join(", ");
        return Err(format!("no map has {given}; name regions that stand in one line above"));
    };
    let mut users = vec![0; matrix.len()];
    for (name, share) in words {
        if let Some(of) = region(matrix, name).and_then(|region| users.get_mut(usize::from(region.0))) {
            if *of > 0 {
                return Err(format!("{} is named twice; name each region once", shown(name)));
            }
            *of = share;
        }
    }
    Ok((*map, matrix.clone(), users))
}

fn sites(matrix: &Matrix, text: &str) -> Result<Vec<RegionId>, String> {
    if text.eq_ignore_ascii_case("any") {
        return Ok(matrix.regions().collect());
    }
    let mut sites = Vec::new();
    for name in text.split(',').map(str::trim) {
        let right =
            || format!("{} is no region of the map; there are {}", shown(name), names(matrix.names()));
        sites.push(region(matrix, name).ok_or_else(right)?);
    }
    sites.sort_unstable();
    sites.dedup();
    Ok(sites)
}

fn lost(most: usize, text: &str) -> Result<usize, String> {
    let right = || {
        let why = if most < LOST_MAX { "; for more, data must be allowed in more regions" } else { "" };
        format!("{} is no number from 0 to {most}{why}", shown(text))
    };
    text.parse::<usize>().ok().filter(|lost| *lost <= most).ok_or_else(right)
}

fn touched(text: &str) -> Result<Touched, String> {
    if text.eq_ignore_ascii_case("transactions") {
        return Ok(Touched::Partitions);
    }
    let share = text.trim_end_matches('%').trim_end().parse::<f64>();
    let right = || format!("{} is neither `transactions` nor a share from 0 to 100", shown(text));
    share.ok().filter(|share| (0.0..=100.0).contains(share)).map(Touched::Keys).ok_or_else(right)
}

fn aim(matrix: &Matrix, users: &[u32], text: &str) -> Result<Aim, String> {
    if text.eq_ignore_ascii_case("mean") {
        return Ok(Aim::Mean);
    }
    if text.eq_ignore_ascii_case("worst") {
        return Ok(Aim::Worst);
    }
    let with_users = |region: &RegionId| users.get(usize::from(region.0)).is_some_and(|users| *users > 0);
    let right = || {
        let regions = matrix.regions().filter(with_users).map(|region| matrix.name(region));
        format!("{} is neither `mean` nor `worst` nor a region with users: {}", shown(text), names(regions))
    };
    region(matrix, text).filter(with_users).map(Aim::Region).ok_or_else(right)
}
