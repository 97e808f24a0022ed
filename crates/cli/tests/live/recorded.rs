//! What nodes write into their journals keeps its shape for as long as its format keeps its number.

use isochrone_core::shape::Shapes;
use isochrone_core::{Assemble, Deployment, Process, ProcessId, Protocol, Role};
use isochrone_protocols as protocols;
use isochrone_replication::{
    Family, Placement, Replicated, curp, domino, epaxos, fastpaxos, mencius, multipaxos, sdpaxos,
};
use isochrone_store::Store;
use isochrone_transactions::commands::Served;
use isochrone_transactions::{Family as TransactionFamily, Placement as Partitions, carousel, tapir, twopc};
use std::collections::BTreeSet;
use std::path::Path;

/// The name of a protocol, and what looks at its servers.
type Looked = (&'static str, fn(&Deployment, &mut Records));

/// The protocols, in the order of `protocols::ALL`.
const FAMILIES: &[Looked] = &[
    replicated::<multipaxos::Family>(),
    replicated::<curp::consensus::Family>(),
    replicated::<mencius::Family>(),
    replicated::<epaxos::Family>(),
    replicated::<sdpaxos::Family>(),
    replicated::<fastpaxos::Family>(),
    replicated::<domino::Family>(),
    replicated::<curp::primary::Family>(),
    transactional::<carousel::Fast>(),
    transactional::<carousel::Basic>(),
    transactional::<twopc::Family>(),
    transactional::<tapir::Family>(),
];

const fn replicated<F: Family>() -> Looked {
    (F::NAME, |deployment, records| {
        let keyspace = deployment.keyspaces().iter().find(|keyspace| keyspace.protocol == F::NAME).unwrap();
        let placement = Placement::of(deployment, keyspace).unwrap();
        Replicated::<Store, F>::place(&placement, records);
    })
}

const fn transactional<F: TransactionFamily>() -> Looked {
    (F::NAME, |deployment, records| {
        let keyspace = deployment.keyspaces().iter().find(|keyspace| keyspace.protocol == F::NAME).unwrap();
        let placement = Partitions::of(deployment, keyspace).unwrap().movable();
        Served::<F>::place(&placement, records);
    })
}

/// Looks at what is placed, each kind of process of a protocol once.
#[derive(Default)]
struct Records {
    shapes: Shapes,
    seen: BTreeSet<(&'static str, Role)>,
}

impl<F: Protocol> Assemble<F> for Records {
    fn server<P: Process<Message = F::Message>>(&mut self, id: ProcessId, _: P::Setup) {
        if self.seen.insert((F::NAME, id.role)) {
            let what = format!("{}, role {}", F::NAME, id.role.0);
            self.shapes = std::mem::take(&mut self.shapes).with::<P::Record>(&what);
        }
    }

    fn client<P>(&mut self, id: ProcessId, _: P::Setup)
    where
        P: Process<Message = F::Message, Request = F::Request, Outcome = F::Outcome>,
    {
        assert_eq!(size_of::<P::Record>(), 0, "{}, role {}: clients record nothing", F::NAME, id.role.0);
    }
}

#[test]
fn records_have_the_shape_of_their_format() {
    let mut text = "cluster = \"recorded\"\n[[region]]\nname = \"here\"\n".to_owned();
    for number in 0..3 {
        let address = format!("listen = \"127.0.0.1:700{number}\"");
        text += &format!("[[node]]\nname = \"n{number}\"\nregion = \"here\"\n{address}\n");
    }
    for (name, _) in FAMILIES {
        text += &format!("[[keyspace]]\nname = \"{name}\"\nprotocol = \"{name}\"\nreplication = 3\n");
    }
    let deployment = Deployment::parse(&text, "recorded.toml", Path::new(""), &protocols::known()).unwrap();
    let names = FAMILIES.iter().map(|(name, _)| *name);
    assert_eq!(names.collect::<Vec<_>>(), protocols::ALL.iter().map(|entry| entry.name).collect::<Vec<_>>());
    let mut records = Records::default();
    FAMILIES.iter().for_each(|(_, look)| look(&deployment, &mut records));
    records.shapes.hold("records");
}
