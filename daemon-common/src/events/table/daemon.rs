//! Events of a daemon itself.

/// Appends these rows to `$rows`, and passes them to the first one of the macros in parentheses.
macro_rules! daemon_events {
    (($next:ident $($later:ident)*) $($rows:tt)*) => { $next! { ($($later)*) $($rows)*
        #[doc = "The daemon runs. `hostname` is the name of its node, if it has one."]
        DaemonStarted "daemon.started" INFO "daemon started" {
            version: Text, hostname: Option<Text>,
        }
        #[doc = "A signal stops the daemon."]
        DaemonStopping "daemon.stopping" INFO "daemon stopping" {
        }
        #[doc = "A part of the daemon did not stop within `within_s` seconds."]
        DaemonStopTimeout "daemon.stop_timeout" WARN "drivers did not stop in time" {
            within_s: u64,
        }
        #[doc = "systemd cannot be notified of the daemon's state."]
        DaemonNotifyFailed "daemon.notify_failed" WARN "systemd cannot be notified" {
            reason: Text,
        }
        #[doc = "The daemon has given up its capabilities, and reaches only its own files and few system calls. `status` names what is in effect."]
        PrivilegesDropped "privileges.dropped" INFO "privileges dropped" {
            status: Text,
        }
        #[doc = "A part of the restrictions is not in effect, or more is reached than the daemon needs, for example by root: `reason`."]
        PrivilegesIncomplete "privileges.incomplete" WARN "privileges dropped in part" {
            status: Text, reason: Text,
        }
        #[doc = "The daemon keeps all privileges of the process that has started it, because of `privileges = \"keep\"`."]
        PrivilegesKept "privileges.kept" WARN "privileges kept by the configuration" {
        }
        #[doc = "The process that parses BGP has crashed, and its parent has started it again, for the time `restarts`. `reason` is how it ended."]
        ParserRestarted "daemon.parser_restarted" WARN "parser restarted after a crash" {
            restarts: u64, reason: Text,
        }
        #[doc = "Repeated events were counted instead of logged each: `more` within `within_s` seconds. `of` is their name, `last` the last one."]
        EventsRepeated "events.repeated" INFO "repeated events" {
            of: Text, more: u64, within_s: u64, last: Text,
        }
        #[doc = "The same of events of level `warn`."]
        WarningsRepeated "events.warnings_repeated" WARN "repeated events" {
            of: Text, more: u64, within_s: u64, last: Text,
        }
        #[doc = "An operator changed the level of the log; `for_s` is missing once the configured level is in effect again."]
        LogLevelChanged "log.level_changed" WARN "log level changed" {
            level: Text, for_s: Option<u64>,
        }
        #[doc = "An operator debugs a neighbor: all its events are logged for `for_s` seconds, independent of the log level."]
        DebugStarted "debug.started" WARN "debugging of a neighbor started" {
            neighbor: Text, address: IpAddr, for_s: u64,
        }
        #[doc = "An operator ended the debugging of a neighbor."]
        DebugStopped "debug.stopped" WARN "debugging of a neighbor stopped" {
            neighbor: Text, address: IpAddr,
        }
    } };
}
