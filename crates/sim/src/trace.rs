//! What a run leaves behind: a running hash always, and its message flow where it is asked for.

use isochrone_core::{Span, time::Instant};
use std::fmt::{Debug, Write};
use std::hash::{Hash, Hasher};

/// A hasher whose values never change between versions, builds or machines (of 64 bits): the trace hash
/// is compared across all of them.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Digest {
    /// The empty digest.
    pub const fn new() -> Digest {
        Digest(0x9e37_79b9_7f4a_7c15)
    }

    /// Takes in one number.
    pub fn fold(&mut self, number: u64) {
        const MULTIPLIER: u64 = 0xa076_1d64_78bd_642f;
        let product = u128::from(self.0 ^ number) * u128::from(MULTIPLIER);
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(0xe703_7ed1_a0b4_28db);
    }

    /// The digest of one value.
    pub fn of(value: &impl Hash) -> u64 {
        let mut digest = Digest::new();
        value.hash(&mut digest);
        digest.finish()
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.fold(word.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let number = rest.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            self.fold(number ^ (rest.len() as u64) << 56);
        }
    }
    fn write_u8(&mut self, number: u8) {
        self.fold(number.into());
    }
    fn write_u16(&mut self, number: u16) {
        self.fold(number.into());
    }
    fn write_u32(&mut self, number: u32) {
        self.fold(number.into());
    }
    fn write_u64(&mut self, number: u64) {
        self.fold(number);
    }
    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }
}

/// One line of the flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// True time since the start.
    pub at: Instant,
    /// The node it happened on; `None` for the network as a whole.
    pub node: Option<usize>,
    /// What happened.
    pub event: FlowEvent,
}

/// What a line tells.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowEvent {
    /// A message left.
    Message {
        /// The node it goes to.
        to: usize,
        /// Names of sender and receiver, as nodes or, where a node has several, processes.
        between: (String, String),
        /// The message.
        label: String,
        /// When it arrives; `None` where it is lost.
        arrival: Option<Instant>,
        /// How long it waited for a record to be durable.
        held: Span,
        /// Whether it went ahead of its process' records.
        ahead: bool,
    },
    /// A message came to a process that was down or another one, or over a cut.
    Unheard(String),
    /// A client process was asked.
    Request(String),
    /// An answer reached the one who asked.
    Answer(String),
    /// A process made a mark.
    Mark(String),
    /// A process made a mark that says that a position is decided.
    Decided(String),
    /// A node or process went down, with why.
    Down(String),
    /// A node or process came up.
    Up(String),
    /// A fault began or ended.
    Fault(String),
}

/// The hash and the flow of a run.
pub(crate) struct Trace {
    pub(crate) digest: Digest,
    pub(crate) recording: bool,
    pub(crate) lines: Vec<Line>,
}

impl Trace {
    pub(crate) fn new(recording: bool) -> Trace {
        Trace { digest: Digest::new(), recording, lines: Vec::new() }
    }

    /// Notes a line; its text is only made where it is recorded.
    pub(crate) fn note(&mut self, at: u64, node: Option<usize>, event: impl FnOnce() -> FlowEvent) {
        if self.recording {
            self.lines.push(Line { at: Instant::from_nanos(at), node, event: event() });
        }
    }
}

/// The debug text of a value on one line, cut where it is long: a request of a workload is shown whole, with its key and
/// the beginning of its value.
pub(crate) fn label(value: &impl Debug) -> String {
    const LONGEST: usize = 512;
    struct Beginning(String);
    impl Write for Beginning {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.push_str(text);
            // A character has four bytes at most.
            if self.0.len() <= LONGEST * 4 { Ok(()) } else { Err(std::fmt::Error) }
        }
    }
    let mut beginning = Beginning(String::new());
    // An error only says that there is more.
    let _ = write!(beginning, "{value:?}");
    let mut text = beginning.0;
    if text.chars().count() > LONGEST {
        text = text.chars().take(LONGEST).chain("..".chars()).collect();
    }
    text
}

/// The flow as text, one event a line, time in milliseconds first.
pub(crate) fn text(lines: &[Line], nodes: &[String]) -> String {
    let mut out = String::new();
    let widest = nodes.iter().map(String::len).max().unwrap_or(0);
    for Line { at, node, event } in lines {
        let name = node.map_or("*", |node| nodes[node].as_str());
        let at = at.as_nanos() as f64 / 1e6;
        // Writing to a string cannot fail.
        let _ = match event {
            FlowEvent::Message { between: (from, to), label, arrival, held, ahead, .. } => {
                let _ = write!(out, "{at:>12.3}  {from:<widest$} -> {to:<widest$}  {label}");
                if *held > Span::ZERO {
                    let _ = write!(out, "  held {held} until durable");
                }
                if *ahead {
                    let _ = write!(out, "  ahead");
                }
                match arrival {
                    Some(arrival) => writeln!(out, "  arrives {:.3}", arrival.as_nanos() as f64 / 1e6),
                    None => writeln!(out, "  LOST"),
                }
            }
            FlowEvent::Request(text) => writeln!(out, "{at:>12.3}  {name:<widest$} ?  {text}"),
            FlowEvent::Answer(text) => writeln!(out, "{at:>12.3}  {name:<widest$} =  {text}"),
            FlowEvent::Mark(text) | FlowEvent::Decided(text) => {
                writeln!(out, "{at:>12.3}  {name:<widest$} #  {text}")
            }
            FlowEvent::Unheard(text) => writeln!(out, "{at:>12.3}  {name:<widest$} ~  never heard {text}"),
            FlowEvent::Down(text) => writeln!(out, "{at:>12.3}  {name:<widest$} X  {text}"),
            FlowEvent::Up(text) => writeln!(out, "{at:>12.3}  {name:<widest$} ^  {text}"),
            FlowEvent::Fault(text) => writeln!(out, "{at:>12.3}  {name:<widest$} !  {text}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_shown_whole_and_a_batch_is_cut() {
        let request = "x".repeat(400);
        assert_eq!(label(&request), format!("{request:?}"));
        assert_eq!(label(&vec![request; 9]).chars().count(), 512 + "..".len());
    }
}
