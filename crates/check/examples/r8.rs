//! Measures the serializability check at the size of `trust.md` R8: a hundred thousand transactions on a hundred keys.
//!
//! ```sh
//! cargo run --release -p isochrone-check --example r8 [TRANSACTIONS [KEYS [CLIENTS [UNKNOWN_PERCENT]]]]
//! ```
//!
//! Transactions of one to five accesses, half of them writes, made by running them in order of a random point between
//! beginning and end; once with values whose versions are told, and once more with one read among them that is behind.
//! Prints seconds, what was found, and the greatest resident memory.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use isochrone_check::transactions::{Access, Isolation, Transaction, Transactions, check_transactions};
use isochrone_check::{Budget, Outcome, Value};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers = std::env::args().skip(1).map(|text| text.parse::<u64>()).collect::<Result<Vec<_>, _>>()?;
    let number = |place: usize, otherwise: u64| numbers.get(place).copied().unwrap_or(otherwise);
    let (transactions, keys) = (number(0, 100_000), number(1, 100));
    let (clients, unknown) = (number(2, 100), number(3, 1));
    println!("{transactions} transactions, {keys} keys, {clients} clients, {unknown} % unknown");
    for behind in [false, true] {
        let mut file = Vec::new();
        history(transactions, keys, clients, unknown, behind).write(&mut file)?;
        let started = Instant::now();
        let history = Transactions::read("memory", file.as_slice())?;
        let read = started.elapsed();
        let clock = || started.elapsed() - read;
        let budget = Budget { clock: Some(&clock), ..Budget::default() };
        let report = check_transactions(&history, Isolation::StrictlySerializable, &budget)?;
        println!(
            "read {:.2} s, check {:.2} s: {}",
            read.as_secs_f64(),
            report.seconds.unwrap_or_default(),
            report
        );
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(peak) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        println!("memory {}", peak.trim());
    }
    Ok(())
}

fn history(count: u64, keys: u64, clients: u64, unknown: u64, behind: bool) -> Transactions {
    let mut random = Pcg64Mcg::seed_from_u64(8);
    let mut below = |bound: u64| random.next_u64() % bound;
    let names: Vec<Arc<str>> = (0..keys).map(|key| Arc::from(format!("user{key:08}"))).collect();
    let mut free = vec![0_u64; clients as usize];
    let mut drafts: Vec<(u64, Transaction)> = Vec::new();
    for sequence in 0..count {
        let client = below(clients);
        let invoked = free[client as usize] + below(20);
        let returned = invoked + below(60);
        free[client as usize] = returned + 1;
        let lost = below(100) < unknown;
        let accesses = (0..1 + below(5)).map(|step| {
            let key = Arc::clone(&names[below(keys) as usize]);
            if below(2) == 0 {
                Access::Write(key, Arc::from(format!("{sequence}.{step}")))
            } else {
                Access::Read(key, None)
            }
        });
        let accesses = accesses.collect();
        let outcome = if lost { Outcome::Unknown } else { Outcome::Ok };
        let returned = (!lost).then_some(returned);
        let transaction =
            Transaction { client, session: 0, sequence, accesses, version: None, invoked, returned, outcome };
        drafts.push((invoked + below(returned.unwrap_or(invoked + 60) - invoked + 1), transaction));
    }
    drafts.sort_by_key(|(point, transaction)| (*point, transaction.sequence));
    let mut state: Vec<Vec<Arc<str>>> = vec![Vec::new(); names.len()];
    let middle = drafts.len() / 2;
    for (place, (_, transaction)) in drafts.iter_mut().enumerate() {
        transaction.version = Some(place as u64);
        for access in &mut transaction.accesses {
            let slot = names.binary_search(access.key()).unwrap_or_default();
            match access {
                Access::Write(_, value) | Access::Append(_, value) => state[slot].push(Arc::clone(value)),
                Access::Read(_, seen) => {
                    let back = if behind && place.abs_diff(middle) < 3 { 20 } else { 1 };
                    let held = state[slot].len().checked_sub(back).map(|at| state[slot][at].to_string());
                    *seen = Some(held.map_or(Value::Nil, Value::Text));
                }
                // None are drawn.
                Access::Delete(_) | Access::Scan(..) => {}
            }
        }
    }
    drafts.into_iter().map(|(_, transaction)| transaction).collect()
}
