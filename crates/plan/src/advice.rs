//! The plan of a keyspace: its floors, what each choice of protocol and leader costs, and which to take.

use std::fmt;

use isochrone_core::deployment::{ConfigErrors, Deployment};
use isochrone_core::{KeyspaceId, RegionId, Span};
use serde::{Serialize, Serializer};

use crate::floor::floor;
use crate::multipaxos;

/// What the distances allow one keyspace. Serialized, it is what `isochrone plan --format json` prints.
///
/// Clients are taken to stand in every region of the deployment, each on a machine of its own, and to be equally busy.
/// Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The keyspace.
    pub keyspace: String,
    /// The protocol and leader that the deployment names; the leader is none where it leaves the choice.
    pub configured: Recommendation,
    /// The region of each replica.
    pub replicas: Vec<String>,
    /// The lower bound for each region, in the order of the deployment; an object by region when serialized.
    #[serde(serialize_with = "by_region")]
    pub floor_ms: Vec<(String, f64)>,
    /// The mean of the lower bounds.
    pub floor_mean_ms: f64,
    /// What each protocol reaches with each choice of leader, lowest mean first.
    pub protocols: Vec<Forecast>,
    /// The first of them.
    pub recommended: Recommendation,
}

/// What one protocol reaches with one leader, without load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// The protocol.
    pub protocol: String,
    /// The leader's region; none for a protocol without one.
    pub leader: Option<String>,
    /// Commit latency by region of the client, in the order of the deployment.
    pub regions: Vec<RegionForecast>,
    /// The mean over the regions.
    pub mean_ms: f64,
}

/// What clients of one region wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionForecast {
    /// The region.
    pub region: String,
    /// From call to answer.
    pub commit_ms: f64,
}

/// A choice of protocol and leader.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The protocol.
    pub protocol: String,
    /// The leader's region.
    pub leader: Option<String>,
    /// Its mean over the regions; none where the choice leaves the leader open or its closed form is not known.
    pub mean_ms: Option<f64>,
}

/// Plans a keyspace of a deployment.
///
/// # Errors
/// If the deployment gives no round trips between its regions.
pub fn plan(deployment: &Deployment, keyspace: KeyspaceId) -> Result<Plan, ConfigErrors> {
    let matrix = deployment.given_matrix()?;
    let keyspace = deployment.keyspace(keyspace);
    let replicas: Vec<RegionId> = keyspace.replicas.iter().map(|id| deployment.node(*id).region).collect();
    let name = |region: RegionId| deployment.region(region).name.clone();
    let floors: Vec<Span> = matrix.regions().map(|region| floor(matrix, region, &replicas)).collect();

    // One forecast for each region with a replica: replicas of one region lead alike.
    let mut leaders: Vec<RegionId> = Vec::new();
    for replica in &replicas {
        if !leaders.contains(replica) {
            leaders.push(*replica);
        }
    }
    let forecasts = leaders.iter().map(|leader| {
        let commits: Vec<Span> =
            matrix.regions().map(|client| multipaxos::commit(matrix, client, *leader, &replicas)).collect();
        (
            total(&commits),
            Forecast {
                protocol: "multipaxos".to_owned(),
                leader: Some(name(*leader)),
                regions: matrix
                    .regions()
                    .zip(&commits)
                    .map(|(region, commit)| RegionForecast {
                        region: name(region),
                        commit_ms: commit.as_millis_f64(),
                    })
                    .collect(),
                mean_ms: mean(&commits),
            },
        )
    });
    let mut forecasts: Vec<(Span, Forecast)> = forecasts.collect();
    // A stable sort over whole nanoseconds: equal leaders stay in the order of the file.
    forecasts.sort_by_key(|(total, _)| *total);
    let protocols: Vec<Forecast> = forecasts.into_iter().map(|(_, forecast)| forecast).collect();
    let choose = |forecast: &Forecast| Recommendation {
        protocol: forecast.protocol.clone(),
        leader: forecast.leader.clone(),
        mean_ms: Some(forecast.mean_ms),
    };
    let leader = keyspace.leader.map(|id| name(deployment.node(id).region));
    let configured = protocols
        .iter()
        .find(|forecast| forecast.protocol == keyspace.protocol && forecast.leader == leader)
        .map_or_else(
            || Recommendation { protocol: keyspace.protocol.clone(), leader, mean_ms: None },
            choose,
        );
    Ok(Plan {
        keyspace: keyspace.name.clone(),
        configured,
        replicas: replicas.iter().map(|region| name(*region)).collect(),
        floor_ms: matrix
            .regions()
            .zip(&floors)
            .map(|(region, floor)| (name(region), floor.as_millis_f64()))
            .collect(),
        floor_mean_ms: mean(&floors),
        // A keyspace has at least one replica, so there is a first forecast.
        recommended: choose(&protocols[0]),
        protocols,
    })
}

fn total(spans: &[Span]) -> Span {
    spans.iter().fold(Span::ZERO, |sum, span| sum + *span)
}

fn mean(spans: &[Span]) -> f64 {
    total(spans).as_millis_f64() / spans.len() as f64
}

fn by_region<S: Serializer>(floors: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(floors.iter().map(|(region, floor)| (region, floor)))
}

impl fmt::Display for Plan {
    /// A table: a row for the floor and for each choice, a column for each region, milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = |forecast: &Forecast| match &forecast.leader {
            Some(leader) => format!("{}, leader {leader}", forecast.protocol),
            None => forecast.protocol.clone(),
        };
        let labels: Vec<String> = self.protocols.iter().map(label).collect();
        let first = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).max("floor".len());
        let width = |name: &str| name.chars().count().max(6);
        let count = self.replicas.len();
        let replicas = if count == 1 { "replica" } else { "replicas" };
        writeln!(f, "keyspace {:?}, {count} {replicas}: {}", self.keyspace, self.replicas.join(", "))?;
        writeln!(f, "commit latency without load, by region of the client, ms\n")?;
        let row =
            |f: &mut fmt::Formatter<'_>, label: &str, cells: &mut dyn Iterator<Item = f64>, mean: f64| {
                write!(f, "{label:<first$}")?;
                for ((name, _), cell) in self.floor_ms.iter().zip(cells) {
                    write!(f, "  {cell:>width$.1}", width = width(name))?;
                }
                writeln!(f, "  {mean:>6.1}")
            };
        write!(f, "{:<first$}", "")?;
        for (name, _) in &self.floor_ms {
            write!(f, "  {name:>width$}", width = width(name))?;
        }
        writeln!(f, "  {:>6}", "mean")?;
        row(f, "floor", &mut self.floor_ms.iter().map(|(_, floor)| *floor), self.floor_mean_ms)?;
        for (label, forecast) in labels.iter().zip(&self.protocols) {
            row(f, label, &mut forecast.regions.iter().map(|region| region.commit_ms), forecast.mean_ms)?;
        }
        writeln!(
            f,
            "\nrecommended: {}, {:.1} ms over the mean floor",
            labels[0],
            self.protocols[0].mean_ms - self.floor_mean_ms
        )?;
        match (&self.configured.leader, self.configured.mean_ms) {
            (Some(leader), Some(mean)) if self.configured.leader != self.recommended.leader => {
                let slower = mean - self.protocols[0].mean_ms;
                writeln!(
                    f,
                    "configured:  {}, leader {leader}, {slower:.1} ms slower",
                    self.configured.protocol
                )
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use isochrone_core::deployment::Known;

    const MAIN: KeyspaceId = KeyspaceId(1);

    #[test]
    fn the_table_of_five_regions() {
        let plan = plan(&Deployment::five_regions(), MAIN).unwrap();
        expect![[r#"
            keyspace "main", 5 replicas: US West, US East, Euro, Asia, Australia
            commit latency without load, by region of the client, ms

                                          US West  US East    Euro    Asia  Australia    mean
            floor                           102.0     88.0   161.0   115.0      161.0   125.4
            multipaxos, leader US East      161.0     88.0   176.0   260.0      293.0   195.6
            multipaxos, leader US West      102.0    175.0   268.0   204.0      263.0   202.4
            multipaxos, leader Asia         217.0    287.0   350.0   115.0      230.0   239.8
            multipaxos, leader Australia    322.0    366.0   451.0   276.0      161.0   315.2
            multipaxos, leader Euro         332.0    254.0   166.0   401.0      456.0   321.8

            recommended: multipaxos, leader US East, 70.2 ms over the mean floor
        "#]]
        .assert_eq(&plan.to_string());
    }

    #[test]
    fn a_configured_leader_that_is_slower_is_said() {
        let deployment = Deployment::five_regions().with_leader(MAIN, "Euro").unwrap();
        let text = plan(&deployment, MAIN).unwrap().to_string();
        let last = text.lines().last().unwrap();
        // (332 + 254 + 166 + 401 + 456) / 5 - 195.6
        assert_eq!(last, "configured:  multipaxos, leader Euro, 126.2 ms slower");
    }

    #[test]
    fn the_json_keeps_its_contract() {
        let plan = plan(&Deployment::five_regions(), MAIN).unwrap();
        let json = serde_json::to_value(&plan).unwrap();
        assert_eq!(json["floor_ms"]["US East"], 88.0);
        let first = &json["protocols"][0];
        assert_eq!((&first["protocol"], &first["leader"]), (&"multipaxos".into(), &"US East".into()));
        assert_eq!(first["regions"][4]["region"], "Australia");
        assert_eq!(first["regions"][4]["commit_ms"], 293.0);
        assert_eq!(first["mean_ms"], 195.6);
        assert_eq!(json["protocols"].as_array().unwrap().len(), 5);
        assert_eq!(json["recommended"]["leader"], "US East");
        assert_eq!(json["configured"]["mean_ms"], 195.6);
    }

    #[test]
    fn every_ready_made_deployment_can_be_planned() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let deployment = Deployment::load(&path, &Known::names(&["multipaxos"])).unwrap();
            let plan = plan(&deployment, MAIN).unwrap();
            for forecast in &plan.protocols {
                for (region, (_, floor)) in forecast.regions.iter().zip(&plan.floor_ms) {
                    assert!(region.commit_ms >= *floor, "{}: {region:?} is below {floor}", path.display());
                }
            }
        }
    }

    #[test]
    fn without_round_trips_there_is_no_plan() {
        let text = "[[region]]\nname = \"A\"\n[[region]]\nname = \"B\"\n[[node]]\nname = \"a\"\nregion = \"A\"\n\
                    [[node]]\nname = \"b\"\nregion = \"B\"\n[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\n\
                    replication = 1\n";
        let known = Known::names(&["multipaxos"]);
        let deployment = Deployment::parse(text, "x.toml", std::path::Path::new(""), &known).unwrap();
        assert_eq!(
            plan(&deployment, MAIN).unwrap_err().to_string(),
            "x.toml: [network] gives no round trips between the regions, which this command needs\n  \
             add rtt = \"matrix.csv\" under [network]"
        );
    }
}
