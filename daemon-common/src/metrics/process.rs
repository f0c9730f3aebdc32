//! The metrics of a process with the names that Prometheus' client libraries have for them.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::report::ProcessFigures;

/// Prefix of every name.
pub(super) const PREFIX: &str = "process";

/// The values of one scrape.
#[derive(Debug)]
pub(super) struct Process(pub(super) Box<ProcessFigures>);

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = &self.0;
        let mut put = |name: &str, help: &str, metric: &dyn Encoded| {
            metric.encode_into(name, help, &mut encoder)
        };
        if let Some(ms) = all.cpu_ms {
            let help = "Total user and system CPU time spent in seconds.";
            put("cpu_seconds", help, &ConstCounter::new(seconds(ms)))?;
        }
        let gauges = [
            ("open_fds", "Number of open file descriptors.", all.open_fds),
            (
                "max_fds",
                "Maximum number of open file descriptors.",
                all.max_fds,
            ),
            (
                "virtual_memory_bytes",
                "Virtual memory size in bytes.",
                all.virtual_memory_bytes,
            ),
            (
                "virtual_memory_max_bytes",
                "Maximum amount of virtual memory available in bytes.",
                all.virtual_memory_max_bytes,
            ),
            (
                "resident_memory_bytes",
                "Resident memory size in bytes.",
                all.resident_memory_bytes,
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                put(name, help, &ConstGauge::new(value))?;
            }
        }
        if let Some(ms) = all.start_ms {
            let help = "Start time of the process since unix epoch in seconds.";
            put("start_time_seconds", help, &ConstGauge::new(seconds(ms)))?;
        }
        Ok(())
    }
}

/// Returns milliseconds in seconds.
fn seconds(ms: u64) -> f64 {
    std::time::Duration::from_millis(ms).as_secs_f64()
}

/// A metric of any type.
trait Encoded {
    fn encode_into(
        &self,
        name: &str,
        help: &str,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result;
}

impl<M: EncodeMetric> Encoded for M {
    fn encode_into(
        &self,
        name: &str,
        help: &str,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        self.encode(encoder.encode_descriptor(name, help, None, self.metric_type())?)
    }
}
