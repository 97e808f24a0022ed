//! What the host of nodes is asked about the network between them, where it emulates one: to show it, to cut regions off, to
//! heal them. A node only passes on what comes at its HTTP under `/net`.

use crate::reactor::Responder;

/// As many may wait for the host; more are refused.
pub const WAITING: usize = 16;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// How it stands.
    Show,
    /// That no message passes between the region of this name and any other.
    Cut(String),
    /// That messages pass again to and from the region of this name, or all.
    Heal(Option<String>),
}

/// Asked of the host, which answers soon: by a JSON object, or by a line that says what it was asked wrongly.
pub struct Order {
    /// What is asked.
    pub ask: Ask,
    /// Takes the answer.
    pub respond: Responder,
}
