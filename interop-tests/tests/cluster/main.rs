//! A cluster of self-managing reflectors: three etcd members, three reflectors, eight nodes, and
//! failures of them. In every case no node's kernel loses a route and no ping is lost.
//!
//! With `CAMBRIC_LAB=full` registrations and absences last as long as they do by default.

mod fleet;
mod leases;
mod origins;
mod outage;
mod settled;
mod watch;

use std::env;
use std::time::Duration;

use interop_tests::{Ground, in_ground};

use fleet::{Fleet, Patience};

/// Returns a duration in seconds: the first with `CAMBRIC_LAB=full`, else the second.
fn lasts(full: u64, short: u64) -> Duration {
    let asked = env::var_os(netns_lab::LAB_VARIABLE);
    match asked.is_some_and(|value| value == "full") {
        true => Duration::from_secs(full),
        false => Duration::from_secs(short),
    }
}

// Promise: as bgp-daemon change_from_mesh_to_reflectors_and_back_loses_no_route
#[test]
fn a_cluster_of_reflectors_runs_itself() {
    let name = "a_cluster_of_reflectors_runs_itself";
    in_ground(&[], name, async |ground: Ground| {
        let patience = Patience {
            registration_ttl: lasts(15, 4),
            // Longer than the retry interval of a reflector.
            absence_wait: lasts(60, 11),
        };
        let Some(mut fleet) = Fleet::start(&ground, patience).await else {
            return;
        };
        fleet.move_to_reflectors(patience).await;
        for nth in 0..3 {
            fleet.a_reflector_is_killed(nth).await;
        }
        for nth in 0..3 {
            fleet.an_etcd_is_killed(nth).await;
        }
        fleet.the_store_is_away(Duration::from_secs(60)).await;
        fleet.all_reflectors_are_away(Duration::from_secs(10)).await;
        fleet.a_reflector_stays_away(0).await;
        fleet.one_reflector_loses_the_datastore(1).await;
        fleet
            .all_reflectors_lose_the_datastore(patience.absence_wait)
            .await;
        fleet.a_reflector_is_drained_under_load(1).await;
        fleet.move_to_mesh().await;
    });
}

// Promise (Datastore): Daemons that restart without the datastore continue with their last known
// state.
#[test]
fn daemons_that_restart_without_the_store_go_on() {
    let name = "daemons_that_restart_without_the_store_go_on";
    in_ground(&[], name, async |ground: Ground| {
        let Some(mut fleet) = Fleet::reflected(&ground).await else {
            return;
        };
        fleet.all_restart_without_the_store().await;
        fleet.a_snapshot_is_not_to_be_used().await;
    });
}

// Promise: as calico-store an_etcd_that_lost_all_takes_nothing_away
#[test]
fn a_store_that_is_emptied_ends_no_session() {
    let name = "a_store_that_is_emptied_ends_no_session";
    in_ground(&[], name, async |ground: Ground| {
        let Some(mut fleet) = Fleet::meshed(&ground).await else {
            return;
        };
        fleet.the_store_is_emptied(false).await;
        fleet.the_store_is_emptied(true).await;
    });
}
