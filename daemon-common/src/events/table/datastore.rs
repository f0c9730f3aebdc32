//! Events of the datastore and of configurations.

/// Appends these rows to `$rows`, and passes them to the first one of the macros in parentheses.
macro_rules! datastore_events {
    (($next:ident $($later:ident)*) $($rows:tt)*) => { $next! { ($($later)*) $($rows)*
        #[doc = "The daemon's view of the datastore changed. `status` is `syncing`, `in-sync` or `snapshot`."]
        DatastoreStatus "datastore.status" INFO "datastore status changed" {
            status: Text, revision: Option<u64>, snapshot_age_s: Option<u64>,
        }
        #[doc = "The datastore cannot be used; the last configuration stays in effect. `status` is `away` or `not-ready`."]
        DatastoreUnavailable "datastore.unavailable" WARN "datastore unavailable; keeping the last configuration" {
            status: Text, revision: Option<u64>, reason: Option<Text>,
        }
        #[doc = "A field of a resource in the datastore is unsupported or invalid. `key` is the resource's key."]
        DatastoreFault "datastore.fault" WARN "field of a resource is not applied" {
            key: Text, field: Text, reason: Text,
        }
        #[doc = "A fault of a resource in the datastore is resolved."]
        DatastoreFaultResolved "datastore.fault_resolved" INFO "field of a resource is applied again" {
            key: Text, field: Text,
        }
        #[doc = "A value of the datastore was rejected as a whole. `reason` names its key."]
        DatastoreValueRejected "datastore.value_rejected" WARN "value rejected; the last valid one stays in effect" {
            reason: Text,
        }
        #[doc = "A host name of the datastore cannot be resolved. Its earlier addresses stay closed to workloads; new ones are not closed yet."]
        DatastoreLookupFailed "datastore.lookup_failed" WARN "host name of the datastore cannot be resolved" {
            name: Text, port: u64, reason: Text,
        }
        #[doc = "The datastore does not list its members to this user. Members that are in no `datastore.endpoints` and on no Node are open to workloads."]
        DatastoreMembersUnknown "datastore.members_unknown" WARN "datastore does not list its members" {
            reason: Text,
        }
        #[doc = "A file of a BGP daemon of this host cannot be read. Its last ports stay closed to workloads; if there are none, workloads open no TCP connection to the host."]
        BgpFileUnreadable "bgp_file.unreadable" WARN "BGP ports cannot be read from the configuration file" {
            path: Text, reason: Text,
        }
        #[doc = "A configuration took effect. The counts are numbers of neighbors; `keyless` ones wait for their password. `revision` is that of the datastore, if the configuration comes from there."]
        ConfigApplied "config.applied" INFO "configuration applied" {
            added: u64, removed: u64, reset: u64, keyless: u64, revision: Option<u64>,
        }
        #[doc = "A configuration was rejected; the last valid one stays in effect. The log and `cambric show status` have the whole report."]
        ConfigRejected "config.rejected" ERROR "configuration rejected; the last valid one stays in effect" {
            reason: Text,
        }
        #[doc = "Some changed keys of a neighbor take effect with its next session."]
        ConfigDeferred "config.deferred" INFO "some keys take effect with the next session; `cambric clear` resets it" {
            neighbor: Text,
        }
        #[doc = "Changed keys of the file require a restart of the daemon; until then the old values stay in effect."]
        ConfigRestartRequired "config.restart_required" WARN "changed keys require a restart" {
            keys: Text,
        }
        #[doc = "Changed keys of the file took effect."]
        ConfigKeysApplied "config.keys_applied" INFO "changed keys applied" {
            keys: Text,
        }
        #[doc = "A part of a valid configuration has a consequence that an operator should know."]
        ConfigNote "config.note" WARN "configuration note" {
            note: Text,
        }
        #[doc = "Environment variables that look like settings are unsupported."]
        ConfigVariablesIgnored "config.variables_ignored" INFO "environment variables ignored" {
            variables: Text,
        }
        #[doc = "A reload was asked for while the daemon waits for its first configuration from the datastore."]
        ConfigReloadIgnored "config.reload_ignored" WARN "file not read again: the daemon waits for the datastore" {
        }
    } };
}
