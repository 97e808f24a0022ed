//! A line of Vowpal Wabbit's text format.
//!
//! `LABEL [IMPORTANCE [INITIAL]] ['TAG]|NAMESPACE[:SCALE] FEATURE[:VALUE] … |NAMESPACE …`
//!
//! Features are hashed as there (MurmurHash3 of the name, seeded by that of the namespace; names that are numbers are
//! added to it, and those without a name are numbered in their namespace from 0) and then cut to so many bits. Features of a line that meet in a hash are added up, since a sample has each
//! of its features once. What a line's importance is, the loss of its sample counts.

use super::Parsed;
use super::error::Problem;
use super::number::number;

const IMPORTANCE: &str = "an importance, a finite number from 0 on such as 2.5";
const LABEL: &str = "a label, a number such as 1 or -1, before the first `|`";

/// Adds the sample of a line, if there is one. Where nobody asks for labels (`unlabelled`), one that has none is of 0.
pub(super) fn line(line: &[u8], bits: u32, unlabelled: bool, parsed: &mut Parsed) -> Result<(), Problem> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let Some(bar) = memchr::memchr(b'|', line) else {
        return Err(Problem::word(line, line.len(), "`|` and features after the label"));
    };
    let (label, importance) = label(line, bar, unlabelled)?;
    let mask = ((1_u64 << bits) - 1) as u32;
    // Where a feature stands, to tell of it.
    let mut sample: Vec<(u32, f64, usize)> = Vec::new();
    let (mut seed, mut scale, mut unnamed, mut at) = (0_u32, 1.0, 0, bar);
    while at < line.len() {
        if line[at] == b'|' {
            let end = word(line, at + 1);
            let (name, factor) = weighted(line, at + 1, end)?;
            seed = if name.is_empty() { 0 } else { hash(name, 0) };
            (scale, unnamed, at) = (factor, 0, end);
        } else if line[at].is_ascii_whitespace() {
            at += 1;
        } else {
            let end = word(line, at);
            let (name, value) = weighted(line, at, end)?;
            let feature = if name.is_empty() {
                unnamed += 1;
                seed.wrapping_add(unnamed - 1)
            } else {
                hash(name, seed)
            };
            sample.push((feature & mask, scale * value, at));
            at = end;
        }
    }
    sample.sort_by_key(|(feature, ..)| *feature);
    let mut rest = sample.into_iter().peekable();
    while let Some((feature, mut value, at)) = rest.next() {
        while let Some((_, more, _)) = rest.next_if(|(next, ..)| *next == feature) {
            value += more;
        }
        // Also what comes of a scale, or of features that meet.
        if let Some(expected) = parsed.refuses(value) {
            return Err(Problem::word(line, at, expected));
        }
        parsed.push(feature, value);
    }
    parsed.end_weighed(label, importance);
    Ok(())
}

/// The label and the importance, 1 where none is given.
fn label(line: &[u8], bar: usize, unlabelled: bool) -> Result<(f64, f64), Problem> {
    let mut words = Vec::new();
    let mut at = 0;
    while at < bar {
        if line[at].is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let end = word(line, at);
        words.push((at, end));
        at = end;
    }
    // A tag begins with a quote, or touches the bar.
    if words.last().is_some_and(|&(from, end)| line[from] == b'\'' || (end == bar && words.len() > 1)) {
        words.pop();
    }
    let Some(&(at, end)) = words.first() else {
        return if unlabelled { Ok((0.0, 1.0)) } else { Err(Problem::word(line, 0, LABEL)) };
    };
    let label = number(line, at).filter(|&(label, stop)| stop == end && label.is_finite());
    let Some((label, _)) = label else { return Err(Problem::word(line, at, LABEL)) };
    let mut importance = 1.0;
    if let Some(&(at, end)) = words.get(1) {
        let found =
            number(line, at).filter(|&(found, stop)| stop == end && found.is_finite() && found >= 0.0);
        let Some((found, _)) = found else { return Err(Problem::word(line, at, IMPORTANCE)) };
        importance = found;
    }
    if let Some(&(at, end)) = words.get(2)
        && number(line, at) != Some((0.0, end))
    {
        return Err(Problem::word(line, at, "an initial prediction of 0, or none"));
    }
    Ok((label, importance))
}

/// Where the word that begins at `at` ends: at a blank or a bar.
fn word(line: &[u8], at: usize) -> usize {
    let end = line[at..].iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'|');
    end.map_or(line.len(), |length| at + length)
}

/// A name and the number behind its colon, 1 where there is none.
fn weighted(line: &[u8], from: usize, until: usize) -> Result<(&[u8], f64), Problem> {
    let word = &line[from..until];
    let Some(colon) = memchr::memrchr(b':', word) else { return Ok((word, 1.0)) };
    let value = number(line, from + colon + 1).filter(|&(value, end)| end == until && value.is_finite());
    let Some((value, _)) = value else {
        return Err(Problem::word(line, from, "NAME or NAME:VALUE with a finite number, e.g. price:0.23"));
    };
    Ok((&word[..colon], value))
}

/// A name that is a number stands for itself, so that ready-made indices keep their order.
fn hash(name: &[u8], seed: u32) -> u32 {
    if !name.is_empty() && name.iter().all(u8::is_ascii_digit) {
        let number =
            name.iter().fold(0_u32, |sum, digit| sum.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')));
        return number.wrapping_add(seed);
    }
    murmur3(name, seed)
}

/// MurmurHash3, the 32-bit form for x86.
fn murmur3(bytes: &[u8], seed: u32) -> u32 {
    let scramble = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = seed;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        hash = (hash ^ scramble(word)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = words.remainder().iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    hash ^= scramble(tail) ^ bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the reference implementation.
    #[test]
    fn the_hash_is_murmurs() {
        assert_eq!(murmur3(b"", 0), 0);
        assert_eq!(murmur3(b"", 1), 0x514e_28b7);
        assert_eq!(murmur3(b"test", 0), 0xba6b_d213);
        assert_eq!(murmur3(b"test", 0x9747_b28c), 0x704b_81dc);
        assert_eq!(murmur3(b"Hello, world!", 0x9747_b28c), 0x2488_4cba);
        assert_eq!(murmur3(b"aaa", 0x9747_b28c), 0x283e_0130);
    }
}
