//! Stores around another store.

/// Forwards calls of a [`Store`](calico_store::Store) to the store in a field.
macro_rules! forward {
    ($store:tt: $($call:ident)+) => { $( forward!(@ $store $call); )+ };
    (@ $store:tt range) => {
        fn range(&self, query: calico_store::Query) -> calico_store::Answer<'_, calico_store::Listing> {
            self.$store.range(query)
        }
    };
    (@ $store:tt txn) => {
        fn txn(&self, txn: calico_store::Txn) -> calico_store::Answer<'_, calico_store::TxnReply> {
            self.$store.txn(txn)
        }
    };
    (@ $store:tt watch) => {
        fn watch(
            &self,
            request: calico_store::WatchRequest,
        ) -> calico_store::Answer<'_, calico_store::Watch> {
            self.$store.watch(request)
        }
    };
    (@ $store:tt others) => {
        fn compact(&self, at: calico_store::Revision) -> calico_store::Answer<'_, ()> {
            self.$store.compact(at)
        }

        fn lease_grant(&self, ttl_s: i64) -> calico_store::Answer<'_, calico_store::Lease> {
            self.$store.lease_grant(ttl_s)
        }

        fn lease_keep_alive(&self, id: calico_store::LeaseId) -> calico_store::Answer<'_, i64> {
            self.$store.lease_keep_alive(id)
        }

        fn lease_revoke(&self, id: calico_store::LeaseId) -> calico_store::Answer<'_, ()> {
            self.$store.lease_revoke(id)
        }

        fn lease_state(
            &self,
            id: calico_store::LeaseId,
        ) -> calico_store::Answer<'_, calico_store::LeaseState> {
            self.$store.lease_state(id)
        }

        fn members(&self) -> calico_store::Answer<'_, Vec<String>> {
            self.$store.members()
        }
    };
}

pub(crate) use forward;
