//! Two reflectors beside one datastore, each with the configuration that it derives.

use std::collections::BTreeMap;

use bgp_io::bgp_proto::FamilySet;
use bgp_io::rib::NextHops;
use calico_bgp::{Host, Secrets, View, derive};

use super::*;

const NODES: &str = "/calico/resources/v3/projectcalico.org/nodes/";

struct Pair {
    core: Core,
    now: Duration,
    registrars: BTreeMap<&'static str, Registrar>,
}

impl Pair {
    /// Two reflectors with an address each, which start one after the other.
    fn new() -> Self {
        let mut pair = Self {
            core: Core::new(CoreConfig::default()),
            now: Duration::ZERO,
            registrars: BTreeMap::new(),
        };
        for (name, last) in [("rr1", 1), ("rr2", 2)] {
            pair.node(name, last, "");
        }
        pair
    }

    fn node(&mut self, name: &str, last: u8, more: &str) {
        let value = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"bgp":{{"ipv4Address":"10.0.0.{last}/24"{more}}}}}}}"#
        );
        self.write(Op::Put(Put::new(
            format!("{NODES}{name}"),
            value.into_bytes(),
        )));
    }

    fn write(&mut self, op: Op) {
        let then = vec![op];
        self.core
            .txn(&Txn {
                then,
                ..Txn::default()
            })
            .expect("done");
    }

    fn begin(&mut self, name: &'static str) {
        self.registrars
            .insert(name, Registrar::new(name, Duration::from_secs(15)));
        self.settle();
    }

    /// The content of the datastore.
    fn view(&self) -> View {
        let mut view = View::default();
        for prefix in View::prefixes("") {
            let listing = self.core.range(&Query::new(KeyRange::prefix(prefix)));
            for item in listing.expect("answers").items {
                view.take(&item.key, Some(&item.value));
            }
        }
        view
    }

    /// Each derives its configuration and writes to the datastore, until there is nothing left to
    /// write.
    fn settle(&mut self) {
        for _ in 0..8 {
            let view = self.view();
            for (name, registrar) in &mut self.registrars {
                let wish = derive(&view, &reflector(name), &Secrets::new()).wish;
                registrar.want(wish.expect("a reflector"));
                while let Some(job) = registrar.poll(Instant::ZERO + self.now) {
                    let answer = match job {
                        Job::Grant(ttl_s) => {
                            Answer::Granted(self.core.lease_grant(self.now, LeaseId::NONE, ttl_s))
                        }
                        Job::KeepAlive(lease) => {
                            Answer::KeptAlive(self.core.lease_keep_alive(self.now, lease))
                        }
                        Job::Txn(txn) => Answer::Done(self.core.txn(&txn)),
                    };
                    registrar.done(Instant::ZERO + self.now, answer);
                }
            }
            self.now += Duration::from_secs(1);
        }
    }

    /// The registered cluster IDs, and those of the speakers.
    fn ids(&self) -> BTreeMap<&'static str, Ipv4Addr> {
        let view = self.view();
        let ids = self.registrars.iter().map(|(name, registrar)| {
            let cluster_id = registrar.registered().expect("registered").cluster_id;
            let derived = derive(&view, &reflector(name), &Secrets::new());
            assert_eq!(derived.faults, []);
            let speaker = derived.intent.expect("a speaker").speaker;
            assert_eq!(speaker.cluster_id().0, cluster_id, "{name}");
            (*name, cluster_id)
        });
        ids.collect()
    }
}

fn reflector(name: &str) -> Host {
    Host {
        name: name.to_owned(),
        families: FamilySet::UNICAST,
        multipath_max: 1,
        next_hops: NextHops::AssumeReachable,
        restart_wait: Duration::ZERO,
        reflects: true,
        reflectors: None,
        registration_ttl: Duration::from_secs(15),
        absence_wait: Duration::from_secs(60),
    }
}

const ONE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const TWO_BY_HAND: &str = r#","routeReflectorClusterID":"10.0.0.2""#;

#[test]
fn assigned_id_belongs_to_its_node_alone() {
    let mut pair = Pair::new();
    pair.node("rr1", 1, TWO_BY_HAND);
    pair.begin("rr1");
    pair.begin("rr2");
    let ids = pair.ids();
    assert_eq!(ids["rr1"], TWO);
    let second = cluster_ids("rr2", TWO).nth(1).expect("another");
    assert_eq!(ids["rr2"], second, "it does not even ask for its router id");
}

// Promise (Route reflectors): No reflector has the cluster ID of another one, unless an operator
// assigned it to both.
#[test]
fn claimed_id_is_released_to_its_assigned_node() {
    let mut pair = Pair::new();
    pair.begin("rr1");
    pair.begin("rr2");
    assert_eq!(pair.ids(), BTreeMap::from([("rr1", ONE), ("rr2", TWO)]));
    pair.node("rr1", 1, TWO_BY_HAND);
    let host = reflector("rr2");
    let moment = derive(&pair.view(), &host, &Secrets::new());
    let faults: Vec<String> = moment.faults.iter().map(ToString::to_string).collect();
    assert!(
        faults.len() == 1 && faults[0].starts_with("/cambric/v1/cluster/10.0.0.2: "),
        "{faults:?}"
    );
    assert!(moment.intent.is_some(), "it continues until then");
    pair.settle();
    let ids = pair.ids();
    assert_eq!(ids["rr1"], TWO);
    assert_ne!(ids["rr2"], TWO);

    // It keeps its current ID when the other one is free again.
    pair.node("rr1", 1, "");
    pair.settle();
    assert_eq!(pair.ids()["rr2"], ids["rr2"]);
}

/// A node of another implementation, such as Calico's own reflectors, is in the datastore as well.
#[test]
fn id_of_unregistered_node_is_not_taken() {
    let mut pair = Pair::new();
    pair.node("old", 9, r#","routeReflectorClusterID":"10.0.0.1""#);
    pair.begin("rr1");
    assert_ne!(pair.ids()["rr1"], ONE);
}

// Promise: as bgp-daemon claimed_id_is_released_to_its_assigned_node
#[test]
fn two_that_are_given_one_id_have_it_both() {
    let mut pair = Pair::new();
    pair.begin("rr1");
    pair.begin("rr2");
    for (name, last) in [("rr1", 1), ("rr2", 2)] {
        pair.node(name, last, r#","routeReflectorClusterID":"0.0.0.1""#);
    }
    pair.settle();
    let shared = Ipv4Addr::new(0, 0, 0, 1);
    assert_eq!(
        pair.ids(),
        BTreeMap::from([("rr1", shared), ("rr2", shared)])
    );
}

/// The claim of a reflector was lost by the restore of an older state; the reflector runs and is
/// registered.
#[test]
fn registered_id_is_its_reflectors_without_a_claim() {
    let mut pair = Pair::new();
    pair.begin("rr1");
    let range = KeyRange::key(FabricKey::Cluster(ONE).to_string());
    pair.write(Op::Delete(Delete {
        range,
        previous: false,
    }));
    pair.node("rr2", 1, ""); // Moved to the other's address, so it would try the other's ID first.
    pair.begin("rr2");
    assert_ne!(
        pair.registrars["rr2"]
            .registered()
            .expect("there")
            .cluster_id,
        ONE
    );
    assert_eq!(
        pair.registrars["rr1"]
            .registered()
            .expect("there")
            .cluster_id,
        ONE
    );
}
