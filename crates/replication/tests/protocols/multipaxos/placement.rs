//! What a deployment file may say to Multi-Paxos, and how it is told what is wrong.

use crate::machine::Machine;
use expect_test::{Expect, expect};
use isochrone_core::deployment::{Deployment, Known};
use isochrone_core::{NodeId, Span};
use isochrone_replication::multipaxos::{Form, Placement};
use std::path::Path;

fn placed(keyspace: &str) -> Result<Placement<Machine>, String> {
    let nodes = ["a", "b", "c", "d"].map(|name| format!("[[node]]\nname = \"{name}\"\nregion = \"R\"\n"));
    let text = format!(
        "[[region]]\nname = \"R\"\n{}[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\n\
         replicas = [\"a\", \"b\", \"c\"]\n{keyspace}",
        nodes.concat()
    );
    let known = Known::names(&["multipaxos"]);
    let deployment =
        Deployment::parse(&text, "test.toml", Path::new(""), &known).map_err(|errors| errors.to_string())?;
    Placement::of(&deployment, &deployment.keyspaces()[0]).map_err(|errors| errors.to_string())
}

fn refused(keyspace: &str, expected: Expect) {
    expected.assert_eq(&placed(keyspace).map(|_| ()).unwrap_err());
}

#[test]
fn parameters_are_read_over_defaults() {
    let placement =
        placed("leader = \"b\"\nparameters = { form = \"prefix\", lease = false, spares = \"d\" }\n");
    let placement = placement.unwrap();
    assert_eq!((placement.leader, placement.spares.as_slice()), (NodeId(1), [NodeId(3)].as_slice()));
    assert_eq!((placement.parameters.form, placement.parameters.lease), (Form::Prefix, false));
    let quick = placed("parameters = { election = \"200ms\" }\n").unwrap().parameters;
    assert_eq!(quick.lease_length, Span::from_millis(200), "a lease is never longer than a failover waits");
    assert_eq!(placement.clients.len(), 4, "every node has a client");
}

#[test]
fn mistakes_are_named_with_their_line_and_cure() {
    refused(
        "parameters = { leese = true }\n",
        expect![[r#"
        test.toml:19: keyspace "main": unknown parameter "leese"
          did you mean "lease"?"#]],
    );
    refused(
        "parameters = { heartbeat = \"1s\", election = \"500ms\" }\n",
        expect![[r#"
        test.toml:19: keyspace "main": parameter election = "500ms" is not above the heartbeat
          use more than the heartbeat, 1s"#]],
    );
    refused(
        "parameters = { heartbeat = \"5s\" }\n",
        expect![[r#"
        test.toml:19: keyspace "main": parameter heartbeat = "5s" is not below election, which is 400ms unless given
          use a heartbeat below 400ms, or give election more than 5s"#]],
    );
    refused(
        "parameters = { lease_length = \"1h\", drift_max_ppm = 0 }\n",
        expect![[r#"
        test.toml:19: keyspace "main": parameter lease_length = "1h" is out of range
          use "1ms" to "600s"
        test.toml:19: keyspace "main": parameter drift_max_ppm = 0 is out of range
          write a whole number from 1 to 100000"#]],
    );
    refused(
        "parameters = { spares = \"e\", route = \"guess\" }\n",
        expect![[r#"
            test.toml:19: keyspace "main": parameter route = "guess" is not a choice
              use "forward" or "redirect"
            test.toml:19: keyspace "main": parameter spares = "e" names "e", which is no node of this file
              name nodes of it, "a, b""#]],
    );
    refused(
        "parameters = { spares = \"a\" }\n",
        expect![[r#"
            test.toml:19: keyspace "main": parameter spares = "a" names a, which is a replica
              name other nodes"#]],
    );
}

#[test]
fn every_parameter_is_in_the_manual() {
    let manual = include_str!("../../../../../docs/deployment.md");
    let given = placed("parameters = { xyzzy = 1 }\n").map(|_| ()).unwrap_err();
    // The refusal of an unknown key ends with those that are known.
    let (_, known) = given.rsplit_once("use ").unwrap_or_else(|| panic!("{given}"));
    let keys = known.split('"').filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    let keys = keys.filter(|key| !key.is_empty());
    let missing: Vec<&str> = keys.filter(|key| !manual.contains(&format!("`{key}`"))).collect();
    assert_eq!(missing, [] as [&str; 0]);
}
