use super::screen;
use super::told::{Link, Network, Region};
use super::{find, known};
use crate::Usage;
use expect_test::expect;
use isochrone_core::deployment::Address;

/// Three regions, of which these are cut off.
fn three(cut: &[&str], changed: Option<&[&str]>) -> Network {
    let is_cut = |name: &str| cut.contains(&name);
    let link = |from: &str, to: &str, round_trip_ms| Link {
        from: from.to_owned(),
        to: to.to_owned(),
        round_trip_ms,
        cut: is_cut(from) || is_cut(to),
    };
    let region = |name: &str| Region { region: name.to_owned(), cut: is_cut(name) };
    Network {
        cluster: "near".to_owned(),
        changed: changed.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        regions: ["US West", "US East", "Euro"].map(region).to_vec(),
        links: vec![
            link("US West", "US East", 73.0),
            link("US West", "Euro", 166.2),
            link("US East", "Euro", 8.0),
        ],
    }
}

#[test]
fn every_two_regions_are_shown_and_what_stands_between_them() {
    expect![[r#"
        near: 3 regions, none is cut off
        round trips, ms

                   US West  US East   Euro
          US West        -     73.0  166.2
          US East     73.0        -   8.00
          Euro       166.2     8.00      -
    "#]]
    .assert_eq(&screen::text(&three(&[], None)));
    expect![[r#"
        near: 3 regions, Euro is cut off
        round trips, ms

                   US West  US East  Euro
          US West        -     73.0   cut
          US East     73.0        -   cut
          Euro         cut      cut     -
    "#]]
    .assert_eq(&screen::text(&three(&["Euro"], None)));
    let two = screen::text(&three(&["US West", "Euro"], None));
    assert!(two.starts_with("near: 3 regions, US West, Euro are cut off\n"), "{two}");
}

#[test]
fn json_is_stable() {
    expect![[r#"{"cluster":"near","changed":["Euro"],"regions":[{"region":"US West","cut":false},{"region":"US East","cut":false},{"region":"Euro","cut":true}],"links":[{"from":"US West","to":"US East","round_trip_ms":73.0,"cut":false},{"from":"US West","to":"Euro","round_trip_ms":166.2,"cut":true},{"from":"US East","to":"Euro","round_trip_ms":8.0,"cut":true}]}"#]]
    .assert_eq(&serde_json::to_string(&three(&["Euro"], Some(&["Euro"]))).unwrap());
    let shown = serde_json::to_string(&three(&[], None)).unwrap();
    assert!(shown.starts_with(r#"{"cluster":"near","regions":"#), "{shown}");
}

#[test]
fn what_came_of_an_order_is_said_with_what_undoes_it() {
    let said = [
        screen::cut(&three(&["US West"], Some(&["US West"])), "US West", ""),
        screen::cut(&three(&["Euro"], Some(&[])), "Euro", " --http 127.0.0.1:9001"),
        screen::heal(&three(&[], Some(&["US West"])), Some("US West")),
        screen::heal(&three(&["Euro"], Some(&["US West"])), Some("US West")),
        screen::heal(&three(&[], Some(&["US West", "Euro"])), None),
        screen::heal(&three(&["Euro"], Some(&[])), Some("US West")),
        screen::heal(&three(&[], Some(&[])), None),
    ];
    expect![[r#"
        US West: cut off, no message comes in or out; what heals it: isochrone net heal 'US West'
        Euro is cut off already; what heals it: isochrone net heal Euro --http 127.0.0.1:9001
        US West: healed
        US West: healed; Euro is still cut off
        US West, Euro: healed
        US West was not cut off; Euro is still cut off
        no region was cut off
    "#]]
    .assert_eq(&said.concat());
}

#[test]
fn a_region_that_there_is_not_is_refused_and_those_that_there_are_are_named() {
    let network = three(&[], None);
    known(&network, "cut", "US West", "").unwrap();
    for (wrong, more) in [("us west", ""), ("US", " --http 127.0.0.1:9001"), ("", ""), ("US West ", "")] {
        let Usage(why) = known(&network, "heal", wrong, more).unwrap_err();
        assert_eq!(
            why,
            format!(
                "net heal {wrong}: no region is called so; there are US West, US East, Euro\n  \
                 try: isochrone net heal 'US West'{more}"
            )
        );
    }
}

#[test]
fn what_strangers_say_moves_no_cursor() {
    let mut network = three(&[], None);
    network.cluster = "a\u{1b}[2J".to_owned();
    network.regions[0].region = "\u{7}".to_owned();
    let text = screen::text(&network);
    assert!(text.starts_with("a?[2J: ") && !text.contains(['\u{1b}', '\u{7}']), "{text}");
}

#[test]
fn nobody_answers_where_nobody_listens() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    drop(taken);
    let why = find(Some(Address::loopback(port))).unwrap_err().to_string();
    let expected = format!("no `isochrone up` answers there\n  127.0.0.1:{port}: Connection refused");
    assert!(why.starts_with(&expected) && why.contains("start one: isochrone up"), "{why}");
}
