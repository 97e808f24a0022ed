use super::*;
use isochrone_core::KeyspaceId;

#[test]
fn each_partition_owns_an_equal_stretch_and_a_tag_decides() {
    let partition = |partitions, key: &str| {
        let ring = Ring { keyspace: KeyspaceId(1), partitions, at: PartitionId(0) };
        ring.owner(ring.place(key.as_bytes())).0
    };
    for partitions in [1, 3, 7, 1_024] {
        let mut keys = vec![0u32; usize::from(partitions)];
        for number in 0..u32::from(partitions) * 500 {
            keys[usize::from(partition(partitions, &format!("k{number}")))] += 1;
        }
        assert!(keys.iter().all(|count| (350..650).contains(count)), "{partitions}: {keys:?}");
    }
    for number in 0..100 {
        assert_eq!(partition(16, &format!("{{user7}}:{number}")), partition(16, "user7"));
    }
}
