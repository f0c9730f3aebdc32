//! The verdicts of the converted policies are those of Kubernetes.

mod direct;
mod mistakes;
mod stored;
mod world;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use direct::{Cluster, Direction, Probe};
use mistakes::{MISTAKES, Mistake};
use stored::{Verdicts, stored};

/// Clusters of one run of the property. Each planted mistake must show in as many.
const CASES: u32 = 256;

/// The packets of a cluster, each with the verdict of Kubernetes.
fn verdicts(cluster: &Cluster) -> Vec<(usize, Direction, Probe, bool)> {
    let probes = world::probes(cluster).into_iter();
    let verdicts = probes.map(|(subject, direction, probe)| {
        let pod = &cluster.pods[subject];
        let is_allowed = direct::allows(cluster, pod, direction, probe);
        (subject, direction, probe, is_allowed)
    });
    verdicts.collect()
}

/// Returns the first packet about which the resources decide in another way.
fn difference(
    cluster: &Cluster,
    verdicts: &[(usize, Direction, Probe, bool)],
    mistake: Option<&Mistake>,
) -> Option<String> {
    let store = stored(cluster, mistake);
    let found = Verdicts::new(&store);
    let mut verdicts = verdicts.iter();
    verdicts.find_map(|(subject, direction, probe, is_allowed)| {
        let verdict = found.allow(*subject, *direction, *probe);
        (verdict != Some(*is_allowed)).then(|| {
            format!(
                "{direction:?} of pod-{subject}, {probe:?}: Kubernetes allows {is_allowed}, the \
                 resources {verdict:?}: {store:#?}"
            )
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn converted_policies_have_the_verdicts_of_kubernetes(cluster in world::clusters()) {
        let verdicts = verdicts(&cluster);
        let difference = difference(&cluster, &verdicts, None);
        prop_assert!(difference.is_none(), "{}", difference.unwrap_or_default());
    }

    #[test]
    fn unreadable_part_of_a_policy_opens_nothing(
        cluster in world::clusters(),
        place in any::<prop::sample::Index>(),
        part in world::unreadable(),
    ) {
        let damaged = world::damaged(&cluster, place, &part);
        let (before, after) = (stored(&cluster, None), stored(&damaged, None));
        let (before, after) = (Verdicts::new(&before), Verdicts::new(&after));
        for (subject, direction, probe) in world::probes(&cluster) {
            let [before, after] = [&before, &after].map(|of| of.allow(subject, direction, probe));
            let is_closed = after == Some(false) || before == Some(true);
            prop_assert!(
                is_closed && after.is_some(),
                "{direction:?} of pod-{subject}, {probe:?}: {damaged:#?}"
            );
        }
    }
}

#[test]
fn every_planted_mistake_is_found() {
    let mut runner = TestRunner::deterministic();
    let mut missing: Vec<&(&str, Mistake)> = MISTAKES.iter().collect();
    for _ in 0..CASES {
        if missing.is_empty() {
            break;
        }
        let cluster = world::clusters().new_tree(&mut runner).unwrap().current();
        let verdicts = verdicts(&cluster);
        missing.retain(|(_, mistake)| difference(&cluster, &verdicts, Some(mistake)).is_none());
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    assert!(names.is_empty(), "not found: {names:?}");
}
