//! The election of the replica that writes: a Lease of the API server (`coordination.k8s.io/v1`).
//!
//! The record has the fields that clients of Kubernetes use: `holderIdentity`, `leaseDurationSeconds`,
//! `acquireTime`, `renewTime` and `leaseTransitions`. Times of the record are never compared with a
//! clock of this machine: a lease has expired when its record has not changed for its duration on the
//! monotonic clock. Each update requires the `resourceVersion` that was read, so only one replica can
//! acquire a lease.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::limits::{
    LEASE_DURATION, LEASE_DURATION_MAX, LEASE_INTERVAL, LEASE_RENEW_DEADLINE, LEASE_REQUEST_TIMEOUT,
};
use kube_client::limits::REASON_CHARACTERS_MAX;
use kube_client::{Access, Failure, Server};

/// The path of all leases.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";

/// The lease of the replicas, and the name of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// The namespace of the lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of this replica. No other process has it.
    pub identity: String,
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The part of this replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no lease: this is the only replica.
    Alone,
    /// This replica holds the lease.
    Leader {
        /// It may write until then.
        until: Instant,
    },
    /// This replica does not hold the lease.
    Follower {
        /// The holder, if one is known.
        holder: Option<String>,
        /// Why this replica could not ask for the lease, if the last request failed.
        failure: Option<Failure>,
    },
}

impl Standing {
    /// Returns whether this replica may write at an instant.
    pub fn may_write(&self, now: Instant) -> bool {
        match self {
            Self::Alone => true,
            Self::Leader { until } => now < *until,
            Self::Follower { .. } => false,
        }
    }
}

/// A task that acquires and renews a lease. It ends with [`Election::release`], or when it is dropped.
#[derive(Debug)]
pub struct Election {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Election {
    /// Starts the task. Must be called within a tokio runtime.
    pub fn start(access: Access, lease: LeaseName) -> (Self, watch::Receiver<Standing>) {
        let follower = Standing::Follower {
            holder: None,
            failure: None,
        };
        let (standing, receiver) = watch::channel(follower);
        let (stop, stopped) = watch::channel(false);
        let candidate = Candidate {
            server: Server::new(access),
            lease,
            seen: None,
            held_until: None,
            standing,
        };
        let task = tokio::spawn(candidate.run(stopped));
        (Self { task, stop }, receiver)
    }

    /// Gives the lease back, if this replica holds it, so that another one acquires it at once.
    pub async fn release(mut self) {
        self.stop.send_replace(true);
        // A server that does not answer delays the end of the program no longer.
        let _ = timeout(LEASE_REQUEST_TIMEOUT, &mut self.task).await;
    }
}

impl Drop for Election {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A record of the lease, and since when it is unchanged.
#[derive(Clone, Debug)]
struct Seen {
    object: Value,
    since: Instant,
}

impl Seen {
    fn holder(&self) -> &str {
        self.object["spec"]["holderIdentity"].as_str().unwrap_or("")
    }

    /// Returns how long the record is valid without a change.
    fn duration(&self) -> Duration {
        let seconds = self.object["spec"]["leaseDurationSeconds"].as_u64();
        let stated = seconds.filter(|seconds| *seconds > 0);
        let duration = stated.map_or(LEASE_DURATION, Duration::from_secs);
        duration.min(LEASE_DURATION_MAX)
    }

    fn is_free(&self, own: &str, now: Instant) -> bool {
        let holder = self.holder();
        holder.is_empty() || holder == own || now >= self.since + self.duration()
    }
}

struct Candidate {
    server: Server,
    lease: LeaseName,
    seen: Option<Seen>,
    /// This replica holds the lease until then; `None` if it does not hold it.
    held_until: Option<Instant>,
    standing: watch::Sender<Standing>,
}

impl Candidate {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut next = Instant::now();
        loop {
            let is_stopped = tokio::select! {
                () = sleep_until(next) => false,
                changed = stop.changed() => changed.is_ok(),
            };
            if is_stopped {
                return self.give_back().await;
            }
            let asked = timeout(LEASE_REQUEST_TIMEOUT, self.ask()).await;
            let asked = asked.unwrap_or(Err(Failure::Timeout(LEASE_REQUEST_TIMEOUT)));
            self.publish(asked.err());
            next = Instant::now() + LEASE_INTERVAL;
        }
    }

    /// Acquires or renews the lease if it is free. The lease counts from the start of a request.
    async fn ask(&mut self) -> Result<(), Failure> {
        let is_held = self.held_until.is_some();
        if !is_held {
            self.look().await?;
        }
        let own = &self.lease.identity;
        let is_free = self
            .seen
            .as_ref()
            .is_none_or(|seen| seen.is_free(own, Instant::now()));
        if !is_free {
            return Ok(());
        }
        let begun = Instant::now();
        let written = match &self.seen {
            None => {
                let (path, record) = (self.path(false), self.record(None, false));
                self.server.create(&path, &record).await
            }
            Some(seen) => {
                let (path, record) = (self.path(true), self.record(Some(&seen.object), false));
                self.server.replace(&path, &record).await
            }
        };
        match written {
            Ok(object) => {
                self.see(object);
                self.held_until = Some(begun + LEASE_RENEW_DEADLINE);
                Ok(())
            }
            // Another client has written or deleted the lease. Its present state is read here.
            Err(Failure::Rejected {
                code: 404 | 409, ..
            }) if is_held => {
                let held_until = self.held_until.take();
                self.look().await?;
                // The answer to an earlier update was lost: its end of the lease is unknown, and not
                // earlier than the known one.
                let own = &self.lease.identity;
                if self.seen.as_ref().is_some_and(|seen| seen.holder() == own) {
                    self.held_until = held_until;
                }
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Reads the lease.
    async fn look(&mut self) -> Result<(), Failure> {
        let path = self.path(true);
        match self.server.object(&path).await {
            Ok(object) if object["kind"] == "Lease" => {
                self.see(object);
                Ok(())
            }
            Ok(_) => Err(Failure::Invalid("it is not a Lease".to_owned())),
            Err(failure) if failure.is_missing() => {
                self.seen = None;
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    fn see(&mut self, object: Value) {
        let is_same = |seen: &Seen| {
            seen.object["metadata"]["resourceVersion"] == object["metadata"]["resourceVersion"]
                && seen.object["spec"] == object["spec"]
        };
        if !self.seen.as_ref().is_some_and(is_same) {
            let since = Instant::now();
            self.seen = Some(Seen { object, since });
        }
    }

    fn publish(&mut self, failure: Option<Failure>) {
        if self.held_until.is_some_and(|until| until <= Instant::now()) {
            self.held_until = None;
        }
        let standing = match self.held_until {
            Some(until) => Standing::Leader { until },
            None => Standing::Follower {
                holder: self.seen.as_ref().map(|seen| {
                    let holder = seen.holder().chars();
                    holder.take(REASON_CHARACTERS_MAX).collect()
                }),
                failure,
            },
        };
        self.standing.send_if_modified(|known| {
            let is_new = *known != standing;
            *known = standing;
            is_new
        });
    }

    /// Releases the lease, at the end of the program.
    async fn give_back(mut self) {
        self.standing.send_replace(Standing::Follower {
            holder: None,
            failure: None,
        });
        if let (Some(_), Some(seen)) = (self.held_until, &self.seen) {
            let (path, record) = (self.path(true), self.record(Some(&seen.object), true));
            // Without an answer, the lease expires.
            let _ = self.server.replace(&path, &record).await;
        }
    }

    fn path(&self, is_named: bool) -> String {
        let LeaseName {
            namespace, name, ..
        } = &self.lease;
        match is_named {
            true => format!("{LEASES}/{namespace}/leases/{name}"),
            false => format!("{LEASES}/{namespace}/leases"),
        }
    }

    /// Returns the next record. Labels, annotations and fields of other writers stay.
    fn record(&self, before: Option<&Value>, is_released: bool) -> Value {
        let mut next = before.cloned().unwrap_or_else(|| {
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": self.lease.name, "namespace": self.lease.namespace},
                "spec": {"leaseTransitions": 0}})
        });
        let now = micro_time(SystemTime::now());
        let own = self.lease.identity.as_str();
        let spec = &mut next["spec"];
        if !spec.is_object() {
            *spec = json!({});
        }
        if spec["holderIdentity"] != own {
            let transitions = spec["leaseTransitions"].as_u64().unwrap_or_default();
            let further = u64::from(before.is_some());
            spec["leaseTransitions"] = json!(transitions.saturating_add(further));
            spec["acquireTime"] = json!(now);
        }
        spec["renewTime"] = json!(now);
        spec["holderIdentity"] = json!(if is_released { "" } else { own });
        let seconds = if is_released {
            1
        } else {
            LEASE_DURATION.as_secs()
        };
        spec["leaseDurationSeconds"] = json!(seconds);
        next
    }
}

/// Returns a time of day as the API writes it in leases.
fn micro_time(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = calico_model::rfc3339_utc(since.as_secs());
    let seconds = seconds.trim_end_matches('Z');
    format!("{seconds}.{:06}Z", since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(holder: &str, seconds: u64, since: Instant) -> Seen {
        let object = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}});
        Seen { object, since }
    }

    #[test]
    fn lease_is_free_after_its_duration_without_a_change() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let other = seen("b", 15, now);
        assert!(!other.is_free("a", after(14)));
        assert!(other.is_free("a", after(15)));
        assert!(seen("", 15, now).is_free("a", now));
        assert!(seen("a", 15, now).is_free("a", now));
        // An invalid duration is that of this program, and none blocks for longer than the maximum.
        assert!(!seen("b", 0, now).is_free("a", after(14)));
        assert!(seen("b", u64::MAX, now).is_free("a", now + LEASE_DURATION_MAX));
    }

    #[test]
    fn holder_stops_writing_before_its_lease_ends() {
        let now = Instant::now();
        let leader = Standing::Leader {
            until: now + LEASE_RENEW_DEADLINE,
        };
        assert!(leader.may_write(now));
        assert!(!leader.may_write(now + LEASE_RENEW_DEADLINE));
        assert!(LEASE_RENEW_DEADLINE + LEASE_REQUEST_TIMEOUT <= LEASE_DURATION);
        assert!(LEASE_INTERVAL + LEASE_REQUEST_TIMEOUT < LEASE_RENEW_DEADLINE);
    }

    #[test]
    fn times_of_leases_have_microseconds() {
        let time = UNIX_EPOCH + Duration::from_micros(1_000_000_000_000_042);
        assert_eq!(micro_time(time), "2001-09-09T01:46:40.000042Z");
    }
}
