//! Fault plans: drawn from the seed, printed with it.

use crate::fault::{FaultKind, FaultSet};
use isochrone_core::{Random, Span};
use std::fmt;

/// What a plan must know of the cluster it is drawn for.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The region of each node.
    pub regions: Vec<usize>,
    /// Which nodes carry servers; the others only clients.
    pub servers: Vec<usize>,
    /// How many server nodes may be lost for good.
    pub tolerated: usize,
    /// Faults begin and end before this.
    pub horizon: Span,
    /// Bound of the rate error of steady clocks, parts a million.
    pub drift_max: u64,
}

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The node crashes after so many more effects, and comes back so long after.
    Crash {
        /// Which node.
        node: usize,
        /// The crash point: effects, not time.
        effects: u64,
        /// How long it is down.
        down: Span,
    },
    /// All nodes crash; each comes back after at most so long.
    PowerLoss {
        /// The longest absence.
        down: Span,
    },
    /// A client process crashes; the number chooses among them.
    ClientCrash {
        /// Which one, modulo their number.
        client: u64,
        /// How long it is down.
        down: Span,
    },
    /// The node stands still.
    Pause {
        /// Which node.
        node: usize,
    },
    /// The node takes so much longer for each input.
    Gray {
        /// Which node.
        node: usize,
        /// How much.
        cost: Span,
    },
    /// These directions are cut: of kind partition, one-way or region loss.
    Cut {
        /// From node, to node.
        links: Vec<(usize, usize)>,
        /// Whether connections survive, so that what was sent arrives in the end.
        held: bool,
    },
    /// All nodes of a region crash.
    RegionCrash {
        /// Which region.
        region: usize,
        /// How long they are down.
        down: Span,
    },
    /// Messages are lost with this probability a million.
    Loss(u64),
    /// Messages are doubled with this probability a million.
    Duplicate(u64),
    /// Messages are delayed up to this much, each its own, and connections keep no order.
    Reorder(Span),
    /// These directions become slower by this much.
    Delay {
        /// From node, to node.
        links: Vec<(usize, usize)>,
        /// How much.
        extra: Span,
    },
    /// A node's line has this many bytes a second.
    Bandwidth {
        /// Which node.
        node: usize,
        /// Bytes a second.
        rate: u64,
    },
    /// The wall clock is stepped by this many nanoseconds: for good (offset) or for a while (jump).
    ClockStep {
        /// Which node.
        node: usize,
        /// By how much.
        nanos: i64,
    },
    /// The wall clock stands still.
    ClockFreeze {
        /// Which node.
        node: usize,
    },
    /// The steady clock runs faster by so many parts a million.
    Drift {
        /// Which node.
        node: usize,
        /// How much; negative for slower.
        parts_per_million: i64,
    },
    /// The disk takes about this long to sync.
    DiskSlow {
        /// Which node.
        node: usize,
        /// How long.
        sync: Span,
    },
    /// The next sync fails and the node stops; it comes back so long after.
    FsyncError {
        /// Which node.
        node: usize,
        /// How long it is down.
        down: Span,
    },
    /// The node crashes and refuses to start, for good.
    BitRot {
        /// Which node.
        node: usize,
    },
    /// The node is gone for good.
    DiskLost {
        /// Which node.
        node: usize,
    },
    /// Every process of the node is asked for a snapshot every so many records.
    Snapshot {
        /// Which node.
        node: usize,
        /// How many.
        records: u64,
    },
    /// The driver is asked for a change of membership.
    Membership,
    /// The node wakes up as late as this after something has come, and takes all that has by then.
    Rounds {
        /// Which node.
        node: usize,
        /// How late at most.
        quantum: Span,
    },
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// When it begins, true time since the start.
    pub at: Span,
    /// How long it lasts; zero for what has no length.
    pub length: Span,
    /// Its kind.
    pub kind: FaultKind,
    /// What it does.
    pub action: Action,
}

/// What goes wrong in one run. Its text is the whole plan.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// The kinds that were left on.
    pub kinds: FaultSet,
    /// Every fault, by its beginning.
    pub faults: Vec<Planned>,
}

impl FaultPlan {
    /// Nothing goes wrong.
    pub fn none() -> FaultPlan {
        FaultPlan { kinds: FaultSet::NONE, faults: Vec::new() }
    }

    /// Draws a plan. Of several allowed kinds about half are left off, another half for each seed: a
    /// fault that is always there hides what only its absence lets happen.
    pub fn draw(seed: u64, allowed: FaultSet, shape: &Shape) -> FaultPlan {
        let mut random = Random::seeded(seed ^ 0x6661_756c_7473);
        let older = |kind: &FaultKind| FaultSet::ALL.contains(*kind);
        let several = allowed.kinds().filter(older).count() > 2;
        let kept = allowed.kinds().filter(older).filter(|_| !several || random.chance(0.5));
        let mut kinds = kept.collect::<Vec<_>>().into_iter().fold(FaultSet::NONE, FaultSet::with);
        let mut draw = Draw { random, shape, lost: 0, faults: Vec::new() };
        for kind in kinds.kinds() {
            draw.kind(kind);
        }
        // From a stream of their own: what a seed draws of the others is the same with and without them.
        draw.random = Random::seeded(seed ^ 0x726f_756e_6473);
        for kind in [FaultKind::Rounds, FaultKind::Tears] {
            let left_on = !several || draw.random.chance(0.5);
            if left_on && allowed.contains(kind) {
                kinds = kinds.with(kind);
                draw.kind(kind);
            }
        }
        let mut faults = draw.faults;
        faults.sort_by_key(|fault| fault.at);
        FaultPlan { kinds, faults }
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults: {}", self.kinds)?;
        for Planned { at, length, kind, action } in &self.faults {
            write!(f, "{:>12.3}  {:<18} {action:?}", at.as_millis_f64(), kind.name())?;
            if *length > Span::ZERO {
                write!(f, " for {length}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

struct Draw<'a> {
    random: Random,
    shape: &'a Shape,
    lost: usize,
    faults: Vec<Planned>,
}

impl Draw<'_> {
    fn kind(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::DiskSlow => self.disks(),
            // These are answers to the question what a crash leaves; every crash asks it.
            FaultKind::DiskTorn | FaultKind::DiskCorrupt | FaultKind::Tears => {}
            FaultKind::Rounds => self.rounds(),
            FaultKind::BitRot | FaultKind::DiskLost => self.losses(kind),
            FaultKind::Snapshot => {
                for node in 0..self.shape.regions.len() {
                    let records = self.octaves(2, 9);
                    self.push(kind, Span::ZERO, Span::ZERO, Action::Snapshot { node, records });
                }
            }
            FaultKind::ClockOffset => {
                for node in 0..self.shape.regions.len() {
                    let nanos = self.signed(14, 37);
                    self.push(kind, Span::ZERO, Span::ZERO, Action::ClockStep { node, nanos });
                }
            }
            FaultKind::Drift => {
                for node in 0..self.shape.regions.len() {
                    let most = self.shape.drift_max;
                    let parts_per_million = self.random.between(0, 2 * most) as i64 - most as i64;
                    self.push(kind, Span::ZERO, Span::ZERO, Action::Drift { node, parts_per_million });
                }
            }
            _ => {
                let most = match kind {
                    FaultKind::PowerLoss | FaultKind::RegionLoss => 3,
                    FaultKind::Membership => 6,
                    FaultKind::Crash | FaultKind::ClientCrash => 8,
                    _ => 4,
                };
                for _ in 0..self.random.between(1, most) {
                    self.episode(kind);
                }
            }
        }
    }

    fn episode(&mut self, kind: FaultKind) {
        let node = self.random.below(self.shape.regions.len() as u64) as usize;
        let at = Span::from_nanos(self.random.below(self.shape.horizon.as_nanos() * 9 / 10));
        let room = self.shape.horizon.saturating_sub(at).as_nanos();
        // From a few milliseconds to as long as there is room.
        let length = Span::from_nanos(self.octaves(23, 34).min(room));
        let down = Span::from_nanos(self.octaves(24, 33).min(room));
        let (length, action) = match kind {
            FaultKind::Crash => {
                let effects = self.octaves(0, 8);
                (Span::ZERO, Action::Crash { node: self.server(), effects, down })
            }
            FaultKind::PowerLoss => (Span::ZERO, Action::PowerLoss { down }),
            FaultKind::ClientCrash => {
                (Span::ZERO, Action::ClientCrash { client: self.random.below(1 << 32), down })
            }
            FaultKind::Pause => (length, Action::Pause { node }),
            FaultKind::Gray => {
                let cost = Span::from_nanos(self.octaves(17, 24));
                (length, Action::Gray { node, cost })
            }
            FaultKind::Partition => {
                let side = self.side();
                let links = self.pairs(|from, to| side[from] != side[to]);
                (length, Action::Cut { links, held: self.random.chance(0.5) })
            }
            FaultKind::OneWay => {
                let side = self.side();
                let whole = self.random.chance(0.5);
                let mut links =
                    self.pairs(|from, to| if whole { side[from] && !side[to] } else { from != to });
                if !whole {
                    links.retain(|_| self.random.chance(0.3));
                }
                (length, Action::Cut { links, held: self.random.chance(0.3) })
            }
            FaultKind::RegionLoss => {
                let region = self.shape.regions[node];
                if self.random.chance(0.5) {
                    (Span::ZERO, Action::RegionCrash { region, down })
                } else {
                    let regions = self.shape.regions.clone();
                    let links = self.pairs(|from, to| (regions[from] == region) != (regions[to] == region));
                    (length, Action::Cut { links, held: false })
                }
            }
            FaultKind::Loss => (length, Action::Loss(self.octaves(9, 18))),
            FaultKind::Duplicate => (length, Action::Duplicate(self.octaves(10, 18))),
            FaultKind::Reorder => (length, Action::Reorder(Span::from_nanos(self.octaves(18, 28)))),
            FaultKind::Delay => {
                let mut links = self.pairs(|from, to| from != to);
                links.retain(|_| self.random.chance(0.3));
                let extra = Span::from_nanos(self.octaves(20, 29));
                (length, Action::Delay { links, extra })
            }
            FaultKind::Bandwidth => (length, Action::Bandwidth { node, rate: self.octaves(13, 22) }),
            FaultKind::ClockJump => {
                let nanos = self.signed(20, 40);
                (length, Action::ClockStep { node, nanos })
            }
            FaultKind::ClockFreeze => (length, Action::ClockFreeze { node }),
            FaultKind::FsyncError => (Span::ZERO, Action::FsyncError { node: self.server(), down }),
            _ => (Span::ZERO, Action::Membership),
        };
        self.push(kind, at, length, action);
    }

    /// Every disk its own sync latency, over three orders of magnitude and more: 0.1 to about 130 ms,
    /// and up to 600 ms on some. A sync shorter than every network delay hides the bug that acknowledges
    /// before the record is durable.
    fn disks(&mut self) {
        for node in 0..self.shape.regions.len() {
            let sync = if self.random.chance(0.2) {
                self.random.between(100_000_000, 600_000_000)
            } else {
                self.octaves(16, 26)
            };
            let action = Action::DiskSlow { node, sync: Span::from_nanos(sync) };
            self.push(FaultKind::DiskSlow, Span::ZERO, Span::ZERO, action);
        }
    }

    /// Every node its own times and its own quantum: about 0.1 to 50 ms.
    fn rounds(&mut self) {
        for node in 0..self.shape.regions.len() {
            for _ in 0..self.random.below(4) {
                let at = Span::from_nanos(self.random.below(self.shape.horizon.as_nanos() * 9 / 10));
                let room = self.shape.horizon.saturating_sub(at).as_nanos();
                let length = Span::from_nanos(self.octaves(26, 33).min(room));
                let quantum = Span::from_nanos(self.octaves(17, 25).min(50_000_000));
                self.push(FaultKind::Rounds, at, length, Action::Rounds { node, quantum });
            }
        }
    }

    fn losses(&mut self, kind: FaultKind) {
        if self.lost >= self.shape.tolerated {
            return;
        }
        self.lost += 1;
        let node = self.server();
        let at = Span::from_nanos(self.random.below(self.shape.horizon.as_nanos()));
        let action =
            if kind == FaultKind::BitRot { Action::BitRot { node } } else { Action::DiskLost { node } };
        self.push(kind, at, Span::ZERO, action);
    }

    fn push(&mut self, kind: FaultKind, at: Span, length: Span, action: Action) {
        self.faults.push(Planned { at, length, kind, action });
    }

    /// A number from 2^low up to 2^(high+1), every power of two equally likely.
    fn octaves(&mut self, low: u64, high: u64) -> u64 {
        let floor = 1 << self.random.between(low, high);
        floor + self.random.below(floor)
    }

    fn signed(&mut self, low: u64, high: u64) -> i64 {
        let size = self.octaves(low, high) as i64;
        if self.random.chance(0.5) { size } else { -size }
    }

    fn server(&mut self) -> usize {
        let servers = &self.shape.servers;
        servers.get(self.random.below(servers.len() as u64) as usize).copied().unwrap_or(0)
    }

    /// A side for every node, neither of them empty where there are two nodes.
    fn side(&mut self) -> Vec<bool> {
        let nodes = self.shape.regions.len();
        let mut side: Vec<bool> = (0..nodes).map(|_| self.random.chance(0.5)).collect();
        if side.iter().all(|one| *one == side[0]) {
            side[self.random.below(nodes as u64) as usize] ^= true;
        }
        side
    }

    fn pairs(&self, chosen: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
        let nodes = self.shape.regions.len();
        let all = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        all.filter(|(from, to)| from != to && chosen(*from, *to)).collect()
    }
}
