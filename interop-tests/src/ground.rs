//! The ground of a lab: a switch and the hosts on it.

use std::net::IpAddr;

use ipnet::IpNet;
use netns_lab::{Error, Host, Lab, VethEnd};

use crate::{Site, Store};

/// A switch in the lab's root namespace, and the means to attach hosts to it.
#[derive(Debug)]
pub struct Ground {
    lab: Lab,
}

/// The switch's name.
const SWITCH: &str = "switch";

impl Ground {
    /// Makes a switch without hosts.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub async fn new(lab: Lab) -> Result<Self, Error> {
        let links = lab.root().links()?;
        links.add_bridge(SWITCH).await?;
        links.up(SWITCH).await?;
        Ok(Self { lab })
    }

    /// Serves a datastore at 10.0.0.254, in the lab's root namespace.
    ///
    /// # Errors
    /// Errors of the kernel.
    ///
    /// # Panics
    /// If the datastore cannot be served.
    pub async fn store(&self) -> Result<Store, Error> {
        self.join().await?;
        Ok(Store::serve().await)
    }

    /// Puts the test itself on the switch, as 10.0.0.254.
    ///
    /// # Errors
    /// Errors of the kernel.
    ///
    /// # Panics
    /// Never.
    pub async fn join(&self) -> Result<(), Error> {
        let links = self.lab.root().links()?;
        let own = IpNet::new(IpAddr::V4(Site::v4(254)), 24).expect("a length that fits");
        links.add_address(SWITCH, own).await
    }

    /// Cuts host `number` off: its port of the switch is down, and its own link is not told of it.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub async fn cut(&self, number: u8) -> Result<(), Error> {
        let links = self.lab.root().links()?;
        links.down(&format!("port{number}")).await
    }

    /// Makes a host that is not on the switch.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub async fn host(&self, name: &str) -> Result<Host, Error> {
        self.lab.host(name).await
    }

    /// Puts host `number` on the switch. The host has a link `cali0` for the routes that it
    /// originates.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub async fn site(&self, number: u8) -> Result<Site, Error> {
        let host = self.lab.host(&format!("h{number}")).await?;
        let root = self.lab.root().links()?;
        let port = format!("port{number}");
        root.add_veth(end(self.lab.root(), &port), end(&host, "eth0"))
            .await?;
        root.attach(&port, SWITCH).await?;
        root.up(&port).await?;
        let links = host.links()?;
        let own = [IpAddr::V4(Site::v4(number)), IpAddr::V6(Site::v6(number))];
        for (address, length) in own.into_iter().zip([24, 64]) {
            let address = IpNet::new(address, length).expect("a length that fits");
            links.add_address("eth0", address).await?;
        }
        links.up("eth0").await?;
        links
            .add_veth(end(&host, "cali0"), end(&host, "workload0"))
            .await?;
        links.up("cali0").await?;
        links.up("workload0").await?;
        Ok(Site { number, host })
    }
}

fn end<'a>(host: &'a Host, name: &'a str) -> VethEnd<'a> {
    VethEnd {
        host,
        name,
        mac: None,
    }
}
