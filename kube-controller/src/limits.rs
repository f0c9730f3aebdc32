//! Every limit of the controller.

use std::time::Duration;

/// Objects in one page of a list. A page that is too long is read again with half as many.
pub const PAGE_OBJECTS: usize = 500;

/// Objects of one kind. A longer list is rejected, and nothing is deleted.
pub const OBJECTS_OF_KIND_MAX: usize = 500_000;

/// Items of news that the readers of all kinds have queued. Further ones wait.
pub const NEWS_QUEUED_MAX: usize = 64;

/// Minimum time between two requests of a kind after a failure, or after a watch that ends at once.
pub const REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// Longest delay between two attempts; the delay doubles with each failure.
pub const RETRY_MAX: Duration = Duration::from_secs(30);

/// Time between two requests for a kind that the server does not have.
pub const MISSING_RETRY: Duration = Duration::from_secs(60);

/// Resources that are written in one batch.
pub const WRITES_PER_BATCH: usize = 64;

/// Writes of a batch that wait for their answers at the same time.
pub const WRITES_AT_ONCE: usize = 16;

/// Resources that are compared with the datastore in one step.
pub const COMPARISONS_PER_STEP: usize = 256;

/// First delay after a failed write; it doubles with each further one.
pub const WRITE_RETRY_MIN: Duration = Duration::from_secs(1);

/// Longest delay after failed writes.
pub const WRITE_RETRY_MAX: Duration = Duration::from_secs(30);

/// Reports about objects that the status shows.
pub const NOTES_MAX: usize = 32;

/// Missing objects of a kind in a list, up to which their resources are deleted without a confirmation.
pub const LOSSES_MAX: usize = 10;

/// The same as a percentage of the stored resources of the kind; the larger limit applies.
pub const LOSSES_PERCENT_MAX: usize = 10;

/// Difference of two revisions of a kind from which on the server counts as restored: a restore with
/// etcdutl adds 10^9 by its common option.
pub const REVISION_JUMP_MAX: u64 = 100_000_000;

/// Difference between the stored revision of a kind and the present one, from which on it is stored.
pub const RECORD_LAG_MAX: u64 = 10_000_000;

/// Batches of writes after which deletions are tried, although further writes are left.
pub const BATCHES_BEFORE_DELETIONS: u32 = 8;

/// Time without a list of the namespaces after which held deletions are reported.
pub const INCOMPLETE_REPORT: Duration = Duration::from_secs(60);

/// Time for which a lease is valid without a renewal.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Longest duration of another holder's record that is respected.
pub const LEASE_DURATION_MAX: Duration = Duration::from_secs(300);

/// Time after the start of the last successful renewal in which the holder may write.
pub const LEASE_RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Time between two requests for the lease.
pub const LEASE_INTERVAL: Duration = Duration::from_secs(2);

/// Time for the requests of one turn of the election.
pub const LEASE_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Time in which the leader writes none of the differing resources that a replica has found, after which
/// the replica reports that.
pub const LEADER_IDLE: Duration = Duration::from_secs(60);

/// How often another process may write the leader's key while this replica holds the lease.
pub const LEADER_LOSSES_MAX: u32 = 3;

/// Time between two looks for addresses and Nodes to collect, without KubeControllersConfiguration.
pub const RECONCILER_PERIOD: Duration = Duration::from_secs(5 * 60);

/// Shortest time between two looks: each reads all blocks and endpoints.
pub const RECONCILER_PERIOD_MIN: Duration = Duration::from_secs(1);

/// Time for which an address must be leaked before it is released, without
/// KubeControllersConfiguration.
pub const LEAK_GRACE: Duration = Duration::from_secs(15 * 60);

/// Findings that are repaired, and Nodes and endpoints that are deleted, after one look.
pub const COLLECTED_PER_LOOK: usize = 1_000;

/// Octets of a variable of the environment.
pub const VARIABLE_OCTETS_MAX: usize = 4_096;

/// How often another program may change the same resource in [`REPAIRS_WINDOW`] before the controller
/// stands down.
pub const REPAIRS_MAX: u32 = 5;

/// The time in which these changes count.
pub const REPAIRS_WINDOW: Duration = Duration::from_secs(3_600);

/// Handles of deleted services whose addresses are to be released. Further ones need a confirmation
/// if they are many.
pub const REMOVED_HANDLES_MAX: usize = 65_536;

/// Characters of the name of an object.
pub const NAME_CHARACTERS_MAX: usize = 253;

/// Characters of a UID.
pub const UID_CHARACTERS_MAX: usize = 64;

/// Routes of services that one node announces. Further ones are left out and reported.
pub const ROUTES_OF_NODE_MAX: usize = 4096;

/// Octets of the routes of services of one node. Further ones are left out and reported. A value with kept
/// routes has at most twice as many; etcd accepts 1.5 MiB.
pub const ROUTES_OCTETS_MAX: usize = 640 * 1024;

/// The part of [`ROUTES_OCTETS_MAX`] that a short route uses: so [`ROUTES_OF_NODE_MAX`] routes use all.
pub const ROUTE_COST_MIN: usize = ROUTES_OCTETS_MAX / ROUTES_OF_NODE_MAX;

/// Routes of services of one namespace that one node announces.
pub const ROUTES_OF_NAMESPACE_MAX: usize = ROUTES_OF_NODE_MAX / 4;

/// Octets of the routes of one namespace that one node announces.
pub const ROUTES_OCTETS_OF_NAMESPACE_MAX: usize = ROUTE_COST_MIN * ROUTES_OF_NAMESPACE_MAX;

/// Time between two looks for routes that are left out.
pub const BEYOND_INTERVAL: Duration = Duration::from_secs(10);

/// Services that the route to a shared address names; further ones have the address as well.
pub const SERVICES_OF_ROUTE_MAX: usize = 16;
