//! Limits of bandwidth: token buckets (`tbf`) of the kernel.
//!
//! ```text
//! to the workload     cali1: root qdisc tbf cab:
//! from the workload   cali1: ingress qdisc ffff:, filter u32 with priority 3243, mirred redirect
//!                     -> device bwcab…: root qdisc tbf cab:
//! ```
//!
//! The handle, the priority and the name of the device mark what is Felix's. Everything else belongs to
//! other programs, and stays.

mod messages;

use std::collections::{BTreeMap, BTreeSet};

use netlink::attributes::{find, text};
use netlink::{Refused, Requests, Row};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, Parseable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};

use crate::agent::Failed;
use crate::calc::{Bandwidth, Bucket, SHAPERS, shaper_name};
use messages::{INGRESS, OWN_HANDLE, OWN_PRIORITY, ROOT};

/// Netlink protocol of routes, links and queueing disciplines.
const NETLINK_ROUTE: isize = 0;
/// `RTM_NEWLINK`, `RTM_NEWQDISC`, `RTM_NEWTFILTER`.
const NEW_LINK: u16 = 16;
const NEW_QDISC: u16 = 36;
const NEW_FILTER: u16 = 44;
/// Octets of `struct tcmsg`, and its fields.
const HEADER_OCTETS: usize = 20;
const INDEX_AT: usize = 4;
const HANDLE_AT: usize = 8;
const PARENT_AT: usize = 12;
const INFO_AT: usize = 16;
/// `TCA_KIND`, `TCA_OPTIONS`.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// `TCA_U32_ACT`, the first action, `TCA_ACT_OPTIONS`, `TCA_MIRRED_PARMS`; the place of the interface
/// there.
const ACTIONS: u16 = 7;
const FIRST_ACTION: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const MIRRED_PARAMETERS: u16 = 2;
const MIRRED_INTERFACE_AT: usize = 24;

/// Limits the bandwidth of interfaces.
#[derive(Debug)]
pub(super) struct Shaper {
    requests: Requests,
    /// Interfaces that may have limits, of this run or an earlier one, by index; `None`: not listed yet.
    marked: Option<BTreeSet<u32>>,
    /// The buckets that this run has written, by the index of the device.
    written: BTreeMap<u32, Written>,
    /// The qdiscs, by the index of the device, with the changes of Felix since they were listed: the kernel
    /// lists only those of all devices at once.
    listed: Option<BTreeMap<u32, Vec<Object>>>,
}

/// A bucket in the kernel.
#[derive(Debug, PartialEq, Eq)]
struct Written {
    bucket: Bucket,
    mtu: u32,
    /// The kernel's description of it.
    options: Vec<u8>,
}

/// A link.
#[derive(Clone, Debug, Default)]
struct Device {
    index: u32,
    name: String,
    mtu: u32,
    up: bool,
    is_ifb: bool,
}

/// A queueing discipline or a filter.
#[derive(Clone, Debug)]
struct Object {
    index: u32,
    handle: u32,
    parent: u32,
    info: u32,
    kind: String,
    options: Vec<u8>,
}

impl Object {
    fn of(row: &Row) -> Option<Self> {
        let number = |at: usize| {
            let octets = row.payload.get(at..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*octets))
        };
        let attributes = row.payload.get(HEADER_OCTETS..)?;
        Some(Self {
            index: number(INDEX_AT)?,
            handle: number(HANDLE_AT)?,
            parent: number(PARENT_AT)?,
            info: number(INFO_AT)?,
            kind: find(attributes, KIND).map(text).unwrap_or_default(),
            options: find(attributes, OPTIONS).unwrap_or_default().into(),
        })
    }

    /// Returns whether it is a token bucket of Felix, as a qdisc.
    fn is_own_bucket(&self) -> bool {
        self.parent == ROOT && self.handle == OWN_HANDLE && self.kind == "tbf"
    }

    /// Returns whether it is a filter of Felix.
    fn is_own_filter(&self) -> bool {
        self.info >> 16 == OWN_PRIORITY && self.kind == "u32"
    }

    /// Returns the interface to which a filter redirects packets.
    fn redirects_to(&self) -> Option<u32> {
        let actions = find(&self.options, ACTIONS)?;
        let options = find(find(actions, FIRST_ACTION)?, ACTION_OPTIONS)?;
        let parameters = find(options, MIRRED_PARAMETERS)?;
        let octets = parameters.get(MIRRED_INTERFACE_AT..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*octets))
    }
}

impl Shaper {
    /// Opens a socket in the network namespace of the calling thread.
    pub(super) fn open() -> std::io::Result<Self> {
        Ok(Self {
            requests: Requests::open(NETLINK_ROUTE)?,
            marked: None,
            written: BTreeMap::new(),
            listed: None,
        })
    }

    /// Lists the qdiscs again before the next limit: other programs may have changed them.
    pub(super) fn end_round(&mut self) {
        self.listed = None;
    }

    /// Limits the bandwidth of an interface, and removes other limits of Felix.
    pub(super) fn limit(&mut self, interface: &str, wanted: &Bandwidth) -> Result<(), Failed> {
        let name = shaper_name(interface);
        let unread = |cause: Refused| Failed(format!("links cannot be read: {cause}"));
        let shaper = self.link(&name).map_err(unread)?;
        let Some(link) = self.link(interface).map_err(unread)? else {
            return self
                .remove(shaper)
                .map_err(|cause| failed("remove", &name, &cause));
        };
        let is_marked = self
            .is_marked(link.index)
            .map_err(|cause| failed("list the qdisc of", interface, &cause))?;
        if wanted.is_unlimited() && shaper.is_none() && !is_marked {
            return Ok(());
        }
        let outcomes = [
            self.limit_ingress(&link, wanted.ingress),
            self.limit_egress(&link, wanted.egress, shaper, &name),
        ];
        if wanted.is_unlimited() && outcomes.iter().all(Result::is_ok) {
            self.marked.get_or_insert_default().remove(&link.index);
        } else {
            self.marked.get_or_insert_default().insert(link.index);
        }
        let reasons = outcomes.into_iter().filter_map(Result::err);
        let reasons: Vec<String> = reasons.map(|Failed(reason)| reason).collect();
        match reasons.is_empty() {
            true => Ok(()),
            false => {
                self.listed = None;
                Err(Failed(reasons.join("; ")))
            }
        }
    }

    /// Removes the devices of interfaces that do not exist any more. Returns the first failure, after all
    /// others were tried.
    pub(super) fn clean(&mut self) -> Result<(), Failed> {
        let unread = |cause: Refused| Failed(format!("links cannot be read: {cause}"));
        let links = self.links().map_err(unread)?;
        let own = |link: &&Device| link.is_ifb && link.name.starts_with(SHAPERS);
        if !links.iter().any(|link| own(&link)) {
            return Ok(());
        }
        let names = links.iter().map(|link| shaper_name(&link.name));
        let used: BTreeSet<String> = names.collect();
        let left = links.iter().filter(own);
        let left = left.filter(|link| !used.contains(&link.name));
        let mut outcome = Ok(());
        for link in left {
            if let Err(cause) = self.remove(Some(link.clone()))
                && outcome.is_ok()
            {
                outcome = Err(failed("remove", &link.name, &cause));
            }
        }
        outcome
    }

    /// Returns whether an interface may have limits.
    fn is_marked(&mut self, index: u32) -> Result<bool, Refused> {
        if let Some(marked) = &self.marked {
            return Ok(marked.contains(&index));
        }
        let all = self.qdiscs()?.values().flatten();
        let own = all.filter(|one| one.parent == INGRESS || one.is_own_bucket());
        let marked: BTreeSet<u32> = own.map(|one| one.index).collect();
        let is_marked = marked.contains(&index);
        self.marked = Some(marked);
        Ok(is_marked)
    }

    fn limit_ingress(&mut self, link: &Device, wanted: Option<Bucket>) -> Result<(), Failed> {
        let outcome = self.put_bucket(link, link.mtu, wanted);
        outcome.map_err(|Failed(reason)| Failed(format!("traffic to the workload: {reason}")))
    }

    fn limit_egress(
        &mut self,
        link: &Device,
        wanted: Option<Bucket>,
        shaper: Option<Device>,
        name: &str,
    ) -> Result<(), Failed> {
        let outcome = match wanted {
            None => {
                // Packets that are redirected to a missing device are dropped, so the filter goes first.
                let unredirected = self.unredirect(link);
                let removed = unredirected.and_then(|()| self.remove(shaper));
                removed.map_err(|cause| failed("remove", name, &cause))
            }
            Some(bucket) => self.shape(link, bucket, shaper, name),
        };
        outcome.map_err(|Failed(reason)| Failed(format!("traffic from the workload: {reason}")))
    }

    fn shape(
        &mut self,
        link: &Device,
        bucket: Bucket,
        shaper: Option<Device>,
        name: &str,
    ) -> Result<(), Failed> {
        self.check_ingress(link)?;
        let shaper = match shaper {
            Some(device) if !device.is_ifb => {
                return Err(Failed(format!("{name} is a device of another program")));
            }
            Some(device) => device,
            None => {
                let created = self.create(link, name);
                created.map_err(|cause| failed("create", name, &cause))?
            }
        };
        if !shaper.up {
            let up = RouteNetlinkMessage::SetLink(messages::up(shaper.index));
            let outcome = self.requests.execute(up, 0);
            outcome.map_err(|cause| failed("enable", name, &cause))?;
        }
        self.put_bucket(&shaper, link.mtu, Some(bucket))?;
        let outcome = self.redirect(link, shaper.index);
        outcome.map_err(|cause| failed("redirect packets to", name, &cause))
    }

    /// Gives a device a token bucket, or removes it. `mtu` is that of the workload's interface.
    fn put_bucket(
        &mut self,
        device: &Device,
        mtu: u32,
        wanted: Option<Bucket>,
    ) -> Result<(), Failed> {
        let unread = |cause| failed("read the qdisc of", &device.name, &cause);
        let mut present = self.qdisc(device.index, ROOT).map_err(unread)?;
        let Some(bucket) = wanted else {
            self.written.remove(&device.index);
            return match present.is_some_and(|root| root.is_own_bucket()) {
                true => {
                    let message = messages::qdisc(device.index, ROOT, OWN_HANDLE);
                    let message = RouteNetlinkMessage::DelQueueDiscipline(message);
                    let outcome = self.requests.execute(message, 0);
                    outcome.map_err(|cause| failed("remove the qdisc of", &device.name, &cause))?;
                    self.note_removed(device.index, ROOT);
                    Ok(())
                }
                false => Ok(()),
            };
        };
        // The default qdisc of a device has no handle.
        if let Some(other) = present.take_if(|root| root.handle != 0 && !root.is_own_bucket()) {
            let (kind, major, name) = (other.kind, other.handle >> 16, &device.name);
            return Err(Failed(format!(
                "another program has the root qdisc {kind} {major:x}: at {name}; remove it with 'tc \
                 qdisc del dev {name} root', or the limit"
            )));
        }
        let written = self.written.get(&device.index);
        let is_it = |written: &Written| {
            let options = present.as_ref().map(|root| &root.options);
            (written.bucket, written.mtu) == (bucket, mtu) && Some(&written.options) == options
        };
        if written.is_some_and(is_it) {
            return Ok(());
        }
        // Without `NLM_F_REPLACE`, the kernel keeps a qdisc that another program has just made.
        let message = messages::bucket(device.index, bucket, mtu);
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        let outcome = self.put_qdisc(message, NLM_F_CREATE);
        outcome.map_err(|cause| failed("add the qdisc tbf to", &device.name, &cause))?;
        let options = self.qdisc(device.index, ROOT).map_err(unread)?;
        let options = options.map(|root| root.options).unwrap_or_default();
        let written = Written {
            bucket,
            mtu,
            options,
        };
        self.written.insert(device.index, written);
        Ok(())
    }

    /// Checks that no other program filters the packets that an interface receives.
    fn check_ingress(&mut self, link: &Device) -> Result<(), Failed> {
        let name = &link.name;
        let unread = |cause| failed("read the ingress qdisc of", name, &cause);
        let Some(present) = self.qdisc(link.index, INGRESS).map_err(unread)? else {
            return Ok(());
        };
        if present.kind != "ingress" {
            let kind = present.kind;
            return Err(Failed(format!(
                "another program has the qdisc {kind} at {name}"
            )));
        }
        let filters = self.filters(link.index).map_err(unread)?;
        match filters.iter().find(|filter| !filter.is_own_filter()) {
            Some(other) => Err(Failed(format!(
                "another program has the ingress filter {} of priority {} at {name}",
                other.kind,
                other.info >> 16
            ))),
            None => Ok(()),
        }
    }

    /// Redirects all packets that an interface receives to a device.
    fn redirect(&mut self, link: &Device, to: u32) -> Result<(), Refused> {
        if self.qdisc(link.index, INGRESS)?.is_none() {
            let message = RouteNetlinkMessage::NewQueueDiscipline(messages::ingress(link.index));
            self.put_qdisc(message, NLM_F_CREATE | NLM_F_EXCL)?;
        }
        let filters = self.filters(link.index)?;
        let own = || filters.iter().filter(|filter| filter.is_own_filter());
        if own().any(|filter| filter.redirects_to() == Some(to)) {
            return Ok(());
        }
        if own().next().is_some() {
            let message = messages::filter(link.index, None);
            self.requests
                .execute(RouteNetlinkMessage::DelTrafficFilter(message), 0)?;
        }
        let message = RouteNetlinkMessage::NewTrafficFilter(messages::filter(link.index, Some(to)));
        self.requests.execute(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes that redirection, and the qdisc unless another program has filters there.
    fn unredirect(&mut self, link: &Device) -> Result<(), Refused> {
        let present = self.qdisc(link.index, INGRESS)?;
        if present.is_none_or(|one| one.kind != "ingress") {
            return Ok(());
        }
        let filters = self.filters(link.index)?;
        if !filters.iter().any(Object::is_own_filter) {
            return Ok(());
        }
        let message = RouteNetlinkMessage::DelTrafficFilter(messages::filter(link.index, None));
        self.requests.execute(message, 0)?;
        if !filters.iter().all(Object::is_own_filter) {
            return Ok(());
        }
        let message = RouteNetlinkMessage::DelQueueDiscipline(messages::ingress(link.index));
        self.requests.execute(message, 0)?;
        self.note_removed(link.index, INGRESS);
        Ok(())
    }

    fn create(&mut self, link: &Device, name: &str) -> Result<Device, Refused> {
        let message = RouteNetlinkMessage::NewLink(messages::device(name, &link.name, link.mtu));
        self.requests.execute(message, NLM_F_CREATE | NLM_F_EXCL)?;
        self.link(name)?.ok_or_else(|| Refused::of(libc::ENODEV))
    }

    /// Removes a device of Felix, if it is there.
    fn remove(&mut self, device: Option<Device>) -> Result<(), Refused> {
        let Some(device) = device.filter(|device| device.is_ifb) else {
            return Ok(());
        };
        self.written.remove(&device.index);
        if let Some(listed) = &mut self.listed {
            listed.remove(&device.index);
        }
        let mut message = LinkMessage::default();
        message.header.index = device.index;
        let outcome = self
            .requests
            .execute(RouteNetlinkMessage::DelLink(message), 0);
        match outcome {
            Err(cause) if cause.errno == libc::ENODEV => Ok(()),
            outcome => outcome,
        }
    }

    /// Returns the link of this name.
    fn link(&mut self, name: &str) -> Result<Option<Device>, Refused> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        match self.requests.fetch(RouteNetlinkMessage::GetLink(message)) {
            Err(cause) if cause.errno == libc::ENODEV => Ok(None),
            row => Ok(row?.as_ref().and_then(device)),
        }
    }

    fn links(&mut self) -> Result<Vec<Device>, Refused> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let rows = self.requests.dump(message)?;
        Ok(rows.iter().filter_map(device).collect())
    }

    /// Returns the qdisc of a device with this parent: [`ROOT`], or [`INGRESS`] for the packets that it
    /// receives.
    fn qdisc(&mut self, index: u32, parent: u32) -> Result<Option<Object>, Refused> {
        let of_device = self.qdiscs()?.get(&index);
        let mut all = of_device.into_iter().flatten();
        Ok(all.find(|one| one.parent == parent).cloned())
    }

    /// Returns the qdiscs of all devices, by the index of the device.
    fn qdiscs(&mut self) -> Result<&BTreeMap<u32, Vec<Object>>, Refused> {
        if self.listed.is_none() {
            let message = RouteNetlinkMessage::GetQueueDiscipline(messages::qdisc(0, 0, 0));
            let rows = self.requests.dump(message)?;
            let mut listed: BTreeMap<u32, Vec<Object>> = BTreeMap::new();
            for object in rows.iter().filter_map(qdisc) {
                listed.entry(object.index).or_default().push(object);
            }
            self.listed = Some(listed);
        }
        Ok(self.listed.get_or_insert_default())
    }

    /// Writes a qdisc, and notes it as the kernel reports it.
    fn put_qdisc(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), Refused> {
        // A replaced qdisc is reported first, as removed.
        let rows = self.requests.change(message, flags)?;
        match rows.iter().filter_map(qdisc).next_back() {
            Some(written) => {
                self.note_removed(written.index, written.parent);
                if let Some(listed) = &mut self.listed {
                    listed.entry(written.index).or_default().push(written);
                }
            }
            None => self.listed = None,
        }
        Ok(())
    }

    fn note_removed(&mut self, index: u32, parent: u32) {
        let listed = self.listed.as_mut();
        if let Some(of_device) = listed.and_then(|listed| listed.get_mut(&index)) {
            of_device.retain(|one| one.parent != parent);
        }
    }

    /// Returns the filters of the packets that a device receives.
    fn filters(&mut self, index: u32) -> Result<Vec<Object>, Refused> {
        let message = RouteNetlinkMessage::GetTrafficFilter(messages::filters(index));
        let rows = self.requests.dump(message)?;
        let filters = rows.iter().filter(|row| row.kind == NEW_FILTER);
        Ok(filters.filter_map(Object::of).collect())
    }
}

fn qdisc(row: &Row) -> Option<Object> {
    (row.kind == NEW_QDISC).then(|| Object::of(row)).flatten()
}

fn failed(what: &str, device: &str, cause: &Refused) -> Failed {
    Failed(format!("the kernel refuses to {what} {device}: {cause}"))
}

fn device(row: &Row) -> Option<Device> {
    if row.kind != NEW_LINK {
        return None;
    }
    let message = LinkMessage::parse(row.payload.as_slice()).ok()?;
    let mut device = Device {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
        ..Device::default()
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name = name,
            LinkAttribute::Mtu(mtu) => device.mtu = mtu,
            LinkAttribute::LinkInfo(infos) => {
                device.is_ifb = infos.contains(&LinkInfo::Kind(InfoKind::Ifb));
            }
            _ => {}
        }
    }
    Some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_listing_serves_all_limits_of_a_round() {
        let index = u32::MAX >> 1;
        let of = |parent| Object {
            index,
            handle: OWN_HANDLE,
            parent,
            info: 0,
            kind: "tbf".into(),
            options: Vec::new(),
        };
        let mut shaper = Shaper::open().expect("a socket");
        shaper.listed = Some([(index, vec![of(ROOT), of(INGRESS)])].into());
        let found = |shaper: &mut Shaper, parent| shaper.qdisc(index, parent).unwrap().is_some();
        assert!(found(&mut shaper, ROOT) && found(&mut shaper, INGRESS));
        assert!(shaper.is_marked(index).unwrap());
        shaper.note_removed(index, ROOT);
        assert!(!found(&mut shaper, ROOT) && found(&mut shaper, INGRESS));
        // The kernel has no interface of this index.
        shaper.end_round();
        assert!(!found(&mut shaper, INGRESS));
    }
}
