//! A small state machine whose replies tell much: strings that are set, appended to,
//! counted, copied, claimed and read.

use isochrone_core::command::{Access, Touch};
use isochrone_core::{Blob, Export, Footprint, Malformed, StateMachine, wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The key is one byte in a blob, as protocols see it.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Command {
    Get(Blob),
    Set(Blob, String),
    Append(Blob, String),
    /// Reads the first and writes the second; nothing where there is no first.
    Copy(Blob, Blob),
    /// Writes only where there is nothing.
    Claim(Blob, String),
    Delete(Blob),
}

/// Key number `number`.
pub fn key(number: u8) -> Blob {
    Blob::from(vec![number])
}

impl Footprint for Command {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        match self {
            Command::Get(key) => visit(Touch::Key(key, Access::Read)),
            Command::Set(key, _) => visit(Touch::Key(key, Access::Write)),
            Command::Append(key, _) | Command::Claim(key, _) | Command::Delete(key) => {
                visit(Touch::Key(key, Access::Update));
            }
            Command::Copy(from, to) => {
                visit(Touch::Key(from, Access::Read));
                visit(Touch::Key(to, Access::Write));
            }
        }
    }
}

#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Reply {
    Text(Option<String>),
    Ok,
    Length(u64),
    /// Whether it had an effect.
    Did(bool),
}

#[derive(Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct Machine(BTreeMap<Blob, String>);

#[derive(Clone)]
pub struct View(Vec<Blob>);

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        self.0.get(index as usize).cloned()
    }
}

impl StateMachine for Machine {
    type Command = Command;
    type Reply = Reply;
    type View = View;
    type Before = Vec<(Blob, Option<String>)>;

    fn apply(&mut self, command: &Command) -> Reply {
        match command {
            Command::Get(key) => Reply::Text(self.0.get(key).cloned()),
            Command::Set(key, text) => {
                self.0.insert(key.clone(), text.clone());
                Reply::Ok
            }
            Command::Append(key, text) => {
                let value = self.0.entry(key.clone()).or_default();
                value.push_str(text);
                Reply::Length(value.len() as u64)
            }
            Command::Copy(from, to) => {
                let Some(text) = self.0.get(from).cloned() else { return Reply::Did(false) };
                self.0.insert(to.clone(), text);
                Reply::Did(true)
            }
            Command::Claim(key, text) => {
                let free = !self.0.contains_key(key);
                self.0.entry(key.clone()).or_insert_with(|| text.clone());
                Reply::Did(free)
            }
            Command::Delete(key) => Reply::Did(self.0.remove(key).is_some()),
        }
    }

    fn before(&self, command: &Self::Command) -> Self::Before {
        let mut before = Vec::new();
        command.visit(&mut |touch| {
            if let Touch::Key(key, access) = touch
                && access.writes()
            {
                before.push((key.clone(), self.0.get(key).cloned()));
            }
        });
        before
    }

    fn revert(&mut self, before: Self::Before) {
        for (key, value) in before {
            match value {
                Some(value) => drop(self.0.insert(key, value)),
                None => drop(self.0.remove(&key)),
            }
        }
    }

    fn reads_only(command: &Command) -> bool {
        matches!(command, Command::Get(_))
    }

    fn read(&self, command: &Command) -> Option<Reply> {
        match command {
            Command::Get(key) => Some(Reply::Text(self.0.get(key).cloned())),
            _ => None,
        }
    }

    fn blind(command: &Command) -> Option<Reply> {
        matches!(command, Command::Set(..)).then_some(Reply::Ok)
    }

    fn export(&self) -> View {
        // One entry a chunk, so that transfers have many.
        View(self.0.iter().map(|entry| Blob::from(wire::encode(&entry))).collect())
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let (key, value) = wire::decode(chunk)
            .map_err(|error| Malformed { what: "test chunk", cause: error.to_string() })?;
        self.0.insert(key, value);
        Ok(())
    }
}
