//! Why a command was not carried out, in the words of Redis.

use std::borrow::Cow;
use std::fmt;

/// An error reply. The first word of its text is the code by which clients tell errors apart.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Complaint {
    /// Options that do not fit together, or that do not exist.
    Syntax,
    /// An argument that must be an integer of 64 bits.
    NotInteger,
    /// An argument that must be a number.
    NotFloat,
    /// Too many or too few arguments for this command (`client|id` for a subcommand).
    Arity(&'static str),
    /// An expiry that is not positive, or beyond what a deadline can hold.
    Expire(&'static str),
    /// Anything else, code included.
    Text(Cow<'static, str>),
}

/// Of a command that may make data grow where a node is full. Clients know it by its first word.
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

impl Complaint {
    /// This text, code included.
    pub fn text(text: impl Into<Cow<'static, str>>) -> Complaint {
        Complaint::Text(text.into())
    }

    /// A command that is not in the table.
    pub fn unknown_command<'a>(name: &[u8], args: impl Iterator<Item = &'a [u8]>) -> Complaint {
        // Redis shows 128 bytes of the name, and arguments until they pass 128 bytes together.
        const SHOWN: usize = 128;
        let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(name, SHOWN));
        let before = text.len();
        for arg in args {
            let used = text.len() - before;
            if used >= SHOWN {
                break;
            }
            text.push_str(&format!("'{}' ", shown(arg, SHOWN - used)));
        }
        Complaint::text(text)
    }

    /// A subcommand that is not in the table.
    pub fn unknown_subcommand(command: &str, name: &[u8]) -> Complaint {
        Complaint::text(format!(
            "ERR unknown subcommand '{}'. Try {} HELP.",
            shown(name, 128),
            command.to_ascii_uppercase()
        ))
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Complaint::Syntax => f.write_str("ERR syntax error"),
            Complaint::NotInteger => f.write_str("ERR value is not an integer or out of range"),
            Complaint::NotFloat => f.write_str("ERR value is not a valid float"),
            Complaint::Arity(name) => write!(f, "ERR wrong number of arguments for '{name}' command"),
            Complaint::Expire(name) => write!(f, "ERR invalid expire time in '{name}' command"),
            Complaint::Text(text) => f.write_str(text),
        }
    }
}

/// At most this many bytes as text.
fn shown(bytes: &[u8], most: usize) -> Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(most)])
}

/// The code of an error text, from a bounded set so that it can be counted.
pub(crate) fn code(text: &str) -> &'static str {
    const CODES: [&str; 20] = [
        "ERR",
        "WRONGTYPE",
        "NOAUTH",
        "WRONGPASS",
        "NOPROTO",
        "EXECABORT",
        "OVERLOADED",
        "TRYAGAIN",
        "NOLEADER",
        "UNKNOWN",
        "CROSSSLOT",
        "NOSCRIPT",
        "REFUSED",
        "OOM",
        "NOPERM",
        "UNBLOCKED",
        "BUSYKEY",
        "BUSYGROUP",
        "NOGROUP",
        "INVALIDOBJ",
    ];
    let word = text.split(' ').next().unwrap_or_default();
    CODES.into_iter().find(|code| *code == word).unwrap_or("ERR")
}
