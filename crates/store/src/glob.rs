//! Patterns of `KEYS` and `SCAN`, as Redis matches them.

/// A pattern: `*` any bytes, `?` one byte, `[a-c]` and `[^a-c]` one byte of a class, `\x` the byte x.
///
/// Matching never goes back further than to the last `*`, so it takes at most the length of the text times
/// that of the pattern, whatever both are: a pattern cannot stall a node (CVE-2022-36021).
pub(crate) struct Glob(Vec<Token>);

enum Token {
    Star,
    Any,
    Byte(u8),
    Class(Box<[bool; 256]>),
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
        Glob(tokens)
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let tokens = &self.0;
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
                Some(Token::Any) => true,
                Some(Token::Byte(byte)) => *byte == text[at],
                Some(Token::Class(class)) => class[usize::from(text[at])],
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_mean_what_they_mean_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "anything", true),
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
            ("[abc", "b", true),
            ("a\\", "a\\", true),
            ("*a*b*c", "xaxbxc", true),
            ("*a*b*c", "xaxbx", false),
            ("user:*:name", "user:1:2:name", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(
                Glob::new(pattern.as_bytes()).matches(text.as_bytes()),
                expected,
                "{pattern} on {text}"
            );
        }
    }

    #[test]
    fn a_hostile_pattern_is_cheap() {
        // Exponential for a matcher that tries every star at every byte.
        let pattern = Glob::new("a*".repeat(200).as_bytes());
        let text = [b"a".repeat(20_000), b"b".to_vec()].concat();
        assert!(pattern.matches(&text));
        let pattern = Glob::new(("*a".repeat(200) + "b").as_bytes());
        assert!(!pattern.matches(&b"a".repeat(20_000)));
    }

    /// The definition, tried out in full.
    fn dumb(tokens: &[Token], text: &[u8]) -> bool {
        match (tokens, text) {
            ([], text) => text.is_empty(),
            ([Token::Star, rest @ ..], text) => (0..=text.len()).any(|eaten| dumb(rest, &text[eaten..])),
            (_, []) => false,
            ([token, rest @ ..], [byte, tail @ ..]) => {
                dumb(rest, tail)
                    && match token {
                        Token::Byte(wanted) => wanted == byte,
                        Token::Class(class) => class[usize::from(*byte)],
                        _ => true,
                    }
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_its_definition(pattern in "[ab*?\\[\\]^\\\\-]{0,10}", text in "[ab\\]]{0,10}") {
            let glob = Glob::new(pattern.as_bytes());
            prop_assert_eq!(glob.matches(text.as_bytes()), dumb(&glob.0, text.as_bytes()));
        }

        #[test]
        fn never_panics(pattern: Vec<u8>, text: Vec<u8>) {
            Glob::new(&pattern).matches(&text);
        }
    }
}
