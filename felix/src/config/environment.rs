//! Environment variables: `FELIX_<parameter>`, in any case; they override all other settings.

use calico_model::FelixConfigurationSpec;

use super::parameters::{PARAMETERS, setting};

/// The prefix of the variables' names.
const PREFIX: &str = "FELIX_";

/// The settings of the environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    /// `FELIX_FELIXHOSTNAME`.
    pub(super) hostname: Option<String>,
    /// Settings of FelixConfiguration.
    pub(super) settings: FelixConfigurationSpec,
    /// Faults.
    pub(super) problems: Vec<String>,
    /// Ignored variables.
    pub(super) ignored: Vec<String>,
}

impl Environment {
    /// Reads the environment of the process.
    pub(crate) fn of_process() -> Self {
        let variables = std::env::vars_os();
        Self::of(variables.filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            Some((name, value))
        }))
    }

    /// Parses these variables. Of several that differ in case only, the last one in the order of
    /// their names counts.
    pub fn of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut environment = Self::default();
        let mut ours: Vec<(String, String)> = variables
            .into_iter()
            .filter(|(name, _)| name.to_ascii_uppercase().starts_with(PREFIX))
            .collect();
        ours.sort_unstable();
        for (name, text) in ours {
            let parameter = name[PREFIX.len()..].to_ascii_lowercase();
            match environment.take(&parameter, text.trim()) {
                Ok(true) => {}
                Ok(false) => environment.ignored.push(name),
                Err(reason) => environment.problems.push(format!("{name}: {reason}")),
            }
        }
        environment
    }

    /// Handles a variable. Returns whether it is supported.
    fn take(&mut self, parameter: &str, text: &str) -> Result<bool, String> {
        let none = text.eq_ignore_ascii_case("none");
        match parameter {
            "felixhostname" if none || text.is_empty() => self.hostname = None,
            "felixhostname" => self.hostname = Some(text.to_owned()),
            _ => {
                let known = PARAMETERS
                    .iter()
                    .find(|known| known.name.eq_ignore_ascii_case(parameter));
                let Some(known) = known else {
                    return Ok(false);
                };
                let spec = setting(known.field, known.read(text)?)?;
                self.settings = spec.over(&self.settings);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let variables = variables.iter();
        Environment::of(variables.map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
    }

    fn settings(spec: &str) -> FelixConfigurationSpec {
        serde_json::from_str(spec).unwrap()
    }

    #[test]
    fn variables_have_calicos_names_in_any_case() {
        let environment = environment(&[
            ("FELIX_INTERFACEPREFIX", "tap,cali"),
            ("felix_ReportingIntervalSecs", "5.5"),
            ("Felix_reportingttlsecs", "20"),
            ("FELIX_ENDPOINTREPORTINGENABLED", "yes"),
            ("FELIX_ENDPOINTREPORTINGDELAYSECS", "0.01"),
            ("FELIX_DEFAULTENDPOINTTOHOSTACTION", "RETURN"),
            ("FELIX_IPV6SUPPORT", "0"),
            ("FELIX_OPENSTACKREGION", "east"),
            ("FELIX_METADATAADDR", "None"),
            ("FELIX_METADATAPORT", "8774"),
            ("FELIX_FLOATINGIPS", "enabled"),
            ("FELIX_NATOUTGOINGADDRESS", "192.0.2.7"),
            ("FELIX_NATPORTRANGE", "32768:65535"),
            ("FELIX_FELIXHOSTNAME", "n7"),
            ("FELIX_ROUTEREFRESHINTERVAL", "0.5"),
            ("FELIX_ENDPOINTSTATUSPATHPREFIX", "none"),
            ("FELIX_ALLOWIPIPPACKETSFROMWORKLOADS", "true"),
            ("FELIX_ALLOWVXLANPACKETSFROMWORKLOADS", "no"),
            ("FELIX_EXTERNALNODESCIDRLIST", "192.0.2.0/24, 2001:db8::1"),
            ("FELIX_VXLANPORT", "8472"),
            ("FELIX_VXLANVNI", "77"),
            ("FELIX_VXLANMTU", "1400"),
            ("FELIX_VXLANMTUV6", "none"),
            ("FELIX_NATOUTGOINGEXCLUSIONS", "ippoolsandhostips"),
            ("FELIX_WORKLOADSOURCESPOOFING", "any"),
            ("FELIX_DISABLECONNTRACKINVALIDCHECK", "true"),
            ("FELIX_IPTABLESNATOUTGOINGINTERFACEFILTER", "eth+"),
            ("FELIX_SERVICELOOPPREVENTION", "reject"),
            ("FELIX_NFTABLESFILTERDENYACTION", "REJECT"),
            ("FELIX_INTERFACEREFRESHINTERVAL", "7"),
            ("FELIX_LOGPREFIX", "%k %p"),
            ("FELIX_LOGACTIONRATELIMIT", "10/minute"),
            ("FELIX_LOGACTIONRATELIMITBURST", "20"),
            (
                "FELIX_FAILSAFEINBOUNDHOSTPORTS",
                "22, udp:10.0.0.0/8:68,TCP:[fd00::/8]:179",
            ),
            ("FELIX_FAILSAFEOUTBOUNDHOSTPORTS", "none"),
            ("FELIX_HEALTHENABLED", "true"),
            ("FELIX_HEALTHHOST", "192.0.2.1"),
            ("FELIX_HEALTHPORT", "9098"),
            (
                "FELIX_HEALTHTIMEOUTOVERRIDES",
                "InternalDataplaneMainLoop=2m, CalculationGraph=30s",
            ),
            ("FELIX_PROMETHEUSMETRICSENABLED", "true"),
            ("FELIX_PROMETHEUSMETRICSHOST", "none"),
            ("FELIX_PROMETHEUSMETRICSPORT", "9092"),
            ("FELIX_DATAPLANEWATCHDOGTIMEOUT", "40"),
            ("FELIX_DEVICEROUTESOURCEADDRESS", "10.0.0.1"),
            ("FELIX_DEVICEROUTESOURCEADDRESSIPV6", "fd00::1"),
            ("FELIX_INTERFACEEXCLUDE", "/^veth/,a"),
            ("FELIX_IPFORWARDING", "disabled"),
            ("FELIX_IPSETSREFRESHINTERVAL", "none"),
            ("FELIX_IPV4NORMALROUTEPRIORITY", "1024"),
            ("FELIX_IPV6NORMALROUTEPRIORITY", "1025"),
            ("FELIX_LOGSEVERITYSCREEN", "WARNING"),
            ("FELIX_MTUIFACEPATTERN", "^eth"),
            ("FELIX_NFTABLESFLOWTABLEDATAIFACEPATTERN", "^eth"),
            ("FELIX_NFTABLESFLOWTABLEOFFLOAD", "all"),
            ("FELIX_NFTABLESMARKMASK", "0xffff0000"),
            ("FELIX_NFTABLESREFRESHINTERVAL", "30"),
            ("FELIX_PROGRAMCLUSTERROUTES", "enablednoencaponly"),
            ("FELIX_PROMETHEUSMETRICSCAFILE", "/ca"),
            ("FELIX_PROMETHEUSMETRICSCERTFILE", "/a"),
            ("FELIX_PROMETHEUSMETRICSKEYFILE", "/b"),
            (
                "FELIX_PROMETHEUSMETRICSCLIENTAUTH",
                "VerifyClientCertIfGiven",
            ),
            ("FELIX_ROUTESOURCE", "workloadips"),
            ("FELIX_ROUTESYNCDISABLED", "true"),
            ("FELIX_VXLANENABLED", "false"),
            ("FELIX_BPFENABLED", "true"),
            ("PATH", "/bin"),
        ]);
        let wanted = settings(
            r#"{"interfacePrefix":"tap,cali","reportingInterval":"5.5s","reportingTTL":"20s",
                "endpointReportingEnabled":true,"endpointReportingDelay":"10ms",
                "defaultEndpointToHostAction":"Return","ipv6Support":false,
                "openstackRegion":"east","metadataAddr":"None","metadataPort":8774,
                "floatingIPs":"Enabled","natOutgoingAddress":"192.0.2.7",
                "natPortRange":"32768:65535","allowIPIPPacketsFromWorkloads":true,
                "allowVXLANPacketsFromWorkloads":false,"vxlanPort":8472,
                "vxlanVNI":77,"vxlanMTU":1400,"vxlanMTUV6":0,
                "natOutgoingExclusions":"IPPoolsAndHostIPs","workloadSourceSpoofing":"Any",
                "logPrefix":"%k %p","logActionRateLimit":"10/minute",
                "logActionRateLimitBurst":20,"disableConntrackInvalidCheck":true,
                "iptablesNATOutgoingInterfaceFilter":"eth+","serviceLoopPrevention":"Reject",
                "nftablesFilterDenyAction":"Reject","interfaceRefreshInterval":"7s",
                "failsafeInboundHostPorts":[{"protocol":"tcp","net":"","port":22},
                    {"protocol":"udp","net":"10.0.0.0/8","port":68},
                    {"protocol":"TCP","net":"fd00::/8","port":179}],
                "failsafeOutboundHostPorts":[],
                "healthEnabled":true,"healthHost":"192.0.2.1","healthPort":9098,
                "prometheusMetricsEnabled":true,"prometheusMetricsHost":"",
                "prometheusMetricsPort":9092,
                "healthTimeoutOverrides":[
                    {"name":"InternalDataplaneMainLoop","timeout":"2m"},
                    {"name":"CalculationGraph","timeout":"30s"}],
                "routeRefreshInterval":"0.5s","endpointStatusPathPrefix":"",
                "dataplaneWatchdogTimeout":"40s","deviceRouteSourceAddress":"10.0.0.1",
                "deviceRouteSourceAddressIPv6":"fd00::1","interfaceExclude":"/^veth/,a",
                "ipForwarding":"Disabled","ipsetsRefreshInterval":"0s",
                "ipv4NormalRoutePriority":1024,"ipv6NormalRoutePriority":1025,
                "logSeverityScreen":"WARNING","mtuIfacePattern":"^eth",
                "nftablesFlowTableDataIfacePattern":"^eth","nftablesFlowTableOffload":"All",
                "nftablesMarkMask":4294901760,
                "nftablesRefreshInterval":"30s","programClusterRoutes":"EnabledNoEncapOnly",
                "prometheusMetricsCAFile":"/ca","prometheusMetricsCertFile":"/a",
                "prometheusMetricsKeyFile":"/b",
                "prometheusMetricsClientAuth":"VerifyClientCertIfGiven",
                "routeSource":"WorkloadIPs","routeSyncDisabled":true,"vxlanEnabled":false,
                "externalNodesList":["192.0.2.0/24","2001:db8::1"]}"#,
        );
        assert_eq!(environment.problems, Vec::<String>::new());
        assert_eq!(environment.settings, wanted);
        assert_eq!(environment.hostname.as_deref(), Some("n7"));
        assert_eq!(environment.ignored, ["FELIX_BPFENABLED"]);
    }

    #[test]
    fn value_none_disables_a_setting() {
        let environment = environment(&[
            ("FELIX_REPORTINGINTERVALSECS", "none"),
            ("FELIX_IPV6SUPPORT", "None"),
            ("FELIX_OPENSTACKREGION", "none"),
            ("FELIX_NATPORTRANGE", "none"),
            ("FELIX_FELIXHOSTNAME", "none"),
        ]);
        let wanted = r#"{"reportingInterval":"0s","ipv6Support":false,"openstackRegion":"",
            "natPortRange":""}"#;
        assert_eq!(environment.settings, settings(wanted));
        assert_eq!(environment.hostname, None);
    }

    #[test]
    fn mistake_is_named() {
        for (name, text, words) in [
            (
                "FELIX_REPORTINGTTLSECS",
                "soon",
                "'soon' is not a number of seconds",
            ),
            ("FELIX_REPORTINGTTLSECS", "-1", "'-1' is not a number"),
            (
                "FELIX_ROUTEREFRESHINTERVAL",
                "1e300",
                "FELIX_ROUTEREFRESHINTERVAL: ",
            ),
            ("FELIX_IPV6SUPPORT", "maybe", "neither true nor false"),
            (
                "FELIX_DEFAULTENDPOINTTOHOSTACTION",
                "REJECT",
                "not one of Drop, Return, Accept",
            ),
            ("FELIX_INTERFACEPREFIX", "t/p", "'t/p' cannot be"),
            ("FELIX_NATPORTRANGE", "9:8", "'9:8' is neither a port nor"),
            ("FELIX_OPENSTACKREGION", "a/b", "FELIX_OPENSTACKREGION: "),
            ("FELIX_LOGPREFIX", "a\"", "'a\"' has characters other"),
            ("FELIX_HEALTHHOST", "node1", "'node1' is neither an address"),
            ("FELIX_HEALTHPORT", "99099", "'99099' is not a port"),
            (
                "FELIX_HEALTHTIMEOUTOVERRIDES",
                "a",
                "'a' is not a name and a time",
            ),
            ("FELIX_LOGACTIONRATELIMIT", "10/s", "'10/s' is not a rate"),
            ("FELIX_LOGACTIONRATELIMITBURST", "x", "not a whole number"),
            (
                "FELIX_FAILSAFEINBOUNDHOSTPORTS",
                "tcp:ssh",
                "'tcp:ssh' is not",
            ),
            (
                "FELIX_FAILSAFEINBOUNDHOSTPORTS",
                "icmp:8",
                "icmp is not TCP",
            ),
            (
                "FELIX_FAILSAFEINBOUNDHOSTPORTS",
                "tcp:[fd00::/8:22",
                "'tcp:[fd00::/8:22' is not",
            ),
            (
                "FELIX_FAILSAFEOUTBOUNDHOSTPORTS",
                "tcp:x:22",
                "'x' is neither an address",
            ),
            (
                "FELIX_IPTABLESNATOUTGOINGINTERFACEFILTER",
                "a b",
                "'a b' is neither the name",
            ),
            (
                "FELIX_EXTERNALNODESCIDRLIST",
                "192.0.2.0/24,x",
                "'x' is neither an address",
            ),
        ] {
            let environment = environment(&[(name, text)]);
            let [problem] = environment.problems.as_slice() else {
                panic!("{name}={text}: {environment:?}")
            };
            assert!(
                problem.starts_with(name) && problem.contains(words),
                "{problem}"
            );
        }
    }
}
