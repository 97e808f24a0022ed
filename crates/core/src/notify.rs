//! Which events of keys are told: the letters of Redis' `notify-keyspace-events`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A set of classes of events, and of the kinds of channels that they are told on.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Flags(u16);

/// In the order in which Redis writes them, but for `n`, which it forgets behind `A`. A flag is the bit of its letter's place, which is
/// the wire format.
const LETTERS: [u8; 14] = *b"g$lshzxetdnKEm";
/// What `A` stands for: the letters before `n`.
const ALL: u16 = (1 << 10) - 1;

impl Flags {
    /// Nothing.
    pub const NONE: Flags = Flags(0);
    /// `g`: of any type.
    pub const GENERIC: Flags = Flags(1);
    /// `$`
    pub const STRING: Flags = Flags(1 << 1);
    /// `l`
    pub const LIST: Flags = Flags(1 << 2);
    /// `s`
    pub const SET: Flags = Flags(1 << 3);
    /// `h`
    pub const HASH: Flags = Flags(1 << 4);
    /// `z`
    pub const SORTED_SET: Flags = Flags(1 << 5);
    /// `x`: a key's time is over.
    pub const EXPIRED: Flags = Flags(1 << 6);
    /// `t`
    pub const STREAM: Flags = Flags(1 << 8);
    /// `n`: a key was not there.
    pub const NEW: Flags = Flags(1 << 10);
    /// `K`: on the channel of the key.
    pub const BY_KEY: Flags = Flags(1 << 11);
    /// `E`: on the channel of the event.
    pub const BY_EVENT: Flags = Flags(1 << 12);
    /// `m`: what is read is not there.
    pub const MISS: Flags = Flags(1 << 13);

    /// The flags of these letters; `None` where one is no flag.
    pub fn parse(letters: &[u8]) -> Option<Flags> {
        let mut flags = 0;
        for letter in letters {
            flags |= match LETTERS.iter().position(|known| known == letter) {
                Some(place) => 1 << place,
                None if *letter == b'A' => ALL,
                None => return None,
            };
        }
        Some(Flags(flags))
    }

    /// Whether any of these is among them.
    pub fn has(self, any: Flags) -> bool {
        self.0 & any.0 != 0
    }

    /// These as well.
    #[must_use]
    pub fn with(self, more: Flags) -> Flags {
        Flags(self.0 | more.0)
    }

    /// But for these.
    #[must_use]
    pub fn without(self, fewer: Flags) -> Flags {
        Flags(self.0 & !fewer.0)
    }

    /// The classes that are told on some channel.
    #[must_use]
    pub fn told(self) -> Flags {
        let channels = Flags::BY_KEY.with(Flags::BY_EVENT);
        if self.has(channels) { self.without(channels) } else { Flags::NONE }
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0 & ALL == ALL;
        if all {
            f.write_str("A")?;
        }
        for (place, letter) in LETTERS.iter().enumerate() {
            let bit = 1 << place;
            if self.0 & bit != 0 && !(all && ALL & bit != 0) {
                write!(f, "{}", char::from(*letter))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_and_written_as_redis_does() {
        for (given, written) in [
            ("", ""),
            ("KEA", "AKE"),
            ("KEAm", "AKEm"),
            ("KEAn", "AnKE"),
            ("Kg$n", "g$nK"),
            ("KElshzxetdgm", "glshzxetdKEm"),
            ("gEKA", "AKE"),
            ("g$lshzxetd", "A"),
            ("xE", "xE"),
        ] {
            let flags = Flags::parse(given.as_bytes()).unwrap();
            assert_eq!(flags.to_string(), written);
            assert_eq!(Flags::parse(written.as_bytes()), Some(flags));
        }
        for wrong in ["q", "KEA ", "a", "é"] {
            assert_eq!(Flags::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn nothing_is_told_without_a_channel() {
        let told = |letters: &str| Flags::parse(letters.as_bytes()).unwrap().told().to_string();
        assert_eq!([told("Am"), told("KE"), told("Kx"), told("gE")], ["", "", "x", "g"]);
    }

    #[test]
    fn each_class_has_its_letter() {
        for (flag, letter) in [
            (Flags::GENERIC, "g"),
            (Flags::STRING, "$"),
            (Flags::LIST, "l"),
            (Flags::SET, "s"),
            (Flags::HASH, "h"),
            (Flags::SORTED_SET, "z"),
            (Flags::EXPIRED, "x"),
            (Flags::STREAM, "t"),
            (Flags::NEW, "n"),
            (Flags::BY_KEY, "K"),
            (Flags::BY_EVENT, "E"),
            (Flags::MISS, "m"),
        ] {
            assert_eq!(flag.to_string(), letter);
        }
    }
}
