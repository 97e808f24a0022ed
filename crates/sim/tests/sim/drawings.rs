//! Drawings are what happened. `UPDATE_EXPECT=1 cargo test` writes them anew; read them before you commit.

use crate::toy::{Bug, Toy, Writers, config, simulation};
use expect_test::{expect, expect_file};
use isochrone_core::{NodeId, Span};
use isochrone_sim::{Config, Lanes, Record, Simulation, lanes};

fn recorded(change: impl FnOnce(&mut Config)) -> Simulation<Toy> {
    let mut config = config(1);
    config.record = Record::Flow;
    config.sync = Span::from_millis(3);
    change(&mut config);
    simulation(config, Bug::None)
}

#[test]
fn the_trace_reads() {
    let mut simulation = recorded(|_| {});
    simulation.run(&mut Writers::new(1));
    let first: Vec<String> = simulation.trace().lines().take(24).map(str::to_owned).collect();
    expect_file!["first_messages.txt"].assert_eq(&(first.join("\n") + "\n"));
}

#[test]
fn the_diagram_shows_a_crash_and_a_cut() {
    let mut simulation = recorded(|_| {});
    let mut writers = Writers::new(3);
    simulation.run_for(Span::from_millis(60), &mut writers);
    simulation.crash(NodeId(2));
    simulation.connect(NodeId(0), NodeId(1), false);
    simulation.run_for(Span::from_millis(250), &mut writers);
    simulation.restart(NodeId(2));
    simulation.connect(NodeId(0), NodeId(1), true);
    simulation.run_for(Span::from_millis(150), &mut writers);
    let svg = simulation.svg();
    for part in [
        "crashed",
        "started",
        " lost</text>",
        "never heard",
        "Accept</text>",
        "held 3ms until durable",
        "va1",
        "</svg>",
    ] {
        assert!(svg.contains(part), "the diagram must show '{part}'");
    }
    expect_file!["three_regions.svg"].assert_eq(&svg);
}

#[test]
fn lanes_tell_arrivals_as_sums_of_delays() {
    let ms = Span::from_millis;
    let mut config = config(1);
    let (c, n, f) = (10, 17, 31);
    config.delays = vec![
        vec![ms(0), ms(n), ms(f), ms(c)],
        vec![ms(n), ms(0), ms(40), ms(40)],
        vec![ms(f), ms(40), ms(0), ms(40)],
        vec![ms(c), ms(40), ms(40), ms(0)],
    ];
    config.sync = Span::from_micros(1);
    config.record = Record::Flow;
    let mut simulation = crate::toy::one_client(config);
    simulation.run(&mut Writers::new(1));
    let drawing = lanes(
        simulation.flow(),
        &Lanes {
            lanes: &[("client", "client"), ("leader", "leader"), ("near", "near"), ("far", "far")],
            delays: &[("c", c * 1_000_000), ("n", n * 1_000_000), ("f", f * 1_000_000)],
            without: &["Chosen"],
            answers: 1,
        },
    );
    expect![[r#"
        client       leader       near         far            arrives
          |--Propose-->|            |            |            c
          |            |---Accept-->|            |            c + n
          |            |---Accept--------------->|            c + f
          |            |<-Accepted-*|            |            c + 2n    C
          |<---Done----|            |            |            2c + 2n
    "#]]
    .assert_eq(&drawing);
}
