//! Any commands, and any bytes as a snapshot's chunk: the store answers or refuses, and a snapshot of what
//! came of it restores to the same.
#![no_main]

use isochrone_core::command::Command;
use isochrone_core::{Export, StateMachine, wire};
use isochrone_store::Store;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<Vec<u8>>, Vec<u8>)| {
    let (commands, chunk) = input;
    let mut store = Store::default();
    for bytes in &commands {
        if let Ok(command) = wire::decode::<Command>(bytes) {
            let _ = store.read(&command);
            let _ = store.apply(&command);
        }
    }
    let view = store.export();
    let mut again = Store::default();
    let mut index = 0;
    while let Some(chunk) = view.chunk(index) {
        assert!(again.absorb(&chunk).is_ok());
        index += 1;
    }
    assert_eq!(again.digest(), store.digest());
    let _ = again.absorb(&chunk);
});
