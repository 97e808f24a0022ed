//! A small state machine whose replies tell much: strings that are set, appended to, counted and read.

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
            Command::Append(key, _) => visit(Touch::Key(key, Access::Update)),
        }
    }
}

#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Reply {
    Text(Option<String>),
    Ok,
    Length(u64),
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
    type Before = Self;

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
        }
    }

    fn before(&self, _: &Self::Command) -> Self {
        self.clone()
    }

    fn revert(&mut self, before: Self) {
        *self = before;
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
