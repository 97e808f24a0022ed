//! A line of svmlight's format.

use super::error::Problem;
use super::number::{index, number};
use super::{Base, Options, Parsed};

const FEATURE: &str = "INDEX:VALUE, e.g. 3:0.5";
const LABEL: &str = "a label, a number such as 1 or -1";

/// Adds the sample of a line, if there is one: neither a line of blanks nor a comment. Features keep the line's numbers;
/// `base` is the first that may occur, where it is known, and from `base` and the width on none may.
pub(super) fn line(
    line: &[u8],
    base: Option<u32>,
    options: &Options,
    parsed: &mut Parsed,
) -> Result<(), Problem> {
    let mut at = skip(line, 0);
    if ends(line, at) {
        return Ok(());
    }
    let Some((label, end)) = number(line, at) else { return Err(Problem::word(line, at, LABEL)) };
    if line.get(end) == Some(&b',') {
        return Err(Problem::word(line, at, "one label: samples of several classes are not read"));
    }
    if !blank(line, end) {
        return Err(Problem::word(line, at, LABEL));
    }
    if !label.is_finite() {
        return Err(Problem::word(line, at, "a label that is a finite number"));
    }
    at = skip(line, end);
    if line[at..].starts_with(b"qid:") {
        // Groups of a ranking: the samples are those of a query, but each is learnt from by itself.
        let end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'#';
        at += line[at..].iter().position(end).unwrap_or(line.len() - at);
        at = skip(line, at);
    }
    let first = base.unwrap_or(0);
    // A first index of 1 takes a number from the top; without a width the largest u32 stays free as a mark.
    // As long as the first index is not known, it may be 1.
    let beyond =
        options.width.map_or(u64::from(u32::MAX), |width| u64::from(base.unwrap_or(1)) + u64::from(width));
    let start = parsed.features.len();
    let (mut last, mut sorted) = (None, true);
    while !ends(line, at) {
        let Some((feature, end)) = index(line, at) else {
            // Digits that are no number of 32 bits are an index, but not one that may be.
            let large = line[at].is_ascii_digit();
            return Err(if large { above(line, at, beyond) } else { Problem::word(line, at, FEATURE) });
        };
        if line.get(end) != Some(&b':') {
            return Err(Problem::word(line, at, FEATURE));
        }
        let Some((value, end)) = number(line, end + 1) else { return Err(Problem::word(line, at, FEATURE)) };
        if !blank(line, end) {
            return Err(Problem::word(line, at, FEATURE));
        }
        if let Some(expected) = parsed.refuses(value) {
            return Err(Problem::word(line, at, expected));
        }
        if feature < first {
            return Err(Problem::word(line, at, from_one(options)));
        }
        if u64::from(feature) >= beyond {
            return Err(above(line, at, beyond));
        }
        sorted &= last.is_none_or(|last| last < feature);
        last = Some(feature);
        parsed.push(feature, value);
        at = skip(line, end);
    }
    if !sorted && let Some(twice) = repeated(&parsed.features[start..]) {
        let word = place(line, twice).unwrap_or(0);
        return Err(Problem::word(line, word, "each index once in a line"));
    }
    parsed.end(label);
    Ok(())
}

/// What is expected in the place of an index of 0, and why.
#[cold]
fn from_one(options: &Options) -> String {
    match (options.base, &options.base_of) {
        (Base::Auto, _) => {
            "an index from 1 on, from which a file counts whose first lines have no 0: if this one counts from 0, say so (--base \
             0, or zero_based=True in Python)"
                .to_owned()
        }
        (_, None) => "an index from 1 on, from which the file counts by the first index given for it".to_owned(),
        (_, Some(model)) => format!(
            "an index from 1 on, from which the data of {} counted: if this file alone counts from 0, say --base 0; if that did \
             too, train again with --base 0",
            model.display()
        ),
    }
}

#[cold]
fn above(line: &[u8], at: usize, beyond: u64) -> Problem {
    Problem::word(line, at, format!("an index of at most {}", beyond.saturating_sub(1)))
}

/// From `at` on, the first byte that is no blank.
#[inline(always)]
fn skip(line: &[u8], mut at: usize) -> usize {
    while line.get(at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
        at += 1;
    }
    at
}

/// Whether a word ends here.
#[inline(always)]
fn blank(line: &[u8], at: usize) -> bool {
    line.get(at).is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'#'))
}

/// Whether what is to be read of the line ends here.
#[inline(always)]
fn ends(line: &[u8], at: usize) -> bool {
    line.get(at).is_none_or(|byte| *byte == b'#')
}

/// A feature that occurs more than once.
#[cold]
pub(super) fn repeated(features: &[u32]) -> Option<u32> {
    let mut sorted = features.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// Where a line names a feature for the second time.
#[cold]
fn place(line: &[u8], feature: u32) -> Option<usize> {
    let mut starts = (0..line.len()).filter(|&at| {
        let begins = at > 0 && line[at - 1].is_ascii_whitespace();
        begins && index(line, at).is_some_and(|(found, end)| found == feature && line.get(end) == Some(&b':'))
    });
    starts.nth(1)
}
