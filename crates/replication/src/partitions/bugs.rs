//! Bugs that can be planted in what moves keys between partitions.

/// A planted bug; it acts only where the crate is built with the feature `mutations`.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Bug {
    /// A command on its way to where its keys were is asked for anew where they are, before it is refused there.
    ReissueInDoubt,
    /// The source is told that a move is over when its data is on its way, not when it is installed.
    EndBeforeInstalled,
    /// The data of a stretch is lost on its way.
    DropChunk,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 3] = [Bug::ReissueInDoubt, Bug::EndBeforeInstalled, Bug::DropChunk];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Bug::ReissueInDoubt => "reissue-in-doubt",
            Bug::EndBeforeInstalled => "end-before-installed",
            Bug::DropChunk => "drop-chunk",
        }
    }

    /// The one of this name, if there is one.
    pub fn named(name: &str) -> Option<Bug> {
        Bug::ALL.into_iter().find(|bug| bug.name() == name)
    }

    /// Whether this is the one that is planted, and may act.
    pub(super) fn acts(self, planted: Option<Bug>) -> bool {
        cfg!(feature = "mutations") && planted == Some(self)
    }
}
