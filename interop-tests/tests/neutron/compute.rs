//! Compute hosts, and what Nova would make on them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use interop_tests::{Site, own};
use ipnet::IpNet;
use lab::{Host, Pinger, Process, Program, VethEnd};
use serde_json::{Value, json};

use crate::cloud::{Cloud, eventually};

/// A compute host, whose name is `h<number>`.
pub(crate) struct Compute {
    pub(crate) site: Site,
    pub(crate) felix: Process,
    _client: Process,
}

impl Compute {
    /// Starts Felix and BGP.
    pub(crate) async fn start(cloud: &Cloud, number: u8) -> Self {
        let site = cloud.ground.site(number).await.expect("a host");
        // A host of a data centre has a way out, without which it does not answer for gateways.
        let links = site.host.links().expect("links");
        let out = links.add_route(everything(), Some(Site::v4(254).into()), "eth0");
        out.await.expect("a default route");
        let datastore = format!("[datastore]\nendpoints = [\"{}\"]\n", cloud.url);
        let felix = format!(
            "hostname = \"h{number}\"\n{datastore}\
             [felix_configuration]\nreportingInterval = \"2s\"\nreportingTTL = \"5s\"\n"
        );
        site.save("felix.toml", &felix);
        let path = site.save(
            "bgp-client.toml",
            &format!("hostname = \"h{number}\"\n{datastore}"),
        );
        let client = Program::new(own("cambric-bgp-client"))
            .arg("--config")
            .arg(path);
        Self {
            felix: felix_of(&site),
            _client: site.host.spawn("bgp-client", &client).expect("BGP"),
            site,
        }
    }

    /// Answers once at the place of the metadata service.
    pub(crate) fn serve_metadata(&self) -> JoinHandle<std::io::Result<()>> {
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 8775));
        let listener = self
            .site
            .host
            .run(listen)
            .expect("a thread")
            .expect("a listener");
        std::thread::spawn(move || listener.accept()?.0.write_all(b"metadata"))
    }

    /// Felix comes back.
    pub(crate) fn restart(&mut self) {
        self.felix = felix_of(&self.site);
    }

    /// The rules of the host, without what they have counted.
    pub(crate) async fn rules(&self) -> String {
        let program = Program::new("nft").args(["-s", "list", "ruleset"]);
        let (_, output) = self.site.host.output(&program).await.expect("it runs");
        String::from_utf8_lossy(&output).into_owned()
    }
}

fn everything() -> IpNet {
    IpNet::new(Ipv4Addr::UNSPECIFIED.into(), 0).expect("a length that fits")
}

fn felix_of(site: &Site) -> Process {
    let path = site.host.directory().join("felix.toml");
    let program = Program::new(own("cambric-felix")).arg("--config").arg(path);
    site.host.spawn("felix", &program).expect("Felix")
}

/// A port of Neutron's with its machine.
pub(crate) struct Port {
    pub(crate) id: String,
    pub(crate) tap: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: String,
    pub(crate) device: String,
    pub(crate) host: String,
    machine: Option<(Host, Pinger)>,
}

impl Port {
    /// Has Neutron make a port on a host, as Nova does before it makes the machine.
    pub(crate) async fn create(cloud: &Cloud, name: &str, at: &Compute, mut fields: Value) -> Self {
        let (device, host) = (format!("vm-{name}"), format!("h{}", at.site.number));
        fields["device_owner"] = json!("compute:nova");
        fields["device_id"] = json!(device);
        fields["binding:host_id"] = json!(host);
        let port = cloud.create("port", fields).await;
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        // The driver has bound it: there is a live Felix on its host.
        assert_eq!(port["binding:vif_type"], "tap", "{port}");
        let id = text(&port["id"]);
        Self {
            tap: format!("tap{}", &id[..11]),
            address: text(&port["fixed_ips"][0]["ip_address"])
                .parse()
                .expect("an address"),
            mac: text(&port["mac_address"]),
            id,
            device,
            host,
            machine: None,
        }
    }

    /// Makes the machine and its interface as Nova does, and has it use its address as DHCP would.
    pub(crate) async fn plug(&mut self, cloud: &Cloud, at: &Compute) {
        let machine = cloud.ground.host(&self.device).await.expect("a machine");
        let octets: Vec<u8> = self
            .mac
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).expect("hex"))
            .collect();
        let end = |host, name, mac| VethEnd { host, name, mac };
        let links = at.site.host.links().expect("links");
        let mac = octets.try_into().expect("six octets");
        links
            .add_veth(
                end(&at.site.host, &self.tap, None),
                end(&machine, "eth0", Some(mac)),
            )
            .await
            .expect("an interface");
        links.up(&self.tap).await.expect("up");
        let inside = machine.links().expect("links");
        let address = IpNet::new(self.address.into(), 24).expect("a length that fits");
        inside
            .add_address("eth0", address)
            .await
            .expect("an address");
        inside.up("eth0").await.expect("up");
        let gateway = Ipv4Addr::new(10, 65, 0, 1);
        let out = inside.add_route(everything(), Some(gateway.into()), "eth0");
        out.await.expect("a default route");
        let pinger = Pinger::open(&machine, self.address, Ipv6Addr::UNSPECIFIED).expect("sockets");
        self.machine = Some((machine, pinger));
    }

    /// What its machine reads from the metadata service, at once: nobody listens there but what
    /// its host has put in the place.
    pub(crate) fn reads_metadata(&self) -> std::io::Result<String> {
        let machine = &self.machine.as_ref().expect("a machine").0;
        let read = || {
            let address = (Ipv4Addr::new(169, 254, 169, 254), 80).into();
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
            let mut text = String::new();
            stream.read_to_string(&mut text).map(|_| text)
        };
        machine.run(read).expect("a thread")
    }

    /// The pings of its machine.
    pub(crate) fn pinger(&self) -> &Pinger {
        &self.machine.as_ref().expect("a machine").1
    }

    /// Waits until its machine gets an answer from another's.
    pub(crate) async fn reaches(&self, other: &Self) {
        let what = format!("pings from {} to {}", self.device, other.device);
        eventually(&what, async || {
            let answer = self
                .pinger()
                .ping(IpAddr::V4(other.address), Duration::from_millis(300))
                .await;
            answer.map(drop).ok_or_else(|| "no answer".to_owned())
        })
        .await;
    }

    /// Waits until its machine gets no answer from another's.
    pub(crate) async fn reaches_not(&self, other: &Self) {
        let what = format!("no pings from {} to {}", self.device, other.device);
        eventually(&what, async || {
            for _ in 0..3 {
                let answer = self
                    .pinger()
                    .ping(IpAddr::V4(other.address), Duration::from_millis(300))
                    .await;
                if answer.is_some() {
                    return Err("an answer".to_owned());
                }
            }
            Ok(())
        })
        .await;
    }

    /// The key that Felix reports the port under.
    pub(crate) fn status_key(&self) -> String {
        format!(
            "/calico/felix/v2/no-region/host/{}/workload/openstack/openstack%2f{}/endpoint/{}",
            self.host, self.device, self.id
        )
    }

    /// The key that the driver writes the port under.
    pub(crate) fn endpoint_key(&self) -> String {
        let dashed = |text: &str| text.replace('-', "--");
        format!(
            "/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/{}-openstack-{}-{}",
            dashed(&self.host),
            dashed(&self.device),
            dashed(&self.id)
        )
    }
}
