//! Lines that carry less than is sent: a large value makes nobody believe that others are dead, and what is asked for again does
//! not fill the line.

use crate::latency::{Alone, key, unit};
use crate::script::Play;
use isochrone_core::{Blob, Span, Ticket};
use isochrone_transactions::{Family, Outcome, Request, TxnId, Update, carousel, tapir, twopc};

/// Three regions 20 ms apart, two partitions that lead in the first two, whose clients are in the third.
fn play<F: Family>(bandwidth: u64, tune: fn(&mut F::Parameters)) -> Play<F> {
    let alone = Alone::<F>::new(unit(3, Span::from_millis(20)), &[[0, 1, 2], [1, 2, 0]]);
    Play::new(&Alone { bandwidth: Some(bandwidth), tune, ..alone })
}

fn commit<F: Family>(play: &mut Play<F>, txn: TxnId, keys: &[Blob], bytes: usize) -> Ticket {
    let value = Blob::from("x".repeat(bytes));
    let update = |key: &Blob| Update { key: key.clone(), value: Some(value.clone()) };
    play.ask(2, Request::Commit { txn, updates: keys.iter().map(update).collect() })
}

fn committed<F: Family>(play: &mut Play<F>, tickets: &[Ticket], within: Span) {
    let begun = play.cluster.now();
    for ticket in tickets {
        let outcome = play.wait(*ticket);
        assert!(matches!(outcome, Outcome::Committed { .. }), "{}: {outcome:?}", F::NAME);
    }
    let took = play.cluster.now().since(begun);
    println!("{:<16} {} of them: {took}", F::NAME, tickets.len());
    assert!(took < within, "{}: {took}", F::NAME);
}

/// A value for each of two partitions, each 1.2 s on a line, three times as long as silence is borne.
fn carries_a_large_value<F: Family>(tune: fn(&mut F::Parameters), within: Span) {
    let mut play = play::<F>(500_000, tune);
    let keys = [key(0), key(1)];
    let (txn, _) = play.begin(2, &keys, &keys);
    let ticket = commit(&mut play, txn, &keys, 600_000);
    committed(&mut play, &[ticket], within);
}

/// Thirty transactions with 20 KB for each of two partitions.
fn carries_a_load<F: Family>(tune: fn(&mut F::Parameters), within: Span) {
    let mut play = play::<F>(1_000_000, tune);
    let keys = |number| [0, 1].map(|partition| Blob::from(format!("{partition}:{number}")));
    let begun: Vec<TxnId> = (0..30).map(|number| play.begin(2, &keys(number), &keys(number)).0).collect();
    let begun = (0..).zip(begun);
    let tickets: Vec<Ticket> =
        begun.map(|(number, txn)| commit(&mut play, txn, &keys(number), 20_000)).collect();
    committed(&mut play, &tickets, within);
}

fn carries<F: Family>(tune: fn(&mut F::Parameters), large_within: Span) {
    carries_a_large_value::<F>(tune, large_within);
    // What a queue had no room for is said again when what is in it has been given its time.
    carries_a_load::<F>(tune, Span::from_secs(7));
}

#[test]
fn twopc_lives_with_slow_lines() {
    carries::<twopc::Family>(|_| {}, Span::from_secs(7));
}

#[test]
fn carousel_lives_with_slow_lines() {
    carries::<carousel::Basic>(|_| {}, Span::from_secs(7));
}

#[test]
fn carousel_fast_lives_with_slow_lines() {
    carries::<carousel::Fast>(|_| {}, Span::from_secs(7));
}

#[test]
fn tapir_lives_with_slow_lines() {
    // Who has not heard all of it within this thinks that its client is gone.
    carries::<tapir::Family>(
        |parameters| parameters.terminate_after = Span::from_secs(15),
        Span::from_secs(9),
    );
}
