//! Who takes an order about replicas, and of which partitions: pure.

use super::ask::Place;
use super::site::Keyspace;
use super::told::Change;
use crate::Usage;
use crate::status::view::{Asked, Shown};
use isochrone_core::deployment::Address;

/// Whom to ask for what.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Choice {
    /// The partitions that it is about.
    pub(super) partitions: Vec<u16>,
    /// The one that has to be named: without that, a node takes an order for all of which it has a replica.
    pub(super) named: Option<u16>,
    /// The nodes that could take the order, whether they answer or not.
    pub(super) nodes: Vec<String>,
    /// Those who answer, the best first.
    pub(super) places: Vec<Place>,
}

/// Of a keyspace as nodes tell it (`shown`), the members of the partitions that the order is about. Where partitions are on nodes
/// of their own, and nobody is a member of just these, one has to be named.
pub(super) fn choose(
    (keyspace, shown): (&Keyspace, Option<&Shown>),
    asked: &[Asked],
    (change, node): (Change, &str),
    partition: Option<u16>,
) -> Result<Choice, Usage> {
    let members = |partition: u16| {
        let members = shown.and_then(|shown| shown.members.get(usize::from(partition)));
        members.map(Vec::as_slice).unwrap_or_default()
    };
    let is_member = |partition: u16, name: &str| members(partition).iter().any(|member| member == name);
    // Of whose members nobody tells, anybody may be one.
    let may_be = |partition: u16, name: &str| members(partition).is_empty() || is_member(partition, name);
    let all = 0..keyspace.partitions;
    let partitions: Vec<u16> = match partition {
        Some(partition) => vec![partition],
        None => {
            let own = all.clone().filter(|partition| change != Change::Add && is_member(*partition, node));
            let own: Vec<u16> = own.collect();
            if own.is_empty() { all.clone().collect() } else { own }
        }
    };
    let named = match partitions.as_slice() {
        [one] if keyspace.partitions > 1 => Some(*one),
        _ => None,
    };
    let takes = |name: &str| {
        partitions.iter().all(|partition| may_be(*partition, name))
            && (named.is_some()
                || all.clone().all(|other| partitions.contains(&other) || !is_member(other, name)))
    };
    let mut nodes: Vec<String> = Vec::new();
    let told = asked.iter().filter_map(|asked| asked.answer.as_ref().ok()).map(|told| &told.node);
    for name in partitions.iter().flat_map(|partition| members(*partition)).chain(told) {
        if takes(name) && !nodes.contains(name) {
            nodes.push(name.clone());
        }
    }
    if nodes.is_empty() {
        let Keyspace { name, .. } = keyspace;
        let list = partitions.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        return Err(Usage(format!(
            "the partitions of keyspace {name} are on nodes of their own, and no node has a replica of just {list}\n  say which \
             partition is meant: --partition N; `isochrone status --format json` has the members of each"
        )));
    }
    let mut told: Vec<_> = asked
        .iter()
        .filter_map(|asked| Some((asked.answer.as_ref().ok()?, asked.http.as_deref()?)))
        .filter(|(told, _)| nodes.contains(&told.node))
        .collect();
    // Who is removed may not hear what came of it.
    told.sort_by_key(|(told, _)| (change == Change::Remove && told.node == node, told.stopping, !told.ready));
    let places = told.into_iter().filter_map(|(told, http)| place(&told.node, http));
    Ok(Choice { named, nodes, places: places.collect(), partitions })
}

/// Where a node was asked how it stands.
pub(super) fn place(node: &str, http: &str) -> Option<Place> {
    Some(Place { node: node.to_owned(), http: Address::parse(http).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::view::View;
    use serde_json::json;

    /// A node of a keyspace with these members, as it tells.
    fn told(node: &str, ready: bool, members: &[&[&str]]) -> Asked {
        let leaders: Vec<_> = members.iter().map(|members| members.first()).collect();
        let keyspaces = json!([{"name": "main", "leaders": leaders, "members": members}]);
        let told = json!({"cluster": "shop", "node": node, "ready": ready, "keyspaces": keyspaces});
        let http = Some(format!("{node}:9000"));
        Asked { name: None, http, answer: Ok(serde_json::from_value(told).unwrap()) }
    }

    fn chosen(asked: &[Asked], change: Change, node: &str, partition: Option<u16>) -> Result<Choice, String> {
        let view = View::of(asked, None);
        let partitions = u16::try_from(view.keyspaces[0].members.len()).unwrap();
        let keyspace = Keyspace { name: "main".to_owned(), partitions };
        choose((&keyspace, view.keyspaces.first()), asked, (change, node), partition)
            .map_err(|error| error.to_string())
    }

    fn names(choice: &Choice) -> Vec<&str> {
        choice.places.iter().map(|place| place.node.as_str()).collect()
    }

    #[test]
    fn any_member_is_asked_and_last_the_one_that_goes() {
        let members: &[&[&str]] = &[&["a", "b", "c"], &["a", "b", "c"]];
        let asked: Vec<_> =
            ["a", "b", "c", "spare"].iter().map(|node| told(node, *node != "b", members)).collect();
        let lead = chosen(&asked, Change::Lead, "c", None).unwrap();
        assert_eq!((lead.partitions.as_slice(), lead.named), (&[0, 1][..], None));
        assert_eq!(
            names(&lead),
            ["a", "c", "b"],
            "who is not ready comes behind, and who is no member not at all"
        );
        let remove = chosen(&asked, Change::Remove, "a", Some(1)).unwrap();
        assert_eq!((remove.partitions.as_slice(), remove.named), (&[1][..], Some(1)));
        assert_eq!(names(&remove), ["c", "b", "a"]);
        let add = chosen(&asked[..1], Change::Add, "spare", None).unwrap();
        assert_eq!((names(&add), add.nodes.len()), (vec!["a"], 3), "others are members, and do not answer");
    }

    #[test]
    fn partitions_on_nodes_of_their_own_are_named() {
        let members: &[&[&str]] = &[&["a", "b", "c"], &["b", "c", "d"]];
        let asked: Vec<_> = ["a", "b", "c", "d"].iter().map(|node| told(node, true, members)).collect();
        // A node of one partition alone can only be meant there.
        let lead = chosen(&asked, Change::Lead, "d", None).unwrap();
        assert_eq!((lead.partitions.as_slice(), lead.named), (&[1][..], Some(1)));
        assert_eq!(names(&lead), ["b", "c", "d"]);
        // Both partitions: who has just these?
        let lead = chosen(&asked, Change::Lead, "b", None).unwrap();
        assert_eq!((lead.named, names(&lead)), (None, vec!["b", "c"]));
        let members: &[&[&str]] = &[&["a", "b", "c"], &["d", "e", "f"]];
        let asked: Vec<_> = ["a", "d"].iter().map(|node| told(node, true, members)).collect();
        let error = chosen(&asked, Change::Add, "g", None).unwrap_err();
        assert!(error.contains("no node has a replica of just 0, 1\n") && error.contains("--partition N"));
        assert_eq!(names(&chosen(&asked, Change::Add, "g", Some(1)).unwrap()), ["d"]);
    }

    #[test]
    fn where_nobody_tells_the_members_whoever_answers_is_asked() {
        let asked = [told("a", true, &[&[]])];
        let lead = chosen(&asked, Change::Lead, "b", None).unwrap();
        assert_eq!((lead.partitions.as_slice(), lead.named, names(&lead)), (&[0][..], None, vec!["a"]));
    }
}
