//! One user, and the rules that ACL SETUSER and the lines of ACL files are made of.

use super::access::{Access, BOTH};
use crate::redis::absent::ABSENT;
use crate::redis::digest::sha256;
use crate::redis::spec::Spec;
use crate::redis::table::{self, COMMANDS};
use isochrone_core::glob;
use std::collections::BTreeSet;

/// What somebody who logs in as this user may do.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) on: bool,
    pub(super) nopass: bool,
    /// Kept for the sake of ACL files; there is no RESTORE whose payload could be looked at.
    skip_sanitize: bool,
    /// SHA-256 in hexadecimal digits.
    passwords: Vec<String>,
    /// Patterns of keys; `None` for all.
    pub(super) keys: Option<Vec<KeyPattern>>,
    /// Patterns of channels; `None` for all.
    channels: Option<Vec<Vec<u8>>>,
    /// Whether the rules about commands begin at all of them, later ones included, or at none.
    base: bool,
    /// Nothing was taken away since all commands were allowed.
    everything: bool,
    allowed: BTreeSet<&'static str>,
    /// The rules about commands since the last that was about all, without any that a later one has undone.
    rules: Vec<(bool, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeyPattern {
    pattern: Vec<u8>,
    access: Access,
}

/// Categories as Redis 7.2 lists them.
pub(super) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

const UNKNOWN: &str = "Unknown command or category name in ACL";
const SYNTAX: &str = "Syntax error";
const ALL_KEYS: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have \
                        any effect. Try 'resetkeys' to start with an empty list of patterns";
const ALL_CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
                            not have any effect. Try 'resetchannels' to start with an empty list of channels";
const NO_PASSWORD: &str = "The password you are trying to remove from the user does not exist";
const BAD_HASH: &str =
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";

/// Every command and subcommand.
pub(super) fn all_commands() -> impl Iterator<Item = &'static Spec> {
    COMMANDS.iter().copied().flatten().flat_map(|spec| std::iter::once(spec).chain(spec.children()))
}

impl User {
    /// A new user, who may do nothing and cannot log in.
    pub(super) fn new() -> User {
        User {
            on: false,
            nopass: false,
            skip_sanitize: false,
            passwords: Vec::new(),
            keys: Some(Vec::new()),
            channels: Some(Vec::new()),
            base: false,
            everything: false,
            allowed: BTreeSet::new(),
            rules: Vec::new(),
        }
    }

    /// One who may do everything.
    pub(super) fn root(on: bool, nopass: bool) -> User {
        let mut user = User { on, nopass, keys: None, channels: None, ..User::new() };
        user.all_or_none(true);
        user
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.everything && self.keys.is_none() && self.channels.is_none()
    }

    /// Whether this password is one of the user's, in the same time for any that is not.
    pub(super) fn accepts(&self, password: &[u8]) -> bool {
        if self.nopass {
            return true;
        }
        let given = sha256(password);
        let equal = |known: &String| {
            let differences = known.bytes().zip(given.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
            known.len() == given.len() && differences == 0
        };
        self.passwords.iter().fold(false, |found, known| found | equal(known))
    }

    pub(super) fn may_run(&self, command: &str) -> bool {
        self.everything || self.allowed.contains(command)
    }

    pub(super) fn may_touch(&self, key: &[u8], access: Access) -> bool {
        self.keys.as_ref().is_none_or(|patterns| {
            patterns.iter().any(|known| {
                let Access { read, write } = known.access;
                (read || !access.read) && (write || !access.write) && glob::fits(&known.pattern, key)
            })
        })
    }

    /// `literal` for a pattern of channels: it must be named by a rule as it is.
    pub(super) fn may_use(&self, channel: &[u8], literal: bool) -> bool {
        self.channels.as_ref().is_none_or(|patterns| {
            patterns.iter().any(|known| if literal { known == channel } else { glob::fits(known, channel) })
        })
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// What is wrong with it, in the words of Redis.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), &'static str> {
        let lower = rule.to_ascii_lowercase();
        match lower.as_slice() {
            b"" => {}
            b"on" => self.on = true,
            b"off" => self.on = false,
            b"nopass" => {
                self.nopass = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.nopass = false;
                self.passwords.clear();
            }
            b"skip-sanitize-payload" => self.skip_sanitize = true,
            b"sanitize-payload" => self.skip_sanitize = false,
            b"allkeys" | b"~*" => self.keys = None,
            b"resetkeys" => self.keys = Some(Vec::new()),
            b"allchannels" | b"&*" => self.channels = None,
            b"resetchannels" => self.channels = Some(Vec::new()),
            b"allcommands" | b"+@all" => self.all_or_none(true),
            b"nocommands" | b"-@all" => self.all_or_none(false),
            b"reset" => *self = User::new(),
            // There are no selectors, so there is none to clear.
            b"clearselectors" => {}
            _ => return self.apply_to(rule, &lower),
        }
        Ok(())
    }

    /// A rule with something in it.
    fn apply_to(&mut self, rule: &[u8], lower: &[u8]) -> Result<(), &'static str> {
        let Some((sign, rest)) = rule.split_first() else { return Err(SYNTAX) };
        match sign {
            b'>' => self.add_password(sha256(rest)),
            b'#' => self.add_password(checked_hash(rest)?),
            b'<' => self.remove_password(&sha256(rest))?,
            b'!' => self.remove_password(&checked_hash(rest)?)?,
            b'~' => self.add_key(rest, BOTH)?,
            b'%' => {
                // Without the sign it is the pattern of the empty key, as in Redis.
                let tilde = rest.iter().position(|byte| *byte == b'~').unwrap_or(rest.len());
                let (flags, pattern) = (&rest[..tilde], rest.get(tilde + 1..).unwrap_or_default());
                let access = match &flags.to_ascii_lowercase()[..] {
                    b"r" => Access { read: true, write: false },
                    b"w" => Access { read: false, write: true },
                    b"rw" | b"wr" => BOTH,
                    _ => return Err(SYNTAX),
                };
                match (access, pattern) {
                    (BOTH, b"*") => self.keys = None,
                    _ => self.add_key(pattern, access)?,
                }
            }
            b'&' => {
                let patterns = self.channels.as_mut().ok_or(ALL_CHANNELS)?;
                if has_spaces(rest) {
                    return Err(SYNTAX);
                }
                if !patterns.iter().any(|known| known == rest) {
                    patterns.push(rest.to_vec());
                }
            }
            b'+' | b'-' => {
                let name = std::str::from_utf8(&lower[1..]).map_err(|_| UNKNOWN)?;
                self.command(*sign == b'+', name)?;
            }
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: String) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.nopass = false;
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), &'static str> {
        let at = self.passwords.iter().position(|known| known == hash).ok_or(NO_PASSWORD)?;
        self.passwords.remove(at);
        Ok(())
    }

    fn add_key(&mut self, pattern: &[u8], access: Access) -> Result<(), &'static str> {
        let patterns = self.keys.as_mut().ok_or(ALL_KEYS)?;
        if has_spaces(pattern) {
            return Err(SYNTAX);
        }
        match patterns.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.access.read |= access.read;
                known.access.write |= access.write;
            }
            None => patterns.push(KeyPattern { pattern: pattern.to_vec(), access }),
        }
        Ok(())
    }

    fn all_or_none(&mut self, all: bool) {
        (self.base, self.everything) = (all, all);
        self.rules.clear();
        self.allowed.clear();
        if all {
            self.allowed.extend(all_commands().map(|spec| spec.name));
        }
    }

    /// Allows or denies a command with its subcommands, a subcommand, or a category.
    fn command(&mut self, allow: bool, name: &str) -> Result<(), &'static str> {
        let chosen: Vec<&'static str> = match name.strip_prefix('@') {
            Some(category) => {
                if !CATEGORIES.contains(&category) {
                    return Err(UNKNOWN);
                }
                let within = |spec: &&Spec| spec.categories().iter().any(|found| &found[1..] == category);
                all_commands().filter(within).map(|spec| spec.name).collect()
            }
            None => match table::by_name(name.as_bytes()) {
                Some(spec) => {
                    std::iter::once(spec.name).chain(spec.children().iter().map(|child| child.name)).collect()
                }
                // An ACL file of Redis may name what is not here; then there is nothing to allow.
                None if is_absent(name) => Vec::new(),
                None => return Err(UNKNOWN),
            },
        };
        for command in chosen {
            if allow {
                self.allowed.insert(command);
            } else {
                self.allowed.remove(command);
            }
        }
        self.everything &= allow;
        let undone = |known: &str| {
            known.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        self.rules.retain(|(_, known)| !undone(known));
        self.rules.push((allow, name.to_owned()));
        Ok(())
    }

    /// The flags, as ACL GETUSER lists them.
    pub(super) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.on { "on" } else { "off" }];
        if self.nopass {
            flags.push("nopass");
        }
        flags.push(if self.skip_sanitize { "skip-sanitize-payload" } else { "sanitize-payload" });
        flags
    }

    pub(super) fn passwords(&self) -> &[String] {
        &self.passwords
    }

    /// The rules about commands.
    pub(super) fn commands(&self) -> String {
        let mut text = if self.base { "+@all" } else { "-@all" }.to_owned();
        for (allow, name) in &self.rules {
            text += if *allow { " +" } else { " -" };
            text += name;
        }
        text
    }

    /// The patterns of keys.
    pub(super) fn key_rules(&self) -> Vec<u8> {
        let Some(patterns) = &self.keys else { return b"~*".to_vec() };
        let rules = patterns.iter().map(|KeyPattern { pattern, access }| {
            let sign: &[u8] = match access {
                Access { read: true, write: false } => b"%R~",
                Access { read: false, write: true } => b"%W~",
                _ => b"~",
            };
            [sign, pattern].concat()
        });
        rules.collect::<Vec<_>>().join(&b' ')
    }

    /// The patterns of channels.
    pub(super) fn channel_rules(&self) -> Vec<u8> {
        let Some(patterns) = &self.channels else { return b"&*".to_vec() };
        patterns.iter().map(|pattern| [b"&", pattern.as_slice()].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// All rules, as a line of an ACL file has them behind the name.
    pub(super) fn describe(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()).collect();
        parts.extend(self.passwords.iter().map(|hash| format!("#{hash}").into_bytes()));
        parts.push(self.key_rules());
        if self.channels.is_some() {
            parts.push(b"resetchannels".to_vec());
        }
        parts.push(self.channel_rules());
        parts.push(self.commands().into_bytes());
        parts.retain(|part| !part.is_empty());
        parts.join(&b' ')
    }
}

/// Whether Redis has a command, or a container of subcommands, of this name, and it is not here.
fn is_absent(name: &str) -> bool {
    ABSENT.iter().any(|absent| {
        absent.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
    })
}

fn checked_hash(hash: &[u8]) -> Result<String, &'static str> {
    let digits = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match std::str::from_utf8(hash) {
        Ok(text) if text.len() == 64 && hash.iter().all(digits) => Ok(text.to_owned()),
        _ => Err(BAD_HASH),
    }
}

pub(super) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0 || *byte == 0x0b)
}
