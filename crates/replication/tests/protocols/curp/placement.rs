//! How many copies a deployment file may ask for.

use crate::machine::Machine;
use expect_test::{Expect, expect};
use isochrone_core::deployment::{Deployment, Known};
use isochrone_replication::curp::primary::Placement;
use std::path::Path;

/// `f` and `copies_min` of a keyspace of so many of five nodes.
fn placed(replicas: &[&str], parameters: &str) -> Result<(usize, usize), String> {
    let nodes =
        ["a", "b", "c", "d", "e"].map(|name| format!("[[node]]\nname = \"{name}\"\nregion = \"R\"\n"));
    let text = format!(
        "[[region]]\nname = \"R\"\n{}[[keyspace]]\nname = \"main\"\nprotocol = \"curp\"\nreplicas = {replicas:?}\n\
         parameters = {{ {parameters} }}\n",
        nodes.concat()
    );
    let known = Known::names(&["curp"]);
    let deployment =
        Deployment::parse(&text, "test.toml", Path::new(""), &known).map_err(|errors| errors.to_string())?;
    let placement = Placement::<Machine>::of(&deployment, &deployment.keyspaces()[0]);
    placement
        .map(|placement| (placement.parameters.f, placement.parameters.copies_min))
        .map_err(|errors| errors.to_string())
}

fn refused(replicas: &[&str], parameters: &str, expected: Expect) {
    expected.assert_eq(&placed(replicas, parameters).unwrap_err());
}

#[test]
fn copies_that_cannot_be_are_refused() {
    let three = ["a", "b", "c"];
    assert_eq!(placed(&three, "f = 2, copies_min = 2"), Ok((2, 2)));
    assert_eq!(
        placed(&three, "f = 4, copies_min = 3, spares = \"d, e\""),
        Ok((4, 3)),
        "spares hold copies too"
    );
    assert_eq!(placed(&["a"], ""), Ok((2, 1)), "it may grow into the defaults");
    assert_eq!(placed(&["a"], "f = 0, copies_min = 0"), Ok((0, 0)));
    refused(
        &three,
        "f = 3",
        expect![[r#"
        test.toml:22: keyspace "main": parameter f = 3 is out of range
          write a whole number from 0 to 2"#]],
    );
    refused(
        &three,
        "copies_min = 5",
        expect![[r#"
        test.toml:22: keyspace "main": parameter copies_min = 5 is out of range
          write a whole number from 0 to 2"#]],
    );
    refused(
        &three,
        "f = 1, copies_min = 2",
        expect![[r#"
        test.toml:22: keyspace "main": parameter copies_min = 2 is out of range
          write a whole number from 0 to 1"#]],
    );
    refused(
        &["a"],
        "f = 2, spares = \"b\"",
        expect![[r#"
        test.toml:22: keyspace "main": parameter f = 2 is out of range
          write a whole number from 0 to 1"#]],
    );
}

#[test]
fn reads_at_copies_without_leases_are_refused() {
    assert_eq!(placed(&["a", "b", "c"], "nearby_reads = true"), Ok((2, 1)));
    refused(
        &["a", "b", "c"],
        "nearby_reads = true, lease = false",
        expect![[r#"
        test.toml:22: keyspace "main": parameter nearby_reads = true does nothing with lease = false
          remove lease = false, or nearby_reads: a copy answers reads under a lease of the master's"#]],
    );
}
