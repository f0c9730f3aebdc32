//! The Lease service.

use etcd_client::proto::{
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse,
    PbLeaseLeasesRequest, PbLeaseLeasesResponse, PbLeaseRevokeRequest, PbLeaseRevokeResponse,
    PbLeaseService, PbLeaseStatus, PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse,
};
use futures_util::stream::{BoxStream, StreamExt, unfold};
use std::time::Duration;
use tokio::sync::watch as signal;
use tonic::{Request, Response, Status, Streaming};

use super::stopped;
use crate::core::Core;
use crate::local::Local;
use crate::wire::header_out;
use calico_store::Error;
use calico_store::shared::grpc_status;
use calico_store::{Header, LeaseId, LeaseState};

/// The Lease service over a core.
pub(super) struct Leases {
    store: Local,
    stopping: signal::Receiver<bool>,
}

impl Leases {
    pub(super) const fn new(store: Local, stopping: signal::Receiver<bool>) -> Self {
        Self { store, stopping }
    }

    /// Runs a closure on the core and returns its result with the header of that time.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Core, Duration) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Header), Status> {
        let done = self
            .store
            .call(|core, now| work(core, now).map(|done| (done, core.header())));
        match done.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) | Err(error) => Err(grpc_status(&error)),
        }
    }
}

/// The state of a keep-alive stream.
struct KeepAlive {
    store: Local,
    requests: Streaming<PbLeaseKeepAliveRequest>,
    stopping: signal::Receiver<bool>,
}

impl KeepAlive {
    async fn next(&mut self) -> Option<Result<PbLeaseKeepAliveResponse, Status>> {
        let request = tokio::select! {
            request = self.requests.message() => match request {
                Ok(request) => request?,
                Err(status) => return Some(Err(status)),
            },
            () = stopped(self.stopping.clone()) => return None,
        };
        let id = LeaseId(request.id);
        let kept = self
            .store
            .call(move |core, now| (core.lease_keep_alive(now, id), core.header()));
        let (ttl, header) = match kept.await {
            Ok((Ok(ttl_s), header)) => (ttl_s, header),
            // The answer for a missing lease is a remaining time of zero.
            Ok((Err(Error::NoLease(_)), header)) => (0, header),
            Ok((Err(error), _)) | Err(error) => return Some(Err(grpc_status(&error))),
        };
        Some(Ok(PbLeaseKeepAliveResponse {
            header: Some(header_out(header)),
            id: request.id,
            ttl,
        }))
    }
}

#[tonic::async_trait]
impl PbLeaseService for Leases {
    type LeaseKeepAliveStream = BoxStream<'static, Result<PbLeaseKeepAliveResponse, Status>>;

    async fn lease_grant(
        &self,
        request: Request<PbLeaseGrantRequest>,
    ) -> Result<Response<PbLeaseGrantResponse>, Status> {
        let request = request.into_inner();
        let grant = move |core: &mut Core, now| {
            core.lease_grant(now, LeaseId(request.id), request.ttl.max(1))
        };
        let (lease, header) = self.call(grant).await?;
        Ok(Response::new(PbLeaseGrantResponse {
            header: Some(header_out(header)),
            id: lease.id.0,
            ttl: lease.ttl_s,
            error: String::new(),
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<PbLeaseRevokeRequest>,
    ) -> Result<Response<PbLeaseRevokeResponse>, Status> {
        let id = LeaseId(request.into_inner().id);
        let ((), header) = self.call(move |core, _| core.lease_revoke(id)).await?;
        Ok(Response::new(PbLeaseRevokeResponse {
            header: Some(header_out(header)),
        }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<PbLeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let stream = KeepAlive {
            store: self.store.clone(),
            requests: request.into_inner(),
            stopping: self.stopping.clone(),
        };
        let replies = unfold(stream, |mut stream| async move {
            let reply = stream.next().await?;
            Some((reply, stream))
        });
        Ok(Response::new(replies.boxed()))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<PbLeaseTimeToLiveRequest>,
    ) -> Result<Response<PbLeaseTimeToLiveResponse>, Status> {
        let request = request.into_inner();
        let id = LeaseId(request.id);
        let state = move |core: &mut Core, now| match core.lease_state(now, id) {
            Err(Error::NoLease(_)) => Ok(None),
            state => state.map(Some),
        };
        let (state, header) = self.call(state).await?;
        let state = state.unwrap_or(LeaseState {
            remaining_s: -1,
            granted_s: 0,
            keys: Vec::new(),
        });
        let keys = if request.keys { state.keys } else { Vec::new() };
        Ok(Response::new(PbLeaseTimeToLiveResponse {
            header: Some(header_out(header)),
            id: request.id,
            ttl: state.remaining_s,
            granted_ttl: state.granted_s,
            keys: keys.into_iter().map(Into::into).collect(),
        }))
    }

    async fn lease_leases(
        &self,
        _: Request<PbLeaseLeasesRequest>,
    ) -> Result<Response<PbLeaseLeasesResponse>, Status> {
        let (leases, header) = self.call(|core, _| Ok(core.leases())).await?;
        Ok(Response::new(PbLeaseLeasesResponse {
            header: Some(header_out(header)),
            leases: leases
                .into_iter()
                .map(|id| PbLeaseStatus { id: id.0 })
                .collect(),
        }))
    }
}
