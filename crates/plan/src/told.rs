//! Parameters on which it depends how long clients wait. The protocols read theirs by way of this crate, which has the defaults
//! too: so what is planned is what is run. Here are those that several have; the others are beside the closed forms.

use isochrone_core::deployment::{Keyspace, ParameterReader};

/// When the client of a write is answered.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum Reply {
    /// When the command is executed.
    #[default]
    Execute,
    /// When its place can no longer be lost, if its reply depends on nothing in the state. Another client may
    /// then read what was there before; all replicas still execute one order.
    Commit,
}

impl Reply {
    const ALL: [Reply; 2] = [Reply::Execute, Reply::Commit];

    /// Its name in deployment files.
    pub fn name(self) -> &'static str {
        match self {
            Reply::Execute => "execute",
            Reply::Commit => "commit",
        }
    }

    /// `reply = "commit"`.
    pub fn read(reader: &mut ParameterReader<'_>) -> Reply {
        reader.choice("reply", Reply::default(), &Reply::ALL.map(|reply| (reply.name(), reply)))
    }

    /// When a keyspace answers.
    pub(crate) fn of(keyspace: &Keyspace) -> Reply {
        Reply::read(&mut keyspace.parameters.read())
    }
}

/// Who learns of fast decisions for itself, in Fast Paxos and in Domino.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Learners {
    /// The coordinator, which tells the others: the fewest messages.
    Sole,
    /// Every replica: executed sooner, at the price of votes from all to all.
    All,
}

impl Learners {
    /// By default where a keyspace answers so: a client that is answered at commit does not wait for a replica to learn.
    pub fn usual(reply: Reply) -> Learners {
        match reply {
            Reply::Execute => Learners::All,
            Reply::Commit => Learners::Sole,
        }
    }

    /// `learners = "sole"`.
    pub fn read(reader: &mut ParameterReader<'_>, reply: Reply) -> Learners {
        let choices = [("sole", Learners::Sole), ("all", Learners::All)];
        reader.choice("learners", Learners::usual(reply), &choices)
    }
}

/// The parameters of a keyspace where it is of this protocol; those of another say nothing of it.
pub(crate) fn reader_of<'a>(keyspace: &'a Keyspace, protocol: &str) -> Option<ParameterReader<'a>> {
    (keyspace.protocol == protocol).then(|| keyspace.parameters.read())
}
