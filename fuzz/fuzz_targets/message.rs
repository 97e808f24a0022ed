//! Bodies of well-framed messages and records of the journal: decoded or refused, and what was decoded
//! encodes to something that decodes to the same.
#![no_main]

use isochrone_core::command::{Command, Response};
use isochrone_core::wire;
use isochrone_replication::multipaxos::{Message, Record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = wire::decode::<Message<Command, Response>>(bytes) {
        let again = wire::decode(&wire::encode(&message));
        assert_eq!(again.as_ref(), Ok(&message));
    }
    if let Ok(record) = wire::decode::<Record<Command>>(bytes) {
        let again = wire::decode(&wire::encode(&record));
        assert_eq!(again.as_ref(), Ok(&record));
    }
});
