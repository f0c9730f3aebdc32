//! Leases.

use etcd_client::{LeaseClient, LeaseTimeToLiveOptions};

use super::called;
use crate::error::Error;
use crate::kv::{Lease, LeaseId, LeaseState};

pub(super) async fn grant(mut lease: LeaseClient, ttl_s: i64) -> Result<Lease, Error> {
    let response = called(lease.grant(ttl_s, None)).await?;
    Ok(Lease {
        id: LeaseId(response.id()),
        ttl_s: response.ttl(),
    })
}

pub(super) async fn keep_alive(mut lease: LeaseClient, id: LeaseId) -> Result<i64, Error> {
    let response = called(async {
        // Opening the stream keeps the lease alive, but the answer with the time is not passed on;
        // that of a second request is.
        let (mut keeper, mut replies) = match lease.keep_alive(id.0).await {
            Ok(open) => open,
            Err(etcd_client::Error::LeaseKeepAliveError(_)) => return Ok(Err(Error::NoLease(id))),
            Err(error) => return Err(error),
        };
        keeper.keep_alive().await?;
        Ok(Ok(replies.message().await?))
    });
    match response.await?? {
        Some(response) if response.ttl() > 0 => Ok(response.ttl()),
        Some(_) => Err(Error::NoLease(id)),
        None => Err(Error::Unavailable(
            "the stream of keep-alives has ended".into(),
        )),
    }
}

pub(super) async fn revoke(mut lease: LeaseClient, id: LeaseId) -> Result<(), Error> {
    called(lease.revoke(id.0))
        .await
        .map_err(|error| of(id, error))?;
    Ok(())
}

pub(super) async fn state(mut lease: LeaseClient, id: LeaseId) -> Result<LeaseState, Error> {
    let options = LeaseTimeToLiveOptions::new().with_keys();
    let response = called(lease.time_to_live(id.0, Some(options)))
        .await
        .map_err(|error| of(id, error))?;
    if response.ttl() < 0 {
        return Err(Error::NoLease(id));
    }
    Ok(LeaseState {
        remaining_s: response.ttl(),
        granted_s: response.granted_ttl(),
        keys: response
            .keys()
            .iter()
            .map(|key| key.clone().into())
            .collect(),
    })
}

/// The API does not say which lease is not there; the caller knows.
fn of(id: LeaseId, error: Error) -> Error {
    match error {
        Error::NoLease(_) => Error::NoLease(id),
        error => error,
    }
}
