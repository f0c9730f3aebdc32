//! The kernel's routes in the parent process: it writes them for the process that parses BGP.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use bgp_daemon::parent::Duty;
use fib_sync::netlink::{OpenError, RouteWriter};
use fib_sync::writer::Bounds;
use kernel_events::marker;

use crate::KernelConfig;
use crate::config::Config;
use crate::limits::METRICS_OF_LOCAL_PREF;

/// Writes the routes of the client, as far as its configuration file allows them.
pub struct Writer {
    bounds: Option<Bounds>,
    /// Opened when a parser asks for it.
    routes: Option<RouteWriter>,
}

impl Duty<KernelConfig> for Writer {
    fn new(config: &Config) -> Self {
        Self {
            bounds: bounds(config),
            routes: None,
        }
    }

    fn renew(&mut self, config: &Config) {
        self.bounds = bounds(config);
        if let Some(routes) = &mut self.routes
            && routes.renew(self.bounds.clone()).is_err()
        {
            self.routes = None;
        }
    }

    fn open(&mut self) -> io::Result<(Vec<OwnedFd>, Vec<u8>)> {
        let routes = match self.routes.take() {
            Some(routes) => routes,
            None => RouteWriter::open(self.bounds.clone()).map_err(error)?,
        };
        let routes = self.routes.insert(routes);
        let (descriptors, is_large) = routes.connect().map_err(error)?;
        Ok((descriptors.into(), vec![is_large.into()]))
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let routes = self.routes.as_ref();
        routes.map(RouteWriter::descriptors).unwrap_or_default()
    }

    fn serve(&mut self) {
        if let Some(routes) = &mut self.routes {
            routes.serve();
        }
    }
}

/// Returns the routes that a client with this file may write; `None` for a shadow run.
fn bounds(config: &Config) -> Option<Bounds> {
    let kernel = &config.settings;
    let mut metrics = kernel.metrics();
    if config.intent().is_none() {
        // The datastore can set LOCAL_PREF by metrics.
        metrics.extend(METRICS_OF_LOCAL_PREF);
    }
    let mut bounds = Bounds::new(kernel.owner, kernel.table, metrics);
    if kernel.answers_felix() {
        bounds = bounds.with_signs(marker::TABLE, marker::ANSWER_METRIC);
    }
    kernel.install.then_some(bounds)
}

fn error(error: OpenError) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use bgp_config::Source;
    use fib_sync::RouteKey;

    use super::*;

    fn bounds_of(keys: &str) -> Option<Bounds> {
        let config = Config::parse(&Source::new("client.toml", keys));
        bounds(&config.unwrap_or_else(|report| panic!("{report}")))
    }

    fn covers(bounds: &Bounds, table: u32, metric: u32) -> bool {
        let prefix = "10.65.0.0/26".parse().unwrap();
        bounds.covers(&RouteKey::new(table, prefix, metric, 0))
    }

    #[test]
    fn routes_of_the_file_alone_are_written() {
        let kernel = "asn = 64512\nrouter_id = \"10.0.0.11\"\n[kernel]\ntable = 1000\nmetric = 7\nformer_metrics = [9]\n";
        let bounds = bounds_of(kernel).unwrap();
        for metric in [7, 9, 1024] {
            assert!(covers(&bounds, 1000, metric), "{metric}");
            assert!(!covers(&bounds, 254, metric), "{metric}");
        }
        for metric in [0, 8, 256] {
            assert!(!covers(&bounds, 1000, metric), "{metric}");
        }
        let shadow = kernel.replace("[kernel]\n", "[kernel]\ninstall = false\n");
        assert_eq!(bounds_of(&shadow), None);
    }

    #[test]
    fn metric_of_workload_routes_is_never_written() {
        let store = "[datastore]\nendpoints = [\"http://127.0.0.1:2379\"]\n";
        let bounds = bounds_of(store).unwrap();
        assert!(covers(&bounds, 254, 255) && covers(&bounds, 254, 1023));
        assert!(!covers(&bounds, 254, 256) && !covers(&bounds, 254, 0));
    }
}
