//! Any text is a history or an error that names its line, and any small history gets a verdict.
#![no_main]

use isochrone_check::{Budget, History, ModelName, check_named};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(history) = History::read("fuzz.jsonl", bytes) {
        let budget = Budget { steps: 20_000, explanation_steps: 20_000, memory: 16 << 20, ..Budget::default() };
        for model in ModelName::ALL {
            let _ = check_named(&history, model, &budget);
        }
    }
});
