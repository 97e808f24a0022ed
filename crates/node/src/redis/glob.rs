//! Redis' glob patterns, without its exponential time (CVE-2022-36021).

/// Whether `text` fits the pattern: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a byte that means itself. The
/// time is at most the product of both lengths: only the last `*` is ever tried again.
pub fn fits(pattern: &[u8], text: &[u8]) -> bool {
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
        b'[' => class(pattern, at + 1, byte),
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        literal => (literal == byte).then_some(at + 1),
    }
}

/// A class of bytes, its opening bracket read. One that is not closed ends with the pattern, as in Redis.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> Option<usize> {
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
    use super::fits;

    #[test]
    fn patterns_fit_as_in_redis() {
        let rows: [(&str, &str, bool); 22] = [
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
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
            ("a**", "a", true),
            ("[", "x", false),
            ("[a", "a", true),
            ("\\", "\\", true),
            ("user:*:[0-9]", "user:x:7", true),
        ];
        for (pattern, text, expected) in rows {
            assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_exponential_time() {
        let pattern = "a*".repeat(2_000) + "b";
        let text = "a".repeat(4_000);
        assert!(!fits(pattern.as_bytes(), text.as_bytes()));
    }
}
