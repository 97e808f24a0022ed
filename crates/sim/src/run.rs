//! One run, from its start to its verdict.

use crate::driver::Driver;
use crate::fault::Histogram;
use crate::oracle::{Violation, ViolationKind};
use crate::simulation::Simulation;
use crate::traffic::Traffic;
use isochrone_core::{Protocol, Span};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// What came of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What broke; the run ends at the first.
    pub violations: Vec<Violation>,
    /// Requests answered.
    pub operations: u64,
    /// Requests whose client died before the answer.
    pub unknown: u64,
    /// Events handled.
    pub events: u64,
    /// Messages sent.
    pub messages: u64,
    /// Those between nodes by kind, where that was asked for.
    pub traffic: Traffic,
    /// Virtual time at the end.
    pub virtual_time: Span,
    /// The hash of everything that happened.
    pub hash: u64,
    /// Faults that happened.
    pub faults: Histogram,
}

impl Report {
    /// A run of which nothing is known but that it broke.
    pub(crate) fn broken(violation: Violation) -> Report {
        Report {
            seed: violation.seed,
            violations: vec![violation],
            operations: 0,
            unknown: 0,
            events: 0,
            messages: 0,
            traffic: Traffic::default(),
            virtual_time: Span::ZERO,
            hash: 0,
            faults: Histogram::default(),
        }
    }
}

impl<F: Protocol> Simulation<F> {
    /// Runs to the end: until every session has ended, all faults too, and the aftermath is over. A panic
    /// of a process is a violation like any other.
    pub fn run(&mut self, driver: &mut dyn Driver<F>) -> Report {
        if let Err(text) = caught(|| self.course(driver)) {
            self.world.broken = Some((ViolationKind::Panic, text));
        }
        let violation = self.world.broken.take().map(|(kind, text)| Violation {
            seed: self.world.seed,
            at: Span::from_nanos(self.world.now),
            kind,
            text,
        });
        Report {
            seed: self.world.seed,
            violations: violation.into_iter().collect(),
            operations: self.operations,
            unknown: self.lost,
            events: self.events,
            messages: self.world.messages,
            traffic: self.world.traffic.take().unwrap_or_default(),
            virtual_time: Span::from_nanos(self.world.now),
            hash: self.hash(),
            faults: self.world.faults.clone(),
        }
    }

    fn course(&mut self, driver: &mut dyn Driver<F>) {
        self.boot();
        let horizon = self.config.horizon.as_nanos();
        let patience = horizon.saturating_add(self.config.patience.as_nanos());
        while self.active > 0 && self.world.broken.is_none() {
            let next = self.world.queue.next_at();
            if !self.healed && next.is_none_or(|at| at > horizon) {
                self.world.now = horizon;
                self.world.at = horizon;
                self.heal();
                self.deliver(driver);
                continue;
            }
            if next.is_none_or(|at| at > patience) {
                self.world.broken = Some((ViolationKind::Stuck, self.stuck()));
                return;
            }
            self.step(driver);
            if self.events > self.config.budget {
                let text = format!("{} events are more than the run may take", self.events);
                self.world.broken.get_or_insert((ViolationKind::Budget, text));
            }
        }
        if self.world.broken.is_none() {
            self.heal();
            self.deliver(driver);
            self.run_for(self.config.aftermath, driver);
        }
    }

    /// Who is stuck, and since when.
    fn stuck(&self) -> String {
        let stuck: Vec<_> = self.sessions.iter().filter(|state| !state.ended).collect();
        let mut text = format!("{} of {} sessions have not ended", stuck.len(), self.sessions.len());
        for state in stuck.iter().take(4) {
            let since = state.open.front().map_or_else(
                || "with nothing asked".to_owned(),
                |(_, since)| format!("since {}", Span::from_nanos(*since)),
            );
            text += &format!("; session {} of {} waits {since}", state.session.number, state.session.client);
        }
        text
    }
}

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `work`; a panic in it becomes text with its place, and nothing is printed.
pub(crate) fn caught(work: impl FnOnce()) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                let message = info.payload_as_str().unwrap_or("panic without text");
                let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
                CAUGHT.set(format!("{message}{}", place.unwrap_or_default()));
            } else {
                before(info);
            }
        }));
    });
    let outer = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(outer);
    result.map_err(|_| CAUGHT.take())
}
