//! Patterns of `KEYS`, `SCAN`, `PSUBSCRIBE` and access rules, as Redis matches them, but in bounded time
//! (CVE-2022-36021).
//!
//! Matching never goes back further than to the last `*`, which takes at most the length of the text times
//! that of the pattern. Where that is much, what stands between two stars is searched for with a set of
//! bits, 64 positions of the pattern in one step: a megabyte against a pattern of a thousand bytes takes
//! milliseconds, whatever both are made of.

use std::cell::OnceCell;

/// The longest pattern that gateways accept, bytes.
pub const PATTERN_MAX: usize = 4096;

impl std::fmt::Debug for Glob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a pattern of {} parts", self.tokens.len())
    }
}

/// A pattern: `*` any bytes, `?` one byte, `[a-c]` and `[^a-c]` one byte of a class, `\x` the byte x.
pub struct Glob {
    tokens: Vec<Token>,
    /// What is searched for between two stars, made when first needed.
    searches: OnceCell<Vec<Search>>,
}

enum Token {
    Star,
    Any,
    Byte(u8),
    Class(Box<[bool; 256]>),
}

/// Steps that a pattern read once may take by going back.
const COMPILED_STEPS: usize = 1 << 12;
/// Steps that a pattern read in place may take by going back: reading it for a search takes as long.
const INLINE_STEPS: usize = 1 << 16;

impl Token {
    fn fits(&self, byte: u8) -> bool {
        match self {
            // A star stands for no byte; it is taken apart before.
            Token::Star => false,
            Token::Any => true,
            Token::Byte(wanted) => *wanted == byte,
            Token::Class(class) => class[usize::from(byte)],
        }
    }
}

impl Glob {
    /// Reads a pattern. Every text is one: an unclosed class ends with it.
    pub fn new(pattern: &[u8]) -> Glob {
        let mut tokens = Vec::new();
        let mut rest = pattern;
        while let [first, tail @ ..] = rest {
            rest = tail;
            tokens.push(match (first, tail) {
                (b'*', _) => {
                    if matches!(tokens.last(), Some(Token::Star)) {
                        continue;
                    }
                    Token::Star
                }
                (b'?', _) => Token::Any,
                (b'[', _) => Token::Class(class(&mut rest)),
                (b'\\', [escaped, tail @ ..]) => {
                    rest = tail;
                    Token::Byte(*escaped)
                }
                (byte, _) => Token::Byte(*byte),
            });
        }
        Glob { tokens, searches: OnceCell::new() }
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        // All but a star take a byte each, and two stars are one.
        if self.tokens.len() > 2 * text.len() + 1 {
            return false;
        }
        if self.tokens.len().saturating_mul(text.len()) <= COMPILED_STEPS {
            self.go_back(text)
        } else {
            self.search(text)
        }
    }

    /// Matches by going back to the last star.
    fn go_back(&self, text: &[u8]) -> bool {
        let tokens = &self.tokens;
        let (mut at, mut token) = (0, 0);
        // The last star passed, and how far the text had been eaten by it.
        let mut star: Option<(usize, usize)> = None;
        while at < text.len() {
            let fits = match tokens.get(token) {
                Some(Token::Star) => {
                    star = Some((token, at));
                    token += 1;
                    continue;
                }
                Some(one) => one.fits(text[at]),
                None => false,
            };
            if fits {
                at += 1;
                token += 1;
            } else if let Some((star_token, eaten)) = star {
                // The star eats one more byte. Earlier stars need no second look: what they left matched.
                star = Some((star_token, eaten + 1));
                at = eaten + 1;
                token = star_token + 1;
            } else {
                return false;
            }
        }
        tokens[token..].iter().all(|token| matches!(token, Token::Star))
    }

    /// Matches part by part: the first and the last part have their places, and of each other the first place
    /// behind the part before it is as good as any.
    fn search(&self, text: &[u8]) -> bool {
        let mut parts = self.tokens.split(|token| matches!(token, Token::Star));
        // There is always one part, perhaps empty.
        let first = parts.next().unwrap_or_default();
        let all =
            |tokens: &[Token], text: &[u8]| tokens.iter().zip(text).all(|(token, byte)| token.fits(*byte));
        let Some(last) = parts.next_back() else { return first.len() == text.len() && all(first, text) };
        let Some(end) = text.len().checked_sub(last.len()).filter(|end| *end >= first.len()) else {
            return false;
        };
        if !all(first, text) || !all(last, &text[end..]) {
            return false;
        }
        let mut rest = &text[first.len()..end];
        let searches = self.searches.get_or_init(|| parts.map(Search::new).collect());
        searches.iter().all(|search| match search.end(rest) {
            Some(end) => {
                rest = &rest[end..];
                true
            }
            None => false,
        })
    }
}

/// A part of a pattern without stars, to be found in a text.
struct Search {
    length: usize,
    /// Words of 64 positions each.
    words: usize,
    /// For each byte, the positions that it fits.
    masks: Vec<u64>,
}

impl Search {
    fn new(tokens: &[Token]) -> Search {
        let words = tokens.len().div_ceil(64).max(1);
        let (mut masks, mut any) = (vec![0; 256 * words], vec![0; words]);
        for (position, token) in tokens.iter().enumerate() {
            let (word, bit) = (position / 64, 1 << (position % 64));
            match token {
                Token::Any => any[word] |= bit,
                Token::Byte(byte) => masks[usize::from(*byte) * words + word] |= bit,
                Token::Class(class) => {
                    let fits = class.iter().enumerate().filter(|(_, fits)| **fits);
                    fits.for_each(|(byte, _)| masks[byte * words + word] |= bit);
                }
                // They are taken apart before.
                Token::Star => {}
            }
        }
        for of_byte in masks.chunks_exact_mut(words) {
            of_byte.iter_mut().zip(&any).for_each(|(mask, any)| *mask |= any);
        }
        Search { length: tokens.len(), words, masks }
    }

    /// Where the first match ends.
    fn end(&self, text: &[u8]) -> Option<usize> {
        let Some(last) = self.length.checked_sub(1) else { return Some(0) };
        // Position i is set where the i + 1 bytes read last fit the first i + 1 tokens.
        let mut state = vec![0u64; self.words];
        for (at, byte) in text.iter().enumerate() {
            let masks = &self.masks[usize::from(*byte) * self.words..][..self.words];
            let mut carry = 1;
            for (word, mask) in state.iter_mut().zip(masks) {
                let next = *word >> 63;
                *word = (*word << 1 | carry) & mask;
                carry = next;
            }
            if state[last / 64] >> (last % 64) & 1 == 1 {
                return Some(at + 1);
            }
        }
        None
    }
}

/// Reads a class behind its bracket.
fn class(rest: &mut &[u8]) -> Box<[bool; 256]> {
    let mut class = Box::new([false; 256]);
    let negated = rest.first() == Some(&b'^');
    if negated {
        *rest = &rest[1..];
    }
    loop {
        match **rest {
            [] => break,
            [b'\\', byte, ref tail @ ..] => {
                class[usize::from(byte)] = true;
                *rest = tail;
            }
            [b']', ref tail @ ..] => {
                *rest = tail;
                break;
            }
            [from, b'-', to, ref tail @ ..] => {
                class[usize::from(from.min(to))..=usize::from(from.max(to))].fill(true);
                *rest = tail;
            }
            [byte, ref tail @ ..] => {
                class[usize::from(byte)] = true;
                *rest = tail;
            }
        }
    }
    if negated {
        class.iter_mut().for_each(|member| *member = !*member);
    }
    class
}

/// Whether a text fits a pattern that is used once: nothing is allocated where both are of ordinary length.
pub fn fits(pattern: &[u8], text: &[u8]) -> bool {
    if pattern.len().saturating_mul(text.len()) > INLINE_STEPS {
        return Glob::new(pattern).matches(text);
    }
    let (mut at, mut in_text) = (0, 0);
    // Behind the last star, and what it has swallowed up to.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if in_text == text.len() {
            return pattern[at..].iter().all(|byte| *byte == b'*');
        }
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, in_text));
            continue;
        }
        if let Some(next) = one(pattern, at, text[in_text]) {
            at = next;
            in_text += 1;
            continue;
        }
        let Some((behind, swallowed)) = star else { return false };
        at = behind;
        in_text = swallowed + 1;
        star = Some((behind, in_text));
    }
}

/// Where the pattern goes on if what stands at `at` fits this byte.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => class_in_place(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        literal => (literal == byte).then_some(at + 1),
    }
}

/// A class of bytes, its opening bracket read. One that is not closed ends with the pattern, as in Redis.
fn class_in_place(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let mut found = false;
    loop {
        match (pattern.get(at), pattern.get(at + 1), pattern.get(at + 2)) {
            (None, ..) => break,
            (Some(b']'), ..) => {
                at += 1;
                break;
            }
            (Some(b'\\'), Some(literal), _) => {
                found |= *literal == byte;
                at += 2;
            }
            (Some(low), Some(b'-'), Some(high)) => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            (Some(literal), ..) => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All three ways to match, which must agree.
    fn every_way(pattern: &[u8], text: &[u8]) -> bool {
        let glob = Glob::new(pattern);
        let ways = [glob.go_back(text), glob.search(text), fits(pattern, text)];
        assert!(ways.iter().all(|way| *way == ways[0]), "{ways:?} {:?} {:?}", pattern, text);
        ways[0]
    }

    #[test]
    fn patterns_mean_what_they_mean_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-]llo", "hallo", false),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("[]", "]", false),
            ("[", "x", false),
            ("[a", "a", true),
            ("[abc", "b", true),
            ("a\\", "a\\", true),
            ("\\", "\\", true),
            ("a**", "a", true),
            ("*a*b*c", "xaxbxc", true),
            ("*a*b*c", "xaxbx", false),
            ("*a*b*c", "xxaxxcxxb", false),
            ("user:*:name", "user:1:2:name", true),
            ("user:*:[0-9]", "user:x:7", true),
        ] {
            assert_eq!(every_way(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_is_cheap() {
        // Exponential for a matcher that tries every star at every byte.
        let text = [b"a".repeat(20_000), b"b".to_vec()].concat();
        assert!(every_way("a*".repeat(200).as_bytes(), &text));
        assert!(!every_way(("*a".repeat(200) + "b").as_bytes(), &b"a".repeat(20_000)));
        // The product of both lengths, minutes here, for one that goes back to the last star.
        let pattern = format!("*{}b*", "a?[a-c]".repeat(PATTERN_MAX / 7 - 1));
        let text = b"a".repeat(4 << 20);
        assert!(!fits(pattern.as_bytes(), &text) && !Glob::new(pattern.as_bytes()).matches(&text));
    }

    /// The definition, tried out in full.
    fn dumb(tokens: &[Token], text: &[u8]) -> bool {
        match (tokens, text) {
            ([], text) => text.is_empty(),
            ([Token::Star, rest @ ..], text) => (0..=text.len()).any(|eaten| dumb(rest, &text[eaten..])),
            (_, []) => false,
            ([token, rest @ ..], [byte, tail @ ..]) => token.fits(*byte) && dumb(rest, tail),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_its_definition(pattern in "[ab*?\\[\\]^\\\\-]{0,10}", text in "[ab\\]]{0,10}") {
            let glob = Glob::new(pattern.as_bytes());
            let found = every_way(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(found, dumb(&glob.tokens, text.as_bytes()));
        }

        #[test]
        fn long_parts_are_found(part in "[ab?]{60,200}", before in "[ab]{0,80}", filled in "[ab]{60,200}") {
            every_way(format!("*{part}*").as_bytes(), format!("{before}{filled}{before}").as_bytes());
            let exact = part.replace('?', "a");
            let found = every_way(format!("*{part}*b").as_bytes(), format!("{before}{exact}b").as_bytes());
            prop_assert!(found);
        }

        #[test]
        fn never_panics(pattern: Vec<u8>, text: Vec<u8>) {
            every_way(&pattern, &text);
        }
    }
}
