//! The sockets of Felix for probes and scrapers, as FelixConfiguration has them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use calico_model::{FelixConfigurationSpec, GoDuration};
use daemon_common::scrape_tls::{ScrapeClients, ScrapeTls};
use serde::Deserialize;

use super::fields::{at, field};
use crate::limits::{LIVENESS, LIVENESS_MIN};
use crate::render::Control;

/// The built-in port for probes (as in Calico).
const HEALTH_PORT: u16 = 9099;

/// The built-in port for scrapers (as in Calico).
const METRICS_PORT: u16 = 9091;

/// The part of `healthTimeoutOverrides` that Felix has: its main loop. The name is Calico's.
pub(crate) const MAIN_LOOP: &str = "InternalDataplaneMainLoop";

/// The sockets for probes and scrapers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The address for probes of health, if they are enabled.
    pub health: Option<SocketAddr>,
    /// The longest time between two turns of the main loop of a live Felix; `None`: any time.
    pub live_within: Option<Duration>,
    /// Names in `healthTimeoutOverrides` of parts that Felix does not have.
    pub unknown_parts: Vec<String>,
    /// The address for scrapers of metrics, if they are enabled.
    pub metrics: Option<SocketAddr>,
    /// The files of TLS for scrapers, if there are any. If a part is missing, metrics are not served.
    pub metrics_tls: Result<Option<ScrapeTls>, &'static str>,
    /// Whether scrapers get the metrics of the process.
    pub process_metrics: bool,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            health: None,
            live_within: Some(LIVENESS),
            unknown_parts: Vec::new(),
            metrics: None,
            metrics_tls: Ok(None),
            process_metrics: true,
        }
    }
}

impl Listening {
    /// Closes the ports to workloads that other hosts can reach. The guard drops all packets of
    /// workloads to loopback addresses.
    pub(crate) fn close(&self, control: &mut Control) {
        let sockets = self.health.iter().chain(&self.metrics);
        let reachable = sockets.filter(|at| !at.ip().is_loopback());
        control.node_ports.extend(reachable.map(SocketAddr::port));
    }
}

/// An entry of `healthTimeoutOverrides`.
#[derive(Debug, Deserialize)]
struct TimeoutOverride {
    name: String,
    timeout: GoDuration,
}

/// Returns the sockets of a spec; or the field that is invalid, and why.
pub(super) fn listening(
    spec: &FelixConfigurationSpec,
) -> Result<Listening, (&'static str, String)> {
    let of_health = ["spec.healthEnabled", "spec.healthHost", "spec.healthPort"];
    let of_metrics = [
        "spec.prometheusMetricsEnabled",
        "spec.prometheusMetricsHost",
        "spec.prometheusMetricsPort",
    ];
    let mut listening = Listening {
        health: socket(spec, of_health, HEALTH_PORT)?,
        metrics: socket(spec, of_metrics, METRICS_PORT)?,
        metrics_tls: metrics_tls(spec)?,
        process_metrics: at(spec, "spec.prometheusProcessMetricsEnabled")?.unwrap_or(true),
        ..Listening::default()
    };
    let at = "spec.dataplaneWatchdogTimeout";
    let watchdog: Option<GoDuration> =
        field(spec, "dataplaneWatchdogTimeout").map_err(|reason| (at, reason))?;
    if let Some(GoDuration(timeout)) = watchdog {
        listening.live_within = limit(timeout).map_err(|reason| (at, reason))?;
    }
    let at = "spec.healthTimeoutOverrides";
    let overrides: Option<Vec<TimeoutOverride>> =
        field(spec, "healthTimeoutOverrides").map_err(|reason| (at, reason))?;
    for TimeoutOverride { name, timeout } in overrides.into_iter().flatten() {
        if name != MAIN_LOOP {
            listening.unknown_parts.push(name);
            continue;
        }
        let limit = limit(timeout.0).map_err(|reason| (at, format!("{name}: {reason}")))?;
        listening.live_within = limit;
    }
    Ok(listening)
}

/// Returns the files of TLS for scrapers, or the reason why they are incomplete. One source of settings
/// may have only a part of them.
fn metrics_tls(spec: &FelixConfigurationSpec) -> Result<Tls, (&'static str, String)> {
    let [cert_file, key_file, ca_file] = [
        file(spec, "spec.prometheusMetricsCertFile")?,
        file(spec, "spec.prometheusMetricsKeyFile")?,
        file(spec, "spec.prometheusMetricsCAFile")?,
    ];
    let place = "spec.prometheusMetricsClientAuth";
    let text: Option<String> = at(spec, place)?;
    let text = text.unwrap_or_default();
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    let (is_required, is_verified) = (
        is("RequireAndVerifyClientCert"),
        is("VerifyClientCertIfGiven"),
    );
    if !text.is_empty() && !is("NoClientCert") && !is_required && !is_verified {
        let reason = format!(
            "'{text}' is not supported: write NoClientCert, VerifyClientCertIfGiven or \
             RequireAndVerifyClientCert"
        );
        return Err((place, reason));
    }
    let clients = match ca_file {
        None if is_required || is_verified => return Ok(Err("prometheusMetricsCAFile is missing")),
        Some(ca_file) if is_required => ScrapeClients::Required(ca_file),
        Some(ca_file) if is_verified => ScrapeClients::Verified(ca_file),
        _ => ScrapeClients::Unknown,
    };
    Ok(match (cert_file, key_file) {
        (Some(cert_file), Some(key_file)) => Ok(Some(ScrapeTls {
            cert_file,
            key_file,
            clients,
        })),
        (None, None) if clients == ScrapeClients::Unknown => Ok(None),
        (None, _) => Err("prometheusMetricsCertFile is missing"),
        (Some(_), None) => Err("prometheusMetricsKeyFile is missing"),
    })
}

/// The files of TLS for scrapers, if there are any; or the missing part.
type Tls = Result<Option<ScrapeTls>, &'static str>;

/// Returns the path of a file.
fn file(
    spec: &FelixConfigurationSpec,
    place: &'static str,
) -> Result<Option<PathBuf>, (&'static str, String)> {
    let path: Option<PathBuf> = at(spec, place)?;
    match path.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) if path.is_relative() => {
            let reason = format!("'{}' is not an absolute path", path.display());
            Err((place, reason))
        }
        path => Ok(path),
    }
}

/// Returns the longest time between two turns of a live Felix; `None`: any time.
fn limit(timeout: Duration) -> Result<Option<Duration>, String> {
    if !timeout.is_zero() && timeout < LIVENESS_MIN {
        let least = LIVENESS_MIN.as_secs();
        return Err(format!("less than {least} s; 0 means no limit"));
    }
    Ok(Some(timeout).filter(|timeout| !timeout.is_zero()))
}

/// Returns the address of three fields: whether there is a socket, its host and its port.
fn socket(
    spec: &FelixConfigurationSpec,
    fields: [&'static str; 3],
    built_in: u16,
) -> Result<Option<SocketAddr>, (&'static str, String)> {
    let [at_enabled, at_host, at_port] = fields;
    let name = |at: &'static str| at.trim_start_matches("spec.");
    let enabled: Option<bool> =
        field(spec, name(at_enabled)).map_err(|reason| (at_enabled, reason))?;
    let host = host(spec, name(at_host)).map_err(|reason| (at_host, reason))?;
    let port = port(spec, name(at_port)).map_err(|reason| (at_port, reason))?;
    let address = SocketAddr::new(host, port.unwrap_or(built_in));
    Ok(enabled.unwrap_or_default().then_some(address))
}

/// Returns the address in a field: an address, or `localhost`, which is the default.
fn host(spec: &FelixConfigurationSpec, name: &str) -> Result<IpAddr, String> {
    let text: String = field(spec, name)?.unwrap_or_default();
    match text.as_str() {
        "" | "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        text => text
            .parse()
            .map_err(|_| format!("'{text}' is neither an address nor localhost")),
    }
}

fn port(spec: &FelixConfigurationSpec, name: &str) -> Result<Option<u16>, String> {
    match field(spec, name)? {
        Some(0) => Err("0 is not a port".to_owned()),
        port => Ok(port),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> Result<Listening, (&'static str, String)> {
        listening(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn health_is_off_and_on_loopback_by_default() {
        assert_eq!(read(json!({})), Ok(Listening::default()));
        let on = read(json!({"healthEnabled": true})).unwrap();
        assert_eq!(on.health, Some("127.0.0.1:9099".parse().unwrap()));
        let own = json!({"healthEnabled": true, "healthHost": "fd00::1", "healthPort": 7});
        assert_eq!(
            read(own).unwrap().health,
            Some("[fd00::1]:7".parse().unwrap())
        );
    }

    #[test]
    fn metrics_are_off_and_on_loopback_by_default() {
        let on = read(json!({"prometheusMetricsEnabled": true})).unwrap();
        assert_eq!(on.metrics, Some("127.0.0.1:9091".parse().unwrap()));
        assert_eq!(on.health, None);
        let own = json!({"prometheusMetricsEnabled": true, "prometheusMetricsHost": "0.0.0.0",
            "prometheusMetricsPort": 7});
        let own = read(own).unwrap();
        assert_eq!(own.metrics, Some("0.0.0.0:7".parse().unwrap()));
        let mut control = Control::default();
        own.close(&mut control);
        assert_eq!(control.node_ports, [7].into());
    }

    #[test]
    fn metrics_of_the_process_are_on_by_default() {
        assert!(read(json!({})).unwrap().process_metrics);
        let off = read(json!({"prometheusProcessMetricsEnabled": false}));
        assert!(!off.unwrap().process_metrics);
        let (place, _) = read(json!({"prometheusProcessMetricsEnabled": "no"})).unwrap_err();
        assert_eq!(place, "spec.prometheusProcessMetricsEnabled");
    }

    #[test]
    fn timeout_override_of_the_main_loop_is_its_limit() {
        let of = |name: &str, timeout: &str| {
            read(json!({"healthTimeoutOverrides": [{"name": name, "timeout": timeout}]}))
        };
        let limit = of(MAIN_LOOP, "5m").unwrap().live_within;
        assert_eq!(limit, Some(Duration::from_secs(300)));
        assert_eq!(of(MAIN_LOOP, "0s").unwrap().live_within, None);
        let (field, reason) = of(MAIN_LOOP, "9s").unwrap_err();
        assert_eq!(field, "spec.healthTimeoutOverrides");
        assert!(reason.contains("less than 10 s"), "{reason}");
        let other = of("CalculationGraph", "5m").unwrap();
        assert_eq!(other.unknown_parts, ["CalculationGraph"]);
        assert_eq!(other.live_within, Some(LIVENESS));
    }

    #[test]
    fn scrapers_over_tls_need_certificate_and_key() {
        let tls = |spec: &Value| read(spec.clone()).map(|found| found.metrics_tls);
        let (auth, authority) = ("prometheusMetricsClientAuth", "prometheusMetricsCAFile");
        let (cert, key) = ("prometheusMetricsCertFile", "prometheusMetricsKeyFile");
        let mut spec = json!({});
        assert_eq!(tls(&spec), Ok(Ok(None)));
        spec[cert] = json!("/a.pem");
        let missing = |field: &'static str| Ok(Err(field));
        assert_eq!(tls(&spec), missing("prometheusMetricsKeyFile is missing"));
        spec[key] = json!("/a.key");
        let files = |clients| ScrapeTls {
            cert_file: "/a.pem".into(),
            key_file: "/a.key".into(),
            clients,
        };
        assert_eq!(tls(&spec), Ok(Ok(Some(files(ScrapeClients::Unknown)))));
        spec[auth] = json!("RequireAndVerifyClientCert");
        assert_eq!(tls(&spec), missing("prometheusMetricsCAFile is missing"));
        spec[authority] = json!("/ca.pem");
        let clients = ScrapeClients::Required("/ca.pem".into());
        assert_eq!(tls(&spec), Ok(Ok(Some(files(clients)))));
        spec[auth] = json!("VerifyClientCertIfGiven");
        let clients = ScrapeClients::Verified("/ca.pem".into());
        assert_eq!(tls(&spec), Ok(Ok(Some(files(clients)))));
        spec[cert] = json!("");
        assert_eq!(tls(&spec), missing("prometheusMetricsCertFile is missing"));
        for (field, value) in [
            (cert, "a.pem"),
            (auth, "RequireAnyClientCert"),
            (auth, "Maybe"),
        ] {
            let (at, _) = tls(&json!({ (field): value })).unwrap_err();
            assert_eq!(at, format!("spec.{field}"), "{value}");
        }
    }

    #[test]
    fn watchdog_timeout_is_the_limit_without_an_override() {
        let mut spec = json!({"dataplaneWatchdogTimeout": "40s"});
        let limit = |spec: &Value| read(spec.clone()).map(|found| found.live_within);
        assert_eq!(limit(&spec), Ok(Some(Duration::from_secs(40))));
        spec["healthTimeoutOverrides"] = json!([{"name": MAIN_LOOP, "timeout": "2m"}]);
        assert_eq!(limit(&spec), Ok(Some(Duration::from_secs(120))));
        spec["dataplaneWatchdogTimeout"] = json!("1s");
        assert_eq!(limit(&spec).unwrap_err().0, "spec.dataplaneWatchdogTimeout");
        let never = json!({"dataplaneWatchdogTimeout": "0s"});
        assert_eq!(limit(&never), Ok(None));
    }

    #[test]
    fn invalid_sockets_are_rejected() {
        for (spec, field, words) in [
            (json!({"healthHost": "node1"}), "spec.healthHost", "'node1'"),
            (
                json!({"healthPort": 0}),
                "spec.healthPort",
                "0 is not a port",
            ),
            (json!({"healthPort": 70000}), "spec.healthPort", "number"),
            (json!({"healthEnabled": "x"}), "spec.healthEnabled", "x"),
            (
                json!({"healthTimeoutOverrides": [{"name": "a", "timeout": 1}]}),
                "spec.healthTimeoutOverrides",
                "",
            ),
        ] {
            let (at, reason) = read(spec.clone()).unwrap_err();
            assert_eq!(at, field, "{spec}");
            assert!(reason.contains(words), "{spec}: {reason}");
        }
    }

    #[test]
    fn only_ports_of_other_addresses_than_loopback_are_closed() {
        let closed = |host: &str| {
            let spec = json!({"healthEnabled": true, "healthHost": host});
            let mut control = Control::default();
            read(spec).unwrap().close(&mut control);
            control.node_ports.into_iter().collect::<Vec<u16>>()
        };
        assert_eq!(closed("localhost"), Vec::<u16>::new());
        assert_eq!(closed("::1"), Vec::<u16>::new());
        assert_eq!(closed("0.0.0.0"), [9099]);
        assert_eq!(closed("192.0.2.1"), [9099]);
    }
}
