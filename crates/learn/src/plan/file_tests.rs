//! T-COP-03: plans survive a round trip, and what is not a plan of these data for this task is refused.

use super::*;
use crate::plan::batch::BatchPlanner;
use crate::plan::mixed::{self, BOTH, Mixed, WRITE};
use proptest::prelude::*;

fn bytes_of(plan: &Plan) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_plan(&mut bytes, plan, None).unwrap();
    bytes
}

fn read(mut bytes: &[u8]) -> Result<Plan, String> {
    read_plan(&mut bytes).map(|plan| plan.0).map_err(|error| error.to_string())
}

fn some_rows() -> Vec<Vec<(u32, f64)>> {
    (0..20).map(|row| vec![(row % 3, BOTH), (4 + row % 2, WRITE)]).collect()
}

proptest! {
    #[test]
    fn plans_come_back_as_they_were(rows in mixed::rows(), own in any::<bool>()) {
        let rule = if own { Rule::Own(7) } else { Rule::Features };
        let (task, data) = (Mixed(rule), mixed::data(&rows));
        let mut plan = Plan::of(&task, &data);
        prop_assert_eq!(&read(&bytes_of(&plan)).unwrap(), &plan);
        let order = (0..plan.transactions()).rev().collect();
        plan = plan.in_order(order);
        prop_assert_eq!(&read(&bytes_of(&plan)).unwrap(), &plan);
        let batch = BatchPlanner::new().plan(&task, &data).unwrap();
        let mut bytes = Vec::new();
        batch.encode(&mut bytes);
        prop_assert_eq!(PlannedBatch::decode(&bytes, &task, &data).unwrap(), batch);
    }

    /// Whatever byte is flipped and wherever the file is cut off, it is refused.
    #[test]
    fn damage_is_found(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let (task, data) = (Mixed(Rule::Own(7)), mixed::data(&some_rows()));
        let mut bytes = bytes_of(&Plan::of(&task, &data));
        let at = at.index(bytes.len());
        prop_assert!(read(&bytes[..at]).unwrap_err().contains("cut off"));
        bytes[at] ^= 1 << bit;
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn what_is_wrong_is_said() {
    let (task, data) = (Mixed(Rule::Features), mixed::data(&some_rows()));
    let bytes = bytes_of(&Plan::of(&task, &data));
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        read(&bytes).unwrap_err()
    };
    assert!(
        changed(0, b'X')
            .starts_with("this is not a plan: it begins with `Xsoplan\\n`, a plan with `isoplan\\n`")
    );
    // Of format 1 the fingerprint is another one.
    for found in [1, 9] {
        let wanted = format!("the plan has format {found}, this program reads format 2: plan the data again");
        assert_eq!(changed(8, found), wanted);
    }
    let last = bytes.len() - 20;
    assert!(changed(last, bytes[last] ^ 1).starts_with("the plan is damaged (its checksum is "));
    let cut = read(&bytes[..last]).unwrap_err();
    assert_eq!(cut, "the plan is cut off within its versions: copy it again, or plan the data again");
    let cut = read(&bytes[..bytes.len() - 1]).unwrap_err();
    assert_eq!(cut, "the plan is cut off within its checksum: copy it again, or plan the data again");
    let longer = read(&[&bytes[..], b"\n"].concat()).unwrap_err();
    assert_eq!(longer, "something follows the plan: copy it again, or plan the data again");
}

#[test]
fn files_are_of_their_data_and_task() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.plan");
    let (task, data) = (Mixed(Rule::Features), mixed::data(&some_rows()));
    let plan = Plan::of(&task, &data);
    plan.save(&path).unwrap();
    plan.save(&path).unwrap();
    assert_eq!(Plan::load_for(&path, &task, &data).unwrap(), plan);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    let refused = |task: &Mixed, data: &Dataset| Plan::load_for(&path, task, data).unwrap_err().to_string();
    assert_eq!(
        refused(&Mixed(Rule::Own(7)), &data),
        "the plan is for rule 0, the task's rule is 7: plan the data for this task"
    );
    assert_eq!(
        refused(&task, &mixed::data(&some_rows()[1..])),
        "the plan is of other data (it has 20 samples, the data 19): plan this data"
    );
    let mut other = some_rows();
    other[3][0].0 = 3;
    assert_eq!(
        refused(&task, &mixed::data(&other)),
        "the plan is of other data: of 20 samples, as these are, but not with entries at the same places: plan this data"
    );
    // Sets of a task's own may follow from what no fingerprint is of.
    let own = Mixed(Rule::Own(7));
    Plan::of(&own, &data).save(&path).unwrap();
    Plan::load_for(&path, &own, &data).unwrap();
    let mut other = some_rows();
    other[3][1].1 = BOTH;
    assert_eq!(
        refused(&own, &mixed::data(&other)),
        "the plan is of other data: row 3 does not touch the parameters that it has planned: plan this data"
    );
    let missing = Plan::load(&folder.path().join("no.plan")).unwrap_err().to_string();
    assert!(missing.contains("no.plan: No such file"), "{missing}");
}

/// A plan whose bytes are sound but that nobody can have planned would have threads wait for ever.
#[test]
fn impossible_plans_are_refused() {
    let data = mixed::data(&some_rows());
    let (features, own) = (Mixed(Rule::Features), Mixed(Rule::Own(7)));
    let told = |plan: &Plan| plan.validate(&data).unwrap_err().to_string();
    let mut plan = Plan::of(&features, &data);
    plan.validate(&data).unwrap();
    let Annotations::Compact(versions) = plan.annotations_mut() else { unreachable!() };
    versions[4] = 3;
    assert!(told(&plan).contains("transaction 3 waits for itself or a later one"));
    plan = plan.in_order(vec![0; 20]);
    assert!(told(&plan).contains("its order is no permutation of 20 rows"));
    // That is seen without the data, and so are parts that are too short before anybody looks for them.
    assert!(read(&bytes_of(&plan)).unwrap_err().contains("its order is no permutation of 20 rows"));
    let mut short = Plan::of(&features, &data);
    let Annotations::Compact(versions) = short.annotations_mut() else { unreachable!() };
    versions.pop();
    let short = read(&bytes_of(&short)).unwrap();
    assert!(matches!(short.check(&features, &data), Err(PlanMismatch::Data { .. })));
    let mut plan = Plan::of(&own, &data);
    plan.validate(&data).unwrap();
    let Annotations::General { writes, .. } = plan.annotations_mut() else { unreachable!() };
    writes[4].parameter = mixed::WIDTH;
    assert!(told(&plan).contains("transaction 3 waits for itself"));
    assert!(read(&bytes_of(&plan)).unwrap_err().contains("transaction 3 waits for itself"));
    // One for more parameters than the task has would have threads go beyond them.
    let mut plan = Plan::of(&own, &data);
    plan.parameters += 1;
    assert_eq!(
        plan.check(&own, &data).unwrap_err().to_string(),
        "the plan is for 9 parameters, the task has 8: plan the data for this task"
    );
    for task in [features, own] {
        let mut batch = BatchPlanner::new().plan(&task, &data).unwrap();
        batch.seams.reads.pop();
        let mut bytes = Vec::new();
        batch.encode(&mut bytes);
        let error = PlannedBatch::decode(&bytes, &task, &data).unwrap_err().to_string();
        assert!(error.contains("its seams are not where it touches parameters first"), "{error}");
    }
}
